/* SGD with momentum on a shard (torch.optim.SGD's order, m = 0 at first): g += weight_decay *
 * master;  m = momentum m + g;  master -= lr * m. */
#include "src/device/cpu/isa/isa.h"

static void update_block(const void *context, int64_t first, int64_t end) {
    const z3d_sgd *kernel = context;
    const float factor = kernel->state->gradient_factor, rate = kernel->state->learning_rate;
    const float momentum_factor = kernel->constants.momentum;
    int64_t n;
    for (int64_t i = first; i < end; i += n) {
        const bool decays = i < kernel->decayed; /* all of a tile or nothing */
        const float decay = decays ? kernel->constants.weight_decay : 0.0f;
        n = min_int64(TILE, (decays ? min_int64(end, kernel->decayed) : end) - i);
        float gradient_tile[TILE];
        const float *gradient =
            load_tile(gradient_tile, kernel->gradient, kernel->gradient_dtype, i, n);
        float *restrict master = kernel->master + i;
        float *restrict momentum = kernel->momentum + i;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            float g = gradient[j] * factor + decay * master[j];
            float m = momentum_factor * momentum[j] + g;
            momentum[j] = m;
            master[j] = master[j] - rate * m;
        }
        if (kernel->parameter && kernel->parameter != (void *)kernel->master)
            narrow(element_to_write(kernel->parameter, kernel->dtype, i), kernel->dtype, master, n);
    }
}

z3d_status Z3D_CPU_NAME(sgd)(z3d_cpu *cpu, const z3d_kernel *kernel) {
    const z3d_sgd *sgd = &kernel->as.sgd;
    REQUIRE_FLOAT(sgd, sgd->gradient_dtype);
    REQUIRE_FLOAT(sgd, sgd->dtype);
    if (sgd->state->skip == 1.0f) return Z3D_OK;
    for_elements(cpu, sgd->count, update_block, sgd);
    return Z3D_OK;
}
