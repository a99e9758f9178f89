/* The one place where dropout is decided: Philox4x32-10 under a key made of (state->seed, site),
 * with the counter (global sample, head, row, column / 4), whose four words belong to columns
 * 4j .. 4j+3. An element is dropped when its word is below p * 2^32; the others are multiplied by 1
 * / (1 - p). */
#ifndef ZERO3D_DEVICE_CPU_ISA_DROPOUT_H
#define ZERO3D_DEVICE_CPU_ISA_DROPOUT_H

#include <stdint.h>
#include <string.h>

#include "src/device/cpu/isa/philox.h"
#include "src/device/kernels.h"

/* Bits of the counter's high half: head 16, row 24, column / 4 24. */
#define Z3D_DROPOUT_MAX_HEADS ((int64_t)1 << 16)
#define Z3D_DROPOUT_MAX_ROWS ((int64_t)1 << 24)

/* Values that are equal for a whole kernel. */
typedef struct z3d_dropout_rule {
    uint32_t key[2];
    int64_t sample; /* global index of the kernel's first sample */
    uint32_t threshold;
    float scale;
} z3d_dropout_rule;

/* Call it only if p > 0, because otherwise the state must not be read. */
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

/* Multipliers of Z3D_PHILOX_STEP columns, from counter block `block` on. */
static inline void z3d_dropout_step(const z3d_dropout_rule *rule, uint64_t sample, uint64_t high,
                                    uint32_t block, float mask[Z3D_PHILOX_STEP]) {
    z3d_philox_vector words[2];
    z3d_philox_step(rule->key, sample, high, block, words);
#if defined(__AVX512F__)
    const __m512i threshold = _mm512_set1_epi32((int)rule->threshold);
    const __m512 scale = _mm512_set1_ps(rule->scale);
    for (int i = 0; i < 2; i++)
        _mm512_storeu_ps(mask + 16 * i,
                         _mm512_maskz_mov_ps(_mm512_cmpge_epu32_mask(words[i], threshold), scale));
#elif defined(__AVX2__)
    const __m256i threshold = _mm256_set1_epi32((int)rule->threshold);
    const __m256 scale = _mm256_set1_ps(rule->scale);
    for (int i = 0; i < 2; i++) {
        __m256i kept = _mm256_cmpeq_epi32(_mm256_max_epu32(words[i], threshold), words[i]);
        _mm256_storeu_ps(mask + 8 * i, _mm256_and_ps(_mm256_castsi256_ps(kept), scale));
    }
#else
    for (int i = 0; i < 4; i++)
        mask[i] = words[i / 2].word[i % 2] < rule->threshold ? 0 : rule->scale;
#endif
}

/* mask[count] = 0 (dropped) or 1 / (1 - p), for columns first_column .. + count - 1, where
 * first_column is a multiple of 4, of one row of one head of the kernel's `sample`-th sample. */
static inline void z3d_dropout_mask(const z3d_dropout_rule *rule, int64_t sample, int64_t head,
                                    int64_t row, int64_t first_column, int64_t count,
                                    float *restrict mask) {
    const uint64_t global_sample = (uint64_t)(rule->sample + sample);
    const uint64_t high = (uint64_t)head << 48 | (uint64_t)row << 24;
    int64_t done = 0;
    for (; done + Z3D_PHILOX_STEP <= count; done += Z3D_PHILOX_STEP)
        z3d_dropout_step(rule, global_sample, high, (uint32_t)((first_column + done) / 4),
                         mask + done);
    if (done < count) {
        float rest[Z3D_PHILOX_STEP];
        z3d_dropout_step(rule, global_sample, high, (uint32_t)((first_column + done) / 4), rest);
        memcpy(mask + done, rest, (size_t)(count - done) * sizeof *mask);
    }
}

#endif
