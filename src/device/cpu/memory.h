/* Memory of the cpu device. Inside cpu/ only. */
#ifndef ZERO3D_DEVICE_CPU_MEMORY_H
#define ZERO3D_DEVICE_CPU_MEMORY_H

#include <stdint.h>

#include "src/base/status.h"

/* `bytes` zeroed bytes, 4096-aligned, touched by `threads` threads. ERR_MEMORY, also where the
 * machine has not that much available. */
z3d_status z3d_cpu_memory_map(int64_t bytes, int threads, void **out);
/* bytes: as mapped. NULL is fine. */
void z3d_cpu_memory_unmap(void *block, int64_t bytes);
/* Copies; the two may not overlap. What is larger than a core's share of the caches goes past them:
 * nobody reads it again soon, and the lines that are written need not be read first. */
void z3d_cpu_memory_copy(void *to, const void *from, int64_t bytes);

#endif
