/* AdamW and Adam (adam.c) with both moments in bf16, momentum and variance in four bytes. The
 * update has them in fp32; they are kept rounded at random, which loses nothing on average. The
 * bits are Philox's under the parameter's name and the seed, at (element of the logical parameter,
 * step): the same on every topology. */
#include "src/device/cpu/isa/adam.h"

#include <string.h>

/* Words of Philox: four a block, from counter (first, step) on. base/rng.h's, for vectors. */
static void random_words(uint64_t key, uint64_t first, uint64_t step, int64_t blocks,
                         uint32_t *restrict words) {
#pragma omp simd
    for (int64_t b = 0; b < blocks; b++) {
        const uint64_t low = first + (uint64_t)b;
        uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
        uint32_t c0 = (uint32_t)low, c1 = (uint32_t)(low >> 32);
        uint32_t c2 = (uint32_t)step, c3 = (uint32_t)(step >> 32);
#pragma GCC unroll 10
        for (int round = 0; round < 10; round++) {
            const uint64_t product0 = (uint64_t)c0 * 0xd2511f53u;
            const uint64_t product1 = (uint64_t)c2 * 0xcd9e8d57u;
            c0 = (uint32_t)(product1 >> 32) ^ c1 ^ key0;
            c1 = (uint32_t)product1;
            c2 = (uint32_t)(product0 >> 32) ^ c3 ^ key1;
            c3 = (uint32_t)product0;
            key0 += 0x9e3779b9u;
            key1 += 0xbb67ae85u;
        }
        words[4 * b] = c0, words[4 * b + 1] = c1, words[4 * b + 2] = c2, words[4 * b + 3] = c3;
    }
}

/* The upper half after as much is added as 16 random bits say: up or down in proportion. What is
 * not finite stays so. */
static inline uint32_t round_at_random(float x, uint32_t random) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits & 0x7f800000u) == 0x7f800000u ? bits >> 16 : (bits + (random & 0xffffu)) >> 16;
}

static inline float from_upper_half(uint32_t bits) {
    float x;
    bits &= 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Of a tile whose words begin with that of its first element: the low half of a moment's four bytes
 * is the momentum. */
static inline void step_packed(const z3d_optimizer_update *kernel, const numbers *numbers_of_all,
                               bool decoupled, const optimizer_tile *tile, int64_t i,
                               const uint32_t *random) {
    const numbers u = *numbers_of_all;
    const float kept = tile->decays ? u.kept : 1.0f, added = tile->decays ? u.added : 0.0f;
    const float *gradient = tile->gradient;
    const int64_t n = tile->n;
    float *restrict master = kernel->master + i;
    uint32_t *restrict moments = (uint32_t *)kernel->moments + i;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float p = decoupled ? master[j] * kept : master[j];
        float g = gradient[j] * u.gradient_factor;
        if (!decoupled) g += added * p;
        float m = u.beta1 * from_upper_half(moments[j] << 16) + u.rest1 * g;
        float v = u.beta2 * from_upper_half(moments[j]) + u.rest2 * (g * g);
        float denominator = sqrtf(v / u.correction2) + u.epsilon;
        moments[j] = round_at_random(m, random[j]) | round_at_random(v, random[j] >> 16) << 16;
        master[j] = p - u.learning_rate * (m / u.correction1) / denominator;
    }
}

static inline void walk_packed(const z3d_optimizer_update *kernel, bool decoupled, int64_t first,
                               int64_t end) {
    const numbers u = numbers_of(kernel);
    const z3d_parameter_place *place = &kernel->place;
    const int64_t slice = place->local * place->inner;
    const uint64_t key = place->key + kernel->state->seed * 0x9e3779b97f4a7c15u;
    uint32_t random[TILE + 8];
    optimizer_tile tile;
    for (int64_t i = first; i < end; i += tile.n) {
        const int64_t local = place->first + i, within = local % slice;
        const int64_t global =
            (local / slice * place->global + place->offset) * place->inner + within;
        begin_tile(&tile, kernel, i, min_int64(end, i + slice - within));
        const int64_t blocks = (global + tile.n - 1) / 4 - global / 4 + 1;
        random_words(key, (uint64_t)global / 4, (uint64_t)kernel->state->optimizer_step, blocks,
                     random);
        step_packed(kernel, &u, decoupled, &tile, i, random + global % 4);
        end_tile(&tile, kernel, i);
    }
}

static void adamw_bf16_block(const void *kernel, int64_t first, int64_t end) {
    walk_packed(kernel, true, first, end);
}

static void adam_bf16_block(const void *kernel, int64_t first, int64_t end) {
    walk_packed(kernel, false, first, end);
}

static z3d_status check_place(const z3d_kernel *kernel) {
    const z3d_parameter_place *place = &kernel->as.update.place;
    Z3D_REQUIRE(place->local > 0 && place->inner > 0,
                "optimizer in bf16: a parameter of %lld rows of %lld", (long long)place->local,
                (long long)place->inner);
    return Z3D_OK;
}

OPTIMIZER(adamw_bf16, adamw_bf16_block, check_place(kernel))
OPTIMIZER(adam_bf16, adam_bf16_block, check_place(kernel))
