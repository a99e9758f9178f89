/* Philox4x32-10: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as
 * 1, 2, 3", SC11. */
#include "src/base/rng.h"

#include <math.h>
#include <string.h>

z3d_philox_block z3d_philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
    uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)counter_low, c1 = (uint32_t)(counter_low >> 32);
    uint32_t c2 = (uint32_t)counter_high, c3 = (uint32_t)(counter_high >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t product0 = (uint64_t)0xD2511F53u * c0;
        uint64_t product1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(product1 >> 32) ^ c1 ^ key0;
        c1 = (uint32_t)product1;
        c2 = (uint32_t)(product0 >> 32) ^ c3 ^ key1;
        c3 = (uint32_t)product0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return (z3d_philox_block){{c0, c1, c2, c3}};
}

float z3d_philox_uniform(uint32_t word) {
    return (float)((word >> 8) + 1) * 0x1p-24f;
}

/* Box and Muller (1958): two uniforms give two normals. Computed in double: so values reach 6.6
 * standard deviations, and differences in the last bits of math libraries do not reach the float.
 */
static void normal_pair(uint32_t word0, uint32_t word1, float out[2]) {
    double uniform = ((double)word0 + 1.0) * 0x1p-32; /* (0,1] */
    double angle = (double)word1 * (0x1p-32 * 6.283185307179586476925);
    double radius = sqrt(-2.0 * log(uniform));
    out[0] = (float)(radius * cos(angle));
    out[1] = (float)(radius * sin(angle));
}

float z3d_philox_normal(uint64_t key, uint64_t index) {
    float normal;
    z3d_philox_normal_fill(key, index, 1, &normal);
    return normal;
}

void z3d_philox_normal_fill(uint64_t key, uint64_t first, int64_t count, float *out) {
    for (int64_t i = 0; i < count;) {
        uint64_t index = first + (uint64_t)i;
        z3d_philox_block block = z3d_philox(key, index / 4, 0);
        float normal[4];
        normal_pair(block.word[0], block.word[1], normal);
        normal_pair(block.word[2], block.word[3], normal + 2);
        for (uint64_t lane = index % 4; lane < 4 && i < count; lane++) out[i++] = normal[lane];
    }
}

/* FNV-1a over the bytes, begun with the seed, then the final mix of splitmix64: every bit of the
 * seed and of the bytes affects every bit of the result. */
uint64_t z3d_hash(uint64_t seed, const void *bytes, size_t count) {
    const unsigned char *byte = bytes;
    uint64_t hash = 0xCBF29CE484222325u ^ (seed * 0x9E3779B97F4A7C15u);
    for (size_t i = 0; i < count; i++) hash = (hash ^ byte[i]) * 0x100000001B3u;
    hash ^= hash >> 30;
    hash *= 0xBF58476D1CE4E5B9u;
    hash ^= hash >> 27;
    hash *= 0x94D049BB133111EBu;
    return hash ^ (hash >> 31);
}

uint64_t z3d_key(uint64_t seed, const char *text) {
    return z3d_hash(seed, text, strlen(text));
}
