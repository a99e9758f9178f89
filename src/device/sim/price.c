/* The time of kernels and copies on a described machine. */
#include "src/device/sim/hardware.h"

#include <math.h>
#include <string.h>

double z3d_hardware_peak(const z3d_hardware *hardware, z3d_dtype dtype) {
    const double tera[Z3D_DTYPE_COUNT] = {[Z3D_F32] = hardware->peak_fp32,
                                          [Z3D_BF16] = hardware->peak_bf16,
                                          [Z3D_F16] = hardware->peak_fp16};
    return tera[dtype] * 1e12;
}

z3d_status z3d_hardware_check_products(const z3d_hardware *hardware, z3d_dtype dtype) {
    static const struct type {
        z3d_dtype dtype;
        const char *key;
    } types[] = {{Z3D_BF16, "bf16: { enabled: true }"},
                 {Z3D_F16, "fp16: { enabled: true }"},
                 {Z3D_F32, "a configuration without bf16 and fp16"}};
    const char *wanted = z3d_dtype_name(dtype), *other = NULL;
    if (z3d_hardware_peak(hardware, dtype) > 0) return Z3D_OK;
    for (size_t i = 0; i < sizeof types / sizeof *types && !other; i++)
        if (z3d_hardware_peak(hardware, types[i].dtype) > 0) other = types[i].key;
    return Z3D_ERROR(Z3D_ERR_CONFIG,
                     "%s has no %s products (device.peak_tflops.%s of %s): %s%s%sgive the number",
                     hardware->device, wanted, wanted, hardware->file, other ? "write " : "",
                     other ? other : "", other ? ", or " : "");
}

static double compute_seconds(const z3d_hardware *hardware, z3d_dtype dtype, double flops,
                              double efficiency) {
    return flops / (z3d_hardware_peak(hardware, dtype) * efficiency);
}

static double memory_seconds(const z3d_hardware *hardware, double bytes) {
    return bytes / (hardware->memory_bandwidth * 1e9 * hardware->memory_efficiency);
}

/* Small dimensions leave a device's units idle: a dimension of size `gemm_half` halves the
 * speed. */
static double gemm(const z3d_hardware *hardware, const z3d_event *kernel) {
    if (kernel->m < 1 || kernel->n < 1 || kernel->k < 1) return 0;
    double half = hardware->gemm_half;
    double efficiency = hardware->gemm_efficiency /
                        ((1 + half / (double)kernel->m) * (1 + half / (double)kernel->n) *
                         (1 + half / (double)kernel->k));
    return fmax(compute_seconds(hardware, kernel->dtype, kernel->flops, efficiency),
                memory_seconds(hardware, (double)kernel->bytes));
}

/* Fused: the causal half in whole squares; a score costs an exponential, however small its head is.
 */
static double fused_attention(const z3d_hardware *hardware, const z3d_event *kernel,
                              bool backward) {
    const double head = 128, seq = (double)kernel->n, tile = hardware->attention_tile;
    const double exponentials =
        (1 + hardware->attention_head / (double)kernel->k) / (1 + hardware->attention_head / head);
    const double rows = ceil(seq / tile) * tile;
    const double squares = rows * (rows + tile) / (seq * (seq + 1));
    const double efficiency =
        hardware->attention_efficiency * (backward ? hardware->attention_backward : 1);
    return fmax(compute_seconds(hardware, kernel->dtype, kernel->flops * squares * exponentials,
                                efficiency),
                memory_seconds(hardware, (double)kernel->bytes));
}

/* If attention is not fused, each product and each step between the products (scale and mask,
 * softmax, dropout) reads or writes all scores. The products are of whole squares, not of the
 * causal half. */
static double attention(const z3d_hardware *hardware, const z3d_event *kernel, bool backward) {
    double seq = (double)kernel->n, squares = (double)kernel->m * seq * seq;
    if (hardware->attention_fused != 0) return fused_attention(hardware, kernel, backward);
    double flops = (backward ? 8 : 4) * squares * (double)kernel->k;
    double passes = hardware->attention_passes * (backward ? 1.5 : 1) * squares *
                    (double)z3d_bytes_of(kernel->dtype, 1);
    double efficiency = hardware->attention_efficiency;
    if (kernel->k % 8 != 0) efficiency *= hardware->attention_unaligned;
    return compute_seconds(hardware, kernel->dtype, flops, efficiency) +
           memory_seconds(hardware, passes);
}

/* Seconds from the machine's numbers, if nothing like the kernel was measured. */
static double roofline(const z3d_hardware *hardware, const z3d_event *kernel) {
    switch (kernel->of) {
    case Z3D_KERNEL_gemm:
        return gemm(hardware, kernel);
    case Z3D_KERNEL_attention_forward:
        return attention(hardware, kernel, false);
    case Z3D_KERNEL_attention_backward:
        return attention(hardware, kernel, true);
    default:
        return memory_seconds(hardware, (double)kernel->bytes);
    }
}

static bool is_empty(const z3d_sample *sample) {
    return sample->size[0] < 1 || sample->size[1] < 1 || sample->size[2] < 1;
}

double z3d_hardware_kernel(const z3d_hardware *hardware, const z3d_event *kernel) {
    if (hardware->gemm_epilogues != 0 && kernel->fused > 0)
        return memory_seconds(hardware, (double)kernel->fused);
    z3d_sample sample = z3d_sample_of_kernel(kernel);
    double seconds = is_empty(&sample) ? 0 : z3d_measured_seconds(&hardware->measured, &sample);
    if (seconds < 0) seconds = roofline(hardware, kernel);
    return seconds + hardware->launch_us * 1e-6;
}

/* Attention that is not fused: forward two products, softmax, dropout and a copy; backward eight
 * kernels, four of them products. */
int z3d_hardware_launches(const z3d_hardware *hardware, const z3d_event *kernel) {
    if (hardware->gemm_epilogues != 0 && kernel->fused > 0) return 0;
    if (hardware->attention_fused != 0) return 1;
    if (kernel->of == Z3D_KERNEL_attention_forward) return 5;
    return kernel->of == Z3D_KERNEL_attention_backward ? 8 : 1;
}

bool z3d_hardware_is_cpu(const z3d_hardware *hardware) {
    return strcmp(hardware->kind, "cpu") == 0;
}

double z3d_hardware_node_ranks(const z3d_hardware *hardware, int ranks) {
    return ranks < hardware->devices ? ranks : hardware->devices;
}

double z3d_hardware_crowding(const z3d_hardware *hardware, int ranks) {
    double wanted = z3d_hardware_node_ranks(hardware, ranks) * hardware->threads;
    return hardware->cores > 0 ? fmax(1, wanted / hardware->cores) : 1;
}

double z3d_hardware_overlap(const z3d_hardware *hardware, bool between_nodes) {
    bool network = between_nodes && hardware->network_overlap >= 0;
    return network ? hardware->network_overlap : hardware->overlap;
}

double z3d_hardware_copy(const z3d_hardware *hardware, const z3d_event *copy, int ranks) {
    double node = z3d_hardware_node_ranks(hardware, ranks), bytes = (double)copy->bytes;
    if (copy->from == Z3D_SPACE_DISK) return bytes * node / (hardware->nvme_read * 1e9);
    if (copy->to == Z3D_SPACE_DISK) return bytes * node / (hardware->nvme_write * 1e9);
    double sharing = node < hardware->host_sharing ? node : hardware->host_sharing;
    return bytes * sharing / (hardware->host_bandwidth * 1e9 * hardware->host_efficiency);
}

double z3d_hardware_host_kernel(const z3d_hardware *hardware, const z3d_event *kernel, int ranks) {
    double node = z3d_hardware_node_ranks(hardware, ranks);
    return (double)kernel->bytes * node / (hardware->host_optimizer * 1e9);
}
