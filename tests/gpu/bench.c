/* Speed and memory: GPT-2 as a whole, the kernels of one of its steps, attention, copies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/device/sim/tape.h"
#include "tests/gpu/model.h"

/* ---- whole steps ---- */

typedef struct preset {
    const char *name;
    check_model model;
} preset;

static const check_model gpt2_124m = {.layers = 12, .hidden = 768, .heads = 12, .batch = 32};
static const check_model gpt2_350m = {.layers = 24, .hidden = 1024, .heads = 16, .batch = 16};
static const check_model gpt2_1558m = {.layers = 48, .hidden = 1600, .heads = 25, .batch = 16};
static const check_model gpt2_tiny = {.layers = 2, .hidden = 32, .heads = 4, .batch = 2};

static preset preset_of(const char *name, check_model m, bool tiny) {
    m.seq = tiny ? 16 : 1024;
    m.vocabulary = tiny ? 67 : 50257;
    m.dtype = Z3D_BF16;
    return (preset){name, m};
}

/* In `accumulation` micro-batches. */
static preset accumulated(preset p, int accumulation) {
    p.model.accumulation = accumulation;
    p.model.batch *= accumulation;
    return p;
}

static double parameters(const check_model *m) { /* without the vocabulary's padding */
    double h = (double)m->hidden;
    return (double)m->layers * (12 * h * h + 13 * h) + (double)(m->vocabulary + m->seq) * h + 2 * h;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median seconds of the steps after the first two: at most `steps`, fewer where they are long. */
static z3d_status time_steps(check_model *m, int steps, double *median) {
    enum { MOST = 64, WARM = 2 };
    const double enough = 8;
    double seconds[MOST], sum = 0;
    int timed = 0;
    for (int i = 0; timed < steps && timed < MOST && (timed < 3 || sum < enough); i++) {
        z3d_step_result result;
        Z3D_TRY(check_model_step(m, &result));
        if (i >= WARM) sum += seconds[timed++] = result.seconds;
    }
    qsort(seconds, (size_t)timed, sizeof *seconds, by_value);
    *median = timed > 0 ? seconds[timed / 2] : 0;
    return Z3D_OK;
}

/* With `graph` or without; a line of its memory if `memory`. */
static z3d_status time_model(check_context *context, const preset *p, z3d_graph_mode graph,
                             int steps, bool memory, double *step) {
    check_model m = p->model;
    char arena[32], used[32];
    m.graph = graph;
    z3d_status status = check_model_create(context, &context->cuda, &m);
    if (status == Z3D_OK) status = time_steps(&m, steps, step);
    if (status == Z3D_OK && graph == Z3D_GRAPH_ON && z3d_engine_graph_launches(m.engine) == 0)
        status = Z3D_ERROR(Z3D_ERR_DEVICE, "its steps were not launched as graphs");
    if (status == Z3D_OK && memory)
        check_measured(context, p->name, "arena %s, all of the GPU %s",
                       z3d_format_bytes(z3d_engine_arena_bytes(m.engine), arena, sizeof arena),
                       z3d_format_bytes(z3d_device_used_bytes(m.device), used, sizeof used));
    check_model_destroy(&m);
    return status;
}

static void report_speed(check_context *context, const preset *p, double step, double plain) {
    const check_model *m = &p->model;
    double tokens = (double)(m->batch * m->seq) / step;
    /* 6N + 6LTC a token: PaLM's count with the half of attention that is not masked. */
    double flops = 6 * parameters(m) + 6 * (double)m->layers * (double)m->seq * (double)m->hidden;
    double tera = tokens * flops / 1e12;
    check_measured(context, p->name,
                   "%.1f ms a step, %.0f tokens/s, %.1f TFLOP/s (%.1f %% of 989); without a graph "
                   "%.1f ms",
                   step * 1e3, tokens, tera, tera / 9.89, plain * 1e3);
}

/* Too little memory is a failure, and the next model may fit. */
static void check_preset(check_context *context, preset p, int steps) {
    double step = 0, plain = 0;
    z3d_status status = time_model(context, &p, Z3D_GRAPH_ON, steps, false, &step);
    if (status == Z3D_OK)
        status = time_model(context, &p, Z3D_GRAPH_OFF, steps / 2 + 1, true, &plain);
    if (status == Z3D_OK) report_speed(context, &p, step, plain);
    check_report(context, status == Z3D_OK, p.name, "%s",
                 status == Z3D_OK ? "was timed" : z3d_error_message());
}

z3d_status check_speed(check_context *context, bool tiny, int steps) {
    check_preset(context, preset_of("gpt2-124m", tiny ? gpt2_tiny : gpt2_124m, tiny), steps);
    if (!tiny) check_preset(context, preset_of("gpt2-1.5b", gpt2_1558m, false), steps);
    return Z3D_OK;
}

z3d_status check_models(check_context *context, bool tiny, int steps) {
    preset small = preset_of("gpt2-124m, 8 x", tiny ? gpt2_tiny : gpt2_124m, tiny);
    check_preset(context, accumulated(small, tiny ? 2 : 8), steps);
    if (tiny) return Z3D_OK;
    check_preset(context, preset_of("gpt2-350m", gpt2_350m, false), steps);
    check_preset(context, accumulated(preset_of("gpt2-350m, 8 x", gpt2_350m, false), 8), steps);
    check_preset(context, accumulated(preset_of("gpt2-1.5b, 8 x", gpt2_1558m, false), 8), steps);
    small.name = "gpt2-124m, 1 sample";
    small.model.batch = 1; /* short kernels: what a graph is for */
    check_preset(context, small, steps);
    return Z3D_OK;
}

/* ---- the kernels of a step ---- */

/* Kernels of a kind and shape in one step. */
typedef struct kernel_sum {
    z3d_event event; /* bytes, flops, seconds: of all */
    int64_t launches;
} kernel_sum;

enum { KERNEL_SUMS = 64 };

/* Of one shape, where they have one. */
static bool is_alike(const z3d_event *a, const z3d_event *b) {
    return a->of == b->of && a->form == b->form && a->m == b->m && a->n == b->n && a->k == b->k &&
           (a->fused > 0) == (b->fused > 0);
}

static int by_seconds(const void *a, const void *b) {
    double x = ((const kernel_sum *)a)->event.seconds, y = ((const kernel_sum *)b)->event.seconds;
    return (x < y) - (x > y);
}

static int sum_kernels(const z3d_tape *tape, kernel_sum *sums) {
    int count = 0;
    for (int64_t i = 0; i < tape->count; i++) {
        const z3d_event event = z3d_tape_at(tape, i);
        int at = 0;
        while (at < count && !is_alike(&sums[at].event, &event)) at++;
        if (event.kind != Z3D_EVENT_KERNEL || at == KERNEL_SUMS) continue;
        if (at == count) {
            sums[count++] = (kernel_sum){.event = event, .launches = 1};
            continue;
        }
        z3d_event *sum = &sums[at].event;
        sum->bytes += event.bytes, sum->flops += event.flops, sum->seconds += event.seconds;
        sums[at].launches++;
    }
    qsort(sums, (size_t)count, sizeof *sums, by_seconds);
    return count;
}

static void report_kernel(check_context *context, const kernel_sum *sum, double all) {
    static const char *const forms[] = {"", ", B^T", ", A^T", ", A^T B^T"};
    const z3d_event *e = &sum->event;
    char name[64], shape[64] = "";
    double each = e->seconds / (double)sum->launches;
    bool product = e->of == Z3D_KERNEL_gemm;
    if (e->m)
        snprintf(shape, sizeof shape, " %lld x %lld x %lld%s", (long long)e->m, (long long)e->n,
                 (long long)e->k, product ? forms[e->form] : "");
    snprintf(name, sizeof name, "%s%s", z3d_kernel_name((z3d_kernel_kind)e->of), shape);
    if (e->seconds <= 0)
        check_measured(context, name, "%5lld x in the product before it", (long long)sum->launches);
    else
        check_measured(
            context, name, "%5lld x %8.1f us = %7.2f ms, %4.1f %%: %6.0f GB/s %5.0f TFLOP/s",
            (long long)sum->launches, each * 1e6, e->seconds * 1e3, e->seconds * 100 / all,
            (double)e->bytes / e->seconds / 1e9, e->flops / e->seconds / 1e12);
}

/* Each kernel alone; so their sum is more than the step takes. */
static z3d_status profile(check_context *context, preset p, z3d_tape *tape, bool only_attention) {
    static kernel_sum sums[KERNEL_SUMS];
    z3d_device_config config = context->cuda;
    z3d_step_result result = {0};
    double all = 0;
    config.tape = tape;
    z3d_status status = check_model_create(context, &config, &p.model);
    for (int i = 0; i < 3 && status == Z3D_OK; i++) {
        z3d_tape_clear(tape);
        status = check_model_step(&p.model, &result);
    }
    check_model_destroy(&p.model);
    Z3D_TRY(status);
    int count = sum_kernels(tape, sums);
    for (int i = 0; i < count; i++) all += sums[i].event.seconds;
    check_measured(context, p.name, "a step's kernels one by one: %.1f ms", all * 1e3);
    for (int i = 0; i < count; i++)
        if (!only_attention || sums[i].event.of == Z3D_KERNEL_attention_forward ||
            sums[i].event.of == Z3D_KERNEL_attention_backward)
            report_kernel(context, &sums[i], all);
    check_report(context, count > 10, p.name, "%d kinds of kernels", count);
    return Z3D_OK;
}

z3d_status check_kernels(check_context *context, bool tiny) {
    z3d_tape *tape;
    Z3D_TRY(z3d_tape_create(&tape));
    z3d_status status =
        profile(context, preset_of("gpt2-1.5b", tiny ? gpt2_tiny : gpt2_1558m, tiny), tape, false);
    if (status == Z3D_OK && !tiny)
        status = profile(context, preset_of("gpt2-124m", gpt2_124m, false), tape, false);
    z3d_tape_destroy(tape);
    return status;
}

z3d_status check_attention_speed(check_context *context, bool tiny) {
    static const int64_t tokens[] = {1000, 1024, 2048}, widths[] = {64, 80, 128};
    z3d_tape *tape;
    Z3D_TRY(z3d_tape_create(&tape));
    z3d_status status = Z3D_OK;
    for (int i = 0; i < (tiny ? 1 : 9) && status == Z3D_OK; i++) {
        const int64_t seq = tiny ? 20 : tokens[i / 3], d = tiny ? 8 : widths[i % 3];
        const int64_t heads = tiny ? 2 : 2048 / d;
        char name[64];
        snprintf(name, sizeof name, "attention, %lld tokens, heads of %lld", (long long)seq,
                 (long long)d);
        preset p = preset_of(
            name,
            (check_model){
                .layers = 4, .hidden = heads * d, .heads = heads, .batch = tiny ? 1 : 16384 / seq},
            tiny);
        p.model.seq = seq;
        p.model.vocabulary = 67;
        status = profile(context, p, tape, true);
    }
    z3d_tape_destroy(tape);
    return status;
}

/* ---- memory ---- */

/* Pinned memory and the device's, `bytes` each way. */
static z3d_status time_copies(z3d_device *device, char *here, char *there, int64_t bytes, bool to,
                              bool from, double *seconds) {
    z3d_copy out = {0}, in = {0};
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
    const int64_t count = bytes / 4; /* y: fp32, x: bf16; both are larger than any cache */
    double seconds[4] = {0}, gflops = 0;
    z3d_gemm_method unused;
    for (int i = 0; i < 3; i++) /* the last is timed */
        Z3D_TRY(Z3D_LAUNCH(device, accumulate, .y = there, .x = there + bytes, .count = count,
                           .y_dtype = Z3D_F32, .x_dtype = Z3D_BF16));
    const double add_seconds = z3d_tape_at(tape, tape->count - 1).seconds;
    for (int way = 0; way < 4; way++) /* the first warms up */
        Z3D_TRY(time_copies(device, here, there, bytes, way != 2, way != 1, &seconds[way]));
    check_measured(context, "memory", "%.0f GB/s by adding %.2f GB of bf16 to fp32",
                   2.5 * giga / add_seconds, giga / 2);
    check_measured(context, "host memory", "to the device %.1f GB/s, back %.1f, both at once %.1f",
                   giga / seconds[1], giga / seconds[2], 2 * giga / seconds[3]);
    const int64_t n = bytes > 1 << 20 ? 8192 : 64;
    Z3D_TRY(z3d_device_measure_gemm(device, Z3D_BF16, n, n, n, &unused, &gflops));
    check_measured(context, "products bf16", "%.3g TFLOP/s at %lld x %lld x %lld", gflops / 1e3,
                   (long long)n, (long long)n, (long long)n);
    check_report(context, add_seconds > 0 && gflops > 0, "memory", "was measured");
    return Z3D_OK;
}

z3d_status check_memory(check_context *context, bool tiny) {
    const int64_t bytes = tiny ? 1 << 16 : (int64_t)1 << 30;
    z3d_device_config config = context->cuda;
    z3d_device *device;
    void *here = NULL, *there = NULL;
    Z3D_TRY(z3d_tape_create(&config.tape));
    Z3D_TRY(z3d_device_create(&config, &device));
    check_measured(context, "device", "%s", z3d_device_description(device));
    z3d_status status = z3d_device_alloc(device, Z3D_SPACE_HOST, 2 * bytes, &here);
    if (status == Z3D_OK) status = z3d_device_alloc(device, Z3D_SPACE_DEVICE, 2 * bytes, &there);
    if (status == Z3D_OK) status = measure_memory(context, device, config.tape, here, there, bytes);
    z3d_device_free(device, Z3D_SPACE_HOST, here, 2 * bytes);
    z3d_device_free(device, Z3D_SPACE_DEVICE, there, 2 * bytes);
    z3d_device_destroy(device);
    z3d_tape_destroy(config.tape);
    return status;
}
