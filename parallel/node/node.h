/* Private to parallel/: collectives of a group on one node, through shared memory and by reading
 * each other's memory. The same sums in the same order as the ring: equal bits. */
#ifndef ZERO3D_PARALLEL_NODE_H
#define ZERO3D_PARALLEL_NODE_H

#include "parallel/interface/internal.h"

typedef struct z3d_node z3d_node;

/* *out is NULL when the members cannot share memory: no error. may_read: they may try to read each
 * other's memory. Collective over the channel. */
z3d_status z3d_node_create(z3d_channel *channel, bool may_read, z3d_node **out);
void z3d_node_destroy(z3d_node *node);
/* Communication buffers of this member, in bytes. */
int64_t z3d_node_buffer_bytes(void);
/* Whether every call can be taken, not only those that fit into the shared slots. */
bool z3d_node_takes_all(const z3d_node *node);
/* Whether this collective is taken; the same answer on every member. */
bool z3d_node_takes(const z3d_node *node, const z3d_collective *call);

/* Collectives of the group are numbered 1, 2, ... The number must be begun or skipped (by those who
 * did it another way) in order. */
void z3d_node_begin(z3d_node *node, const z3d_collective *call, uint64_t number);
void z3d_node_skip(z3d_node *node, uint64_t number);
/* One piece of work, if it can be done now: *moved. *done: the collective is finished here. */
z3d_status z3d_node_progress(z3d_node *node, const z3d_collective *call, bool *moved, bool *done);

#endif
