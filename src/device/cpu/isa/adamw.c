/* AdamW on a shard (Loshchilov and Hutter, decoupled decay, torch.optim.AdamW's order): master *= 1
 * - lr * weight_decay;  m = beta1 m + (1-beta1) g;  v = beta2 v + (1-beta2) g^2;  master -= lr * (m
 * / (1-beta1^t)) / (sqrt(v / (1-beta2^t)) + epsilon),  t = state->optimizer_step. */
#include "src/device/cpu/isa/isa.h"

/* What is the same for all elements. */
typedef struct update {
    const z3d_adamw *kernel;
    float gradient_factor, learning_rate, decay, beta1, beta2, rest1, rest2, epsilon;
    float correction1, correction2; /* 1 - beta^t */
} update;

static void update_block(const void *context, int64_t first, int64_t end) {
    const update u = *(const update *)context;
    const z3d_adamw *kernel = u.kernel;
    int64_t n;
    for (int64_t i = first; i < end; i += n) {
        const bool decays = i < kernel->decayed; /* all of a tile or nothing */
        const float decay = decays ? u.decay : 1.0f;
        n = min_int64(TILE, (decays ? min_int64(end, kernel->decayed) : end) - i);
        float gradient_tile[TILE];
        const float *gradient =
            load_tile(gradient_tile, kernel->gradient, kernel->gradient_dtype, i, n);
        float *restrict master = kernel->master + i;
        float *restrict momentum = kernel->momentum + i;
        float *restrict variance = kernel->variance + i;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            float g = gradient[j] * u.gradient_factor;
            float p = master[j] * decay;
            float m = u.beta1 * momentum[j] + u.rest1 * g;
            float v = u.beta2 * variance[j] + u.rest2 * (g * g);
            float denominator = sqrtf(v / u.correction2) + u.epsilon;
            momentum[j] = m;
            variance[j] = v;
            master[j] = p - u.learning_rate * (m / u.correction1) / denominator;
        }
        if (kernel->parameter && kernel->parameter != (void *)kernel->master)
            narrow(element_to_write(kernel->parameter, kernel->dtype, i), kernel->dtype, master, n);
    }
}

z3d_status Z3D_CPU_NAME(adamw)(z3d_cpu *cpu, const z3d_kernel *kernel) {
    const z3d_adamw *adamw = &kernel->as.adamw;
    const z3d_optimizer_constants *constants = &adamw->constants;
    const z3d_step_state *state = adamw->state;
    REQUIRE_FLOAT(adamw, adamw->gradient_dtype);
    REQUIRE_FLOAT(adamw, adamw->dtype);
    if (state->skip == 1.0f) return Z3D_OK;
    const double beta1 = (double)constants->beta1, beta2 = (double)constants->beta2;
    const double steps = (double)state->optimizer_step;
    const update u = {
        .kernel = adamw,
        .gradient_factor = state->gradient_factor,
        .learning_rate = state->learning_rate,
        .decay = (float)(1.0 - (double)state->learning_rate * (double)constants->weight_decay),
        .beta1 = constants->beta1,
        .beta2 = constants->beta2,
        .rest1 = (float)(1.0 - beta1),
        .rest2 = (float)(1.0 - beta2),
        .epsilon = constants->epsilon,
        .correction1 = (float)(1.0 - pow(beta1, steps)),
        .correction2 = (float)(1.0 - pow(beta2, steps)),
    };
    for_elements(cpu, adamw->count, update_block, &u);
    return Z3D_OK;
}
