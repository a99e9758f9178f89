/* Conversions between fp32 and the 16-bit types by integer arithmetic that vectorises on every
 * instruction set; the same results as the scalar functions of base/dtype.h. */
#ifndef ZERO3D_DEVICE_CPU_ISA_CONVERT_H
#define ZERO3D_DEVICE_CPU_ISA_CONVERT_H

#include <stdint.h>
#include <string.h>

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

/* The exponent's bias differs by 112: multiplying by 2^112 corrects it, for denormals too. */
static inline void widen_f16(float *restrict to, const uint16_t *restrict from, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        uint32_t half = from[i];
        uint32_t magnitude = (half & 0x7fffu) << 13;
        uint32_t finite = z3d_bits_of_float(z3d_float_of_bits(magnitude) * 0x1p112f);
        uint32_t bits = magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite;
        to[i] = z3d_float_of_bits(bits | (half & 0x8000u) << 16);
    }
}

/* Adding 0.5 to a magnitude below 2^-14 leaves its fp16 denormal, rounded, in the low bits. */
static inline void narrow_f16(uint16_t *restrict to, const float *restrict from, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
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
