/* Adagrad on a shard (torch.optim.Adagrad's order without lr_decay; s = 0 at first): g +=
 * weight_decay * master;  s += g^2;  master -= lr * g / (sqrt(s) + epsilon). */
#include "src/device/cpu/isa/optimizer.h"

static void step(const z3d_adagrad *kernel, int64_t first, int64_t end) {
    const float factor = kernel->state->gradient_factor, rate = rate_of(kernel);
    const float epsilon = kernel->constants.epsilon;
    optimizer_tile tile;
    for (int64_t i = first; i < end; i += tile.n) {
        begin_tile(&tile, kernel, i, end);
        const float decay = tile.decays ? kernel->constants.weight_decay : 0.0f;
        const float *gradient = tile.gradient;
        float *restrict master = kernel->master + i;
        float *restrict squares = kernel->square_sum + i;
#pragma omp simd
        for (int64_t j = 0; j < tile.n; j++) {
            float g = gradient[j] * factor + decay * master[j];
            float s = squares[j] + g * g;
            squares[j] = s;
            master[j] = master[j] - rate * g / (sqrtf(s) + epsilon);
        }
        end_tile(&tile, kernel, i);
    }
}

OPTIMIZER(adagrad, step(kernel, first, end), Z3D_OK)
