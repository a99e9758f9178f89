/* The step's control: a vector that is summed over all ranks, and the decisions that follow from
 * the sums. */
#include <math.h>

#include "src/device/cpu/isa/isa.h"

z3d_status Z3D_CPU_NAME(control_begin)(z3d_cpu *cpu, const z3d_kernel *kernel) {
    const z3d_control_begin *begin = &kernel->as.control_begin;
    (void)cpu;
    Z3D_REQUIRE(begin->count >= 4, "kernel control_begin: %lld numbers", (long long)begin->count);
    memset(begin->control, 0, (size_t)begin->count * sizeof *begin->control);
    if (begin->counts) {
        begin->control[0] = begin->state->loss_sum;
        begin->control[1] = begin->state->valid_targets;
    }
    begin->control[2] = (double)begin->state->stop_requested;
    return Z3D_OK;
}

z3d_status Z3D_CPU_NAME(control_end)(z3d_cpu *cpu, const z3d_kernel *kernel) {
    const z3d_control_end *end = &kernel->as.control_end;
    const double scale = (double)end->state->loss_scale;
    const double mean = z3d_step_mean(end->state->targets, end->control[1]);
    double squares = 0, factor = 1;
    (void)cpu;
    Z3D_REQUIRE(end->count >= 4, "kernel control_end: %lld numbers", (long long)end->count);
    for (int64_t i = 4; i < end->count; i++) squares += end->control[i];
    if (end->clipping > 0) factor = end->clipping / (sqrt(squares) * mean / scale + 1e-6);
    end->state->gradient_factor = (float)((factor < 1 ? factor : 1) * mean / scale);
    end->state->skip = isfinite(squares) && mean > 0 ? 0.0f : 1.0f;
    end->control[3] = (double)end->state->skip;
    return Z3D_OK;
}
