/* Runs of base/dtype.h's conversions, vectorised on every instruction set; fp16 uses the CPU's own
 * instructions if it has them (equal bits except for signalling NaNs). */
#ifndef ZERO3D_DEVICE_CPU_ISA_CONVERT_H
#define ZERO3D_DEVICE_CPU_ISA_CONVERT_H

#include <stdint.h>
#include <string.h>
#ifdef __F16C__
#include <immintrin.h>
#endif

#include "src/base/dtype.h"
#include "src/device/cpu/isa/math.h"

static inline void widen_bf16(float *restrict to, const uint16_t *restrict from, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = z3d_bf16_to_float(from[i]);
}

static inline void narrow_bf16(uint16_t *restrict to, const float *restrict from, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = z3d_float_to_bf16(from[i]);
}

/* x86 has conversion instructions for fp16, which are several times faster. */
static inline void widen_f16(float *restrict to, const uint16_t *restrict from, int64_t n) {
    int64_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(from + i))));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(from + i))));
#endif
#pragma omp simd
    for (int64_t j = i; j < n; j++) to[j] = z3d_f16_to_float(from[j]);
}

static inline void narrow_f16(uint16_t *restrict to, const float *restrict from, int64_t n) {
    int64_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((void *)(to + i),
                            _mm512_cvtps_ph(_mm512_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((void *)(to + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#endif
#pragma omp simd
    for (int64_t j = i; j < n; j++) to[j] = z3d_float_to_f16(from[j]);
}

/* dtype: fp32 copies. */
static inline void widen(float *restrict to, const void *restrict from, z3d_dtype dtype,
                         int64_t n) {
    if (dtype == Z3D_BF16)
        widen_bf16(to, from, n);
    else if (dtype == Z3D_F16)
        widen_f16(to, from, n);
    else
        memcpy(to, from, (size_t)n * sizeof *to);
}

static inline void narrow(void *restrict to, z3d_dtype dtype, const float *restrict from,
                          int64_t n) {
    if (dtype == Z3D_BF16)
        narrow_bf16(to, from, n);
    else if (dtype == Z3D_F16)
        narrow_f16(to, from, n);
    else
        memcpy(to, from, (size_t)n * sizeof *from);
}

#endif
