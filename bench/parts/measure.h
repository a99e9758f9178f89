/* What benchmarks share: medians, the time of a reading, and ranks with one engine. */
#ifndef ZERO3D_BENCH_MEASURE_H
#define ZERO3D_BENCH_MEASURE_H

#include "zero/zero.h"

/* The value in the middle; sorts `values`. */
double bench_median(double *values, int count);
/* Reads `bytes` bytes (only whole multiples of 65536) with `threads` threads, each its own part.
 * Returns the seconds, which no program that needs all these bytes can beat. */
double bench_read(const char *from, int64_t bytes, int threads);

/* The ranks of scripts/launch, each with a cpu device and its groups. */
typedef struct bench_ranks {
    z3d_world *world;
    z3d_mesh mesh;
    z3d_device *device;
    z3d_group *group[Z3D_AXES_COUNT];
} bench_ranks;

/* Ends the program on all ranks if `status` is an error. */
void bench_must(const bench_ranks *ranks, z3d_status status);
/* Opens the world; ends the program if that fails. */
void bench_open(bench_ranks *ranks, int *argc, char ***argv);
/* Makes the mesh (the remaining ranks are data ranks), the device and the groups. */
z3d_status bench_make(bench_ranks *ranks, int tensor, int threads);
/* Creates an engine on these ranks. Completes *config: one micro-batch, gradients in the model's
 * type, AdamW, a constant loss scale of 1, a seed, and buckets of 4 M elements unless they are set.
 */
z3d_status bench_engine(const bench_ranks *ranks, z3d_engine_config *config, z3d_engine **out);
void bench_close(bench_ranks *ranks);

#endif
