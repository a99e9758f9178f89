/* Pipeline schedules: who runs what, in which order. Pure lists; no communication, no device, no
 * clock. The model's units are cut into chunks, numbered in the order of the forward; every
 * pipeline stage (a rank along the pipeline axis) has `chunks_per_stage` of them (Megatron-LM's
 * virtual pipeline stages). A schedule gives each stage its list of passes. The step program's
 * builder turns a list into instructions. May call src/base only. */
#ifndef ZERO3D_PARALLEL_SCHEDULE_H
#define ZERO3D_PARALLEL_SCHEDULE_H

#include <stdbool.h>

#include "src/base/base.h"

enum {
    Z3D_MAX_CHUNKS = 1024,           /* of all stages together */
    Z3D_MAX_SCHEDULE_TASKS = 4 << 20 /* chunks x micro-batches x 3 */
};

/*   X(NAME, name, halves, places) halves: backward is cut into input and weight gradients.
 *   places: chunk -> stage. ROUND: c mod stages; V: down the stages and up again. */
#define Z3D_SCHEDULE_MAP(X)                                                                        \
    X(1F1B, "1f1b", false, ROUND)                                                                  \
    X(GPIPE, "gpipe", false, ROUND)                                                                \
    X(INTERLEAVED, "interleaved", false, ROUND)                                                    \
    X(ZB_H1, "zb-h1", true, ROUND)                                                                 \
    X(ZB_V, "zb-v", true, V)                                                                       \
    X(FILE, "file", true, ROUND)

typedef enum z3d_schedule_kind {
#define X(NAME, ...) Z3D_SCHEDULE_##NAME,
    Z3D_SCHEDULE_MAP(X)
#undef X
        Z3D_SCHEDULE_COUNT
} z3d_schedule_kind;

const char *z3d_schedule_name(z3d_schedule_kind kind);
bool z3d_schedule_halves(z3d_schedule_kind kind); /* its backward may be in two halves */

typedef enum z3d_pass {
    Z3D_PASS_FORWARD,
    Z3D_PASS_BACKWARD,        /* both halves */
    Z3D_PASS_BACKWARD_INPUT,  /* gradients of the chunk's input */
    Z3D_PASS_BACKWARD_WEIGHT, /* gradients of its parameters, any time after that */
    Z3D_PASS_COUNT
} z3d_pass;

const char *z3d_pass_name(z3d_pass pass); /* "forward", "backward", "backward_input", ... */

typedef struct z3d_task {
    z3d_pass pass;
    int chunk, micro;
} z3d_task;

/* A whole schedule. Stage s runs task[first[s]] .. task[first[s + 1] - 1] in this order. */
typedef struct z3d_schedule {
    z3d_schedule_kind kind;
    bool forward_only;          /* it has no backward: evaluation and generation */
    int stages, chunks, micros; /* chunks: of all stages together */
    int *first;                 /* stages + 1 */
    z3d_task *task;
    int *stage_of_chunk; /* by chunk */
} z3d_schedule;

/* The stage that runs a chunk. */
int z3d_schedule_stage(z3d_schedule_kind kind, int stages, int chunk);

/* A generated schedule (kind is not FILE), checked. Errors: ERR_CONFIG, one line with what would be
 * right: 1f1b, gpipe and zb-h1 have one chunk per stage, zb-v two, interleaved two or more and
 * micros divisible by stages. Not collective.
 *
 * Forwards whose backward (input half) is not done, on stage s of p: gpipe m; 1f1b and zb-h1 at
 * most p - s; interleaved with v chunks at most 2 (p - s) - 1 + (v - 1) p chunks; zb-v at most 2p
 * chunks. Forwards whose weight half is not done: zb-h1 at most p, zb-v at most 2p chunks. */
z3d_status z3d_schedule_create(z3d_schedule_kind kind, int stages, int chunks, int micros,
                               z3d_schedule **out);
/* Forward only, micro-batch by micro-batch, on the stages of `kind` (FILE, too), with any number of
 * chunks per stage. */
z3d_status z3d_schedule_create_forward(z3d_schedule_kind kind, int stages, int chunks, int micros,
                                       z3d_schedule **out);
/* A user's own schedule, checked, from a CSV file with the header "stage,pass,chunk,micro" (all
 * 0-based); the rows of a stage are its list, in order. Comments begin with #; blank lines are
 * skipped. Errors: ERR_CONFIG with file and line number, ERR_IO. */
z3d_status z3d_schedule_read(const char *path, int stages, int chunks, int micros,
                             z3d_schedule **out);
/* Writes such a file. zb-v's cannot be read again: a file's chunk c runs on stage c mod stages. */
z3d_status z3d_schedule_write(const z3d_schedule *schedule, const char *path);
void z3d_schedule_destroy(z3d_schedule *schedule);

/* Every chunk's forward and backward exactly once for every micro-batch, on its stage, in an order
 * that can run: no circular wait. A backward is whole or in two halves, the input half first.
 * Passes of a chunk are in ascending order of micro-batch, and so are what adds to its weight
 * gradients, whole backwards and weight halves together: sums are added in this order, so all
 * schedules give equal bits. Any content is safe, but the pointers must be good: first has stages +
 * 1 entries, task first[stages], stage_of_chunk chunks. ERR_CONFIG names stage, pass, chunk and
 * micro-batch of the first error. */
z3d_status z3d_schedule_check(const z3d_schedule *schedule);

/* When each task ends if a forward of any chunk takes `cost[FORWARD]`, and so on, and what passes
 * from one stage to another arrives `transfer` later (none negative): end[i] belongs to task[i];
 * every stage starts its next task as soon as it can. Returns ERR_CONFIG for a circular wait, with
 * the stages and tasks that wait for each other.
 *
 * The bubble share of a schedule is idle / whole, where whole is the longest time that a stage
 * takes from the start of its first task to the end of its last, and idle is that less its own
 * work. */
z3d_status z3d_schedule_times(const z3d_schedule *schedule, const double cost[Z3D_PASS_COUNT],
                              double transfer, double *end);

#endif
