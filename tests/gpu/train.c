/* Training on cuda against training on the cpu, and ZeRO's stages against each other. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/gpu/model.h"

enum { MOST_STEPS = 64 };

/* out[2 x steps]: of each step the loss and the gradient's norm, which the first backward pass
 * already decides. */
static z3d_status losses(check_context *context, const z3d_device_config *device, check_model m,
                         int steps, double *out) {
    double transfers = 0;
    z3d_status status = check_model_create(context, device, &m);
    for (int i = 0; i < steps && status == Z3D_OK; i++) {
        z3d_step_result result;
        status = check_model_step(&m, &result);
        out[2 * i] = result.loss;
        out[2 * i + 1] = result.grad_norm;
        transfers += result.exposed_transfer_seconds;
    }
    if (m.offload && status == Z3D_OK)
        check_report(context, transfers > 0, "transfers", "%.3g s of waits for host memory",
                     transfers);
    check_model_destroy(&m);
    return status;
}

/* Relatively; a norm counts a tenth, since it has each gradient's rounding and no mean over tokens.
 */
static double furthest(const double *a, const double *b, int count) {
    double most = 0;
    for (int i = 0; i < count; i++) {
        double far = fabs(a[i] - b[i]) / fabs(b[i]) / (i % 2 ? 10 : 1);
        if (!(far <= most)) most = far;
    }
    return most;
}

/* Stages 0, step, 2 step, ... on cuda give equal bits, and stage 0 the cpu's losses. Stage 3 keeps
 * its activation checkpoints in host memory: copies beside compute. */
static z3d_status check_type(check_context *context, check_model m, int stage_step, int steps,
                             double bound) {
    double cpu[2 * MOST_STEPS], first[2 * MOST_STEPS], cuda[2 * MOST_STEPS];
    char name[64], what[48];
    z3d_device_config reference = {.backend = "cpu"};
    snprintf(what, sizeof what, "%s%s tp %d dp %d", z3d_dtype_name(m.dtype),
             m.dropout > 0 ? " dropout" : "", m.tensor, z3d_world_size(context->world) / m.tensor);
    Z3D_TRY(losses(context, &reference, m, steps, cpu));
    Z3D_TRY(losses(context, &context->cuda, m, steps, first));
    double far = furthest(first, cpu, 2 * steps);
    snprintf(name, sizeof name, "losses %s", what);
    check_report(context, far < bound, name,
                 "%d steps, %.6f to %.6f, %.2e relative from the cpu's (bound %.0e)", steps,
                 first[0], first[2 * steps - 2], far, bound);
    bool equal = true;
    for (m.stage = stage_step; m.stage < 4; m.stage += stage_step) {
        m.offload = m.stage == 3;
        Z3D_TRY(losses(context, &context->cuda, m, steps, cuda));
        equal &= memcmp(first, cuda, 2 * (size_t)steps * sizeof(double)) == 0;
    }
    snprintf(name, sizeof name, "stages %s", what);
    check_report(context, equal, name, "losses and norms of the stages %s bit for bit",
                 equal ? "are equal" : "differ");
    return Z3D_OK;
}

z3d_status check_training(check_context *context, bool tiny, int steps, int tensor) {
    check_model m = {.layers = 2,
                     .hidden = 32,
                     .heads = 4,
                     .seq = 16,
                     .vocabulary = 67,
                     .batch = 8,
                     .tensor = tensor,
                     .dropout = 0.1,
                     .recompute = true};
    if (steps > MOST_STEPS) steps = MOST_STEPS;
    Z3D_TRY(check_type(context, m, tiny ? 3 : 1, steps, 1e-4));
    if (tiny) return Z3D_OK;
    m.dropout = 0;
    Z3D_TRY(check_type(context, m, 1, steps, 1e-4));
    m.dtype = Z3D_BF16;
    return check_type(context, m, 1, steps, 1e-2);
}
