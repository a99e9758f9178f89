/* Lion on a shard (Chen et al., 2023; m = 0 at first): master *= 1 - lr * weight_decay;  master -=
 * lr * sign(beta1 m + (1-beta1) g);  m = beta2 m + (1-beta2) g.  sign(0) = 0, as in the paper. */
#include "src/device/cpu/isa/optimizer.h"

static void step(const z3d_lion *kernel, int64_t first, int64_t end) {
    const z3d_optimizer_constants *constants = &kernel->constants;
    const float factor = kernel->state->gradient_factor, rate = rate_of(kernel);
    const float beta1 = constants->beta1, rest1 = (float)(1.0 - (double)beta1);
    const float beta2 = constants->beta2, rest2 = (float)(1.0 - (double)beta2);
    const float kept = (float)(1.0 - (double)rate * (double)constants->weight_decay);
    optimizer_tile tile;
    for (int64_t i = first; i < end; i += tile.n) {
        begin_tile(&tile, kernel, i, end);
        const float decay = tile.decays ? kept : 1.0f;
        const float *gradient = tile.gradient;
        float *restrict master = kernel->master + i;
        float *restrict momentum = kernel->momentum + i;
#pragma omp simd
        for (int64_t j = 0; j < tile.n; j++) {
            float g = gradient[j] * factor, m = momentum[j];
            float c = beta1 * m + rest1 * g;
            float sign = c > 0.0f ? 1.0f : c < 0.0f ? -1.0f : 0.0f;
            momentum[j] = beta2 * m + rest2 * g;
            master[j] = master[j] * decay - rate * sign;
        }
        end_tile(&tile, kernel, i);
    }
}

OPTIMIZER(lion, step(kernel, first, end), Z3D_OK)
