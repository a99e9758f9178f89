/* Element types of tensors and the exact scalar conversions between them (round to nearest even,
 * NaN stays NaN). */
#ifndef ZERO3D_BASE_DTYPE_H
#define ZERO3D_BASE_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* X(NAME, name, bytes) */
#define Z3D_DTYPE_MAP(X)                                                                           \
    X(F32, fp32, 4)                                                                                \
    X(BF16, bf16, 2)                                                                               \
    X(F16, fp16, 2)                                                                                \
    X(F64, fp64, 8)                                                                                \
    X(I32, int32, 4)                                                                               \
    X(U8, uint8, 1)

typedef enum z3d_dtype {
#define X(NAME, name, bytes) Z3D_##NAME,
    Z3D_DTYPE_MAP(X)
#undef X
        Z3D_DTYPE_COUNT
} z3d_dtype;

size_t z3d_dtype_size(z3d_dtype dtype);      /* bytes of one element */
const char *z3d_dtype_name(z3d_dtype dtype); /* "bf16" */

/* ---- conversions ----
 * Without branches or calls, so that loops over them vectorise on every instruction set: kernels
 * and reductions are compiled for several. */
static inline uint32_t z3d_bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float z3d_float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float z3d_bf16_to_float(uint16_t bits) {
    return z3d_float_of_bits((uint32_t)bits << 16);
}

static inline uint16_t z3d_float_to_bf16(float value) {
    uint32_t bits = z3d_bits_of_float(value);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    uint32_t quiet = (bits >> 16) | 0x40u; /* cutting a NaN's payload must not make it infinite */
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

/* The exponent's bias differs by 112: multiplying by 2^112 corrects it, for denormals too. */
static inline float z3d_f16_to_float(uint16_t bits) {
    uint32_t half = bits;
    uint32_t magnitude = (half & 0x7fffu) << 13;
    uint32_t finite = z3d_bits_of_float(z3d_float_of_bits(magnitude) * 0x1p112f);
    uint32_t wide = magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite;
    return z3d_float_of_bits(wide | (half & 0x8000u) << 16);
}

/* Adding 0.5 to a magnitude below 2^-14 leaves its fp16 denormal, rounded, in the low bits. */
static inline uint16_t z3d_float_to_f16(float value) {
    uint32_t bits = z3d_bits_of_float(value);
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t normal = ((magnitude + 0xfffu + ((magnitude >> 13) & 1u)) >> 13) - (112u << 10);
    uint32_t denormal = z3d_bits_of_float(z3d_float_of_bits(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t half = magnitude < 0x38800000u ? denormal : normal;
    half = magnitude >= 0x47800000u ? 0x7c00u : half;
    half = magnitude > 0x7f800000u ? 0x7e00u | (magnitude >> 13 & 0x3ffu) : half;
    return (uint16_t)(half | (bits >> 16 & 0x8000u));
}

#endif
