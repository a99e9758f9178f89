/* A shard in tiles: the loop that all optimizers share. */
#ifndef ZERO3D_DEVICE_CPU_ISA_OPTIMIZER_H
#define ZERO3D_DEVICE_CPU_ISA_OPTIMIZER_H

#include "src/device/cpu/isa/isa.h"

typedef struct optimizer_tile {
    int64_t n;             /* elements */
    bool decays;           /* weight decay applies to the whole tile, or to nothing of it */
    const float *gradient; /* not yet multiplied by gradient_factor */
    float converted[TILE];
} optimizer_tile;

static inline float rate_of(const z3d_optimizer_update *kernel) {
    return kernel->state->learning_rate * kernel->constants.lr_scale;
}

/* Sets up the tile from element i on; it ends at `end` or earlier. */
static inline void begin_tile(optimizer_tile *tile, const z3d_optimizer_update *kernel, int64_t i,
                              int64_t end) {
    tile->decays = i < kernel->decayed;
    tile->n = min_int64(TILE, (tile->decays ? min_int64(end, kernel->decayed) : end) - i);
    tile->gradient =
        load_tile(tile->converted, kernel->gradient, kernel->gradient_dtype, i, tile->n);
}

static inline void average(const z3d_optimizer_update *kernel, int64_t i, int64_t n) {
    const float kept = kernel->state->optimizer_step > 1 ? kernel->constants.ema_decay : 0.0f;
    const float added = (float)(1.0 - (double)kept);
    const float *restrict master = kernel->master + i;
    float *restrict ema = kernel->ema + i;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) ema[j] = kept * ema[j] + added * master[j];
}

/* Stores the parameters: the new master copy, converted. */
static inline void end_tile(const optimizer_tile *tile, const z3d_optimizer_update *kernel,
                            int64_t i) {
    if (kernel->ema) average(kernel, i, tile->n);
    if (kernel->parameter && kernel->parameter != (void *)kernel->master)
        narrow(element_to_write(kernel->parameter, kernel->dtype, i), kernel->dtype,
               kernel->master + i, tile->n);
}

/* AdamW and Adam, with states of any type: the numbers that are equal for all elements. */
typedef struct numbers {
    float gradient_factor, learning_rate, beta1, beta2, rest1, rest2, epsilon;
    float kept, added; /* parameters that decay: they are multiplied by `kept`; `added` times the
                          parameter is added to the gradient */
    float correction1, correction2; /* 1 - beta^t */
} numbers;

static inline numbers numbers_of(const z3d_optimizer_update *kernel) {
    const z3d_optimizer_constants *constants = &kernel->constants;
    const z3d_step_state *state = kernel->state;
    const double beta1 = (double)constants->beta1, beta2 = (double)constants->beta2;
    const double steps = (double)state->optimizer_step;
    const float rate = rate_of(kernel);
    return (numbers){
        .gradient_factor = state->gradient_factor,
        .learning_rate = rate,
        .kept = (float)(1.0 - (double)rate * (double)constants->weight_decay),
        .added = constants->weight_decay,
        .beta1 = constants->beta1,
        .beta2 = constants->beta2,
        .rest1 = (float)(1.0 - beta1),
        .rest2 = (float)(1.0 - beta2),
        .epsilon = constants->epsilon,
        .correction1 = (float)(1.0 - pow(beta1, steps)),
        .correction2 = (float)(1.0 - pow(beta2, steps)),
    };
}

/* Defines the kernel of an optimizer. steps: steps elements first .. end - 1; check: a status. */
#define OPTIMIZER(id, steps, check)                                                                \
    static void id##_block(const void *kernel, int64_t first, int64_t end) {                       \
        steps;                                                                                     \
    }                                                                                              \
                                                                                                   \
    z3d_status Z3D_CPU_NAME(id)(z3d_cpu * cpu, const z3d_kernel *kernel) {                         \
        const z3d_optimizer_update *update = &kernel->as.update;                                   \
        REQUIRE_FLOAT(id, update->gradient_dtype);                                                 \
        REQUIRE_FLOAT(id, update->dtype);                                                          \
        Z3D_TRY(check);                                                                            \
        if (update->state->skip != 1.0f) for_elements(cpu, update->count, id##_block, update);     \
        return Z3D_OK;                                                                             \
    }

#endif
