/* Private to checkpoint/: a thread reads blocks of a file ahead of their use, into a fixed number
 * of buffers. */
#ifndef ZERO3D_CHECKPOINT_PREFETCH_H
#define ZERO3D_CHECKPOINT_PREFETCH_H

#include "src/base/base.h"

typedef struct z3d_prefetch z3d_prefetch;

/* Reads the next block into `bytes`, at most block_bytes of z3d_prefetch_start; sets *end instead
 * after the last block. One thread at a time calls it. */
typedef z3d_status (*z3d_prefetch_next)(void *context, char *bytes, bool *end);

/* Starts the thread. Until z3d_prefetch_stop only this thread may access the data that `next` uses.
 * Errors: ERR_MEMORY. */
z3d_status z3d_prefetch_start(z3d_prefetch_next next, void *context, int64_t block_bytes,
                              z3d_prefetch **out);
/* Exchanges *bytes, a malloc'ed buffer of block_bytes, for a buffer with the next block. Errors:
 * those of `next`, after the blocks that were read before the failure. */
z3d_status z3d_prefetch_take(z3d_prefetch *ahead, char **bytes);
/* Ends the thread, also before the last block, and frees all. NULL is allowed. */
void z3d_prefetch_stop(z3d_prefetch *ahead);

#endif
