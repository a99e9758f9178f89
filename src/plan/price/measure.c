/* Measures this machine. Small GPTs of several shapes train for some steps on the cpu device, on
 * all ranks at once; the lower quartile of each kernel's times counts. The fastest time would be
 * luck: a core is faster while the rank on its sibling core waits. Copies, and collectives of
 * several sizes, follow. */
#include "src/plan/price/measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/sort.h"
#include "src/model/model.h"
#include "src/plan/plan.h"
#include "zero/zero.h"

enum { REPEATS = 12 };

/* The number of turns of each measurement. ZERO3D_MEASURE_TURNS lowers it, for a quick, less exact
 * description. */
static z3d_status read_turns(int64_t *out) {
    const char *text = getenv("ZERO3D_MEASURE_TURNS");
    *out = REPEATS;
    if (!text || !*text) return Z3D_OK;
    if (z3d_parse_int(text, out) != Z3D_OK || *out < 1)
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "ZERO3D_MEASURE_TURNS='%.40s': expected a whole number of at least 1",
                         text);
    if (*out > REPEATS) *out = REPEATS;
    return Z3D_OK;
}

/* ---- kernels ---- */

/* Models that train, with shapes around those of small runs. */
typedef struct shape {
    int hidden, heads, seq, vocab, batch, turns;
    bool dropout;
    z3d_dtype dtype;
} shape;
static const shape shapes[] = {
    {64, 4, 64, 256, 1, 12, false, Z3D_F32},    {128, 4, 128, 512, 2, 12, false, Z3D_F32},
    {128, 2, 32, 1024, 2, 12, false, Z3D_F32},  {256, 8, 128, 512, 2, 10, true, Z3D_F32},
    {256, 4, 256, 2048, 4, 8, false, Z3D_F32},  {512, 8, 64, 1024, 1, 8, false, Z3D_F32},
    {512, 4, 128, 1024, 4, 8, false, Z3D_F32},  {384, 6, 512, 4096, 1, 8, true, Z3D_F32},
    {768, 12, 256, 8192, 1, 6, false, Z3D_F32}, {128, 4, 128, 512, 2, 12, false, Z3D_BF16},
    {256, 4, 256, 2048, 2, 8, false, Z3D_BF16}, {512, 8, 128, 1024, 2, 8, true, Z3D_BF16},
    {128, 4, 128, 512, 2, 12, false, Z3D_F16},  {256, 4, 256, 2048, 2, 8, false, Z3D_F16},
    {512, 8, 128, 1024, 2, 8, true, Z3D_F16},
};

typedef struct bench {
    z3d_model *model;
    z3d_device *device;
    z3d_tape *tape;
    z3d_group *group[Z3D_AXES_COUNT];
    z3d_engine *engine;
    int32_t *tokens;
    double *seconds; /* [event of the tape][turn] */
} bench;

static void close_bench(bench *b) {
    z3d_engine_destroy(b->engine);
    z3d_groups_destroy(b->group);
    z3d_device_destroy(b->device);
    z3d_model_destroy(b->model);
    z3d_tape_destroy(b->tape);
    free(b->tokens);
    free(b->seconds);
}

static z3d_status make_model(const shape *shape, z3d_model **out) {
    z3d_config *config;
    Z3D_TRY(z3d_config_create(&config));
    config->model_num_layers = 1;
    config->model_hidden_size = shape->hidden;
    config->model_num_attention_heads = shape->heads;
    config->model_seq_length = shape->seq;
    config->model_vocab_size = shape->vocab;
    config->model_hidden_dropout = config->model_attention_dropout = shape->dropout ? 0.1 : 0;
    z3d_status status = z3d_model_from_config(config, out);
    z3d_config_destroy(config);
    return status;
}

static z3d_status open_bench(bench *b, const shape *shape, int threads) {
    z3d_engine_config config = {
        .program = {.stage = 0,
                    .dtype = shape->dtype,
                    .grad_dtype = shape->dtype,
                    .micro_batch = shape->batch,
                    .accumulation = 2, /* accumulation has its own kernels */
                    .reduce_per_step = true,
                    .overlap = true,
                    .reduce_bucket = 500000000,
                    .gather_bucket = 500000000},
        .optimizer = {.beta1 = 0.9F, .beta2 = 0.95F, .epsilon = 1e-8F, .lr_scale = 1},
        .scaler = {.scale = 1},
        .seed = 1};
    int count = shape->batch * shape->seq;
    Z3D_TRY(z3d_new((size_t)count, sizeof *b->tokens, "tokens", &b->tokens));
    for (int i = 0; i < count; i++) b->tokens[i] = i * 7 % shape->vocab;
    Z3D_TRY(z3d_mesh_make(1, 1, 1, 0, &config.mesh));
    Z3D_TRY(make_model(shape, &b->model));
    Z3D_TRY(z3d_tape_create(&b->tape));
    z3d_device_config device = {.backend = "cpu", .threads = threads, .tape = b->tape};
    Z3D_TRY(z3d_device_create(&device, &b->device));
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++)
        if (z3d_axes_have_group(&config.mesh, (z3d_axes)axes))
            Z3D_TRY(z3d_group_create_recording((z3d_axes)axes, 1, 0, &b->group[axes]));
    memcpy(config.group, b->group, sizeof config.group);
    config.model = b->model;
    config.device = b->device;
    return z3d_engine_create(&config, &b->engine);
}

/* Runs one step and stores the times of its events. *between: seconds outside kernels, per event.
 */
static z3d_status run_turn(bench *b, const shape *shape, int turn, double *between) {
    z3d_micro_batch micro = {.field = {b->tokens, b->tokens}};
    z3d_micro_batch both[] = {micro, micro};
    z3d_step_input input = {
        .micro = both, .global_targets = 2 * shape->batch * shape->seq, .learning_rate = 1e-4F};
    z3d_step_result result;
    z3d_tape_clear(b->tape);
    Z3D_TRY(z3d_engine_train_step(b->engine, &input, &result));
    const int64_t events = b->tape->count;
    if (!b->seconds)
        Z3D_TRY(z3d_new((size_t)(events * REPEATS), sizeof(double), "times", &b->seconds));
    double seconds = result.seconds;
    for (int64_t i = 0; i < events; i++) {
        double event = z3d_tape_at(b->tape, i).seconds;
        b->seconds[i * REPEATS + turn] = event;
        seconds -= event;
    }
    *between = fmax(0, seconds / (double)events);
    return Z3D_OK;
}

/* Adds each kernel of the step: the lower quartile of all its times, in all turns. */
static z3d_status add_quartiles(bench *b, int turns, z3d_measured *out) {
    const int64_t events = b->tape->count;
    double *all;
    Z3D_TRY(z3d_new((size_t)(events * turns), sizeof *all, "times", &all));
    z3d_status status = Z3D_OK;
    for (int64_t i = 0; i < events && status == Z3D_OK; i++) {
        const z3d_event event = z3d_tape_at(b->tape, i);
        z3d_sample sample = z3d_sample_of_kernel(&event);
        size_t count = 0;
        for (int64_t k = 0; k < events; k++) {
            const z3d_event other = z3d_tape_at(b->tape, k);
            const z3d_sample like = z3d_sample_of_kernel(&other);
            if (!z3d_sample_same(&sample, &like)) continue;
            memcpy(all + count, &b->seconds[k * REPEATS], (size_t)turns * sizeof *all);
            count += (size_t)turns;
        }
        z3d_sort_numbers(all, count);
        sample.seconds = all[count / 4];
        if (sample.size[0] >= 1 && sample.seconds > 0) status = z3d_measured_add(out, &sample);
    }
    free(all);
    return status;
}

/* Collective: all ranks begin each turn together, so that all compute at the same time. look_on:
 * this rank computes nothing. */
static z3d_status run_shape(z3d_world *world, const shape *shape, bool look_on, int threads,
                            int64_t most, z3d_hardware *out) {
    bench b = {0};
    const int turns = most < shape->turns ? (int)most : shape->turns;
    z3d_status status = look_on ? Z3D_OK : open_bench(&b, shape, threads);
    status = z3d_world_agree(world, status);
    for (int turn = 0; turn < turns && status == Z3D_OK; turn++) {
        double between = INFINITY;
        if (!look_on) status = run_turn(&b, shape, turn, &between);
        out->launch_us = fmin(out->launch_us, between * 1e6);
        status = z3d_world_agree(world, status); /* then all begin the next turn */
    }
    if (status == Z3D_OK) {
        if (!look_on) status = add_quartiles(&b, turns, &out->measured);
        status = z3d_world_agree(world, status);
    }
    close_bench(&b);
    return status;
}

/* Finds the roofline's peaks, for kernels unlike all measured ones: the best measured rates. */
static void find_peaks(z3d_hardware *out) {
    double attention = 0;
    for (int i = 0; i < out->measured.count; i++) {
        const z3d_sample *s = &out->measured.sample[i];
        const double *size = s->size;
        if (s->of == Z3D_KERNEL_gemm) {
            double *const of_type[] = {[Z3D_F32] = &out->peak_fp32,
                                       [Z3D_BF16] = &out->peak_bf16,
                                       [Z3D_F16] = &out->peak_fp16};
            double *peak = of_type[s->dtype];
            *peak = fmax(*peak, 2e-12 * size[0] * size[1] * size[2] / s->seconds);
        } else if (s->of == Z3D_KERNEL_attention_forward) {
            double flops = 2 * size[0] * size[1] * (size[1] + 1) * size[2];
            attention = fmax(attention, flops / s->seconds * 1e-12);
        } else if (s->of == Z3D_KERNEL_adamw) {
            out->memory_bandwidth = fmax(out->memory_bandwidth, size[0] / s->seconds * 1e-9);
        }
    }
    if (out->peak_fp32 > 0)
        out->attention_efficiency = fmin(1, fmax(0.01, attention / out->peak_fp32));
}

/* If a node has more ranks than its cores can serve, the surplus ranks look on. */
static z3d_status measure_kernels(z3d_world *world, int threads, int64_t turns, z3d_hardware *out) {
    enum { SHAPES = sizeof shapes / sizeof *shapes };
    bool look_on = z3d_world_local_rank(world) * threads >= out->cores;
    out->launch_us = INFINITY;
    for (int i = 0; i < SHAPES; i++)
        Z3D_TRY(run_shape(world, &shapes[i], look_on, threads, turns, out));
    find_peaks(out);
    return Z3D_OK;
}

/* ---- copies and links ---- */

static z3d_status measure_copies(int threads, int64_t turns, z3d_hardware *out) {
    enum { BYTES = 16 << 20 };
    z3d_device *device;
    void *here = NULL, *there = NULL;
    double best = INFINITY;
    Z3D_TRY(z3d_device_create(&(z3d_device_config){.backend = "cpu", .threads = threads}, &device));
    z3d_status status = z3d_device_alloc(device, Z3D_SPACE_DEVICE, BYTES, &here);
    if (status == Z3D_OK) status = z3d_device_alloc(device, Z3D_SPACE_HOST, BYTES, &there);
    for (int i = 0; i < turns && status == Z3D_OK; i++) {
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

/* AdamW on host memory, as the host steps an offloaded bf16 model: GB/s of the node. The states of
 * all ranks together are larger than caches. */
static z3d_status measure_host_step(z3d_world *world, int threads, int64_t turns,
                                    z3d_hardware *out) {
    enum { BYTES = 3 * 4 + 2 * 2 };
    const int ranks = z3d_world_local_size(world);
    const int64_t count = (32 << 20) / ranks;
    z3d_device *device;
    void *block = NULL;
    double best = INFINITY;
    z3d_cost cost = {0};
    Z3D_TRY(z3d_device_create(&(z3d_device_config){.backend = "cpu", .threads = threads}, &device));
    z3d_status status = z3d_device_alloc(device, Z3D_SPACE_HOST, count * BYTES, &block);
    z3d_step_state state = {.step = 1, .optimizer_step = 1, .gradient_factor = 1};
    float *floats = block;
    z3d_kernel kernel = {
        .kind = Z3D_KERNEL_adamw,
        .as.update = {.count = count,
                      .dtype = Z3D_BF16,
                      .gradient_dtype = Z3D_BF16,
                      .constants = {.beta1 = 0.9F, .beta2 = 0.95F, .epsilon = 1e-8F},
                      .state = &state}};
    if (status == Z3D_OK) {
        memset(block, 0, (size_t)count * BYTES);
        kernel.as.update.master = floats;
        kernel.as.update.momentum = floats + count;
        kernel.as.update.variance = floats + 2 * count;
        kernel.as.update.gradient = floats + 3 * count;
        kernel.as.update.parameter = (uint16_t *)(floats + 3 * count) + count;
        z3d_kernel_cost(&kernel, &cost);
    }
    for (int i = 0; i < turns && status == Z3D_OK; i++) {
        double begin = z3d_now();
        status = z3d_launch(device, &kernel);
        best = fmin(best, z3d_now() - begin);
    }
    z3d_device_free(device, Z3D_SPACE_HOST, block, count * BYTES);
    z3d_device_destroy(device);
    double bytes = (double)(cost.bytes_read + cost.bytes_written) * ranks;
    if (status == Z3D_OK && best > 0) out->host_optimizer = bytes / best * 1e-9;
    return status;
}

/* Memory of the largest collective. Smaller ones move through it, because the data that training
 * sends is not in the core's cache. */
typedef struct arena {
    char *bytes;
    int64_t size, at;
} arena;

/* Measures a collective over `bytes` in all, on one group: the lower quartile of its turns, since
 * the best turn is luck if ranks share cores. */
static z3d_status time_collective(z3d_group *group, int of, z3d_dtype dtype, int64_t bytes,
                                  int64_t turns, arena *arena, z3d_sample *out) {
    static const z3d_collective_kind kinds[] = {
        Z3D_COLLECTIVE_ALL_REDUCE, Z3D_COLLECTIVE_REDUCE_SCATTER, Z3D_COLLECTIVE_ALL_GATHER};
    int size = z3d_group_size(group);
    bool whole = of == Z3D_MEASURED_all_reduce;
    int64_t count = z3d_values_in(dtype, bytes / size);
    z3d_collective call = {.kind = kinds[of - Z3D_MEASURED_all_reduce],
                           .op = Z3D_SUM,
                           .dtype = dtype,
                           .count = whole ? count * size : count,
                           .stride = count};
    double moved = (double)z3d_bytes_of(dtype, count * (size - 1));
    *out = (z3d_sample){.of = of, .dtype = dtype, .size = {whole ? 2 * moved : moved, 1, 1}};
    double seconds[REPEATS];
    for (int i = 0; i < turns; i++) {
        if (arena->at + bytes > arena->size) arena->at = 0;
        call.buffer = arena->bytes + arena->at;
        arena->at += z3d_round_up(bytes, 64);
        double begin = z3d_now();
        Z3D_TRY(z3d_collective_run(group, &call));
        seconds[i] = z3d_now() - begin;
    }
    z3d_sort_numbers(seconds, (size_t)turns);
    out->seconds = seconds[turns / 4];
    return Z3D_OK;
}

static z3d_status measure_group(z3d_group *group, int64_t turns, arena *arena, z3d_hardware *out) {
    static const int64_t sizes[] = {256,     4096,    32768,   131072,  524288,
                                    1048576, 1572864, 4194304, 16777216};
    for (int of = Z3D_MEASURED_all_reduce; of < Z3D_MEASURED_COUNT; of++)
        for (z3d_dtype dtype = Z3D_F32; dtype <= Z3D_F16; dtype++) {
            if (of == Z3D_MEASURED_all_gather && dtype != Z3D_F32) continue; /* only copies */
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                z3d_sample sample;
                Z3D_TRY(time_collective(group, of, dtype, sizes[i], turns, arena, &sample));
                sample.seconds /= z3d_hardware_crowding(out, z3d_group_size(group));
                Z3D_TRY(z3d_measured_add(&out->measured, &sample));
            }
        }
    return Z3D_OK;
}

/* Measures collectives of all ranks; then finds a ring's link speed and latency, for cases that
 * were not measured. */
static z3d_status measure_links(z3d_world *world, int64_t turns, z3d_hardware *out) {
    arena arena = {.size = 32 << 20};
    z3d_mesh mesh;
    z3d_group *group;
    int size = z3d_world_size(world);
    Z3D_TRY(z3d_mesh_make(1, size, 1, z3d_world_rank(world), &mesh));
    Z3D_TRY(z3d_new(1, (size_t)arena.size, "buffers", &arena.bytes));
    memset(arena.bytes, 0, (size_t)arena.size); /* first touch */
    z3d_status status = z3d_group_create(world, &mesh, Z3D_AXES_WORLD, NULL, &group);
    if (status == Z3D_OK) {
        status = measure_group(group, turns, &arena, out);
        z3d_group_destroy(group);
    }
    free(arena.bytes);
    Z3D_TRY(status);
    z3d_sample small = {.of = Z3D_MEASURED_all_reduce, .size = {256, 1, 1}}, large = small;
    large.size[0] = 16 << 20;
    double latency = z3d_measured_seconds(&out->measured, &small) / (2.0 * (size - 1));
    double width = large.size[0] / z3d_measured_seconds(&out->measured, &large);
    out->link_bandwidth = fmin(1e5, fmax(0.001, width * 1e-9));
    out->link_latency_us = fmin(1e6, latency * 1e6);
    return Z3D_OK;
}

/* ---- all of it ---- */

/* All ranks get the description of the slowest rank among those that measured kernels. */
static z3d_status take_slowest(z3d_world *world, z3d_hardware *out) {
    double mine = out->peak_fp32 > 0 ? out->peak_fp32 : INFINITY, *all;
    int size = z3d_world_size(world), slowest = 0;
    Z3D_TRY(z3d_new((size_t)size, sizeof *all, "speeds", &all));
    z3d_status status = z3d_world_gather_all(world, &mine, all, sizeof *all);
    for (int r = 1; r < size; r++)
        if (all[r] < all[slowest]) slowest = r;
    if (status == Z3D_OK) status = z3d_world_broadcast(world, out, sizeof *out, slowest);
    free(all);
    return status;
}

z3d_status z3d_measure_machine(z3d_world *world, int threads, double memory_bytes,
                               z3d_hardware *out) {
    static const char empty[] =
        "name: this machine\ndevice: { name: cpu, kind: cpu, memory_gib: 1, "
        "gemm_efficiency: 1, memory_gb_per_s: 0.1, memory_efficiency: 1, "
        "attention_efficiency: 1 }\nnode: { devices: 1, link_gb_per_s: 1, "
        "network_gb_per_s: 1, host_gb_per_s: 1, host_memory_gib: 1 }\n";
    int ranks = z3d_world_local_size(world);
    int64_t turns;
    Z3D_TRY(z3d_world_agree(world, read_turns(&turns)));
    Z3D_TRY(z3d_world_broadcast(world, &turns, sizeof turns, 0));
    Z3D_TRY(z3d_hardware_read_text(empty, sizeof empty - 1, "this machine", out));
    snprintf(out->device, sizeof out->device, "a rank of %d threads", threads);
    out->devices = ranks;
    out->cores = (double)sysconf(_SC_NPROCESSORS_ONLN);
    out->threads = threads;
    Z3D_TRY(measure_kernels(world, threads, turns, out));
    Z3D_TRY(z3d_world_agree(world, measure_copies(threads, turns, out)));
    Z3D_TRY(z3d_world_agree(world, measure_host_step(world, threads, turns, out)));
    if (z3d_world_size(world) > 1) Z3D_TRY(measure_links(world, turns, out));
    out->memory_gib = out->host_memory_gib = memory_bytes / 1073741824.0;
    out->memory_gib /= ranks;
    out->overhead_gb = Z3D_OUTSIDE_BYTES * 1e-9;
    out->network_bandwidth = out->link_bandwidth; /* a single node has no network */
    out->network_latency_us = out->link_latency_us;
    out->overlap = 0; /* the core that computes also moves messages */
    out->network_overlap = 1;
    return take_slowest(world, out);
}
