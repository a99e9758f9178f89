/* Copies of the cpu device. Inside cpu/ only. */
#ifndef ZERO3D_DEVICE_CPU_MEMORY_H
#define ZERO3D_DEVICE_CPU_MEMORY_H

#include <stdint.h>

/* Copies; the two may not overlap. What is larger than a core's share of the caches goes past them:
 * nobody reads it again soon, and the lines that are written need not be read first. */
void z3d_cpu_memory_copy(void *to, const void *from, int64_t bytes);

#endif
