/* Pipeline schedules: which stage runs which pass, and in which order. Pure lists: no
 * communication, no device, no clock. The model's units are cut into chunks, numbered in the order
 * of the forward; every pipeline stage (a rank along the pipeline axis) has the same number of
 * chunks (Megatron-LM's virtual pipeline stages). A schedule gives each stage its list of passes.
 * The step program's builder turns a list into instructions. This folder may call src/base only. In
 * this header, stage means pipeline stage. No function is collective. */
#ifndef ZERO3D_PARALLEL_SCHEDULE_H
#define ZERO3D_PARALLEL_SCHEDULE_H

#include <stdbool.h>

#include "src/base/base.h"
#include "src/base/pipeline_schedules.h"

enum { Z3D_MAX_SCHEDULE_TASKS = 4 << 20 }; /* chunks x micro-batches x 3 */

typedef enum z3d_pass {
    Z3D_PASS_FORWARD,
    Z3D_PASS_BACKWARD,        /* both halves */
    Z3D_PASS_BACKWARD_INPUT,  /* gradients of the chunk's input */
    Z3D_PASS_BACKWARD_WEIGHT, /* gradients of the chunk's parameters, any time after its input's */
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
    bool forward_only;          /* no backward: evaluation and generation */
    int stages, chunks, micros; /* chunks: of all stages together */
    int *first;                 /* stages + 1 */
    z3d_task *task;
    int *stage_of_chunk; /* by chunk */
} z3d_schedule;

/* The stage that runs a chunk. */
int z3d_schedule_stage(z3d_schedule_kind kind, int stages, int chunk);

/* Generates a schedule and checks it; kind is not FILE. chunks: of all stages together. Errors:
 * ERR_CONFIG for sizes that the kind's row excludes, ERR_USAGE for FILE, ERR_MEMORY.
 *
 * How many micro-batches a stage holds at once, on stage s of p with m micro-batches. Forwards
 * whose backward (input half) is not done: gpipe m; 1f1b and zb-h1 at most p - s; interleaved with
 * v chunks at most 2 (p - s) - 1 + (v - 1) p chunks; zb-v at most 2p chunks. Forwards whose weight
 * half is not done: zb-h1 at most p, zb-v at most 2p chunks. */
z3d_status z3d_schedule_create(z3d_schedule_kind kind, int stages, int chunks, int micros,
                               z3d_schedule **out);
/* Generates a schedule without backward: each stage runs all its chunks for one micro-batch after
 * the other. Chunks are on the stages of `kind` (FILE, too), any number of them per stage. Errors:
 * ERR_CONFIG, ERR_MEMORY. */
z3d_status z3d_schedule_create_forward(z3d_schedule_kind kind, int stages, int chunks, int micros,
                                       z3d_schedule **out);
/* Reads a user's own schedule from a CSV file and checks it. The header is
 * "stage,pass,chunk,micro"; numbers are 0-based; the rows of a stage are its list, in order.
 * Comments begin with #; blank lines are skipped. Errors: ERR_CONFIG with file and line number,
 * ERR_IO, ERR_MEMORY. */
z3d_status z3d_schedule_read(const char *path, int stages, int chunks, int micros,
                             z3d_schedule **out);
/* Writes such a file. A file of zb-v cannot be read again: chunk c of a file runs on stage c mod
 * stages. Errors: ERR_IO. */
z3d_status z3d_schedule_write(const z3d_schedule *schedule, const char *path);
void z3d_schedule_destroy(z3d_schedule *schedule);

/* Checks a schedule:
 *  - Every chunk has its forward and its backward exactly once for every micro-batch, on its stage.
 *    A backward is whole or in two halves, the input half first.
 *  - Passes of a chunk are in ascending order of micro-batch. So are all passes that add to its
 *    weight gradients (whole backwards and weight halves together). Sums follow this order, so all
 *    schedules give equal bits.
 *  - No stages wait for each other in a circle.
 * Any content is safe, but the pointers must be valid: first[stages + 1], task[first[stages]],
 * stage_of_chunk[chunks]. Errors: ERR_CONFIG with stage, pass, chunk and micro-batch of the first
 * error; ERR_MEMORY. */
z3d_status z3d_schedule_check(const z3d_schedule *schedule);

/* Plays a schedule: end[i] becomes the time at which task[i] ends. A pass of any chunk takes
 * cost[pass]; data from one stage reaches another after `transfer`. All times have one unit, and
 * none is negative. Every stage starts its next task as soon as it can. Errors: ERR_CONFIG for a
 * circular wait, with the stages and tasks that wait for each other; ERR_MEMORY.
 *
 * The bubble share of a schedule is idle / whole: whole is the longest time of any stage from the
 * start of its first task to the end of its last one; idle is whole less that stage's own work. */
z3d_status z3d_schedule_times(const z3d_schedule *schedule, const double cost[Z3D_PASS_COUNT],
                              double transfer, double *end);

#endif
