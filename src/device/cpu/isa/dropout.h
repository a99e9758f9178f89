/* The one place where dropout is decided: Philox4x32-10 under a key made of (state->seed, site),
 * with the counter (global sample, head, row, column / 4), whose four words belong to columns
 * 4j .. 4j+3. It is base/rng.h's z3d_philox, written out inline so that rows vectorise. An element
 * is dropped when its word is below p * 2^32; the others are multiplied by 1 / (1 - p). */
#ifndef ZERO3D_DEVICE_CPU_ISA_DROPOUT_H
#define ZERO3D_DEVICE_CPU_ISA_DROPOUT_H

#include <stdint.h>

#include "src/device/kernels.h"

/* Bits of the counter's high half: head 16, row 24, column / 4 24. */
#define Z3D_DROPOUT_MAX_HEADS ((int64_t)1 << 16)
#define Z3D_DROPOUT_MAX_ROWS ((int64_t)1 << 24)
#define Z3D_DROPOUT_MAX_COLUMNS ((int64_t)1 << 26)

/* What is the same for a whole kernel. */
typedef struct z3d_dropout_rule {
    uint32_t key[2];
    int64_t sample; /* global index of the kernel's first sample */
    uint32_t threshold;
    float scale;
} z3d_dropout_rule;

/* Only for p > 0 (otherwise the state is not to be read). */
static inline z3d_dropout_rule z3d_dropout_rule_of(const z3d_dropout *dropout) {
    uint64_t key = dropout->state->seed + 0x9e3779b97f4a7c15u * (dropout->site + 1);
    key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9u;
    key = (key ^ (key >> 27)) * 0x94d049bb133111ebu;
    key ^= key >> 31;
    double threshold = (double)dropout->p * 4294967296.0;
    return (z3d_dropout_rule){
        .key = {(uint32_t)key, (uint32_t)(key >> 32)},
        .sample = dropout->state->sample_base + dropout->sample,
        .threshold = threshold < 4294967295.0 ? (uint32_t)threshold : UINT32_MAX,
        .scale = 1.0f / (1.0f - dropout->p),
    };
}

/* mask[count] = 0 (dropped) or 1 / (1 - p), for columns first_column .. + count - 1, where
 * first_column is a multiple of 4, of one row of one head of the kernel's `sample`-th sample. */
static inline void z3d_dropout_mask(const z3d_dropout_rule *rule, int64_t sample, int64_t head,
                                    int64_t row, int64_t first_column, int64_t count,
                                    float *restrict mask) {
    enum { BLOCKS = 64 }; /* counters at a time */
    const uint64_t global_sample = (uint64_t)(rule->sample + sample);
    const uint32_t sample_low = (uint32_t)global_sample;
    const uint32_t sample_high = (uint32_t)(global_sample >> 32);
    const uint32_t low_row = (uint32_t)row << 24;
    const uint32_t high = (uint32_t)head << 16 | (uint32_t)(row >> 8);
    const uint32_t key0 = rule->key[0], key1 = rule->key[1], threshold = rule->threshold;
    const float scale = rule->scale;
    for (int64_t done = 0; done < count; done += 4 * BLOCKS) {
        float kept[4][BLOCKS];
        uint32_t first_block = (uint32_t)((first_column + done) / 4);
#ifdef _OPENMP /* a test includes this without */
#pragma omp simd
#endif
        for (int i = 0; i < BLOCKS; i++) {
            uint32_t c0 = sample_low, c1 = sample_high, c2 = low_row | (first_block + (uint32_t)i),
                     c3 = high, k0 = key0, k1 = key1;
#pragma GCC unroll 10
            for (int round = 0; round < 10; round++) {
                uint64_t product0 = (uint64_t)0xd2511f53u * c0;
                uint64_t product1 = (uint64_t)0xcd9e8d57u * c2;
                c0 = (uint32_t)(product1 >> 32) ^ c1 ^ k0;
                c1 = (uint32_t)product1;
                c2 = (uint32_t)(product0 >> 32) ^ c3 ^ k1;
                c3 = (uint32_t)product0;
                k0 += 0x9e3779b9u;
                k1 += 0xbb67ae85u;
            }
            kept[0][i] = c0 < threshold ? 0.0f : scale;
            kept[1][i] = c1 < threshold ? 0.0f : scale;
            kept[2][i] = c2 < threshold ? 0.0f : scale;
            kept[3][i] = c3 < threshold ? 0.0f : scale;
        }
        int64_t columns = count - done < 4 * BLOCKS ? count - done : 4 * BLOCKS;
        for (int64_t column = 0; column < columns; column++)
            mask[done + column] = kept[column % 4][column / 4];
    }
}

#endif
