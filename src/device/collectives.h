/* One collective call, and the table of collectives that run on a device's own streams. parallel.h,
 * which every caller includes, says who takes part in a call. */
#ifndef ZERO3D_DEVICE_COLLECTIVES_H
#define ZERO3D_DEVICE_COLLECTIVES_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/collectives.h"
#include "src/base/dtype.h"
#include "src/base/status.h"

typedef enum z3d_collective_kind {
#define X(NAME, name) Z3D_COLLECTIVE_##NAME,
    Z3D_COLLECTIVE_MAP(X)
#undef X
        Z3D_COLLECTIVE_COUNT
} z3d_collective_kind;

typedef enum z3d_reduce_op { Z3D_SUM, Z3D_MAX } z3d_reduce_op;

/* One collective call. Buffers are device memory of `dtype`, `count` in elements, all in place:
 *   all_reduce      buffer[count] becomes the sum (max) over the group.
 *   reduce_scatter  buffer is [size x stride] seen as rows, one per member; of each row the `count`
 *                   elements from its start take part; row `index of this rank` becomes the sum
 *                   over the group; the other rows are left undefined.
 *   all_gather      the same matrix: own row's `count` elements are sent, the other rows are filled
 *                   in.
 *   broadcast       buffer[count] from member `peer`.
 *   send, recv      buffer[count] to, from member `peer`.
 * A bucket is a column range of a parameter group's [N x shard] matrix: buffer points at its first
 * column, stride is the shard's length. parallel.h has the order of sums.
 * wire: bf16 or fp16: fp32 elements of a sum (reduce_scatter, all_reduce) travel in it, and are
 * added in fp32; of a reduce_scatter the other rows are then undefined on every backend. fp32,
 * which is 0: elements travel as they are, whatever their type. */
typedef struct z3d_collective {
    z3d_collective_kind kind;
    z3d_reduce_op op;
    z3d_dtype dtype, wire;
    void *buffer;
    int64_t count, stride;
    int peer;
    bool scalar; /* counted separately: control and statistics, not tensors */
} z3d_collective;

/* The type in which a call's elements travel. */
static inline z3d_dtype z3d_collective_travels_in(const z3d_collective *call) {
    return call->wire == Z3D_F32 ? call->dtype : call->wire;
}

enum { Z3D_COLLECTIVES_ID_BYTES = 128 };

/* Filled in by cuda/nccl.c, called by parallel/nccl/nccl.c. z3d_device_heard fetches a failed
 * call's text. `device` is z3d_device_collectives' *self. */
typedef struct z3d_stream_collectives {
    /* Finds and loads the library. ERR_UNSUPPORTED says where it was searched. Not collective. */
    z3d_status (*load)(void *device);
    /* One rank makes the world's id, which the others need to connect. */
    z3d_status (*make_id)(void *device, void *id);
    /* Joins all ranks of the world, once. Collective over the world, blocking. */
    z3d_status (*connect)(void *device, const void *id, int size, int rank);
    bool (*connected)(const void *device);
    /* Makes the communicator of the `size` ranks that call with the same colour, in order of
     * `index`; `name` is for messages. Collective over the world, blocking. */
    z3d_status (*split)(void *device, int colour, int index, int size, const char *name,
                        void **out);
    /* Whether `memory`, of z3d_device_alloc, is a block that communicators can have windows of. */
    bool (*allocated)(const void *device, const void *memory);
    /* Lets the members of a communicator reach each other's block of so many bytes, in which they
     * give all collectives equal offsets. *open: they can. Collective over the members, blocking.
     */
    z3d_status (*open_window)(void *communicator, void *memory, int64_t bytes, bool *open);
    /* Room for a bucket of so many bytes: of all members' columns. Before a collective has one. */
    z3d_status (*reserve)(void *communicator, int64_t bytes);
    /* Of all communicators; freeing the block does it, too. Not collective. */
    void (*close_windows)(void *device);
    /* One more will destroy it. */
    void (*share)(void *communicator);
    void (*destroy)(void *communicator);
    /* Enqueues it after the kernels launched so far, on the communicator's own stream. When it is
     * complete, its time is added to *seconds; NAN where nothing is timed. */
    z3d_status (*start)(void *communicator, const z3d_collective *call, double *seconds,
                        int64_t *id);
    /* Kernels launched after this see the result. Does not block. How long compute waits is added
     * to *exposed, or NAN. */
    z3d_status (*wait)(void *communicator, int64_t id, double *exposed);
} z3d_stream_collectives;

#endif
