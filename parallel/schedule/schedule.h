/* Pipeline schedules: who runs what, in which order. Pure lists; no communication, no device, no
 * clock. The model's units are cut into chunks, numbered in the order of the forward; every
 * pipeline stage (a rank along the pipeline axis) has `chunks_per_stage` of them (Megatron-LM's
 * virtual pipeline stages). A schedule gives each stage its list of passes. The step program's
 * builder turns a list into instructions. May call src/base only. */
#ifndef ZERO3D_PARALLEL_SCHEDULE_H
#define ZERO3D_PARALLEL_SCHEDULE_H

#include <stdbool.h>

#include "src/base/base.h"

enum { Z3D_MAX_CHUNKS = 1024 /* of all stages together */ };

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

/* A whole schedule. stage s runs task[first[s]] .. task[first[s + 1] - 1] in this order. */
typedef struct z3d_schedule {
    z3d_schedule_kind kind;
    int stages, chunks, micros; /* chunks: of all stages together */
    int *first;                 /* stages + 1 */
    z3d_task *task;
    int *stage_of_chunk; /* by chunk */
} z3d_schedule;

/* The stage that runs a chunk. */
int z3d_schedule_stage(z3d_schedule_kind kind, int stages, int chunk);

/* A generated schedule (kind is not FILE), checked. Errors: ERR_CONFIG, one line with what would be
 * right: 1f1b, gpipe and zb-h1 have one chunk per stage, zb-v two, interleaved two or more and
 * micros divisible by stages. Not collective. */
z3d_status z3d_schedule_create(z3d_schedule_kind kind, int stages, int chunks, int micros,
                               z3d_schedule **out);
/* Forward only, micro by micro: for evaluation and generation. */
z3d_status z3d_schedule_create_forward(z3d_schedule_kind kind, int stages, int chunks, int micros,
                                       z3d_schedule **out);
/* A user's own schedule from a CSV file with the header "stage,pass,chunk,micro" (all 0-based); the
 * rows of a stage are its list, in order. Comments begin with #. Errors: ERR_CONFIG with file and
 * line number, ERR_IO. */
z3d_status z3d_schedule_read(const char *path, int stages, int chunks, int micros,
                             z3d_schedule **out);
z3d_status z3d_schedule_write(const z3d_schedule *schedule, const char *path);
void z3d_schedule_destroy(z3d_schedule *schedule);

/* Every chunk's forward and backward exactly once for every micro-batch, on its stage, in an order
 * that can run: no circular wait. Passes of one kind and chunk are in ascending order of
 * micro-batch (sums are added in this order, so that all schedules give equal bits); a weight half
 * comes after its input half. ERR_CONFIG names stage, pass, chunk and micro-batch. */
z3d_status z3d_schedule_check(const z3d_schedule *schedule);

/* When each task ends if a forward of any chunk takes `cost[FORWARD]`, and so on, and transfers
 * nothing: end[i] belongs to task[i]. Returns ERR_CONFIG for a circular wait, with the stages and
 * tasks that wait for each other. */
z3d_status z3d_schedule_times(const z3d_schedule *schedule, const double cost[Z3D_PASS_COUNT],
                              double *end);

#endif
