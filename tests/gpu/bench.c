/* Speed and memory: GPT-2 and some layers of Llama as a whole, the kernels of a step, attention,
 * copies. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/device/sim/measured.h"
#include "tests/gpu/model.h"

/* ---- whole steps ---- */

typedef struct preset {
    const char *part, *name;
    int64_t layers, hidden, heads, seq;
    int64_t batch; /* of a micro-batch */
    int accumulation;
} preset;

/* Of each part's a machine without a GPU runs the first, tiny. */
static const preset presets[] = {
    {"speed", "gpt2-124m", 12, 768, 12, 1024, 32, 1},
    {"speed", "gpt2-1.5b", 48, 1600, 25, 1024, 16, 1},
    {"models", "gpt2-124m, 8 x", 12, 768, 12, 1024, 32, 8},
    {"models", "gpt2-350m", 24, 1024, 16, 1024, 16, 1},
    {"models", "gpt2-350m, 8 x", 24, 1024, 16, 1024, 16, 8},
    {"models", "gpt2-1.5b, 8 x", 48, 1600, 25, 1024, 16, 8},
    {"models", "gpt2-124m, 1 sample", 12, 768, 12, 1024, 1, 1}, /* short kernels: what a graph
                                                                   is for */
    {"llama", "llama-8b, 6 layers, 2k", 6, 4096, 32, 2048, 8, 1},
    {"llama", "llama-8b, 6 layers, 8k", 6, 4096, 32, 8192, 2, 1},
    {"kernels", "gpt2-1.5b", 48, 1600, 25, 1024, 16, 1},
    {"kernels", "gpt2-124m", 12, 768, 12, 1024, 32, 1},
    {"attention", "1000 tokens, heads of 64", 4, 2048, 32, 1000, 16, 1},
    {"attention", "1000 tokens, heads of 80", 4, 2000, 25, 1000, 16, 1},
    {"attention", "1000 tokens, heads of 128", 4, 2048, 16, 1000, 16, 1},
    {"attention", "1024 tokens, heads of 64", 4, 2048, 32, 1024, 16, 1},
    {"attention", "1024 tokens, heads of 80", 4, 2000, 25, 1024, 16, 1},
    {"attention", "1024 tokens, heads of 128", 4, 2048, 16, 1024, 16, 1},
    {"attention", "2048 tokens, heads of 64", 4, 2048, 32, 2048, 8, 1},
    {"attention", "2048 tokens, heads of 80", 4, 2000, 25, 2048, 8, 1},
    {"attention", "2048 tokens, heads of 128", 4, 2048, 16, 2048, 8, 1},
};

/* In bf16. If p's samples do not fit, with half of them, and so on: p has what did. */
static z3d_status train(check_context *context, const z3d_device_config *device, preset *p,
                        z3d_graph_mode graph, int steps, check_run *run) {
    const bool llama = strcmp(p->part, "llama") == 0;
    const int64_t words = context->tiny ? 67 : llama ? 32000 : 50257;
    if (context->tiny)
        *p = (preset){p->part, p->name, 2, 32, 4, 16, 2, p->accumulation > 1 ? 2 : 1};
    for (;; p->batch /= 2) {
        check_model m = check_model_make(p->layers, p->hidden, p->heads, p->seq, words,
                                         p->batch * p->accumulation);
        if (llama) m.kv_heads = p->heads / 4, m.intermediate = p->hidden * 7 / 2;
        m.engine.program.keep_activation = llama;
        m.engine.program.accumulation = p->accumulation;
        m.engine.program.dtype = Z3D_BF16;
        m.engine.graph = graph;
        z3d_status status = check_train(context, device, m, steps, run);
        if (status != Z3D_ERR_MEMORY || p->batch == 1) return status;
        check_measured(context, p->name, "%lld samples do not fit: %s", (long long)p->batch,
                       z3d_error_message());
    }
}

enum { WARM = 2 }; /* steps that do not count */

/* Of a step, as bench/pytorch.py has it. */
static double mean_seconds(const check_run *run, int steps) {
    double sum = 0;
    for (int i = WARM; i < steps; i++) sum += run->step[i].seconds;
    return sum / (steps - WARM);
}

static z3d_status time_preset(check_context *context, preset p) {
    const int timed = context->tiny ? 1 : p.accumulation > 1 ? 3 : 10;
    const int steps = WARM + (context->steps ? context->steps : timed);
    char arena[32], used[32];
    check_run graph, plain;
    Z3D_TRY(train(context, &context->cuda, &p, Z3D_GRAPH_ON, steps, &graph));
    Z3D_TRY(train(context, &context->cuda, &p, Z3D_GRAPH_OFF, steps, &plain));
    Z3D_REQUIRE(graph.launches > 0, "its steps were not launched as graphs");
    double step = mean_seconds(&graph, steps),
           tokens = (double)(p.batch * p.accumulation * p.seq) / step;
    check_measured(context, p.name,
                   "%d x %lld x %lld: %.1f ms a step, %.0f tokens/s, %.1f TFLOP/s (%.1f %% of "
                   "989); without a graph %.1f ms; arena %s, all of the GPU %s",
                   p.accumulation, (long long)p.batch, (long long)p.seq, step * 1e3, tokens,
                   tokens * graph.flops / 1e12, tokens * graph.flops / 9.89e12,
                   mean_seconds(&plain, steps) * 1e3,
                   z3d_format_bytes(graph.arena, arena, sizeof arena),
                   z3d_format_bytes(graph.used, used, sizeof used));
    const double loss = graph.step[steps - 1].loss,
                 far = fabs(plain.step[steps - 1].loss / loss - 1);
    check_report(context, far <= 1e-3, p.name,
                 "was timed; its last loss %.6f, without a graph %.1e relative from it", loss, far);
    return Z3D_OK;
}

/* ---- the kernels of a step ---- */

/* Kernels of one kind and size in one step. */
typedef struct kernel_sum {
    char name[96]; /* as descriptions of hardware have it */
    int64_t launches, bytes;
    double flops, seconds;
} kernel_sum;

enum { KERNEL_SUMS = 256 };

static int by_seconds(const void *a, const void *b) {
    double x = ((const kernel_sum *)a)->seconds, y = ((const kernel_sum *)b)->seconds;
    return (x < y) - (x > y);
}

static int sum_kernels(const z3d_tape *tape, kernel_sum *sums) {
    int count = 0;
    for (int64_t i = 0; i < tape->count; i++) {
        const z3d_event event = z3d_tape_at(tape, i);
        const z3d_sample sample = z3d_sample_of_kernel(&event);
        char name[96];
        int at = 0;
        if (event.kind != Z3D_EVENT_KERNEL || event.seconds <= 0)
            continue; /* the one before it has its seconds */
        z3d_sample_name(&sample, name, sizeof name);
        while (at < count && strcmp(sums[at].name, name) != 0) at++;
        if (at == KERNEL_SUMS) continue;
        if (at == count) snprintf(sums[count++].name, sizeof name, "%s", name);
        sums[at].launches++;
        sums[at].bytes += event.bytes;
        sums[at].flops += event.flops;
        sums[at].seconds += event.seconds;
    }
    qsort(sums, (size_t)count, sizeof *sums, by_seconds);
    return count;
}

/* Each kernel alone. */
static z3d_status profile(check_context *context, preset p) {
    const char *only = strcmp(p.part, "attention") == 0 ? "attention" : "";
    kernel_sum sums[KERNEL_SUMS] = {0};
    z3d_device_config device = context->cuda;
    check_run run;
    double all = 0;
    Z3D_TRY(z3d_tape_create(&device.tape));
    z3d_status status = train(context, &device, &p, Z3D_GRAPH_OFF, 3, &run);
    int count = sum_kernels(device.tape, sums);
    z3d_tape_destroy(device.tape);
    Z3D_TRY(status);
    for (int i = 0; i < count; i++) all += sums[i].seconds;
    check_measured(context, p.name, "a step's kernels one by one: %.1f ms", all * 1e3);
    for (const kernel_sum *k = sums; k < sums + count; k++)
        if (strncmp(k->name, only, strlen(only)) == 0)
            check_measured(context, k->name,
                           "%5lld x %8.1f us = %7.2f ms, %4.1f %%: %6.0f GB/s %5.0f TFLOP/s",
                           (long long)k->launches, k->seconds / (double)k->launches * 1e6,
                           k->seconds * 1e3, k->seconds * 100 / all,
                           (double)k->bytes / k->seconds / 1e9, k->flops / k->seconds / 1e12);
    check_report(context, count > 10, p.name, "%d kinds of kernels", count);
    return Z3D_OK;
}

z3d_status check_speed(check_context *context) {
    bool first = true;
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        const preset *p = &presets[i];
        if (strcmp(p->part, context->part) != 0 || (context->tiny && !first)) continue;
        const bool alone = strcmp(p->part, "kernels") == 0 || strcmp(p->part, "attention") == 0;
        check_ran(context, alone ? profile(context, *p) : time_preset(context, *p), p->name);
        first = false;
    }
    return Z3D_OK;
}

/* ---- memory ---- */

/* Pinned memory and the device's, `bytes` one way or each way. */
static z3d_status time_copies(z3d_device *device, char *here, char *there, int64_t bytes, bool to,
                              bool from, double *seconds) {
    z3d_copy out, in;
    Z3D_TRY(z3d_device_synchronize(device));
    double begin = z3d_now();
    if (to) Z3D_TRY(z3d_copy_start(device, there, here, bytes, &out));
    if (from) Z3D_TRY(z3d_copy_start(device, here + bytes, there + bytes, bytes, &in));
    if (to) Z3D_TRY(z3d_copy_finish(device, out));
    if (from) Z3D_TRY(z3d_copy_finish(device, in));
    *seconds = z3d_now() - begin;
    return Z3D_OK;
}

static z3d_status measure_memory(check_context *context, z3d_device *device, const z3d_tape *tape,
                                 char *here, char *there, int64_t bytes) {
    const double giga = (double)bytes / 1e9;
    double seconds[4] = {0};
    check_measured(context, "device", "%s", z3d_device_description(device));
    for (int i = 0; i < 3; i++) /* the last is timed; both operands are larger than any cache */
        Z3D_TRY(Z3D_LAUNCH(device, accumulate, .y = there, .x = there + bytes, .count = bytes / 4,
                           .y_dtype = Z3D_F32, .x_dtype = Z3D_BF16));
    const double add_seconds = z3d_tape_at(tape, tape->count - 1).seconds;
    for (int way = 0; way < 4; way++) /* the first warms up */
        Z3D_TRY(time_copies(device, here, there, bytes, way != 2, way != 1, &seconds[way]));
    check_measured(context, "memory", "%.0f GB/s by adding %.2f GB of bf16 to fp32",
                   2.5 * giga / add_seconds, giga / 2);
    check_measured(context, "host memory", "to the device %.1f GB/s, back %.1f, both at once %.1f",
                   giga / seconds[1], giga / seconds[2], 2 * giga / seconds[3]);
    check_report(context, add_seconds > 0, "memory", "was measured");
    return Z3D_OK;
}

/* On a device without a tape, which would run each product twice. */
static z3d_status measure_product(check_context *context) {
    const int64_t n = context->tiny ? 64 : 8192;
    double gflops = 0;
    z3d_gemm_method unused;
    z3d_device *device;
    Z3D_TRY(z3d_device_create(&context->cuda, &device));
    z3d_status status = z3d_device_measure_gemm(device, Z3D_BF16, n, n, n, &unused, &gflops);
    z3d_device_destroy(device);
    check_measured(context, "products bf16", "%.3g TFLOP/s at %lld x %lld x %lld", gflops / 1e3,
                   (long long)n, (long long)n, (long long)n);
    return status;
}

z3d_status check_memory(check_context *context) {
    const int64_t bytes = context->tiny ? 1 << 16 : (int64_t)1 << 30;
    z3d_device_config config = context->cuda;
    z3d_device *device;
    void *here = NULL, *there = NULL;
    Z3D_TRY(z3d_tape_create(&config.tape));
    Z3D_TRY(z3d_device_create(&config, &device));
    z3d_status status = z3d_device_alloc(device, Z3D_SPACE_HOST, 2 * bytes, &here);
    if (status == Z3D_OK) status = z3d_device_alloc(device, Z3D_SPACE_DEVICE, 2 * bytes, &there);
    if (status == Z3D_OK) status = measure_memory(context, device, config.tape, here, there, bytes);
    z3d_device_free(device, Z3D_SPACE_HOST, here, 2 * bytes);
    z3d_device_free(device, Z3D_SPACE_DEVICE, there, 2 * bytes);
    z3d_device_destroy(device);
    z3d_tape_destroy(config.tape);
    return status == Z3D_OK ? measure_product(context) : status;
}
