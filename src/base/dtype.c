/* Element types: sizes, names, and scalar conversions done on the bits, so that they are the same
 * on every CPU and under every compiler flag. */
#include "src/base/dtype.h"

#include <string.h>

size_t z3d_dtype_size(z3d_dtype dtype) {
    static const size_t sizes[] = {
#define X(NAME, name, bytes) bytes,
        Z3D_DTYPE_MAP(X)
#undef X
    };
    return (unsigned)dtype < Z3D_DTYPE_COUNT ? sizes[dtype] : 0;
}

const char *z3d_dtype_name(z3d_dtype dtype) {
    static const char *const names[] = {
#define X(NAME, name, bytes) #name,
        Z3D_DTYPE_MAP(X)
#undef X
    };
    return (unsigned)dtype < Z3D_DTYPE_COUNT ? names[dtype] : "?";
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float z3d_bf16_to_float(uint16_t bits) {
    return float_of((uint32_t)bits << 16);
}

uint16_t z3d_float_to_bf16(float value) {
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)((bits >> 16) |
                          0x40u); /* quiet: cutting the payload must not make it inf */
    }
    uint32_t half = 0x7fffu + ((bits >> 16) & 1u);
    return (uint16_t)((bits + half) >> 16);
}

float z3d_f16_to_float(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    uint32_t exponent = (bits >> 10) & 0x1fu;
    uint32_t fraction = bits & 0x3ffu;
    if (exponent == 0x1fu) return float_of(sign | 0x7f800000u | fraction << 13);
    if (exponent != 0) return float_of(sign | (exponent + 112) << 23 | fraction << 13);
    float magnitude = (float)fraction * 0x1p-24f; /* subnormal: exact, a normal float */
    return sign ? -magnitude : magnitude;
}

/* `value` >> `shift`, rounded to nearest even; 1 <= shift <= 31. */
static uint32_t shift_right_rounded(uint32_t value, unsigned shift) {
    uint32_t kept = value >> shift;
    uint32_t rest = value & ((1u << shift) - 1);
    uint32_t half = 1u << (shift - 1);
    return kept + (rest > half || (rest == half && (kept & 1u)));
}

uint16_t z3d_float_to_f16(float value) {
    uint32_t bits = bits_of(value);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    }
    if (magnitude >= 0x47800000u) return (uint16_t)(sign | 0x7c00u); /* 65536 and above */
    if (magnitude < 0x33000000u) return (uint16_t)sign;              /* below half of 2^-24 */
    uint32_t exponent = magnitude >> 23;
    uint32_t fraction = magnitude & 0x7fffffu;
    if (exponent < 113) { /* subnormal in fp16: below 2^-14 */
        return (uint16_t)(sign | shift_right_rounded(fraction | 0x800000u, 126 - exponent));
    }
    /* A carry out of the fraction goes into the exponent, and from 65504 into infinity. */
    return (uint16_t)(sign | shift_right_rounded(magnitude - (112u << 23), 13));
}
