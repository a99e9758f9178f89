/* The plugin's second table: collectives on the device's own streams. Filled in by
 * src/device/cuda/nccl.c, called by nccl/nccl.c. A failed call's text is got by z3d_device_heard.
 */
#ifndef ZERO3D_PARALLEL_NCCL_COLLECTIVES_H
#define ZERO3D_PARALLEL_NCCL_COLLECTIVES_H

#include "parallel/parallel.h"

enum { Z3D_COLLECTIVES_ID_BYTES = 128 };

/* `device` is what z3d_device_collectives gave. */
typedef struct z3d_stream_collectives {
    /* Finds and loads the library. ERR_UNSUPPORTED with where it was looked for. Not collective. */
    z3d_status (*load)(void *device);
    /* One rank makes the world's id, which the others need to connect. */
    z3d_status (*make_id)(void *device, void *id);
    /* Joins all ranks of the world, once. Collective over the world, blocking. */
    z3d_status (*connect)(void *device, const void *id, int size, int rank);
    bool (*connected)(const void *device);
    /* The communicator of the `size` ranks that call with the same colour, in order of `index`;
     * `name` is for messages. Collective over the world, blocking. */
    z3d_status (*split)(void *device, int colour, int index, int size, const char *name,
                        void **out);
    void (*destroy)(void *communicator);
    /* Enqueued behind the kernels launched so far, on the communicator's own stream. When it is
     * over, its time is added to *seconds, and to *exposed what compute waited for it. */
    z3d_status (*start)(void *communicator, const z3d_collective *call, double *seconds,
                        double *exposed, int64_t *id);
    /* Kernels launched after this see the result. Does not block. */
    z3d_status (*wait)(void *communicator, int64_t id);
} z3d_stream_collectives;

#endif
