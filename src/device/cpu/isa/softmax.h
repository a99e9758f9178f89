/* Attention's work on rows of scores between its products. */
#ifndef ZERO3D_DEVICE_CPU_ISA_SOFTMAX_H
#define ZERO3D_DEVICE_CPU_ISA_SOFTMAX_H

#include "src/device/cpu/isa/lanes.h"
#include "src/device/cpu/isa/math.h"

/* The maximum of n elements, n a multiple of LANES. */
static inline float row_maximum(const float *restrict x, int64_t n) {
    float lane[LANES];
    for (int j = 0; j < LANES; j++) lane[j] = x[j];
    for (int64_t i = LANES; i < n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int j = 0; j < width; j++)
            lane[j] = lane[j + width] > lane[j] ? lane[j + width] : lane[j];
    return lane[0];
}

/* x = exp(x - shift). */
static inline void row_exp(float *restrict x, float shift, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) x[i] = z3d_exp(x[i] - shift);
}

static inline void row_scale(float *restrict x, float factor, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) x[i] *= factor;
}

static inline void row_multiply(float *restrict x, const float *restrict y, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) x[i] *= y[i];
}

#endif
