/* Copies of the cpu device. Inside cpu/ only. */
#ifndef ZERO3D_DEVICE_CPU_MEMORY_H
#define ZERO3D_DEVICE_CPU_MEMORY_H

#include <stdint.h>

/* Copies `bytes` bytes; the two ranges may not overlap. A large copy bypasses the caches: nobody
 * reads it again soon, and the processor then need not read the lines that it overwrites. */
void z3d_cpu_memory_copy(void *to, const void *from, int64_t bytes);

#endif
