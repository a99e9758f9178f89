/* The one place where dropout is decided: Philox4x32-10 under a key made of (state->seed, site),
 * with the counter (global sample, head, row, column / 4), whose four words belong to columns
 * 4j .. 4j+3. It is base/rng.h's z3d_philox, written for vectors. An element
 * is dropped when its word is below p * 2^32; the others are multiplied by 1 / (1 - p). */
#ifndef ZERO3D_DEVICE_CPU_ISA_DROPOUT_H
#define ZERO3D_DEVICE_CPU_ISA_DROPOUT_H

#include <stdint.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

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

/* The generator's rounds on a vector of 64-bit words of which the low halves count; the upper
 * halves hold what is left of products, which the next multiplication does not see. */
#define Z3D_PHILOX_ROUNDS(c0, c1, c2, c3, rule, WORDS, MULTIPLY, SHIFT)                            \
    do {                                                                                           \
        uint32_t key0 = (rule)->key[0], key1 = (rule)->key[1];                                     \
        for (int round = 0; round < 10; round++) {                                                 \
            WORDS product0 = MULTIPLY(c0, 0xd2511f53u), product1 = MULTIPLY(c2, 0xcd9e8d57u);      \
            c0 = SHIFT(product1) ^ c1 ^ key0;                                                      \
            c1 = product1;                                                                         \
            c2 = SHIFT(product0) ^ c3 ^ key1;                                                      \
            c3 = product0;                                                                         \
            key0 += 0x9e3779b9u;                                                                   \
            key1 += 0xbb67ae85u;                                                                   \
        }                                                                                          \
    } while (0)

/* Multipliers of Z3D_DROPOUT_STEP columns, from counter block `block` on. */
#if defined(__AVX512F__)
enum { Z3D_DROPOUT_STEP = 32 };

static inline void z3d_dropout_step(const z3d_dropout_rule *rule, uint64_t sample, uint64_t high,
                                    uint32_t block, float mask[32]) {
#define MULTIPLY(x, y) ((__v8du)_mm512_mul_epu32((__m512i)(x), _mm512_set1_epi64(y)))
#define SHIFT(x) ((x) >> 32)
    /* Even lanes have blocks 0 to 3, odd ones 4 to 7: the unpacking below leaves them in order. */
    const __v8du lanes = {0, 4, 1, 5, 2, 6, 3, 7};
    __v8du c0 = lanes - lanes + (uint32_t)sample, c1 = lanes - lanes + (sample >> 32);
    __v8du c2 = lanes + (uint32_t)high + block, c3 = lanes - lanes + (high >> 32);
    Z3D_PHILOX_ROUNDS(c0, c1, c2, c3, rule, __v8du, MULTIPLY, SHIFT);
    __m512i low = (__m512i)((c0 & UINT32_MAX) | c1 << 32);
    __m512i rest = (__m512i)((c2 & UINT32_MAX) | c3 << 32);
    const __m512i threshold = _mm512_set1_epi32((int)rule->threshold);
    const __m512 scale = _mm512_set1_ps(rule->scale);
    __m512i words[2] = {_mm512_unpacklo_epi64(low, rest), _mm512_unpackhi_epi64(low, rest)};
    for (int i = 0; i < 2; i++)
        _mm512_storeu_ps(mask + 16 * i,
                         _mm512_maskz_mov_ps(_mm512_cmpge_epu32_mask(words[i], threshold), scale));
#undef MULTIPLY
#undef SHIFT
}
#elif defined(__AVX2__)
enum { Z3D_DROPOUT_STEP = 16 };

static inline void z3d_dropout_step(const z3d_dropout_rule *rule, uint64_t sample, uint64_t high,
                                    uint32_t block, float mask[16]) {
#define MULTIPLY(x, y) ((__v4du)_mm256_mul_epu32((__m256i)(x), _mm256_set1_epi64x(y)))
#define SHIFT(x) ((x) >> 32)
    const __v4du lanes = {0, 2, 1, 3}; /* as above: even lanes have blocks 0, 1 */
    __v4du c0 = lanes - lanes + (uint32_t)sample, c1 = lanes - lanes + (sample >> 32);
    __v4du c2 = lanes + (uint32_t)high + block, c3 = lanes - lanes + (high >> 32);
    Z3D_PHILOX_ROUNDS(c0, c1, c2, c3, rule, __v4du, MULTIPLY, SHIFT);
    __m256i low = (__m256i)((c0 & UINT32_MAX) | c1 << 32);
    __m256i rest = (__m256i)((c2 & UINT32_MAX) | c3 << 32);
    const __m256i threshold = _mm256_set1_epi32((int)rule->threshold);
    const __m256 scale = _mm256_set1_ps(rule->scale);
    __m256i words[2] = {_mm256_unpacklo_epi64(low, rest), _mm256_unpackhi_epi64(low, rest)};
    for (int i = 0; i < 2; i++) {
        __m256i kept = _mm256_cmpeq_epi32(_mm256_max_epu32(words[i], threshold), words[i]);
        _mm256_storeu_ps(mask + 8 * i, _mm256_and_ps(_mm256_castsi256_ps(kept), scale));
    }
#undef MULTIPLY
#undef SHIFT
}
#else
enum { Z3D_DROPOUT_STEP = 4 };

static inline void z3d_dropout_step(const z3d_dropout_rule *rule, uint64_t sample, uint64_t high,
                                    uint32_t block, float mask[4]) {
#define MULTIPLY(x, y) ((uint64_t)(uint32_t)(x) * (y))
#define SHIFT(x) ((x) >> 32)
    uint64_t c0 = (uint32_t)sample, c1 = sample >> 32;
    uint64_t c2 = (uint32_t)high + block, c3 = high >> 32;
    Z3D_PHILOX_ROUNDS(c0, c1, c2, c3, rule, uint64_t, MULTIPLY, SHIFT);
    const uint64_t words[4] = {c0, c1, c2, c3};
    for (int i = 0; i < 4; i++) mask[i] = (uint32_t)words[i] < rule->threshold ? 0 : rule->scale;
#undef MULTIPLY
#undef SHIFT
}
#endif

/* mask[count] = 0 (dropped) or 1 / (1 - p), for columns first_column .. + count - 1, where
 * first_column is a multiple of 4, of one row of one head of the kernel's `sample`-th sample. */
static inline void z3d_dropout_mask(const z3d_dropout_rule *rule, int64_t sample, int64_t head,
                                    int64_t row, int64_t first_column, int64_t count,
                                    float *restrict mask) {
    const uint64_t global_sample = (uint64_t)(rule->sample + sample);
    const uint64_t high = (uint64_t)head << 48 | (uint64_t)row << 24;
    int64_t done = 0;
    for (; done + Z3D_DROPOUT_STEP <= count; done += Z3D_DROPOUT_STEP)
        z3d_dropout_step(rule, global_sample, high, (uint32_t)((first_column + done) / 4),
                         mask + done);
    if (done < count) {
        float rest[Z3D_DROPOUT_STEP];
        z3d_dropout_step(rule, global_sample, high, (uint32_t)((first_column + done) / 4), rest);
        memcpy(mask + done, rest, (size_t)(count - done) * sizeof *mask);
    }
}

#endif
