/* Host memory of all devices. Private to src/device. */
#ifndef ZERO3D_DEVICE_INTERFACE_HOST_MEMORY_H
#define ZERO3D_DEVICE_INTERFACE_HOST_MEMORY_H

#include <stdint.h>

#include "src/base/status.h"

/* `bytes` zeroed bytes, 4096-aligned, touched by `threads` threads (0: some), on memory node `node`
 * if it can be (-1: where the threads run). ERR_MEMORY, also where the machine has not that much
 * available. */
z3d_status z3d_host_map(int64_t bytes, int threads, int node, void **out);
/* bytes: as mapped. NULL is fine. */
void z3d_host_unmap(void *block, int64_t bytes);

#endif
