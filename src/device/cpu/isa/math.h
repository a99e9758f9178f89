/* exp and log in fp32, sine and cosine for angles in fp32, without branches or calls, so that
 * loops over them vectorise on every instruction set. Within 1.3 ulp of the true value over all
 * floats (multiplied and added in one rounding or in two); infinities, NaN, zeros and denormals
 * behave as in the C library. The polynomials are Chebyshev fits of our own. */
#ifndef ZERO3D_DEVICE_CPU_ISA_MATH_H
#define ZERO3D_DEVICE_CPU_ISA_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "src/base/dtype.h"

static inline uint64_t z3d_bits_of_double(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double z3d_double_of_bits(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* e^x = 2^n e^r with |r| <= ln(2)/2. Adding 1.5 * 2^23 rounds to an integer and leaves it in the
 * low bits: this needs no rounding instruction, which SSE2 lacks. */
static inline float z3d_exp(float x) {
    const float round = 12582912.0f;
    float clamped = x > 100.0f ? 100.0f : x;
    clamped = clamped < -110.0f ? -110.0f : clamped;
    float shifted = clamped * 1.44269504f + round;
    float n = shifted - round;
    float r = clamped - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float e = 0.001392625083f;
    e = e * r + 0.008363232884f;
    e = e * r + 0.04166655421f;
    e = e * r + 0.1666657667f;
    e = e * r + 0.5f;
    e = e * (r * r) + r;
    e = e + 1.0f;
    /* Multiplies by 2^n in two halves, because 2^n alone may not fit in fp32: results can be
     * denormal or infinite. */
    uint32_t power = z3d_bits_of_float(shifted) - 0x4b400000u;
    uint32_t half = (uint32_t)((int32_t)power >> 1);
    float low = z3d_float_of_bits((half + 127u) << 23);
    float high = z3d_float_of_bits((power - half + 127u) << 23);
    return e * low * high;
}

/* Natural logarithm: x = 2^n (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2). */
static inline float z3d_log(float x) {
    float scaled = x < 1.17549435e-38f ? x * 8388608.0f : x; /* denormals: times 2^23 */
    float offset = x < 1.17549435e-38f ? -23.0f : 0.0f;
    uint32_t shifted = z3d_bits_of_float(scaled) - 0x3f3504f3u; /* sqrt(1/2) */
    int32_t exponent = (int32_t)shifted >> 23;
    float f = z3d_float_of_bits((shifted & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    float n = (float)exponent + offset;
    float g = 0.06971611471f;
    g = g * f - 0.1147973385f;
    g = g * f + 0.1168541992f;
    g = g * f - 0.1242568733f;
    g = g * f + 0.1424905765f;
    g = g * f - 0.1666780232f;
    g = g * f + 0.2000071575f;
    g = g * f - 0.2499999696f;
    g = g * f + 0.3333333118f;
    float square = f * f;
    float tail = g * (f * square) - n * 2.12194440e-4f;
    float result = (f - (0.5f * square - tail)) + n * 0.693359375f;
    result = x < INFINITY ? result : x; /* infinity and NaN give themselves */
    result = x == 0.0f ? -INFINITY : result;
    return x < 0.0f ? NAN : result;
}

/* Sine and cosine, in double within 1e-9 of the true value up to arguments of 1e7: enough for
 * angles in fp32. x = n pi / 2 + r with |r| <= pi / 4, n rounded as in exp; Taylor series of r; n's
 * last two bits swap the two and choose the signs. */
static inline void z3d_sincos(double x, double *sine, double *cosine) {
    const double round = 6755399441055744.0; /* 1.5 * 2^52 */
    double shifted = x * 0.63661977236758134 + round;
    double n = shifted - round;
    double r = x - n * 1.57079632673412561417; /* pi / 2: 33 bits, and the rest */
    r = r - n * 6.07710050650619224932e-11;
    double z = r * r;
    double s = -1.0 / 39916800;
    s = s * z + 1.0 / 362880;
    s = s * z - 1.0 / 5040;
    s = s * z + 1.0 / 120;
    s = s * z - 1.0 / 6;
    s = s * z * r + r;
    double c = -1.0 / 3628800;
    c = c * z + 1.0 / 40320;
    c = c * z - 1.0 / 720;
    c = c * z + 1.0 / 24;
    c = c * z - 0.5;
    c = c * z + 1.0;
    uint64_t quadrant = z3d_bits_of_double(shifted), swap = 0 - (quadrant & 1);
    uint64_t s_bits = z3d_bits_of_double(s), c_bits = z3d_bits_of_double(c);
    uint64_t s_sign = (quadrant & 2) << 62, c_sign = ((quadrant + 1) & 2) << 62;
    *sine = z3d_double_of_bits(((s_bits & ~swap) | (c_bits & swap)) ^ s_sign);
    *cosine = z3d_double_of_bits(((c_bits & ~swap) | (s_bits & swap)) ^ c_sign);
}

#endif
