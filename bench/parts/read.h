#ifndef ZERO3D_BENCH_READ_H
#define ZERO3D_BENCH_READ_H

#include <stdint.h>

/* Reads `bytes` bytes (only whole multiples of 65536) with `threads` threads, each its own part.
 * Returns the seconds, which no program that needs all these bytes can beat. */
double bench_read(const char *from, int64_t bytes, int threads);

#endif
