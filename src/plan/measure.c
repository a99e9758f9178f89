/* Measures this machine: a small GPT trains on the timed device for some steps; of each kernel the
 * fastest of its turns counts, since anything else is somebody else's work. */
#include "src/plan/measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/model/model.h"
#include "zero/zero.h"

enum { STEPS = 8, REPEATS = 12 };

/* ---- kernels ---- */

typedef struct bench {
    z3d_model *model;
    z3d_device *device;
    z3d_tape *tape;
    z3d_group *group[Z3D_AXIS_COUNT];
    z3d_engine *engine;
} bench;

static void close_bench(bench *b) {
    z3d_engine_destroy(b->engine);
    for (int axis = 0; axis < Z3D_AXIS_COUNT; axis++) z3d_group_destroy(b->group[axis]);
    z3d_device_destroy(b->device);
    z3d_model_destroy(b->model);
    z3d_tape_destroy(b->tape);
}

static z3d_status open_bench(bench *b, z3d_dtype dtype, int threads) {
    z3d_gpt_config gpt = {.num_layers = 2,
                          .hidden_size = 384,
                          .num_heads = 6,
                          .seq_length = 256,
                          .vocab_size = 4096,
                          .vocab_multiple = 128,
                          .hidden_dropout = 0.1,
                          .attention_dropout = 0.1,
                          .init_std = 0.02,
                          .tensor_size = 1};
    z3d_engine_config config = {.program = {.stage = 0,
                                            .dtype = dtype,
                                            .grad_dtype = dtype,
                                            .micro_batch = 2,
                                            .accumulation = 1,
                                            .recompute = true,
                                            .replay_full = true,
                                            .overlap = true,
                                            .reduce_bucket = 500000000,
                                            .gather_bucket = 500000000},
                                .beta1 = 0.9F,
                                .beta2 = 0.95F,
                                .epsilon = 1e-8F,
                                .scaler = {.scale = 1},
                                .seed = 1};
    Z3D_TRY(z3d_topology_make(1, 1, 1, 0, &config.topology));
    Z3D_TRY(z3d_gpt_create(&gpt, &b->model));
    Z3D_TRY(z3d_tape_create(&b->tape));
    z3d_device_config device = {.backend = "timed", .threads = threads, .tape = b->tape};
    Z3D_TRY(z3d_device_create(&device, &b->device));
    for (int axis = 0; axis < Z3D_AXIS_COUNT; axis++)
        Z3D_TRY(z3d_group_create_recording((z3d_axis)axis, 1, 0, &b->group[axis]));
    memcpy(config.group, b->group, sizeof config.group);
    config.model = b->model;
    config.device = b->device;
    return z3d_engine_create(&config, &b->engine);
}

/* Runs the steps; each kernel of the tape's one step keeps its shortest time. */
static z3d_status run_bench(bench *b) {
    enum { SAMPLES = 2, SEQUENCE = 256 };
    int32_t tokens[SAMPLES * SEQUENCE];
    z3d_tape best = {0};
    z3d_status status = Z3D_OK;
    for (int i = 0; i < SAMPLES * SEQUENCE; i++) tokens[i] = i * 7 % 4096;
    z3d_micro_batch micro = {.field = {tokens, tokens}};
    z3d_step_input input = {
        .micro = &micro, .global_targets = SAMPLES * SEQUENCE, .learning_rate = 1e-4F};
    for (int step = 0; step < STEPS && status == Z3D_OK; step++) {
        z3d_step_result result;
        z3d_tape_clear(b->tape);
        status = z3d_engine_train_step(b->engine, &input, &result);
        for (int64_t i = 0; i < b->tape->count && status == Z3D_OK; i++) {
            if (step == 0)
                status = z3d_tape_append(&best, &b->tape->event[i]);
            else if (i < best.count && b->tape->event[i].seconds < best.event[i].seconds)
                best.event[i].seconds = b->tape->event[i].seconds;
        }
    }
    free(b->tape->event);
    *b->tape = best;
    return status;
}

static bool is_attention(const z3d_event *event) {
    return event->of == Z3D_KERNEL_attention_forward || event->of == Z3D_KERNEL_attention_backward;
}

/* Kernels of the same kind together: bytes over seconds. */
static void find_rates(const z3d_tape *tape, z3d_hardware *out) {
    double most = 0;
    for (int kind = 0; kind < Z3D_KERNEL_COUNT; kind++) {
        double bytes = 0, seconds = 0;
        for (int64_t i = 0; i < tape->count; i++) {
            const z3d_event *event = &tape->event[i];
            if (event->of != kind || event->of == Z3D_KERNEL_gemm || is_attention(event)) continue;
            bytes += (double)event->bytes;
            seconds += event->seconds;
        }
        if (seconds <= 0 || bytes <= 0) continue;
        out->kernel_rate[kind] = bytes / seconds * 1e-9;
        most = fmax(most, out->kernel_rate[kind]);
    }
    out->memory_bandwidth = fmax(most, 0.1);
}

/* The half-speed size for which the products' times are met best, with the rate that goes with it.
 */
static void find_products(const z3d_tape *tape, double *rate, double *half) {
    double best = INFINITY;
    for (int size = 0; size <= 256; size += 8) {
        double h = size;
        double sum = 0, square = 0;
        int count = 0;
        for (int64_t i = 0; i < tape->count; i++) {
            const z3d_event *e = &tape->event[i];
            if (e->of != Z3D_KERNEL_gemm || e->seconds <= 0) continue;
            double slower =
                (1 + h / (double)e->m) * (1 + h / (double)e->n) * (1 + h / (double)e->k);
            double one = log(e->flops * slower / e->seconds);
            sum += one;
            square += one * one;
            count++;
        }
        if (count == 0) return;
        double spread = square / count - sum / count * (sum / count);
        if (spread >= best) continue;
        best = spread;
        *half = h;
        *rate = exp(sum / count);
    }
}

static double attention_rate(const z3d_tape *tape) {
    double flops = 0, seconds = 0;
    for (int64_t i = 0; i < tape->count; i++) {
        if (!is_attention(&tape->event[i])) continue;
        flops += tape->event[i].flops;
        seconds += tape->event[i].seconds;
    }
    return seconds > 0 ? flops / seconds : 0;
}

static double *peak_of(z3d_hardware *out, z3d_dtype dtype) {
    return dtype == Z3D_F32    ? &out->peak_fp32
           : dtype == Z3D_BF16 ? &out->peak_bf16
                               : &out->peak_fp16;
}

static z3d_status measure_kernels(z3d_dtype dtype, int threads, z3d_hardware *out) {
    bench b = {0};
    double rate = 0, half = 0;
    z3d_status status = open_bench(&b, dtype, threads);
    if (status == Z3D_OK) status = run_bench(&b);
    if (status == Z3D_OK) {
        find_products(b.tape, &rate, &half);
        *peak_of(out, dtype) = rate * 1e-12;
        if (dtype == Z3D_F32) { /* the rest is described once, in fp32 */
            find_rates(b.tape, out);
            out->gemm_half = half;
            double attention = rate > 0 ? attention_rate(b.tape) / rate : 1;
            out->attention_efficiency = fmin(1, fmax(0.01, attention));
        }
    }
    close_bench(&b);
    return status;
}

/* ---- copies and links ---- */

static z3d_status measure_copies(int threads, z3d_hardware *out) {
    enum { BYTES = 16 << 20 };
    z3d_device *device;
    void *here = NULL, *there = NULL;
    double best = INFINITY;
    Z3D_TRY(z3d_device_create(&(z3d_device_config){.backend = "cpu", .threads = threads}, &device));
    z3d_status status = z3d_device_alloc(device, Z3D_SPACE_DEVICE, BYTES, &here);
    if (status == Z3D_OK) status = z3d_device_alloc(device, Z3D_SPACE_HOST, BYTES, &there);
    for (int i = 0; i < REPEATS && status == Z3D_OK; i++) {
        z3d_copy copy;
        double begin = z3d_now();
        status = z3d_copy_start(device, there, here, BYTES, &copy);
        if (status == Z3D_OK) status = z3d_copy_wait(device, copy);
        best = fmin(best, z3d_now() - begin);
    }
    z3d_device_free(device, Z3D_SPACE_DEVICE, here, BYTES);
    z3d_device_free(device, Z3D_SPACE_HOST, there, BYTES);
    z3d_device_destroy(device);
    if (best > 0) out->host_bandwidth = fmax(0.001, BYTES / best * 1e-9);
    return status;
}

static z3d_status time_sum(z3d_group *group, float *buffer, int64_t count, double *seconds) {
    z3d_collective call = {.kind = Z3D_COLLECTIVE_ALL_REDUCE,
                           .op = Z3D_SUM,
                           .dtype = Z3D_F32,
                           .buffer = buffer,
                           .count = count};
    *seconds = INFINITY;
    for (int i = 0; i < REPEATS; i++) {
        double begin = z3d_now();
        Z3D_TRY(z3d_collective_run(group, &call));
        *seconds = fmin(*seconds, z3d_now() - begin);
    }
    return Z3D_OK;
}

/* Two sizes of all-reduce give latency and width. */
static z3d_status measure_links(z3d_world *world, z3d_hardware *out) {
    enum { SMALL = 4096, LARGE = 2 << 20 };
    z3d_topology topology;
    z3d_group *group;
    float *buffer;
    double small = 0, large = 0;
    int size = z3d_world_size(world);
    Z3D_TRY(z3d_topology_make(1, size, 1, z3d_world_rank(world), &topology));
    Z3D_TRY(z3d_new(LARGE, sizeof *buffer, "a vector", &buffer));
    z3d_status status = z3d_group_create(world, &topology, Z3D_AXIS_DATA, NULL, &group);
    if (status == Z3D_OK) {
        status = time_sum(group, buffer, SMALL, &small);
        if (status == Z3D_OK) status = time_sum(group, buffer, LARGE, &large);
        z3d_group_destroy(group);
    }
    free(buffer);
    Z3D_TRY(status);
    double passes = 2.0 * (size - 1) / size;
    double width = (LARGE - SMALL) * 4.0 * passes / fmax(large - small, 1e-9);
    double latency = fmax(0, small - SMALL * 4.0 * passes / width) / (2.0 * (size - 1));
    out->link_bandwidth = fmin(1e5, fmax(0.001, width * 1e-9));
    out->link_latency_us = fmin(1e6, latency * 1e6);
    return Z3D_OK;
}

/* ---- all of it ---- */

/* Every rank's description, one rank's after the other; the slowest one's goes to all. */
static z3d_status take_slowest(z3d_world *world, z3d_hardware *out) {
    z3d_hardware *all;
    int size = z3d_world_size(world), slowest = 0;
    Z3D_TRY(z3d_new((size_t)size, sizeof *all, "descriptions", &all));
    z3d_status status = z3d_world_gather_all(world, out, all, sizeof *all);
    for (int r = 1; r < size; r++)
        if (all[r].peak_fp32 < all[slowest].peak_fp32) slowest = r;
    if (status == Z3D_OK) *out = all[slowest];
    free(all);
    return status;
}

z3d_status z3d_measure_machine(z3d_world *world, int threads, double memory_bytes,
                               z3d_hardware *out) {
    static const char empty[] =
        "name: this machine\ndevice: { name: cpu, kind: cpu, memory_gib: 1, "
        "gemm_efficiency: 1, memory_gb_per_s: 1, memory_efficiency: 1, "
        "attention_efficiency: 1 }\nnode: { devices: 1, link_gb_per_s: 1, "
        "network_gb_per_s: 1, host_gb_per_s: 1, host_memory_gib: 1 }\n";
    int ranks = z3d_world_local_size(world);
    Z3D_TRY(z3d_hardware_read_text(empty, sizeof empty - 1, "this machine", out));
    z3d_status status = measure_kernels(Z3D_F32, threads, out);
    if (status == Z3D_OK) status = measure_kernels(Z3D_BF16, threads, out);
    if (status == Z3D_OK) status = measure_kernels(Z3D_F16, threads, out);
    if (status == Z3D_OK) status = measure_copies(threads, out);
    Z3D_TRY(z3d_world_agree(world, status));
    if (z3d_world_size(world) > 1) Z3D_TRY(measure_links(world, out));
    snprintf(out->device, sizeof out->device, "a rank of %d threads", threads);
    out->devices = ranks;
    out->memory_gib = out->host_memory_gib = memory_bytes / 1073741824.0;
    out->memory_gib /= ranks;
    out->network_bandwidth = out->link_bandwidth; /* of one node nothing leaves */
    out->network_latency_us = out->link_latency_us;
    out->overlap = 0; /* what moves messages is the core that computes */
    return take_slowest(world, out);
}
