#ifndef ZERO3D_BENCH_READ_H
#define ZERO3D_BENCH_READ_H

#include <stdint.h>

/* Reads bytes (a multiple of 65536, or the rest is left out) with so many threads, each a part of
 * its own, and returns the seconds: what no program that needs all of them can beat. */
double bench_read(const char *from, int64_t bytes, int threads);

#endif
