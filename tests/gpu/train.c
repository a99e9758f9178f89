/* Runs that must be alike: on cuda and on the cpu, in ZeRO's stages, as a graph and step by step.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/gpu/model.h"

static bool run(check_context *context, const char *name, const z3d_device_config *device,
                const check_model *m, int steps, check_run *out) {
    return check_ran(context, check_train(context, device, *m, steps, out), name);
}

/* Activation checkpoints in host memory: copies beside compute. */
static void set_stage(check_model *m, int stage, bool offload) {
    m->engine.program.stage = stage;
    m->engine.program.recompute = true;
    m->engine.program.checkpoint_space = offload ? Z3D_SPACE_HOST : Z3D_SPACE_DEVICE;
}

static void set_type(check_model *m, z3d_dtype dtype, double dropout) {
    m->engine.program.dtype = dtype;
    m->gpt.hidden_dropout = m->gpt.attention_dropout = dropout;
}

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

/* ---- on cuda and on the cpu, and in all stages ---- */

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

/* Stages 0, stage_step, 2 stage_step, ... on cuda give equal bits, and stage 0 the cpu's losses. */
static void check_type(check_context *context, check_model m, int stage_step, double bound) {
    const z3d_device_config cpu = {.backend = "cpu"};
    const int steps = context->steps ? context->steps : 20;
    check_run want, first, other;
    char name[64];
    int ranks = z3d_world_size(context->world);
    double waited = 0;
    bool equal = true;
    snprintf(name, sizeof name, "losses %s%s tp %d dp %d", z3d_dtype_name(m.engine.program.dtype),
             m.gpt.hidden_dropout > 0 ? " dropout" : "", context->tensor, ranks / context->tensor);
    if (!run(context, name, &cpu, &m, steps, &want) ||
        !run(context, name, &context->cuda, &m, steps, &first))
        return;
    double far = furthest(&first, &want, steps);
    check_report(context, far < bound, name,
                 "%d steps, %.6f to %.6f, %.2e relative from the cpu's (bound %.0e)", steps,
                 first.step[0].loss, first.step[steps - 1].loss, far, bound);
    memcpy(name, "stages", strlen("stages"));
    for (int stage = stage_step; stage < 4; stage += stage_step) {
        set_stage(&m, stage, stage == 3);
        if (!run(context, name, &context->cuda, &m, steps, &other)) return;
        equal &= all_same(&first, &other, steps);
    }
    for (int i = 0; i < steps; i++) waited += other.step[i].exposed_transfer_seconds;
    check_report(context, equal && waited > 0, name,
                 "the stages' numbers %s bit for bit; waited %.3g s for host memory in stage 3",
                 equal ? "are equal" : "differ", waited);
}

z3d_status check_training(check_context *context) {
    check_model m = check_model_make(2, 32, 4, 16, 67, 8);
    m.gpt.tensor_size = context->tensor;
    set_stage(&m, 0, false);
    set_type(&m, Z3D_F32, 0.1);
    check_type(context, m, context->tiny ? 3 : 1, 1e-4);
    if (context->tiny) return Z3D_OK;
    set_type(&m, Z3D_F32, 0);
    check_type(context, m, 1, 1e-4);
    set_type(&m, Z3D_BF16, 0);
    check_type(context, m, 1, 1e-2);
    return Z3D_OK;
}

/* ---- as a graph ---- */

/* overflows: some steps with a graph must be skipped, and not all. */
static void check_graph(check_context *context, const char *name, check_model m, bool overflows) {
    const int steps = (context->tiny ? 3 : 12) + 2 * overflows;
    check_run plain, graph;
    int skipped = 0;
    m.engine.graph = Z3D_GRAPH_OFF;
    if (!run(context, name, &context->cuda, &m, steps, &plain)) return;
    m.engine.graph = Z3D_GRAPH_ON;
    if (!run(context, name, &context->cuda, &m, steps, &graph)) return;
    for (int i = 1; i < steps; i++) skipped += graph.step[i].skipped;
    bool equal = all_same(&plain, &graph, steps) && plain.calls == graph.calls &&
                 memcmp(plain.peak, graph.peak, sizeof plain.peak) == 0;
    bool timed = plain.untimed == 0 && (graph.untimed > 0) == (z3d_world_size(context->world) > 1);
    bool ran = graph.launches > 0 && plain.launches == 0 && plain.step[2].stop &&
               isfinite(graph.step[steps - 1].loss) && (skipped > 0) == overflows &&
               skipped < steps - 1;
    check_report(context, equal && timed && ran, name,
                 "%d steps, %.6f to %.6f, %d skipped, %lld pieces of work in one: %s the steps "
                 "without",
                 steps, graph.step[0].loss, graph.step[steps - 1].loss, skipped,
                 (long long)graph.launches, equal ? "bit for bit" : "NOT");
}

z3d_status check_graphs(check_context *context) {
    const int ranks = z3d_world_size(context->world);
    check_model m = context->tiny ? check_model_make(2, 16, 2, 4, 67, 2 * ranks / context->tensor)
                                  : check_model_make(2, 64, 2, 64, 67, 16);
    m.gpt.tensor_size = context->tensor;
    m.engine.program.accumulation = 2;
    set_type(&m, Z3D_F32, 0.1);
    set_stage(&m, 0, false);
    check_graph(context, "graph fp32 dropout stage 0", m, false);
    set_stage(&m, 2, true);
    check_graph(context, "graph fp32 offload stage 2", m, false);
    set_stage(&m, 3, false);
    set_type(&m, Z3D_BF16, 0);
    check_graph(context, "graph bf16 stage 3", m, false);
    /* Step 1 overflows, and some with a graph, until the scale has halved far enough. */
    set_type(&m, Z3D_F16, 0.1);
    m.engine.scaler = (z3d_loss_scaler){.dynamic = true,
                                        .scale = context->tiny ? 0x1p19f : 0x1p24f,
                                        .min_scale = 1,
                                        .window = 1000,
                                        .hysteresis = 1};
    check_graph(context, "graph fp16 overflow stage 3", m, true);
    return check_captures(context);
}
