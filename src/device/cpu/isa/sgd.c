/* SGD with momentum on a shard (torch.optim.SGD's order, m = 0 at first): g += weight_decay *
 * master;  m = momentum m + g;  master -= lr * m. */
#include "src/device/cpu/isa/optimizer.h"

static void step(const z3d_sgd *kernel, int64_t first, int64_t end) {
    const float factor = kernel->state->gradient_factor, rate = rate_of(kernel);
    const float momentum_factor = kernel->constants.momentum;
    optimizer_tile tile;
    for (int64_t i = first; i < end; i += tile.n) {
        begin_tile(&tile, kernel, i, end);
        const float decay = tile.decays ? kernel->constants.weight_decay : 0.0f;
        const float *gradient = tile.gradient;
        float *restrict master = kernel->master + i;
        float *restrict momentum = kernel->momentum + i;
#pragma omp simd
        for (int64_t j = 0; j < tile.n; j++) {
            float g = gradient[j] * factor + decay * master[j];
            float m = momentum_factor * momentum[j] + g;
            momentum[j] = m;
            master[j] = master[j] - rate * m;
        }
        end_tile(&tile, kernel, i);
    }
}

OPTIMIZER(sgd, step(kernel, first, end), Z3D_OK)
