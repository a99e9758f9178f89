/* Private to checkpoint/: a thread reads blocks of a file ahead of their use, into a fixed number
 * of buffers. */
#ifndef ZERO3D_CHECKPOINT_PREFETCH_H
#define ZERO3D_CHECKPOINT_PREFETCH_H

#include "src/base/base.h"

typedef struct z3d_prefetch z3d_prefetch;

/* Puts the next block, of at most z3d_prefetch_start's block_bytes, into `bytes`; sets *end if
 * there is none. Called in order, by one thread at a time. */
typedef z3d_status (*z3d_prefetch_next)(void *context, char *bytes, bool *end);

/* Begins to read. Until z3d_prefetch_stop only the reading thread may access what `next` uses.
 * ERR_MEMORY. */
z3d_status z3d_prefetch_start(z3d_prefetch_next next, void *context, int64_t block_bytes,
                              z3d_prefetch **out);
/* Exchanges *bytes, a buffer of a block's size, for the next block. Returns a failure of `next`
 * after the blocks that were read before it. */
z3d_status z3d_prefetch_take(z3d_prefetch *ahead, char **bytes);
/* Ends the thread at any point. NULL is allowed. */
void z3d_prefetch_stop(z3d_prefetch *ahead);

#endif
