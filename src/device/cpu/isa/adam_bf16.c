/* AdamW and Adam (adam.c) with both moments in bf16, momentum and variance in four bytes. The
 * update computes in fp32 and rounds the moments at random, which adds no bias. The random bits are
 * Philox's, keyed by the parameter's name and the seed, at (step, element of the logical parameter
 * / 4): equal on every topology. */
#include "src/device/cpu/isa/math.h"
#include "src/device/cpu/isa/optimizer.h"
#include "src/device/cpu/isa/philox.h"

#include <string.h>

/* One random word for each element: Philox's at (step, element / 4), from block `first` on. */
static void random_words(uint64_t key, uint64_t step, uint64_t first, int64_t blocks,
                         uint32_t *words) {
    const uint32_t halves[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    for (int64_t b = 0; b < blocks; b += Z3D_PHILOX_STEP / 4) {
        z3d_philox_vector vectors[2];
        z3d_philox_step(halves, step, first, (uint32_t)b, vectors);
        /* gcc would turn one memcpy of both into moves of eight bytes. */
        memcpy(words + 4 * b, &vectors[0], sizeof vectors[0]);
        memcpy(words + 4 * b + Z3D_PHILOX_STEP / 2, &vectors[1], sizeof vectors[1]);
    }
}

/* Adds 16 random bits to the lower half and returns the upper half: so x is rounded up with a
 * probability in proportion to the lower half. Infinity and NaN stay as they are. */
static inline uint32_t round_at_random(float x, uint32_t random) {
    const uint32_t bits = z3d_bits_of_float(x);
    const uint32_t finite =
        -(uint32_t)((bits & 0x7f800000u) != 0x7f800000u); /* all bits, or none */
    return (bits + (random & 0xffffu & finite)) >> 16;
}

/* Steps n elements. The low half of each four bytes of `moments` is the momentum. AdamW has added =
 * 0, Adam has kept = 1. Not inlined, because gcc would not vectorise it then. */
static __attribute__((noinline)) void step(const numbers *of_all, float kept, float added,
                                           int64_t n, const float *restrict gradient,
                                           const uint32_t *restrict random,
                                           uint32_t *restrict moments, float *restrict master) {
    const numbers u = *of_all;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float p = master[j] * kept;
        float g = gradient[j] * u.gradient_factor + added * p;
        float m = u.beta1 * z3d_float_of_bits(moments[j] << 16) + u.rest1 * g;
        float v = u.beta2 * z3d_float_of_bits(moments[j] & 0xffff0000u) + u.rest2 * (g * g);
        float denominator = sqrtf(v / u.correction2) + u.epsilon;
        moments[j] = round_at_random(m, random[j]) | round_at_random(v, random[j] >> 16) << 16;
        master[j] = p - u.learning_rate * (m / u.correction1) / denominator;
    }
}

/* So many elements have blocks with the same upper half. */
#define WITHOUT_CARRY ((int64_t)1 << 34)

static void step_all(const z3d_optimizer_update *kernel, bool decoupled, int64_t first,
                     int64_t end) {
    const numbers u = numbers_of(kernel);
    const z3d_parameter_place *place = &kernel->place;
    const uint64_t key = place->key + kernel->state->seed * 0x9e3779b97f4a7c15u;
    uint32_t random[TILE + 2 * Z3D_PHILOX_STEP];
    optimizer_tile tile;
    for (int64_t i = first; i < end; i += tile.n) {
        int64_t run;
        const int64_t global = global_index(place, i, &run);
        run = min_int64(run, WITHOUT_CARRY - global % WITHOUT_CARRY);
        begin_tile(&tile, kernel, i, min_int64(end, i + run));
        const int64_t blocks = (global + tile.n - 1) / 4 - global / 4 + 1;
        random_words(key, (uint64_t)kernel->state->optimizer_step, (uint64_t)global / 4, blocks,
                     random);
        step(&u, tile.decays && decoupled ? u.kept : 1.0f,
             tile.decays && !decoupled ? u.added : 0.0f, tile.n, tile.gradient, random + global % 4,
             (uint32_t *)kernel->moments + i, kernel->master + i);
        end_tile(&tile, kernel, i);
    }
}

static z3d_status check_place(const z3d_kernel *kernel) {
    const z3d_parameter_place *place = &kernel->as.update.place;
    Z3D_REQUIRE(place->local > 0 && place->inner > 0,
                "optimizer in bf16: a parameter of %lld rows of %lld", (long long)place->local,
                (long long)place->inner);
    return Z3D_OK;
}

OPTIMIZER(adamw_bf16, step_all(kernel, true, first, end), check_place(kernel))
OPTIMIZER(adam_bf16, step_all(kernel, false, first, end), check_place(kernel))
