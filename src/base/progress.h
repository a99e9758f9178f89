/* Progress of a long job: a log line every few seconds. */
#ifndef ZERO3D_BASE_PROGRESS_H
#define ZERO3D_BASE_PROGRESS_H

#include <stdint.h>

/* Set the first two members, zero-initialise the others. All functions accept NULL and then do
 * nothing. */
typedef struct z3d_progress {
    const char *what; /* "verify" */
    double every;     /* seconds between lines */
    /* Private. */
    int64_t done, total;
    double begin, said;
} z3d_progress;

/* Begins a job of `total` bytes. */
void z3d_progress_begin(z3d_progress *progress, int64_t total);
/* Counts `bytes` more bytes as done; may log "verify: 1.20 GiB of 4.00 GiB (30 %), 12.0 s left". */
void z3d_progress_add(z3d_progress *progress, int64_t bytes);

#endif
