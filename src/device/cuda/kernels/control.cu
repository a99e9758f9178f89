// The step's control is a few numbers: one thread, in the cpu device's order.
#include "src/device/cuda/kernels/common.cuh"

namespace {

__global__ void control_begin_kernel(z3d_control_begin k) {
    for (int64_t i = 0; i < k.count; i++) k.control[i] = 0.0;
    if (k.counts) {
        k.control[0] = k.state->loss_sum;
        k.control[1] = k.state->valid_targets;
    }
    k.control[2] = (double)k.state->stop_requested;
}

// x - x is 0 exactly if x is finite.
__global__ void control_end_kernel(z3d_control_end k) {
    const double scale = (double)k.state->loss_scale;
    const double places = k.state->targets, trained = k.control[1];
    const double mean = places > 0.0 ? (trained > 0.0 ? places / trained : 0.0) : 1.0;
    double squares = 0.0, factor = 1.0;
    for (int64_t i = 4; i < k.count; i++) squares += k.control[i];
    if (k.clipping > 0.0) factor = k.clipping / (sqrt(squares) * mean / scale + 1e-6);
    k.state->gradient_factor = (float)((factor < 1.0 ? factor : 1.0) * mean / scale);
    k.state->skip = squares - squares == 0.0 && mean > 0.0 ? 0.0f : 1.0f;
    k.control[3] = (double)k.state->skip;
}

} // namespace

z3d_status z3d_cuda_control_begin(const z3d_cuda_lane *lane, const z3d_control_begin *kernel) {
    Z3D_REQUIRE(kernel->count >= 4, "kernel control_begin: %lld numbers", (long long)kernel->count);
    return launch(lane, "control_begin", 1, dim3(1), 0, control_begin_kernel, *kernel);
}

z3d_status z3d_cuda_control_end(const z3d_cuda_lane *lane, const z3d_control_end *kernel) {
    Z3D_REQUIRE(kernel->count >= 4, "kernel control_end: %lld numbers", (long long)kernel->count);
    return launch(lane, "control_end", 1, dim3(1), 0, control_end_kernel, *kernel);
}
