/* Inside checkpoint/ only: blocks of a file that a thread of its own reads, some ahead of who uses
 * them, through a fixed number of buffers. */
#ifndef ZERO3D_CHECKPOINT_PREFETCH_H
#define ZERO3D_CHECKPOINT_PREFETCH_H

#include "src/base/base.h"

typedef struct z3d_prefetch z3d_prefetch;

/* Puts the next block, of at most the size told to z3d_prefetch_start, into `bytes`; *end is set
 * when there is none. Called in order, by one thread at a time. */
typedef z3d_status (*z3d_prefetch_next)(void *context, char *bytes, bool *end);

/* Begins to read. What `next` touches is the reading thread's until z3d_prefetch_stop. ERR_MEMORY.
 */
z3d_status z3d_prefetch_start(z3d_prefetch_next next, void *context, int64_t block_bytes,
                              z3d_prefetch **out);
/* The next block, in exchange for another buffer of a block's size: *bytes before and after. Behind
 * the blocks read before it a failure of `next` is the answer. */
z3d_status z3d_prefetch_take(z3d_prefetch *ahead, char **bytes);
/* Ends the thread, however far it is. NULL is fine. */
void z3d_prefetch_stop(z3d_prefetch *ahead);

#endif
