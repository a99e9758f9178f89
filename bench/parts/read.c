#include "bench/parts/read.h"

#include "src/base/base.h"

static volatile float sink;

/* Sums in 64 lanes, so that adding is faster than reading. */
double bench_read(const char *bytes_at, int64_t bytes, int threads) {
    float total = 0;
    const double begin = z3d_now();
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : total)
    for (int64_t at = 0; at < bytes / 65536; at++) {
        const float *from = (const float *)(bytes_at + at * 65536);
        float sum[64] = {0};
        for (int64_t i = 0; i < 65536 / 4; i += 64)
#pragma omp simd
            for (int j = 0; j < 64; j++) sum[j] += from[i + j];
        for (int j = 0; j < 64; j++) total += sum[j];
    }
    sink = total;
    return z3d_now() - begin;
}
