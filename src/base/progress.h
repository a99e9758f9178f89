/* How far a long job is: a line of the log every few seconds. */
#ifndef ZERO3D_BASE_PROGRESS_H
#define ZERO3D_BASE_PROGRESS_H

#include <stdint.h>

/* Zero-initialise, but for the first two. All functions take NULL, for a job that is not watched.
 */
typedef struct z3d_progress {
    const char *what; /* "verify" */
    double every;     /* seconds between lines */
    /* Private. */
    int64_t done, total;
    double begin, said;
} z3d_progress;

/* The job of `total` bytes begins now. */
void z3d_progress_begin(z3d_progress *progress, int64_t total);
/* So many bytes more are done. "verify: 1.20 GiB of 4.00 GiB (30 %), 12.0 s left" */
void z3d_progress_add(z3d_progress *progress, int64_t bytes);

#endif
