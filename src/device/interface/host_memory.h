/* Host memory of all devices. Private to src/device. */
#ifndef ZERO3D_DEVICE_INTERFACE_HOST_MEMORY_H
#define ZERO3D_DEVICE_INTERFACE_HOST_MEMORY_H

#include <stdint.h>

#include "src/base/status.h"

/* Maps `bytes` zeroed bytes, 4096-aligned, touched by `threads` threads (0: as many as help), if
 * possible on memory node `node` (-1: the node where the threads run). ERR_MEMORY, also if the
 * machine has less memory available. */
z3d_status z3d_host_map(int64_t bytes, int threads, int node, void **out);
/* bytes: as in z3d_host_map. NULL does nothing. */
void z3d_host_unmap(void *block, int64_t bytes);

#endif
