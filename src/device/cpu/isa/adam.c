/* AdamW and Adam on a shard, in torch.optim's order:
 *   AdamW: master *= 1 - lr * weight_decay (decoupled, Loshchilov and Hutter);
 *   Adam:  g += weight_decay * master (L2 regularization);
 * then  m = beta1 m + (1-beta1) g;  v = beta2 v + (1-beta2) g^2;  master -= lr * (m / (1-beta1^t))
 * / (sqrt(v / (1-beta2^t)) + epsilon),  t = state->optimizer_step. */
#include "src/device/cpu/isa/optimizer.h"

/* What is the same for all elements. */
typedef struct numbers {
    float gradient_factor, learning_rate, beta1, beta2, rest1, rest2, epsilon;
    float kept, added; /* of what decays: the parameter's factor; its part in the gradient */
    float correction1, correction2; /* 1 - beta^t */
} numbers;

static numbers numbers_of(const z3d_optimizer_update *kernel) {
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

/* `decoupled` is a constant where this is inlined. */
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

static void adamw_block(const void *kernel, int64_t first, int64_t end) {
    step(kernel, true, first, end);
}

static void adam_block(const void *kernel, int64_t first, int64_t end) {
    step(kernel, false, first, end);
}

OPTIMIZER(adamw, adamw_block)
OPTIMIZER(adam, adam_block)
