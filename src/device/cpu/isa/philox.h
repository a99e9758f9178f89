/* Philox4x32-10, base/rng.h's z3d_philox, written for vectors: some blocks at a time. */
#ifndef ZERO3D_DEVICE_CPU_ISA_PHILOX_H
#define ZERO3D_DEVICE_CPU_ISA_PHILOX_H

#include <stdint.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

/* The generator's rounds on a vector of 64-bit words. Only the low halves count; the upper halves
 * hold what remains of products, and the next multiplication does not read them. */
#define Z3D_PHILOX_ROUNDS(c0, c1, c2, c3, key, WORDS, MULTIPLY, SHIFT)                             \
    do {                                                                                           \
        uint32_t key0 = (key)[0], key1 = (key)[1];                                                 \
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

/* Z3D_PHILOX_STEP words, four a block, of the counters (low, high + block) and following: the low
 * 32 bits of high + block do not carry. */
#if defined(__AVX512F__)
enum { Z3D_PHILOX_STEP = 32 };
typedef __m512i z3d_philox_vector;

static inline void z3d_philox_step(const uint32_t key[2], uint64_t low, uint64_t high,
                                   uint32_t block, z3d_philox_vector words[2]) {
#define MULTIPLY(x, y) ((__v8du)_mm512_mul_epu32((__m512i)(x), _mm512_set1_epi64(y)))
#define SHIFT(x) ((x) >> 32)
    /* Even lanes have blocks 0 to 3, odd ones 4 to 7: the unpacking below puts them in order. */
    const __v8du lanes = {0, 4, 1, 5, 2, 6, 3, 7};
    __v8du c0 = lanes - lanes + (uint32_t)low, c1 = lanes - lanes + (low >> 32);
    __v8du c2 = lanes + (uint32_t)high + block, c3 = lanes - lanes + (high >> 32);
    Z3D_PHILOX_ROUNDS(c0, c1, c2, c3, key, __v8du, MULTIPLY, SHIFT);
    __m512i first = (__m512i)((c0 & UINT32_MAX) | c1 << 32);
    __m512i rest = (__m512i)((c2 & UINT32_MAX) | c3 << 32);
    words[0] = _mm512_unpacklo_epi64(first, rest);
    words[1] = _mm512_unpackhi_epi64(first, rest);
#undef MULTIPLY
#undef SHIFT
}
#elif defined(__AVX2__)
enum { Z3D_PHILOX_STEP = 16 };
typedef __m256i z3d_philox_vector;

static inline void z3d_philox_step(const uint32_t key[2], uint64_t low, uint64_t high,
                                   uint32_t block, z3d_philox_vector words[2]) {
#define MULTIPLY(x, y) ((__v4du)_mm256_mul_epu32((__m256i)(x), _mm256_set1_epi64x(y)))
#define SHIFT(x) ((x) >> 32)
    const __v4du lanes = {0, 2, 1, 3}; /* likewise: even lanes have blocks 0, 1 */
    __v4du c0 = lanes - lanes + (uint32_t)low, c1 = lanes - lanes + (low >> 32);
    __v4du c2 = lanes + (uint32_t)high + block, c3 = lanes - lanes + (high >> 32);
    Z3D_PHILOX_ROUNDS(c0, c1, c2, c3, key, __v4du, MULTIPLY, SHIFT);
    __m256i first = (__m256i)((c0 & UINT32_MAX) | c1 << 32);
    __m256i rest = (__m256i)((c2 & UINT32_MAX) | c3 << 32);
    words[0] = _mm256_unpacklo_epi64(first, rest);
    words[1] = _mm256_unpackhi_epi64(first, rest);
#undef MULTIPLY
#undef SHIFT
}
#else
enum { Z3D_PHILOX_STEP = 4 };
typedef struct z3d_philox_vector {
    uint32_t word[2];
} z3d_philox_vector;

static inline void z3d_philox_step(const uint32_t key[2], uint64_t low, uint64_t high,
                                   uint32_t block, z3d_philox_vector words[2]) {
#define MULTIPLY(x, y) ((uint64_t)(uint32_t)(x) * (y))
#define SHIFT(x) ((x) >> 32)
    uint64_t c0 = (uint32_t)low, c1 = low >> 32;
    uint64_t c2 = (uint32_t)high + block, c3 = high >> 32;
    Z3D_PHILOX_ROUNDS(c0, c1, c2, c3, key, uint64_t, MULTIPLY, SHIFT);
    words[0] = (z3d_philox_vector){{(uint32_t)c0, (uint32_t)c1}};
    words[1] = (z3d_philox_vector){{(uint32_t)c2, (uint32_t)c3}};
#undef MULTIPLY
#undef SHIFT
}
#endif

#endif
