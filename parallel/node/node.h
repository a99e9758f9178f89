/* Private to parallel/: collectives of a group on one node, through shared memory and by reading
 * each other's memory. They add in the same order as the ring: equal bits. */
#ifndef ZERO3D_PARALLEL_NODE_H
#define ZERO3D_PARALLEL_NODE_H

#include "parallel/interface/internal.h"

typedef struct z3d_node z3d_node;

/* Makes the node's part of a group. *out is NULL if the members cannot share memory: no error.
 * may_read: they may try to read each other's memory. Collective over the channel. Errors:
 * ERR_COMM, ERR_MEMORY. */
z3d_status z3d_node_create(z3d_channel *channel, bool may_read, z3d_node **out);
void z3d_node_destroy(z3d_node *node);
/* Communication buffers of one member, in bytes. */
int64_t z3d_node_buffer_bytes(void);
/* Whether it can do every collective, not only those that fit into the shared slots. */
bool z3d_node_takes_all(const z3d_node *node);
/* Whether it can do this collective; the same answer on every member. */
bool z3d_node_takes(const z3d_node *node, const z3d_collective *call);

/* The collectives of a group have the numbers 1, 2, ... The caller begins each number in order, or
 * skips it if messages do that collective. */
void z3d_node_begin(z3d_node *node, const z3d_collective *call, uint64_t number);
void z3d_node_skip(z3d_node *node, uint64_t number);
/* Does one piece of work, if one can be done now: *moved. Never blocks. *done: this member's part
 * of the collective has ended. Errors: ERR_COMM. */
z3d_status z3d_node_progress(z3d_node *node, const z3d_collective *call, bool *moved, bool *done);

#endif
