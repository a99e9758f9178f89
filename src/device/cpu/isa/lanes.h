/* Reductions in 16 fixed lanes: element i goes to lane i % 16, the lanes are added up in a fixed
 * tree. So a sum depends on the values and their number only, not on the vector length, the
 * alignment or the compiler's treatment of a loop. */
#ifndef ZERO3D_DEVICE_CPU_ISA_LANES_H
#define ZERO3D_DEVICE_CPU_ISA_LANES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "src/device/cpu/isa/math.h"

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX2__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

/* GCC's and Clang's vector types: native registers, arithmetic by element. */
typedef float vector __attribute__((vector_size(VECTOR_BYTES), may_alias));
typedef float vector_unaligned __attribute__((vector_size(VECTOR_BYTES), may_alias, aligned(4)));

enum {
    LANES = 16,
    VECTOR = VECTOR_BYTES / 4,    /* elements of a vector */
    LANE_VECTORS = LANES / VECTOR /* vectors that make the lanes */
};

typedef struct lanes {
    vector v[LANE_VECTORS];
} lanes;

#define LOAD_VECTOR(pointer) (*(const vector_unaligned *)(pointer))

static inline void lanes_add(lanes *restrict sum, const float *restrict x) {
#pragma GCC unroll 4
    for (int j = 0; j < LANE_VECTORS; j++) sum->v[j] += LOAD_VECTOR(x + j * VECTOR);
}

static inline float lanes_total(const lanes *sum) {
    float lane[LANES];
    memcpy(lane, sum, sizeof lane);
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int j = 0; j < width; j++) lane[j] += lane[j + width];
    return lane[0];
}

typedef float four __attribute__((vector_size(16), may_alias));
typedef float four_unaligned __attribute__((vector_size(16), may_alias, aligned(4)));

static inline four lanes_fold(const lanes *sum) {
    four part[LANES / 4];
    memcpy(part, sum, sizeof part);
    return (part[0] + part[1]) + (part[2] + part[3]);
}

/* out[4] = the totals of sum[4], added in another tree than lanes_total's. */
static inline void lanes_totals(float *out, const lanes *sum) {
    const four a = lanes_fold(&sum[0]), b = lanes_fold(&sum[1]);
    const four c = lanes_fold(&sum[2]), d = lanes_fold(&sum[3]);
    const four ab =
        __builtin_shufflevector(a, b, 0, 4, 2, 6) + __builtin_shufflevector(a, b, 1, 5, 3, 7);
    const four cd =
        __builtin_shufflevector(c, d, 0, 4, 2, 6) + __builtin_shufflevector(c, d, 1, 5, 3, 7);
    *(four_unaligned *)out =
        __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

static inline void lanes_add_products(lanes *restrict sum, const float *x, const float *y) {
#pragma GCC unroll 4
    for (int j = 0; j < LANE_VECTORS; j++)
        sum->v[j] += LOAD_VECTOR(x + j * VECTOR) * LOAD_VECTOR(y + j * VECTOR);
}

/* Sum of x[n]. */
static inline float sum_tile(const float *restrict x, int64_t n) {
    lanes sum = {{{0}}};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) lanes_add(&sum, x + i);
    if (i < n) {
        float rest[LANES] = {0};
        memcpy(rest, x + i, (size_t)(n - i) * sizeof *x);
        lanes_add(&sum, rest);
    }
    return lanes_total(&sum);
}

/* Sum of x[n] * y[n]; y may be x. */
static inline float dot_tile(const float *x, const float *y, int64_t n) {
    lanes sum = {{{0}}};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) lanes_add_products(&sum, x + i, y + i);
    if (i < n) {
        float rest_x[LANES] = {0}, rest_y[LANES] = {0};
        memcpy(rest_x, x + i, (size_t)(n - i) * sizeof *x);
        memcpy(rest_y, y + i, (size_t)(n - i) * sizeof *y);
        lanes_add_products(&sum, rest_x, rest_y);
    }
    return lanes_total(&sum);
}

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

/* ---- attention's rows of scores, between its products ---- */

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
