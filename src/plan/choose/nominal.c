/* A machine for plan --fit if the user names none. */
#include <stdio.h>
#include <string.h>

#include "src/plan/choose/choose.h"

z3d_status z3d_nominal_machine(const z3d_config *config, int ranks, z3d_hardware *out) {
    static const char text[] =
        "name: a nominal machine (100 TFLOP/s, 1 TB/s, links of 100 GB/s)\n"
        "device: { name: a nominal device, kind: gpu, memory_gib: 1, gemm_efficiency: 0.6, "
        "gemm_half: 64, memory_gb_per_s: 1000, memory_efficiency: 0.8, launch_us: 5, "
        "attention_efficiency: 0.4, peak_tflops: { fp16: 100, bf16: 100, fp32: 50 } }\n"
        "node: { devices: 8, link_gb_per_s: 100, link_efficiency: 0.8, link_latency_us: 5, "
        "network_gb_per_s: 50, network_efficiency: 0.7, network_latency_us: 20, "
        "host_gb_per_s: 16, host_optimizer_gb_per_s: 100, host_memory_gib: 1024, "
        "nvme_read_gb_per_s: 10, nvme_write_gb_per_s: 5 }\n"
        "software: { overlap: 0.8 }\n";
    Z3D_TRY(z3d_hardware_read_text(text, sizeof text - 1, "the nominal machine", out));
    memset(out->estimates, true, sizeof out->estimates);
    /* Its times are a GPU's, but its memory is that of the device that will run. */
    if (config->training_device == Z3D_TRAINING_CPU) {
        snprintf(out->kind, sizeof out->kind, "%s", Z3D_HARDWARE_NOMINAL);
        out->threads = z3d_plan_threads(config, ranks);
    }
    double tensor = (double)config->parallel_tensor_model_parallel_size;
    if (tensor > out->devices) out->devices = tensor;
    return Z3D_OK;
}

bool z3d_is_nominal(const z3d_hardware *hardware) {
    return strcmp(hardware->device, "a nominal device") == 0;
}
