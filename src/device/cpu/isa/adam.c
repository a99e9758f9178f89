/* AdamW and Adam on a shard, in torch.optim's order:
 *   AdamW: master *= 1 - lr * weight_decay (decoupled, Loshchilov and Hutter);
 *   Adam:  g += weight_decay * master (L2 regularization);
 * then  m = beta1 m + (1-beta1) g;  v = beta2 v + (1-beta2) g^2;  master -= lr * (m / (1-beta1^t))
 * / (sqrt(v / (1-beta2^t)) + epsilon),  t = state->optimizer_step. */
#include "src/device/cpu/isa/optimizer.h"

/* `decoupled` is a constant at each call, so the compiler removes the test. */
static inline void step(const z3d_optimizer_update *kernel, bool decoupled, int64_t first,
                        int64_t end) {
    const numbers u = numbers_of(kernel);
    optimizer_tile tile;
    for (int64_t i = first; i < end; i += tile.n) {
        begin_tile(&tile, kernel, i, end);
        const float kept = tile.decays ? u.kept : 1.0f, added = tile.decays ? u.added : 0.0f;
        const float *gradient = tile.gradient;
        float *restrict master = kernel->master + i;
        float *restrict momentum = kernel->momentum + i;
        float *restrict variance = kernel->variance + i;
#pragma omp simd
        for (int64_t j = 0; j < tile.n; j++) {
            float p = decoupled ? master[j] * kept : master[j];
            float g = gradient[j] * u.gradient_factor;
            if (!decoupled) g += added * p;
            float m = u.beta1 * momentum[j] + u.rest1 * g;
            float v = u.beta2 * variance[j] + u.rest2 * (g * g);
            float denominator = sqrtf(v / u.correction2) + u.epsilon;
            momentum[j] = m;
            variance[j] = v;
            master[j] = p - u.learning_rate * (m / u.correction1) / denominator;
        }
        end_tile(&tile, kernel, i);
    }
}

OPTIMIZER(adamw, step(kernel, true, first, end), Z3D_OK)
OPTIMIZER(adam, step(kernel, false, first, end), Z3D_OK)
