/* Speed and memory: GPT-2 as a whole, and its kernels one by one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/model.h"

/* ---- whole steps ---- */

typedef struct preset {
    const char *name;
    check_model model;
} preset;

static double parameters(const check_model *m) { /* without the vocabulary's padding */
    double h = (double)m->hidden;
    return (double)m->layers * (12 * h * h + 13 * h) + (double)(m->vocabulary + m->seq) * h + 2 * h;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median seconds of the steps after the first two. */
static z3d_status time_steps(check_model *m, int steps, double *median) {
    enum { MOST = 64, WARM = 2 };
    double seconds[MOST];
    if (steps > MOST) steps = MOST;
    for (int i = 0; i < steps + WARM; i++) {
        z3d_step_result result;
        Z3D_TRY(check_model_step(m, &result));
        if (i >= WARM) seconds[i - WARM] = result.seconds;
    }
    qsort(seconds, (size_t)steps, sizeof *seconds, by_value);
    *median = seconds[steps / 2];
    return Z3D_OK;
}

static void report_speed(check_context *context, const preset *p, double step, double ceiling) {
    const check_model *m = &p->model;
    char name[64];
    double tokens = (double)(m->batch * m->seq) / step;
    /* 6N + 6LTC a token: PaLM's count with the half of attention that is not masked. */
    double flops = 6 * parameters(m) + 6 * (double)m->layers * (double)m->seq * (double)m->hidden;
    double tera = tokens * flops / 1e12;
    snprintf(name, sizeof name, "speed %s", p->name);
    check_report(context, step > 0, name,
                 "%.1f ms a step, %.0f tokens/s, %.1f TFLOP/s: MFU %.1f %% of 989, %.1f %% of the "
                 "measured %.0f",
                 step * 1e3, tokens, tera, tera / 9.89, tera * 100 / ceiling, ceiling);
}

static void report_memory(check_context *context, const preset *p, int64_t before) {
    const check_model *m = &p->model;
    char name[64], arena[32], used[32], outside[32];
    int64_t bytes = z3d_engine_arena_bytes(m->engine), now = z3d_device_used_bytes(m->device);
    snprintf(name, sizeof name, "memory %s", p->name);
    check_report(context, now >= bytes, name,
                 "arena %s, driver %s (%.2f GiB of it before the arena), outside the plan %s: "
                 "context, 32 MiB for cuBLASLt, kernels' and cuDNN's scratch",
                 z3d_format_bytes(bytes, arena, sizeof arena),
                 z3d_format_bytes(now, used, sizeof used), (double)before / (1 << 30),
                 z3d_format_bytes(now - bytes, outside, sizeof outside));
}

static z3d_status measure_ceiling(const z3d_device_config *config, bool tiny, double *tera,
                                  int64_t *used) {
    z3d_device *device;
    z3d_gemm_method unused;
    int64_t n = tiny ? 64 : 8192;
    double gflops = 0;
    Z3D_TRY(z3d_device_create(config, &device));
    *used = z3d_device_used_bytes(device);
    z3d_status status = z3d_device_measure_gemm(device, Z3D_BF16, n, n, n, &unused, &gflops);
    *tera = gflops / 1e3;
    z3d_device_destroy(device);
    return status;
}

z3d_status check_speed(check_context *context, bool tiny, int steps) {
    preset large[] = {
        {"gpt2-124m", {.layers = 12, .hidden = 768, .heads = 12, .seq = 1024, .batch = 32}},
        {"gpt2-1.5b", {.layers = 48, .hidden = 1600, .heads = 25, .seq = 1024, .batch = 16}},
    };
    preset small[] = {{"tiny", {.layers = 2, .hidden = 32, .heads = 4, .seq = 16, .batch = 4}}};
    preset *presets = tiny ? small : large;
    double ceiling;
    int64_t before;
    Z3D_TRY(measure_ceiling(&context->cuda, tiny, &ceiling, &before));
    check_report(context, ceiling > 0, "products bf16", "%.3g TFLOP/s", ceiling);
    for (int i = 0; i < (tiny ? 1 : 2); i++) {
        check_model *m = &presets[i].model;
        double step = 0;
        m->vocabulary = tiny ? 67 : 50257;
        m->dtype = Z3D_BF16;
        z3d_status status = check_model_create(context, &context->cuda, m);
        if (status == Z3D_OK) status = time_steps(m, steps, &step);
        if (status == Z3D_OK) report_speed(context, &presets[i], step, ceiling);
        if (status == Z3D_OK) report_memory(context, &presets[i], before);
        check_model_destroy(m);
        if (status == Z3D_OK) continue;
        /* Too little memory is a result too, and the next model may fit. */
        check_report(context, false, presets[i].name, "%s", z3d_error_message());
    }
    return Z3D_OK;
}

/* ---- with a graph and without ---- */

static z3d_status time_model(check_context *context, check_model m, z3d_graph_mode graph, int steps,
                             double *step, int64_t *launches) {
    m.graph = graph;
    m.dtype = Z3D_BF16;
    z3d_status status = check_model_create(context, &context->cuda, &m);
    if (status == Z3D_OK) status = time_steps(&m, steps, step);
    if (status == Z3D_OK) *launches = z3d_engine_graph_launches(m.engine);
    check_model_destroy(&m);
    return status;
}

z3d_status check_graph_speed(check_context *context, bool tiny, int steps) {
    preset large[] = {
        {"gpt2-124m, 1 sample",
         {.layers = 12, .hidden = 768, .heads = 12, .seq = 1024, .batch = 1}},
        {"gpt2-124m", {.layers = 12, .hidden = 768, .heads = 12, .seq = 1024, .batch = 32}},
        {"gpt2-1.5b", {.layers = 48, .hidden = 1600, .heads = 25, .seq = 1024, .batch = 16}},
    };
    preset small[] = {{"tiny", {.layers = 2, .hidden = 32, .heads = 4, .seq = 8, .batch = 2}}};
    for (int i = 0; i < (tiny ? 1 : 3); i++) {
        preset p = tiny ? small[i] : large[i];
        double plain = 0, graph = 0;
        int64_t launches = 0;
        char name[64];
        snprintf(name, sizeof name, "graph %s", p.name);
        p.model.vocabulary = tiny ? 67 : 50257;
        z3d_status status = time_model(context, p.model, Z3D_GRAPH_OFF, steps, &plain, &launches);
        if (status == Z3D_OK)
            status = time_model(context, p.model, Z3D_GRAPH_ON, steps, &graph, &launches);
        if (status != Z3D_OK)
            check_report(context, false, name, "%s", z3d_error_message());
        else
            check_report(context, launches > 0, name,
                         "%lld launches a step become 1: %.2f ms a step without, %.2f ms with",
                         (long long)launches, plain * 1e3, graph * 1e3);
    }
    return Z3D_OK;
}

/* ---- kernels ---- */

typedef struct timing {
    check_context *context;
    z3d_device *device;
    int launches;
} timing;

static z3d_status time_kernel(void *argument, check_case *c) {
    const timing *t = argument;
    check_copy copy;
    Z3D_TRY(check_copy_make(c, t->device, 0, &copy));
    z3d_status status = z3d_launch(t->device, &copy.kernel);
    if (status == Z3D_OK) status = z3d_device_synchronize(t->device);
    double begin = z3d_now();
    for (int i = 0; i < t->launches && status == Z3D_OK; i++)
        status = z3d_launch(t->device, &copy.kernel);
    if (status == Z3D_OK) status = z3d_device_synchronize(t->device);
    double seconds = (z3d_now() - begin) / t->launches;
    if (status == Z3D_OK)
        check_report(t->context, true, c->name, "%9.1f us  %8.1f GB/s  %8.2f TFLOP/s",
                     seconds * 1e6,
                     (double)(copy.cost.bytes_read + copy.cost.bytes_written) / seconds / 1e9,
                     copy.cost.flops / seconds / 1e12);
    check_copy_drop(&copy);
    return status;
}

z3d_status check_kernels(check_context *context, bool tiny) {
    check_sizes large = {.batch = 4, .seq = 1024, .heads = 25, .head_dim = 64, .vocabulary = 50257};
    check_sizes small = {.batch = 1, .seq = 16, .heads = 2, .head_dim = 8, .vocabulary = 67};
    timing t = {.context = context, .launches = tiny ? 1 : 20};
    Z3D_TRY(z3d_device_create(&context->cuda, &t.device));
    z3d_status status = check_each_case(tiny ? &small : &large, Z3D_BF16, time_kernel, &t);
    z3d_device_destroy(t.device);
    return status;
}
