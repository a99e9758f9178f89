/* How fast each pair of a head turns, step by step and in fp32 as Hugging Face's transformers
 * computes it (modeling_rope_utils), so that angles of far positions agree. Inline, because the
 * CUDA plugin uses it, too. Private to src/device. */
#ifndef ZERO3D_DEVICE_INTERFACE_ROPE_H
#define ZERO3D_DEVICE_INTERFACE_ROPE_H

#include <math.h>

#include "src/device/kernels.h"

#define Z3D_ROPE_TWO_PI 6.28318530717958648

static inline float z3d_rope_llama3(const z3d_rope *rope, float frequency) {
    const float factor = (float)rope->factor, original = (float)rope->original_positions;
    const float low = (float)rope->low_freq_factor, high = (float)rope->high_freq_factor;
    const float wavelength = (float)Z3D_ROPE_TWO_PI * (1.0f / frequency);
    if (wavelength < original / high) return frequency;
    if (wavelength > original / low) return frequency / factor;
    const float smooth = (original * (1.0f / wavelength) - low) / (high - low);
    return (1.0f - smooth) * frequency / factor + smooth * frequency;
}

/* The pair, not rounded, that turns `turns` times over the original positions. */
static inline double z3d_rope_yarn_pair(const z3d_rope *rope, int64_t head_dim, double turns) {
    return (double)head_dim * log(rope->original_positions / (turns * Z3D_ROPE_TWO_PI)) /
           (2 * log(rope->theta));
}

static inline float z3d_rope_yarn(const z3d_rope *rope, int64_t head_dim, int64_t pair,
                                  float power) {
    const double fast = rope->beta_fast > 0 ? rope->beta_fast : 32;
    const double slow = rope->beta_slow > 0 ? rope->beta_slow : 1;
    const double low = fmax(floor(z3d_rope_yarn_pair(rope, head_dim, fast)), 0);
    double high = fmin(ceil(z3d_rope_yarn_pair(rope, head_dim, slow)), (double)head_dim - 1);
    if (high == low) high += 0.001;
    const float ramp = ((float)pair - (float)low) / (float)(high - low);
    const float interpolated = fminf(fmaxf(ramp, 0.0f), 1.0f), kept = 1.0f - interpolated;
    return 1.0f / ((float)rope->factor * power) * (1.0f - kept) + 1.0f / power * kept;
}

/* Angle per position of pair 0 .. head_dim / 2 - 1. The angle itself is (float)position times it,
 * rounded to fp32. */
static inline float z3d_rope_frequency(const z3d_rope *rope, int64_t head_dim, int64_t pair) {
    const float exponent = (float)(2 * pair) / (float)head_dim;
    const float power = (float)pow(rope->theta, (double)exponent), frequency = 1.0f / power;
    switch (rope->type) {
    case Z3D_ROPE_LINEAR:
        return frequency / (float)rope->factor;
    case Z3D_ROPE_LLAMA3:
        return z3d_rope_llama3(rope, frequency);
    case Z3D_ROPE_YARN:
        return z3d_rope_yarn(rope, head_dim, pair, power);
    case Z3D_ROPE_DEFAULT:
        break;
    }
    return frequency;
}

static inline double z3d_rope_mscale(double factor, double mscale) {
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

/* What multiplies cos and sin. */
static inline float z3d_rope_attention_factor(const z3d_rope *rope) {
    if (rope->attention_factor > 0) return (float)rope->attention_factor;
    if (rope->type != Z3D_ROPE_YARN) return 1.0f;
    if (rope->mscale > 0 && rope->mscale_all_dim > 0)
        return (float)(z3d_rope_mscale(rope->factor, rope->mscale) /
                       z3d_rope_mscale(rope->factor, rope->mscale_all_dim));
    return (float)z3d_rope_mscale(rope->factor, 1);
}

#endif
