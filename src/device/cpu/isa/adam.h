/* The factors of AdamW and Adam, for states of any type. */
#ifndef ZERO3D_DEVICE_CPU_ISA_ADAM_H
#define ZERO3D_DEVICE_CPU_ISA_ADAM_H

#include "src/device/cpu/isa/optimizer.h"

/* Numbers that are equal for all elements. */
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

#endif
