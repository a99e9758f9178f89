/* What kernels and copies take on a described machine. */
#include "src/device/sim/hardware.h"

double z3d_hardware_peak(const z3d_hardware *hardware, z3d_dtype dtype) {
    double tera = dtype == Z3D_F16    ? hardware->peak_fp16
                  : dtype == Z3D_BF16 ? hardware->peak_bf16
                                      : hardware->peak_fp32;
    return tera * 1e12;
}

/* FLOP/s of products; a machine whose peak is not known is as fast as its memory lets it be. */
static double compute_seconds(const z3d_hardware *hardware, z3d_dtype dtype, double flops,
                              double efficiency) {
    double peak = z3d_hardware_peak(hardware, dtype);
    return peak > 0 ? flops / (peak * efficiency) : 0;
}

static double memory_seconds(const z3d_hardware *hardware, double bytes) {
    return bytes / (hardware->memory_bandwidth * 1e9 * hardware->memory_efficiency);
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

/* Small dimensions leave a device's units idle: each halves the speed at `gemm_half`. */
static double gemm(const z3d_hardware *hardware, const z3d_event *kernel) {
    if (kernel->m < 1 || kernel->n < 1 || kernel->k < 1) return 0;
    double half = hardware->gemm_half;
    double efficiency = hardware->gemm_efficiency /
                        ((1 + half / (double)kernel->m) * (1 + half / (double)kernel->n) *
                         (1 + half / (double)kernel->k));
    return larger(compute_seconds(hardware, kernel->dtype, kernel->flops, efficiency),
                  memory_seconds(hardware, (double)kernel->bytes));
}

/* Not fused, each product and each step between (scale and mask, softmax, dropout) passes over all
 * scores: 8 times forward, 12 backward; and products are of whole squares, not of the causal half.
 */
static double attention(const z3d_hardware *hardware, const z3d_event *kernel, bool backward) {
    double seq = (double)kernel->n, squares = (double)kernel->m * seq * seq;
    if (hardware->attention_fused != 0)
        return larger(
            compute_seconds(hardware, kernel->dtype, kernel->flops, hardware->attention_efficiency),
            memory_seconds(hardware, (double)kernel->bytes));
    double flops = (backward ? 8 : 4) * squares * (double)kernel->k;
    double passes = (backward ? 12 : 8) * squares * (double)z3d_dtype_size(kernel->dtype);
    double efficiency = hardware->attention_efficiency;
    if (kernel->k % 8 != 0) efficiency *= hardware->attention_unaligned;
    return compute_seconds(hardware, kernel->dtype, flops, efficiency) +
           memory_seconds(hardware, passes);
}

double z3d_hardware_kernel(const z3d_hardware *hardware, const z3d_event *kernel) {
    double seconds = 0;
    switch (kernel->of) {
    case Z3D_KERNEL_gemm:
        seconds = gemm(hardware, kernel);
        break;
    case Z3D_KERNEL_attention_forward:
        seconds = attention(hardware, kernel, false);
        break;
    case Z3D_KERNEL_attention_backward:
        seconds = attention(hardware, kernel, true);
        break;
    default:
        seconds = memory_seconds(hardware, (double)kernel->bytes);
        if (hardware->kernel_rate[kernel->of] > 0)
            seconds = (double)kernel->bytes / (hardware->kernel_rate[kernel->of] * 1e9);
    }
    return seconds + hardware->launch_us * 1e-6;
}

double z3d_hardware_copy(const z3d_hardware *hardware, int64_t bytes) {
    return (double)bytes * hardware->host_sharing /
           (hardware->host_bandwidth * 1e9 * hardware->host_efficiency);
}
