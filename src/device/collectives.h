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
 *   reduce_scatter  buffer is a [size x stride] matrix, one row per member. The first `count`
 *                   elements of each row take part. The row of this rank's index becomes the sum
 *                   over the group; the other rows are undefined afterwards.
 *   all_gather      the same matrix: the first `count` elements of the own row are sent, those of
 *                   the other rows are received.
 *   broadcast       buffer[count] from member `peer`.
 *   send, recv      buffer[count] to member `peer`, from member `peer`.
 * A bucket is a column range of a parameter group's [N x shard] matrix: buffer points at its first
 * column, stride is the shard's length. parallel.h has the order of sums.
 * wire bf16 or fp16: fp32 elements of a sum (reduce_scatter, all_reduce) travel in this type and
 * are added in fp32. wire fp32, which is 0: elements travel in their own type, whatever it is. */
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

/* cuda/nccl.c implements the table, parallel/nccl/nccl.c calls it. z3d_device_heard fetches the
 * text of a failed call. `device` is z3d_device_collectives' *self. */
typedef struct z3d_stream_collectives {
    /* Finds and loads the library. The message of ERR_UNSUPPORTED says where it was searched. Not
     * collective. */
    z3d_status (*load)(void *device);
    /* Makes the world's id (Z3D_COLLECTIVES_ID_BYTES), which all ranks need to connect. One rank
     * calls it. */
    z3d_status (*make_id)(void *device, void *id);
    /* Joins all ranks of the world, once. Collective over the world, blocking. */
    z3d_status (*connect)(void *device, const void *id, int size, int rank);
    bool (*connected)(const void *device);
    /* Makes the communicator of the `size` ranks that call with the same colour, in order of
     * `index`; `name` is for messages. Collective over the world, blocking. */
    z3d_status (*split)(void *device, int colour, int index, int size, const char *name,
                        void **out);
    /* Whether communicators can open windows on `memory`, a block of z3d_device_alloc. */
    bool (*allocated)(const void *device, const void *memory);
    /* Opens a window: members reach each other's block of `bytes` bytes. In it the buffers of a
     * collective must have equal offsets on all members. *open: whether it worked. Collective over
     * the members, blocking. */
    z3d_status (*open_window)(void *communicator, void *memory, int64_t bytes, bool *open);
    /* Allocates memory for buckets of up to `bytes` bytes, the columns of all members together.
     * Call it before the first collective on a bucket. */
    z3d_status (*reserve)(void *communicator, int64_t bytes);
    /* Closes the windows of all communicators, as freeing the block does. Not collective. */
    void (*close_windows)(void *device);
    /* Adds an owner: destroy must be called once more. */
    void (*share)(void *communicator);
    void (*destroy)(void *communicator);
    /* Enqueues the call after the kernels launched so far, on the communicator's own stream. When
     * it is complete, its time is added to *seconds; NAN if the device times nothing. */
    z3d_status (*start)(void *communicator, const z3d_collective *call, double *seconds,
                        int64_t *id);
    /* Kernels launched after this see the result. Does not block. The time that compute waits is
     * added to *exposed; NAN if the device times nothing. */
    z3d_status (*wait)(void *communicator, int64_t id, double *exposed);
} z3d_stream_collectives;

#endif
