/* Keys that the machine decides; the nominal machine. */
#include <stdio.h>
#include <string.h>

#include "src/plan/choose/choose.h"

/* The number follows from the nodes, never from a measurement, so a run on equal nodes has equal
 * sums. */
z3d_status z3d_choose_nodes(z3d_config *config, int64_t node) {
    const int algorithm = config->parallel_collective_algorithm;
    const bool matters =
        algorithm != Z3D_ALGORITHM_RING || config->zero_optimization_zero_hpz_partition_size > 1;
    if (!matters || config->parallel_ranks_per_node != Z3D_AUTO) return Z3D_OK;
    if (node > 0) config->parallel_ranks_per_node = node;
    if (node > 0 || algorithm != Z3D_ALGORITHM_HIERARCHICAL) return Z3D_OK;
    return z3d_config_error(config, "parallel.collective_algorithm",
                            "hierarchical needs nodes of equally many ranks, and their number is "
                            "not known here; set parallel.ranks_per_node, or write ring");
}

z3d_status z3d_choose_device(z3d_config *config, const z3d_hardware *hardware, bool *chosen) {
    const bool cpu = z3d_hardware_is_cpu(hardware), gpu = strcmp(hardware->kind, "gpu") == 0;
    const bool wants_cpu = config->training_device == Z3D_TRAINING_CPU;
    *chosen = false;
    if ((!cpu && !gpu) || cpu == wants_cpu) return Z3D_OK;
    if (z3d_config_is_set(config, "training.device"))
        return z3d_config_error(config, "training.device",
                                "%s, but the described machine, %s, computes on %s; write %s, or "
                                "describe another machine",
                                wants_cpu ? "cpu" : "cuda", hardware->name, cpu ? "CPUs" : "GPUs",
                                cpu ? "cpu" : "cuda");
    *chosen = true;
    return z3d_config_override(config, "training.device=cuda");
}

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
