/* Training on cuda against training on the cpu, and ZeRO's stages against each other. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/gpu/model.h"

enum { MOST_STEPS = 64 };

static z3d_status losses(check_context *context, const z3d_device_config *device, check_model m,
                         int steps, double *out) {
    z3d_status status = check_model_create(context, device, &m);
    for (int i = 0; i < steps && status == Z3D_OK; i++) {
        z3d_step_result result;
        status = check_model_step(&m, &result);
        out[i] = result.loss;
    }
    check_model_destroy(&m);
    return status;
}

static double furthest(const double *a, const double *b, int count) {
    double most = 0;
    for (int i = 0; i < count; i++) {
        double far = fabs(a[i] - b[i]) / fabs(b[i]);
        if (!(far <= most)) most = far;
    }
    return most;
}

/* All stages on cuda give the bits of stage 0, and stage 0 the cpu's losses. */
static z3d_status check_type(check_context *context, check_model m, int steps, double bound) {
    double cpu[MOST_STEPS], cuda[4][MOST_STEPS];
    char name[64];
    z3d_device_config reference = {.backend = "cpu"};
    Z3D_TRY(losses(context, &reference, m, steps, cpu));
    for (m.stage = 0; m.stage < 4; m.stage++)
        Z3D_TRY(losses(context, &context->cuda, m, steps, cuda[m.stage]));
    double far = furthest(cuda[0], cpu, steps);
    snprintf(name, sizeof name, "losses %s%s tp %d dp %d", z3d_dtype_name(m.dtype),
             m.dropout > 0 ? " dropout" : "", m.tensor, z3d_world_size(context->world) / m.tensor);
    check_report(context, far < bound && cuda[0][steps - 1] < cuda[0][0], name,
                 "%d steps, %.6f to %.6f, %.2e relative from the cpu's (bound %.0e)", steps,
                 cuda[0][0], cuda[0][steps - 1], far, bound);
    bool equal = true;
    for (int stage = 1; stage < 4; stage++)
        equal &= memcmp(cuda[0], cuda[stage], (size_t)steps * sizeof(double)) == 0;
    snprintf(name, sizeof name, "stages %s%s tp %d dp %d", z3d_dtype_name(m.dtype),
             m.dropout > 0 ? " dropout" : "", m.tensor, z3d_world_size(context->world) / m.tensor);
    check_report(context, equal, name, "losses of stages 0 to 3 %s bit for bit",
                 equal ? "are equal" : "differ");
    return Z3D_OK;
}

z3d_status check_training(check_context *context, int steps, int tensor) {
    check_model m = {.layers = 2,
                     .hidden = 32,
                     .heads = 4,
                     .seq = 16,
                     .vocabulary = 67,
                     .batch = 8,
                     .tensor = tensor,
                     .recompute = true};
    if (steps > MOST_STEPS) steps = MOST_STEPS;
    Z3D_TRY(check_type(context, m, steps, 1e-4));
    m.dropout = 0.1;
    Z3D_TRY(check_type(context, m, steps, 1e-4));
    m.dropout = 0;
    m.dtype = Z3D_BF16;
    return check_type(context, m, steps, 1e-2);
}
