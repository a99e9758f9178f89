/* Philox4x32-10 (Salmon et al., SC11): a counter-based generator. A value is a pure function of
 * (key, counter), so a parameter's initial value or a dropout decision is the same on every
 * topology. */
#ifndef ZERO3D_BASE_RNG_H
#define ZERO3D_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

typedef struct z3d_philox_block {
    uint32_t word[4];
} z3d_philox_block;

/* `key` and the 128-bit counter (low, high) -> four independent 32-bit words. */
z3d_philox_block z3d_philox(uint64_t key, uint64_t counter_low, uint64_t counter_high);

/* A uniform value in (0,1]: never 0, so its logarithm is finite. */
float z3d_philox_uniform(uint32_t word);

/* Element `index` of the standard normal sequence of `key` (Box-Muller on block index/4). */
float z3d_philox_normal(uint64_t key, uint64_t index);
/* Elements first .. first + count - 1 of that sequence: the same values, faster. */
void z3d_philox_normal_fill(uint64_t key, uint64_t first, int64_t count, float *out);

/* A 64-bit hash of a seed and bytes. */
uint64_t z3d_hash(uint64_t seed, const void *bytes, size_t count);
/* The hash of a seed and a text: the key of a parameter or of a dropout site. */
uint64_t z3d_key(uint64_t seed, const char *text);

#endif
