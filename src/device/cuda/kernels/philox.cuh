// Philox4x32-10 and dropout on the device: the same keys, counters and comparison as in
// src/device/cpu/isa/dropout.h.
#ifndef ZERO3D_DEVICE_CUDA_KERNELS_PHILOX_CUH
#define ZERO3D_DEVICE_CUDA_KERNELS_PHILOX_CUH

#include "src/device/cuda/kernels/common.cuh"

namespace {

// word[4] of counter (low, high), as z3d_philox.
__device__ inline void philox(uint32_t (&word)[4], uint64_t key, uint64_t low, uint64_t high) {
    uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)low, c1 = (uint32_t)(low >> 32);
    uint32_t c2 = (uint32_t)high, c3 = (uint32_t)(high >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint32_t high0 = __umulhi(0xd2511f53u, c0), low0 = 0xd2511f53u * c0;
        const uint32_t high1 = __umulhi(0xcd9e8d57u, c2), low1 = 0xcd9e8d57u * c2;
        c0 = high1 ^ c1 ^ key0;
        c1 = low1;
        c2 = high0 ^ c3 ^ key1;
        c3 = low0;
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
    word[0] = c0, word[1] = c1, word[2] = c2, word[3] = c3;
}

// The part that is the same for a whole kernel and known before it runs.
struct dropout_rule {
    const z3d_step_state *state;
    uint64_t site;
    int64_t sample;
    uint32_t threshold;
    float scale;
};

inline dropout_rule dropout_rule_of(const z3d_dropout *dropout) {
    const double threshold = (double)dropout->p * 4294967296.0;
    return {dropout->state, dropout->site, dropout->sample,
            threshold < 4294967295.0 ? (uint32_t)threshold : UINT32_MAX,
            1.0f / (1.0f - dropout->p)};
}

// The rule together with the step state, for one thread.
struct dropout_draw {
    uint64_t key;
    int64_t sample;
    uint32_t threshold;
    float scale;
};

__device__ inline dropout_draw dropout_begin(const dropout_rule &rule) {
    uint64_t key = rule.state->seed + 0x9e3779b97f4a7c15u * (rule.site + 1);
    key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9u;
    key = (key ^ (key >> 27)) * 0x94d049bb133111ebu;
    key ^= key >> 31;
    return {key, rule.state->sample_base + rule.sample, rule.threshold, rule.scale};
}

// Multipliers (0, or 1 / (1 - p)) of columns 4 block .. 4 block + 3 of one row of one head.
__device__ inline void dropout_block(float (&mask)[4], const dropout_draw &draw, int64_t sample,
                                     int64_t head, int64_t row, uint32_t block) {
    uint32_t word[4];
    philox(word, draw.key, (uint64_t)(draw.sample + sample),
           ((uint64_t)head << 48 | (uint64_t)row << 24) + block);
#pragma unroll
    for (int i = 0; i < 4; i++) mask[i] = word[i] < draw.threshold ? 0.0f : draw.scale;
}

} // namespace

#endif
