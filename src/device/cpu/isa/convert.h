/* Conversions between fp32 and the 16-bit types by integer arithmetic that vectorises on every
 * instruction set; the same results as the scalar functions of base/dtype.h (but what remains of a
 * signalling NaN). */
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
    for (int64_t i = 0; i < n; i++) to[i] = z3d_float_of_bits((uint32_t)from[i] << 16);
}

static inline void narrow_bf16(uint16_t *restrict to, const float *restrict from, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = z3d_bits_of_float(from[i]);
        uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
        uint32_t quiet = (bits >> 16) | 0x40u;
        to[i] = (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
    }
}

/* fp16 has conversion instructions on x86, several times faster: they take what they can, and give
 * how many elements that is. */
#if defined(__AVX512F__)
static inline int64_t widen_f16_vectors(float *restrict to, const uint16_t *restrict from,
                                        int64_t n) {
    for (int64_t i = 0; i + 16 <= n; i += 16)
        _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(from + i))));
    return n / 16 * 16;
}

static inline int64_t narrow_f16_vectors(uint16_t *restrict to, const float *restrict from,
                                         int64_t n) {
    for (int64_t i = 0; i + 16 <= n; i += 16)
        _mm256_storeu_si256((void *)(to + i),
                            _mm512_cvtps_ph(_mm512_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    return n / 16 * 16;
}
#elif defined(__F16C__)
static inline int64_t widen_f16_vectors(float *restrict to, const uint16_t *restrict from,
                                        int64_t n) {
    for (int64_t i = 0; i + 8 <= n; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(from + i))));
    return n / 8 * 8;
}

static inline int64_t narrow_f16_vectors(uint16_t *restrict to, const float *restrict from,
                                         int64_t n) {
    for (int64_t i = 0; i + 8 <= n; i += 8)
        _mm_storeu_si128((void *)(to + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    return n / 8 * 8;
}
#else
static inline int64_t widen_f16_vectors(float *restrict to, const uint16_t *restrict from,
                                        int64_t n) {
    (void)to, (void)from, (void)n;
    return 0;
}

static inline int64_t narrow_f16_vectors(uint16_t *restrict to, const float *restrict from,
                                         int64_t n) {
    (void)to, (void)from, (void)n;
    return 0;
}
#endif

/* The exponent's bias differs by 112: multiplying by 2^112 corrects it, for denormals too. */
static inline void widen_f16(float *restrict to, const uint16_t *restrict from, int64_t n) {
    const int64_t done = widen_f16_vectors(to, from, n);
#pragma omp simd
    for (int64_t i = done; i < n; i++) {
        uint32_t half = from[i];
        uint32_t magnitude = (half & 0x7fffu) << 13;
        uint32_t finite = z3d_bits_of_float(z3d_float_of_bits(magnitude) * 0x1p112f);
        uint32_t bits = magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite;
        to[i] = z3d_float_of_bits(bits | (half & 0x8000u) << 16);
    }
}

/* Adding 0.5 to a magnitude below 2^-14 leaves its fp16 denormal, rounded, in the low bits. */
static inline void narrow_f16(uint16_t *restrict to, const float *restrict from, int64_t n) {
    const int64_t done = narrow_f16_vectors(to, from, n);
#pragma omp simd
    for (int64_t i = done; i < n; i++) {
        uint32_t bits = z3d_bits_of_float(from[i]);
        uint32_t magnitude = bits & 0x7fffffffu;
        uint32_t normal = ((magnitude + 0xfffu + ((magnitude >> 13) & 1u)) >> 13) - (112u << 10);
        uint32_t denormal = z3d_bits_of_float(z3d_float_of_bits(magnitude) + 0.5f) - 0x3f000000u;
        uint32_t half = magnitude < 0x38800000u ? denormal : normal;
        half = magnitude >= 0x47800000u ? 0x7c00u : half;
        half = magnitude > 0x7f800000u ? 0x7e00u | (magnitude >> 13 & 0x3ffu) : half;
        to[i] = (uint16_t)(half | (bits >> 16 & 0x8000u));
    }
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
