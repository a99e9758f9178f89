/* The predicted numbers of a published run. Their names are columns in configs/published. */
#ifndef ZERO3D_PLAN_PAPER_QUANTITIES_H
#define ZERO3D_PLAN_PAPER_QUANTITIES_H

#include "src/plan/price/estimate.h"

#define Z3D_QUANTITIES(X)                                                                          \
    X(tflops_per_gpu)                                                                              \
    X(model_tflops_per_gpu)                                                                        \
    X(parameter_tflops_per_gpu)                                                                    \
    X(seconds)                                                                                     \
    X(samples_per_gpu_s)                                                                           \
    X(tokens_per_gpu_s)                                                                            \
    X(bubble)                                                                                      \
    X(block_forward_ms)                                                                            \
    X(block_backward_ms)                                                                           \
    X(states_gib)                                                                                  \
    X(activations_gib)                                                                             \
    X(memory_gib)                                                                                  \
    X(fits)
enum {
#define X(name) Z3D_Q_##name,
    Z3D_QUANTITIES(X)
#undef X
        Z3D_Q_COUNT
};
extern const char *const z3d_quantities[Z3D_Q_COUNT];

/* own: memory without the bytes that only the published software keeps; else NAN. */
typedef struct z3d_predicted {
    double value[Z3D_Q_COUNT], own[Z3D_Q_COUNT];
} z3d_predicted;

/* kept_per_bsh: bytes that only the published software keeps of a block for its backward, per token
 * of the micro-batch and element of hidden_size. Errors: as z3d_estimate_make. */
z3d_status z3d_quantities_find(const z3d_case *of, const z3d_hardware *hardware, int hidden_size,
                               double kept_per_bsh, z3d_predicted *out);

#endif
