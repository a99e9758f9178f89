/* Runs that must be alike: on cuda and on the cpu, in ZeRO's stages, as a graph and step by step.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/gpu/model.h"

typedef struct type {
    const char *name;
    z3d_dtype dtype;
    double dropout;
    double bound;    /* to the cpu's numbers, relatively; 0: they are not compared */
    int first_stage; /* of those that are run */
    bool overflows;  /* in step 1 and some with a graph, until the scale has halved far enough */
} type;

/* The first and the last are what a machine without a GPU runs. */
static const type types[] = {{"fp32 dropout", Z3D_F32, 0.1, 1e-4, 0, false},
                             {"fp32", Z3D_F32, 0, 1e-4, 0, false},
                             {"bf16", Z3D_BF16, 0, 1e-2, 0, false},
                             {"fp16 overflow", Z3D_F16, 0.1, 0, 3, true}};

/* Stage 2 has its activation checkpoints in host memory: copies beside compute. */
static void set_stage(check_model *m, int stage) {
    m->engine.program.stage = stage;
    m->engine.program.checkpoint_space = stage == 2 ? Z3D_SPACE_HOST : Z3D_SPACE_DEVICE;
}

static check_model model_of(const check_context *context, const type *type) {
    const int ranks = z3d_world_size(context->world) / context->tensor;
    check_model m = context->tiny ? check_model_make(2, 16, 2, 4, 67, 2 * ranks)
                                  : check_model_make(2, 64, 2, 64, 67, 16);
    m.gpt.tensor_size = context->tensor;
    m.gpt.hidden_dropout = m.gpt.attention_dropout = type->dropout;
    m.engine.program.dtype = type->dtype;
    m.engine.program.recompute = true;
    set_stage(&m, type->first_stage);
    if (!type->overflows) return m;
    m.engine.program.accumulation = 2;
    m.engine.scaler = (z3d_loss_scaler){.dynamic = true,
                                        .scale = context->tiny ? 0x1p19f : 0x1p24f,
                                        .min_scale = 1,
                                        .window = 1000,
                                        .hysteresis = 1};
    return m;
}

/* ---- comparing ---- */

/* Bit for bit, also where nothing is a number. */
static bool same(double a, double b) {
    return memcmp(&a, &b, sizeof a) == 0;
}

static bool all_same(const check_run *a, const check_run *b, int steps) {
    bool equal = same(a->validation, b->validation);
    for (int i = 0; i < steps; i++) {
        const z3d_step_result *x = &a->step[i], *y = &b->step[i];
        equal &= same(x->loss, y->loss) && same(x->grad_norm, y->grad_norm) &&
                 x->loss_scale == y->loss_scale && x->skipped == y->skipped && x->stop == y->stop;
    }
    return equal;
}

/* Relatively; a norm, which the first backward pass already decides, counts a tenth, since it has
 * each gradient's rounding and no mean over tokens. */
static double furthest(const check_run *a, const check_run *b, int steps) {
    double most = steps > 1 ? fabs(a->validation / b->validation - 1) : 0;
    for (int i = 0; i < steps; i++) {
        double loss = fabs(a->step[i].loss / b->step[i].loss - 1);
        double norm = fabs(a->step[i].grad_norm / b->step[i].grad_norm - 1) / 10;
        if (!(loss <= most)) most = loss;
        if (!(norm <= most)) most = norm;
    }
    return most;
}

static void check_cpu(check_context *context, const char *name, check_model m, int steps,
                      double bound, const check_run *cuda) {
    const z3d_device_config cpu = {.backend = "cpu", CHECK_GEMM};
    check_run want;
    if (!check_ran(context, check_train(context, &cpu, m, steps, &want), name)) return;
    double far = furthest(cuda, &want, steps);
    check_report(context, far < bound, name,
                 "%d steps, losses %.6f to %.6f, %.2e relative from the cpu's (bound %.0e)", steps,
                 cuda->step[0].loss, cuda->step[steps - 1].loss, far, bound);
}

/* Leaves the same, and took as much. */
static void check_graph(check_context *context, const char *name, check_model m, int steps,
                        bool overflows, const check_run *plain) {
    check_run graph;
    int skipped = 0;
    m.engine.graph = Z3D_GRAPH_ON;
    if (!check_ran(context, check_train(context, &context->cuda, m, steps, &graph), name)) return;
    for (int i = 1; i < steps; i++) skipped += graph.step[i].skipped;
    bool equal = all_same(plain, &graph, steps) && plain->calls == graph.calls &&
                 memcmp(plain->peak, graph.peak, sizeof graph.peak) == 0;
    bool timed = plain->untimed == 0 && (graph.untimed > 0) == (z3d_world_size(context->world) > 1);
    bool ran = graph.launches > 0 && plain->launches == 0 && plain->step[2].stop &&
               isfinite(graph.step[steps - 1].loss) && (skipped > 0) == overflows &&
               skipped < steps - 1;
    check_report(context, equal && timed && ran, name,
                 "graph in stage %d, %d skipped, %lld pieces of work in one: %s the steps without",
                 m.engine.program.stage, skipped, (long long)graph.launches,
                 equal ? "bit for bit" : "NOT");
}

/* In stage 3, which has most collectives. NCCL may sum another size in another order. Its groups
 * have room for one bucket. */
static void check_buckets(check_context *context, const char *name, check_model m, int steps,
                          const check_run *whole) {
    check_run cut;
    if (z3d_world_size(context->world) == context->tensor ||
        !(context->tiny || context->cuda.host_collectives))
        return;
    const int64_t most = 500, room = most * (int64_t)z3d_dtype_size(m.engine.program.dtype);
    m.engine.program.reduce_bucket = m.engine.program.gather_bucket = most;
    m.engine.graph = context->cuda.host_collectives ? Z3D_GRAPH_OFF : Z3D_GRAPH_ON;
    if (!check_ran(context, check_train(context, &context->cuda, m, steps, &cut), name)) return;
    const bool roomy = context->cuda.host_collectives || cut.buffers == whole->buffers + room;
    check_report(context, all_same(whole, &cut, steps) && cut.calls > whole->calls && roomy, name,
                 "%lld collectives of at most 500 elements, not %lld: bit for bit; buffers of %lld "
                 "bytes",
                 (long long)cut.calls, (long long)whole->calls, (long long)cut.buffers);
}

/* ---- all of it ---- */

static void check_type(check_context *context, const type *type) {
    const int steps = context->steps  ? context->steps
                      : context->tiny ? 3 + 2 * type->overflows
                                      : 20;
    const bool graphs = !context->cuda.host_collectives && steps > 2;
    check_model m = model_of(context, type);
    check_run first, run;
    char name[64];
    double waited = 0;
    bool equal = true;
    snprintf(name, sizeof name, "%s tp %d dp %d", type->name, context->tensor,
             z3d_world_size(context->world) / context->tensor);
    for (int stage = type->first_stage; stage < 4; stage++) {
        set_stage(&m, stage);
        if (!check_ran(context, check_train(context, &context->cuda, m, steps, &run), name)) return;
        if (stage == type->first_stage) first = run;
        if (stage == 0 && type->bound > 0) check_cpu(context, name, m, steps, type->bound, &first);
        equal &= all_same(&first, &run, steps);
        if (stage == 2)
            for (int i = 0; i < steps; i++) waited += run.step[i].exposed_transfer_seconds;
        if (graphs) check_graph(context, name, m, steps, type->overflows, &run);
    }
    check_buckets(context, name, m, steps, &run);
    if (type->first_stage == 0)
        check_report(context, equal && waited > 0, name,
                     "the stages' numbers %s bit for bit; waited %.3g s for host memory",
                     equal ? "are equal" : "differ", waited);
}

z3d_status check_training(check_context *context) {
    const size_t last = sizeof types / sizeof *types - 1;
    context->cuda.times = true;
    for (size_t i = 0; i <= last; i += context->tiny ? last : 1) check_type(context, &types[i]);
    context->cuda.times = false;
    return Z3D_OK;
}
