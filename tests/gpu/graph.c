/* Captured steps: with a graph and without, bit for bit; and what a capture must refuse. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/gpu/model.h"

/* ---- steps ---- */

enum { MOST_STEPS = 16 };

/* What a run of some steps leaves, but times. */
typedef struct outcome {
    double loss[MOST_STEPS], norm[MOST_STEPS], validation[MOST_STEPS];
    float scale[MOST_STEPS];
    int skipped, captured; /* steps; of the skipped, those with a graph */
    bool stop[MOST_STEPS];
    int64_t calls, peak[Z3D_SPACE_COUNT];
    int64_t launches;
    int untimed; /* kinds of collectives that nobody timed */
} outcome;

static z3d_status run_steps(check_model *m, int steps, outcome *out) {
    for (int i = 0; i < steps; i++) {
        z3d_step_result result;
        double targets = 0;
        bool stop;
        Z3D_TRY(check_model_step(m, &result));
        out->loss[i] = result.loss;
        out->norm[i] = result.grad_norm;
        out->scale[i] = result.loss_scale;
        out->stop[i] = result.stop;
        out->skipped += result.skipped;
        if (result.skipped && i > 0) out->captured++;
        /* Another program between two steps: the same memory, and a batch of its own. */
        if (i != 1) continue;
        z3d_micro_batch batch = {.field = {m->tokens, m->tokens}};
        z3d_step_input input = {.micro = &batch, .global_targets = m->batch * m->seq};
        Z3D_TRY(z3d_engine_evaluate(m->engine, &input, &out->validation[i], &targets, &stop));
    }
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++)
        for (int kind = 0; kind < Z3D_COLLECTIVE_COUNT; kind++) {
            const z3d_traffic *t = z3d_group_traffic(m->group[axes], (z3d_collective_kind)kind);
            out->calls += t->calls + t->scalar_calls;
            out->untimed += !isfinite(t->seconds) && !isfinite(t->exposed_seconds);
        }
    for (int s = 0; s < Z3D_SPACE_COUNT; s++)
        out->peak[s] = z3d_engine_measured(m->engine, (z3d_space)s)->total_peak;
    out->launches = z3d_engine_graph_launches(m->engine);
    return Z3D_OK;
}

static z3d_status run(check_context *context, check_model m, z3d_graph_mode graph, int steps,
                      outcome *out) {
    memset(out, 0, sizeof *out);
    m.graph = graph;
    z3d_status status = check_model_create(context, &context->cuda, &m);
    if (status == Z3D_OK) status = run_steps(&m, steps, out);
    check_model_destroy(&m);
    return status;
}

/* skips: some captured steps must have been skipped, and not all. */
static void check_case_of(check_context *context, const char *name, check_model m, int steps,
                          bool skips) {
    outcome plain, graph;
    z3d_status status = run(context, m, Z3D_GRAPH_OFF, steps, &plain);
    if (status == Z3D_OK) status = run(context, m, Z3D_GRAPH_ON, steps, &graph);
    if (status != Z3D_OK) {
        check_report(context, false, name, "%s", z3d_error_message());
        return;
    }
    int64_t launches = graph.launches;
    bool timed = plain.untimed == 0 && (graph.untimed > 0) == (z3d_world_size(context->world) > 1);
    graph.launches = plain.launches;
    graph.untimed = plain.untimed;
    bool equal = memcmp(&plain, &graph, sizeof plain) == 0;
    check_report(context,
                 equal && isfinite(graph.loss[steps - 1]) && launches > 0 && plain.launches == 0 &&
                     timed && plain.stop[2] && (graph.captured > 0) == skips &&
                     graph.skipped < steps - 1,
                 name,
                 "%d steps, %.6f to %.6f, %d skipped, %lld pieces of work in one: %s the steps "
                 "without",
                 steps, graph.loss[0], graph.loss[steps - 1], graph.skipped, (long long)launches,
                 equal ? "bit for bit" : "NOT");
}

/* ---- what is refused ---- */

typedef struct blocks {
    z3d_device *device;
    float *x; /* on the device */
    float *host;
} blocks;

enum { COUNT = 256, COPIES = 100 };

static z3d_status fill(const blocks *b, float value) {
    return Z3D_LAUNCH(b->device, fill, .x = b->x, .count = COUNT, .dtype = Z3D_F32, .value = value);
}

/* Ends in failure as it must, and the device works on. */
static void check_refused(check_context *context, const blocks *b, const char *name,
                          z3d_status (*wrong)(const blocks *b)) {
    z3d_region *region = NULL;
    int64_t launches;
    float got = 0;
    z3d_status status = z3d_capture_begin(b->device);
    if (status == Z3D_OK) status = fill(b, 1);
    if (status == Z3D_OK) status = wrong(b);
    bool refused = status != Z3D_OK;
    refused |= z3d_capture_end(b->device, &region, &launches) != Z3D_OK;
    z3d_region_destroy(b->device, region);
    status = fill(b, 7);
    if (status == Z3D_OK) status = z3d_device_read(b->device, &got, b->x, sizeof got);
    check_report(context, refused && status == Z3D_OK && got == 7, name, "%s%s",
                 refused ? "refused" : "NOT refused", status == Z3D_OK ? "" : z3d_error_message());
}

static z3d_status reads(const blocks *b) {
    return z3d_device_read(b->device, b->host, b->x, sizeof *b->host);
}

static z3d_status leaves_a_copy(const blocks *b) {
    z3d_copy copy;
    return z3d_copy_start(b->device, b->host, b->x, sizeof *b->host, &copy);
}

static z3d_status allocates(const blocks *b) {
    void *more = NULL;
    z3d_status status = z3d_device_alloc(b->device, Z3D_SPACE_DEVICE, 64, &more);
    z3d_device_free(b->device, Z3D_SPACE_DEVICE, more, 64);
    return status;
}

/* Beside compute, more often than there are events for it; what the first has read is overwritten
 * as soon as that was waited for. */
static z3d_status capture_copies(const blocks *b, z3d_region **region, int64_t *launches) {
    z3d_copy copy[COPIES];
    Z3D_TRY(z3d_capture_begin(b->device));
    Z3D_TRY(z3d_device_post(b->device, b->x, b->host, COUNT * sizeof *b->x));
    for (int i = 0; i < COPIES; i++)
        Z3D_TRY(z3d_copy_start(b->device, b->host + COUNT + i, b->x + i, sizeof *b->x, &copy[i]));
    Z3D_TRY(z3d_copy_wait(b->device, copy[0]));
    Z3D_TRY(Z3D_LAUNCH(b->device, fill, .x = b->x, .count = 1, .dtype = Z3D_F32, .value = -1));
    for (int i = 1; i < COPIES; i++) Z3D_TRY(z3d_copy_wait(b->device, copy[i]));
    Z3D_TRY(fill(b, 0));
    Z3D_TRY(z3d_device_fetch(b->device, b->host, b->x, COUNT * sizeof *b->x));
    return z3d_capture_end(b->device, region, launches);
}

static void check_copies(check_context *context, const blocks *b) {
    z3d_region *region = NULL;
    int64_t launches = 0;
    bool right = true;
    z3d_status status = capture_copies(b, &region, &launches);
    for (int round = 1; round <= 3 && status == Z3D_OK; round++) {
        for (int i = 0; i < COUNT; i++) b->host[i] = (float)(round * 1000 + i);
        status = z3d_region_launch(b->device, region);
        if (status == Z3D_OK) status = z3d_device_synchronize(b->device);
        for (int i = 0; i < COPIES; i++) right &= b->host[COUNT + i] == (float)(round * 1000 + i);
        for (int i = 0; i < COUNT; i++) right &= b->host[i] == 0;
    }
    z3d_region_destroy(b->device, region);
    check_report(context, status == Z3D_OK && right && launches == COPIES + 4, "capture copies",
                 "%lld pieces of work%s%s", (long long)launches, status == Z3D_OK ? "" : ": ",
                 status == Z3D_OK ? "" : z3d_error_message());
}

/* ---- scratch ---- */

/* x[0 .. 1], as a double, becomes the number of ones behind it: through the kernels' scratch. */
static z3d_status count_ones(const blocks *b) {
    Z3D_TRY(fill(b, 1));
    Z3D_TRY(Z3D_LAUNCH(b->device, fill, .x = b->x, .count = 2, .dtype = Z3D_F32));
    Z3D_TRY(Z3D_LAUNCH(b->device, sum_squares, .x = b->x + 4, .count = COUNT - 4, .dtype = Z3D_F32,
                       .out = (double *)(void *)b->x));
    return z3d_device_fetch(b->device, b->host, b->x, sizeof(double));
}

/* A kernel that wants more scratch than there is by default. */
static z3d_status grow_scratch(const blocks *b) {
    enum { ROWS = 8192, COLS = 544 };
    int64_t bytes = (ROWS + 1) * COLS * (int64_t)sizeof(float);
    float *dy = NULL;
    Z3D_TRY(z3d_device_alloc(b->device, Z3D_SPACE_DEVICE, bytes, (void **)&dy));
    z3d_status status =
        Z3D_LAUNCH(b->device, bias_backward, .dy = dy, .gradient = dy + ROWS * COLS, .rows = ROWS,
                   .cols = COLS, .dtype = Z3D_F32, .gradient_dtype = Z3D_F32);
    z3d_device_free(b->device, Z3D_SPACE_DEVICE, dy, bytes);
    return status;
}

/* What takes the place of scratch that was let go would be written over. */
static z3d_status run_behind_growth(const blocks *b, const z3d_region *region, float *other,
                                    bool *kept) {
    float got[2];
    Z3D_TRY(
        Z3D_LAUNCH(b->device, fill, .x = other, .count = 1 << 18, .dtype = Z3D_F32, .value = 7));
    Z3D_TRY(z3d_region_launch(b->device, region));
    Z3D_TRY(z3d_device_read(b->device, got, other, sizeof got));
    double ones;
    memcpy(&ones, b->host, sizeof ones);
    *kept = got[0] == 7 && got[1] == 7 && ones == COUNT - 4;
    return Z3D_OK;
}

static void check_scratch(check_context *context, const blocks *b) {
    z3d_region *region = NULL;
    int64_t launches = 0, bytes = (int64_t)1 << 20;
    void *other = NULL;
    bool kept = false;
    z3d_status status = count_ones(b);
    if (status == Z3D_OK) status = z3d_capture_begin(b->device);
    if (status == Z3D_OK) status = count_ones(b);
    if (status == Z3D_OK) status = z3d_capture_end(b->device, &region, &launches);
    if (status == Z3D_OK) status = grow_scratch(b);
    if (status == Z3D_OK) status = z3d_device_alloc(b->device, Z3D_SPACE_DEVICE, bytes, &other);
    if (status == Z3D_OK) status = run_behind_growth(b, region, other, &kept);
    z3d_device_free(b->device, Z3D_SPACE_DEVICE, other, bytes);
    z3d_region_destroy(b->device, region);
    check_report(context, status == Z3D_OK && kept, "capture, then scratch grows", "%s%s",
                 kept ? "the graph has its own" : "NOT kept for the graph",
                 status == Z3D_OK ? "" : z3d_error_message());
}

static z3d_status check_captures(check_context *context) {
    blocks b;
    Z3D_TRY(z3d_device_create(&context->cuda, &b.device));
    z3d_status status =
        z3d_device_alloc(b.device, Z3D_SPACE_DEVICE, COUNT * sizeof *b.x, (void **)&b.x);
    if (status == Z3D_OK)
        status = z3d_device_alloc(b.device, Z3D_SPACE_HOST, 2 * COUNT * sizeof *b.host,
                                  (void **)&b.host);
    if (status == Z3D_OK) {
        check_refused(context, &b, "capture with a read", reads);
        check_refused(context, &b, "capture with a copy left open", leaves_a_copy);
        check_refused(context, &b, "capture with an allocation", allocates);
        check_copies(context, &b);
        check_scratch(context, &b);
        z3d_device_free(b.device, Z3D_SPACE_DEVICE, b.x, COUNT * sizeof *b.x);
        z3d_device_free(b.device, Z3D_SPACE_HOST, b.host, 2 * COUNT * sizeof *b.host);
    }
    z3d_device_destroy(b.device);
    return status;
}

z3d_status check_graphs(check_context *context, bool tiny, int tensor) {
    check_model m = {.layers = 2,
                     .hidden = tiny ? 16 : 64,
                     .heads = 2,
                     .seq = tiny ? 4 : 64,
                     .vocabulary = 67,
                     .batch = tiny ? 2 * z3d_world_size(context->world) / tensor : 16,
                     .tensor = tensor,
                     .dropout = 0.1,
                     .recompute = true,
                     .accumulation = 2};
    int steps = tiny ? 3 : 12;
    Z3D_TRY(check_captures(context));
    if (!tiny || z3d_world_size(context->world) == 1)
        check_case_of(context, "graph fp32 dropout stage 0", m, steps, false);
    m.offload = true;
    check_case_of(context, "graph fp32 offload stage 2", (m.stage = 2, m), steps, false);
    m.offload = false;
    /* Step 1 overflows, and some captured ones, until the scale has halved far enough. */
    m.dtype = Z3D_F16;
    m.stage = 3;
    m.scaler = (z3d_loss_scaler){.dynamic = true,
                                 .scale = tiny ? 0x1p19f : 0x1p24f,
                                 .min_scale = 1,
                                 .window = 1000,
                                 .hysteresis = 1};
    check_case_of(context, "graph fp16 overflow stage 3", m, steps + 2, true);
    if (tiny) return Z3D_OK;
    m.dtype = Z3D_BF16;
    m.dropout = 0;
    m.scaler = (z3d_loss_scaler){0};
    check_case_of(context, "graph bf16 stage 3", m, steps, false);
    return Z3D_OK;
}
