/* The step program's builder: makes a list of instructions from (model, layout, traces,
 * configuration, rank), as a pure function. decide() finds from a group's states (states.c) what
 * must be gathered and reduced, and when; offload.c decides what goes to host and disk. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "zero/build/builder.h"

/* Steps with more units x micro-batches are refused, like those of MAX_ENTRIES. */
enum { MAX_UNIT_RUNS = 200000 };

static struct decisions decide(const z3d_program_config *config, const z3d_layout *layout,
                               int group) {
    bool all_parameters = z3d_state_is_whole(layout, group, Z3D_STATE_VALUE);
    bool all_gradients = z3d_state_is_whole(layout, group, Z3D_STATE_GRADIENT);
    bool all_optimizer = z3d_state_is_whole(layout, group, Z3D_STATE_OPTIMIZER);
    const z3d_group_layout *g = &layout->group[group];
    return (struct decisions){
        .gather_each_use = !all_parameters,
        .gather_at_start = all_parameters && !all_optimizer && !config->gathered,
        .in_parts = g->block > 1,
        /* The next four are never read for a frozen group. */
        .gather_gradients = all_optimizer,
        .reduce_kept = all_gradients && (config->reduce_per_step || config->accumulation == 1),
        .sum_copies = g->copy_axes != Z3D_AXES_NONE,
        .sum_replicated = g->replica_axes != Z3D_AXES_NONE,
    };
}

/* ---- what persists ---- */

static void add_persistent(struct builder *b) {
    const z3d_program *p = b->program;
    const z3d_program_config *c = &p->config;
    z3d_builder_buffer(b, Z3D_CATEGORY_TEMPORARY, (int64_t)sizeof(z3d_step_state), "step", "state",
                       -1);
    z3d_builder_buffer(b, Z3D_CATEGORY_COMMUNICATION, 8 * z3d_control_capacity(p->layout),
                       "control", "vector", -1);
    z3d_builder_buffer(b, Z3D_CATEGORY_TEMPORARY,
                       z3d_traces_scratch(p->traces, p->model, p->layout), "kernel", "scratch", -1);
    for (int m = 0; m < c->accumulation; m++)
        for (int f = 0; f < p->model->num_fields; f++) {
            int buffer = z3d_builder_buffer(b, Z3D_CATEGORY_TEMPORARY, 1, "batch",
                                            p->model->field[f].name, m);
            if (buffer >= 0) p->buffer[buffer].bytes = z3d_program_batch_bytes(p, m, f);
        }
    for (int g = 0; g < p->model->num_groups; g++) {
        for (int role = 0; role < z3d_state_classes(c); role++) {
            const z3d_state_class *of = z3d_state_class_of(c, role);
            int buffer =
                z3d_builder_buffer(b, of->category, 1, of->name, p->model->group[g].name, -1);
            if (buffer < 0) continue;
            /* Perhaps 0, on a stage without the group: buffer numbers stay equal on all stages. */
            p->buffer[buffer].bytes = z3d_state_bytes(p->layout, g, (z3d_state_role)role);
            p->buffer[buffer].group = g;
            p->buffer[buffer].rows = z3d_state_rows(p->layout, g, (z3d_state_role)role);
            p->buffer[buffer].space = p->layout->group[g].state[role].at.space;
        }
    }
    for (int u = 0; u < p->model->num_units && z3d_mode_generates(p->mode); u++) {
        int buffer =
            z3d_builder_buffer(b, Z3D_CATEGORY_CACHE, 1, "cache", p->model->unit[u].name, -1);
        if (buffer >= 0) p->buffer[buffer].bytes = z3d_program_cache_bytes(p, u);
    }
    for (int i = 0; i < p->num_buffers; i++) {
        p->buffer[i].persistent = true;
        p->buffer[i].first = 0;
        p->buffer[i].last = INT_MAX;
    }
}

/* ---- units ---- */

/* An entry that runs a unit: its parameters, inner collectives and workspace. */
static z3d_instruction *emit_unit(struct builder *b, z3d_opcode opcode, struct work w) {
    z3d_program *p = b->program;
    const z3d_unit *unit = &p->model->unit[w.unit];
    const z3d_trace *trace = z3d_builder_trace(b, w);
    int workspace = z3d_builder_buffer(b, Z3D_CATEGORY_TEMPORARY, trace->workspace, "workspace",
                                       unit->name, w.micro);
    z3d_instruction *i =
        z3d_builder_emit_slots(b, opcode, Z3D_PHASE_WHOLE, NULL, z3d_slots_with(unit->num_groups));
    i->unit = w.unit;
    i->micro = w.micro;
    i->num_children = trace->num_children;
    i->child = trace->child;
    i->buffer[Z3D_SLOT_WORKSPACE] = workspace;
    i->buffer[Z3D_SLOT_INPUT] = z3d_builder_input(b, w.unit, w.micro);
    if (trace->uses_cache) i->buffer[Z3D_SLOT_CACHE] = z3d_program_cache_buffer(p, w.unit);
    for (int s = 0; s < unit->num_groups; s++)
        if (trace->reads_parameters[s])
            i->buffer[z3d_slot_parameters(s)] = b->group[unit->group[s]].parameters;
    return i;
}

/* Forward or recompute: they differ in what they keep and in whether they give an output. */
static void forward(struct builder *b, struct work w, bool keep, bool need_output) {
    z3d_program *p = b->program;
    const z3d_unit *unit = &p->model->unit[w.unit];
    struct unit_state *state = z3d_builder_state(b, w.unit, w.micro);
    const int64_t bytes = need_output ? z3d_program_output_bytes(p, w.unit) : 0;
    state->output =
        z3d_builder_buffer(b, Z3D_CATEGORY_ACTIVATIONS, bytes, "output", unit->name, w.micro);
    /* The last unit's backward mostly comes right after: its logits are temporary. */
    bool activation = keep && !z3d_model_is_last(p->model, w.unit);
    state->saved =
        z3d_builder_buffer(b, activation ? Z3D_CATEGORY_ACTIVATIONS : Z3D_CATEGORY_TEMPORARY,
                           z3d_builder_trace(b, w)->saved, "saved", unit->name, w.micro);
    z3d_instruction *i =
        emit_unit(b, w.kind == Z3D_CALL_FORWARD ? Z3D_OP_FORWARD : Z3D_OP_RECOMPUTE, w);
    i->keep = keep;
    i->need_output = need_output;
    i->buffer[Z3D_SLOT_OUTPUT] = state->output;
    i->buffer[Z3D_SLOT_SAVED] = state->saved;
    z3d_builder_step_beside(b);
}

static int input_gradient_buffer(struct builder *b, struct work w) {
    z3d_program *p = b->program;
    int source = z3d_model_input(p->model, w.unit, p->mode);
    if (source < 0 || !z3d_layout_wants_input_gradient(p->layout, w.unit)) return -1;
    return z3d_builder_state(b, source, w.micro)->output_gradient =
               z3d_builder_buffer(b, Z3D_CATEGORY_ACTIVATIONS, z3d_program_output_bytes(p, source),
                                  "output gradient", p->model->unit[source].name, w.micro);
}

/* Backward, or one of its halves: the second reads what the first wrote. */
static void backward(struct builder *b, struct work w) {
    static const z3d_opcode opcode[] = {[Z3D_CALL_BACKWARD] = Z3D_OP_BACKWARD,
                                        [Z3D_CALL_BACKWARD_INPUT] = Z3D_OP_BACKWARD_INPUT,
                                        [Z3D_CALL_BACKWARD_WEIGHT] = Z3D_OP_BACKWARD_WEIGHT};
    z3d_program *p = b->program;
    const z3d_unit *unit = &p->model->unit[w.unit];
    const z3d_trace *trace = z3d_builder_trace(b, w);
    struct unit_state *state = z3d_builder_state(b, w.unit, w.micro);
    bool first = w.kind == Z3D_CALL_BACKWARD_INPUT, second = w.kind == Z3D_CALL_BACKWARD_WEIGHT;
    int input_gradient = second ? -1 : input_gradient_buffer(b, w);
    int gradients[Z3D_MAX_UNIT_GROUPS];
    for (int s = 0; s < unit->num_groups; s++)
        gradients[s] =
            trace->writes_gradients[s] ? z3d_builder_gradient_buffer(b, w, unit->group[s]) : -1;
    if (first)
        state->deferred = z3d_builder_buffer(b, Z3D_CATEGORY_ACTIVATIONS, trace->deferred,
                                             "deferred", unit->name, w.micro);
    z3d_instruction *i = emit_unit(b, opcode[w.kind], w);
    if (first) state->input = i->buffer[Z3D_SLOT_INPUT];
    if (second) i->buffer[Z3D_SLOT_INPUT] = state->input;
    if (!trace->reads_input) i->buffer[Z3D_SLOT_INPUT] = -1;
    i->buffer[Z3D_SLOT_SAVED] = state->saved;
    i->buffer[Z3D_SLOT_OUTPUT_GRADIENT] =
        !second || trace->reads_output_gradient ? state->output_gradient : -1;
    i->buffer[Z3D_SLOT_INPUT_GRADIENT] = input_gradient;
    i->buffer[Z3D_SLOT_DEFERRED] = first || second ? state->deferred : -1;
    z3d_builder_give_gradients(b, w, i, gradients);
    z3d_builder_step_beside(b);
    if (!first) z3d_builder_reduce_after(b, w);
}

static void do_work(struct builder *b, struct work w) {
    const z3d_program *p = b->program;
    bool recomputes = z3d_builder_recomputes(p, w.unit);
    switch (w.kind) {
    case Z3D_CALL_FORWARD:
        forward(b, w, z3d_builder_goes_back(p, w.unit) && !recomputes, true);
        z3d_builder_finish_saves(b);
        z3d_builder_save_input(b, w);
        break;
    case Z3D_CALL_RECOMPUTE:
        z3d_builder_finish_saves(b); /* perhaps of this unit's input */
        z3d_builder_load_input(b, w);
        z3d_builder_prefetch_input(b, w);
        forward(b, w, true, z3d_builder_replays_output(b, w.unit));
        break;
    case Z3D_CALL_BACKWARD:
    case Z3D_CALL_BACKWARD_INPUT:
        z3d_builder_finish_saves(b);
        z3d_builder_prefetch_input(b, w);
        backward(b, w);
        break;
    default: /* BACKWARD_WEIGHT */
        backward(b, w);
        break;
    }
}

/* ---- whole programs ---- */

static void step_on_device(struct builder *b) {
    z3d_program *p = b->program;
    for (int g = p->model->num_groups - 1; g >= 0; g--) {
        const z3d_group_layout *group = &p->layout->group[g];
        if (!group->held || group->frozen || z3d_builder_steps_on_host(b, g)) continue;
        z3d_builder_share_wait(b, g);
        z3d_instruction *i =
            z3d_builder_emit_group(b, Z3D_OP_OPTIMIZER_STEP, Z3D_PHASE_WHOLE, NULL, g);
        i->buffer[Z3D_SLOT_PARAMETERS] = z3d_program_group_buffer(p, g, Z3D_STATE_VALUE);
        i->buffer[Z3D_SLOT_OPTIMIZER] = z3d_program_group_buffer(p, g, Z3D_STATE_OPTIMIZER);
        i->buffer[Z3D_SLOT_SHARD] = z3d_program_group_buffer(p, g, Z3D_STATE_GRADIENT);
    }
}

static void optimize(struct builder *b) {
    z3d_builder_complete_gradients(b);
    z3d_builder_emit(b, Z3D_OP_STEP_CONTROL, Z3D_PHASE_WHOLE, NULL);
    if (b->program->config.offload.delayed) {
        z3d_builder_finish_delayed(b);
        return;
    }
    step_on_device(b); /* first, so that it overlaps the host's steps */
    z3d_builder_step_on_host(b);
}

/* The pipeline stage of the last unit gives the result to all stages. */
static void give_result(struct builder *b) {
    const z3d_program *p = b->program;
    int last = p->model->num_units - 1, output = z3d_builder_state(b, last, 0)->output;
    bool own = z3d_layout_has_unit(p->layout, last);
    if (!own)
        output = z3d_builder_buffer(b, Z3D_CATEGORY_ACTIVATIONS, z3d_program_output_bytes(p, last),
                                    "result", p->model->unit[last].name, 0);
    z3d_instruction *i = z3d_builder_emit(b, Z3D_OP_GATHER_OUTPUT, Z3D_PHASE_WHOLE, NULL);
    i->buffer[own ? Z3D_SLOT_INPUT : Z3D_SLOT_OUTPUT] = output;
}

static void build(struct builder *b) {
    const z3d_program *p = b->program;
    add_persistent(b);
    for (int g = 0; g < p->model->num_groups; g++)
        if (!b->group[g].decided.gather_each_use && !b->group[g].decided.gather_at_start)
            b->group[g].parameters = z3d_program_group_buffer(p, g, Z3D_STATE_VALUE);
    z3d_builder_place_sums(b);
    z3d_builder_emit(b, Z3D_OP_STEP_BEGIN, Z3D_PHASE_WHOLE, NULL);
    z3d_builder_begin_delayed(b);
    z3d_builder_gather_at_start(b);
    for (int at = 0; at < b->num_work && b->status == Z3D_OK; at++) {
        const int task = b->work[at].task;
        z3d_builder_gather_before(b, at);
        if (at == 0 || b->work[at - 1].task != task) z3d_builder_receive(b, task);
        do_work(b, b->work[at]);
        if (at == b->num_work - 1 || b->work[at + 1].task != task) {
            z3d_builder_send(b, task);
            z3d_builder_reduce_between(b, at);
        }
        z3d_builder_release_after(b, at);
        z3d_builder_store_parameters(b);
    }
    z3d_builder_finish_sends(b);
    if (p->mode == Z3D_MODE_TRAIN) optimize(b);
    if (p->mode == Z3D_MODE_EVALUATE) z3d_builder_emit(b, Z3D_OP_SUM_LOSS, Z3D_PHASE_WHOLE, NULL);
    if (z3d_mode_generates(p->mode)) give_result(b);
}

static void find_lifetimes(z3d_program *p) {
    for (int n = 0; n < p->num_instructions; n++) {
        for (int s = 0; s < p->instruction[n].num_slots; s++) {
            int index = p->instruction[n].buffer[s];
            if (index < 0 || p->buffer[index].persistent) continue;
            if (n < p->buffer[index].first) p->buffer[index].first = n;
            p->buffer[index].last = n;
        }
    }
}

/* The states before the first entry: what does not exist yet is -1. */
static z3d_status make_states(struct builder *b) {
    const z3d_program *p = b->program;
    const size_t groups = (size_t)p->model->num_groups;
    const size_t units = (size_t)p->model->num_units * (size_t)p->config.accumulation;
    Z3D_TRY(z3d_new(groups, sizeof *b->group, "builder", &b->group));
    Z3D_TRY(z3d_new(groups, sizeof *b->leaving, "builder", &b->leaving));
    Z3D_TRY(z3d_new(units, sizeof *b->state, "builder", &b->state));
    memset(b->state, 0xff, units * sizeof *b->state); /* all -1 */
    b->saving.unit = b->storing.unit = -1;
    for (int g = 0; g < p->model->num_groups; g++) {
        const struct sum_state sum = {
            .group = g, .gradients = -1, .last_writer = -1, .reducing = -1, .narrowing = -1};
        b->joins |= p->layout->group[g].frozen;
        b->group[g] =
            (struct group_state){.parameters = -1,
                                 .block = -1,
                                 .widening = -1,
                                 .gathering = -1,
                                 .sharing = -1,
                                 .fresh = p->config.gathered && z3d_builder_keeps_block(b, g),
                                 .decided = decide(&p->config, p->layout, g),
                                 .sum = {sum, sum}};
    }
    return Z3D_OK;
}

/* Finds the last writer and reader of each group. */
static void find_last_uses(struct builder *b) {
    for (int at = 0; at < b->num_work; at++) {
        const int u = b->work[at].unit;
        const z3d_unit *unit = &b->program->model->unit[u];
        const z3d_trace *trace = z3d_builder_trace(b, b->work[at]);
        for (int s = 0; s < unit->num_groups; s++) {
            struct group_state *group = &b->group[unit->group[s]];
            if (trace->reads_parameters[s]) group->last_reader = at;
            if (trace->writes_gradients[s])
                group->sum[z3d_layout_use(b->program->layout, u, unit->group[s])].last_writer = u;
        }
    }
}

/* Every trained group needs a writer, and the last unit a loss. */
static z3d_status check_training(const struct builder *b) {
    const z3d_program *p = b->program;
    const z3d_unit *last = &p->model->unit[p->model->num_units - 1];
    for (int g = 0; g < p->model->num_groups; g++) {
        const z3d_group_layout *group = &p->layout->group[g];
        if (group->held && !group->frozen && b->group[g].sum[0].last_writer < 0)
            return Z3D_ERROR(Z3D_ERR_PROGRAM,
                             "parameter group %s: no unit's backward writes its gradients",
                             p->model->group[g].name);
    }
    if (last->output_elements[Z3D_MODE_TRAIN] > 0)
        return Z3D_ERROR(Z3D_ERR_PROGRAM, "the last unit, %s, must end in a loss; it has an output",
                         last->name);
    return Z3D_OK;
}

static z3d_status make_program(struct builder *b) {
    Z3D_TRY(make_states(b));
    Z3D_TRY(z3d_builder_order(b));
    find_last_uses(b);
    if (b->program->mode == Z3D_MODE_TRAIN) Z3D_TRY(check_training(b));
    z3d_builder_begin(b);
    if (b->status == Z3D_OK) build(b);
    find_lifetimes(b->program);
    return b->status;
}

static void release(struct builder *b) {
    free(b->group);
    free(b->leaving);
    free(b->host.piece);
    free(b->host.storing);
    free(b->state);
    free(b->input);
    free(b->work);
    free(b->kept_from);
    free(b->transfer);
    free(b->of_task);
    z3d_timetables_destroy(b->timetables);
}

/* ---- checks of the configuration ---- */

static z3d_status check_offload(const z3d_program_config *c) {
    const z3d_offload_plan *offload = &c->offload;
    z3d_state state[Z3D_MAX_STATES];
    z3d_states_decide(c, Z3D_ROLE_ROWS, INT64_MAX, true, false, state);
    if (offload->parameters == Z3D_SPACE_DEVICE) return Z3D_OK;
    if (state[Z3D_STATE_VALUE].at.sharded == Z3D_AXES_NONE)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "ZeRO stage %d keeps whole parameters on the device; "
                         "zero_optimization.offload_param needs stage 3",
                         c->stage);
    if (!c->inference && offload->optimizer == Z3D_SPACE_DEVICE)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "zero_optimization.offload_param: in training the host steps these "
                         "parameters; set zero_optimization.offload_optimizer.device to cpu or "
                         "nvme, too");
    return Z3D_OK;
}

static z3d_status check_delayed(const z3d_program_config *c) {
    const z3d_offload_plan *offload = &c->offload;
    if (!offload->delayed || c->inference ||
        (offload->optimizer != Z3D_SPACE_DEVICE && offload->resident <= 0))
        return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_CONFIG,
                     "zero_optimization.offload_optimizer.delayed_param_update: only steps of the "
                     "host are delayed; set offload_optimizer.device to cpu or nvme, and "
                     "offload_optimizer.ratio to 1");
}

static z3d_status check_config(const z3d_program_config *c) {
    Z3D_TRY(check_offload(c));
    Z3D_TRY(check_delayed(c));
    if (c->stage < 0 || c->stage > 3)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "ZeRO stage %d does not exist; use 0, 1, 2 or 3",
                         c->stage);
    if (c->micro_batch < 1 || c->accumulation < 1 || c->reduce_bucket < 1 || c->gather_bucket < 1)
        return Z3D_ERROR(
            Z3D_ERR_CONFIG,
            "micro-batch %lld, accumulation %d, buckets %lld and %lld: all must be positive",
            (long long)c->micro_batch, c->accumulation, (long long)c->reduce_bucket,
            (long long)c->gather_bucket);
    if (c->grad_dtype != c->dtype && c->grad_dtype != Z3D_F32)
        return Z3D_ERROR(
            Z3D_ERR_CONFIG,
            "gradients in %s with a model in %s are not supported; use the model's type or fp32",
            z3d_dtype_name(c->grad_dtype), z3d_dtype_name(c->dtype));
    if (c->wire != Z3D_F32 && c->grad_dtype != Z3D_F32)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "gradients that travel in %s must be in fp32, not in %s",
                         z3d_dtype_name(c->wire), z3d_dtype_name(c->grad_dtype));
    return Z3D_OK;
}

z3d_status z3d_program_build(const z3d_model *model, const z3d_layout *layout,
                             const z3d_traces *traces, const z3d_mesh *mesh,
                             const z3d_program_config *config, z3d_mode mode, z3d_program **out) {
    *out = NULL;
    Z3D_TRY(check_config(config));
    if (config->gathered && mode == Z3D_MODE_TRAIN)
        return Z3D_ERROR(
            Z3D_ERR_CONFIG,
            "a training step must gather parameters again: the step before it changed them");
    if (mode == Z3D_MODE_TRAIN && layout->first_trained == model->num_units)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "all parameters are frozen, so there is nothing to train");
    if ((int64_t)model->num_units * config->accumulation > MAX_UNIT_RUNS)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "%d units x %d micro-batches a step are too many: a step program runs at "
                         "most %d units; use fewer gradient accumulation steps or layers",
                         model->num_units, config->accumulation, MAX_UNIT_RUNS);
    struct builder b = {0};
    Z3D_TRY(z3d_new(1, sizeof *b.program, "step program", &b.program));
    *b.program = (z3d_program){.mode = mode,
                               .config = *config,
                               .mesh = *mesh,
                               .model = model,
                               .layout = layout,
                               .traces = traces};
    /* With sequence parallelism a unit's input is already this rank's part. */
    if (model->sequence_parallel) b.program->config.partition_activations = false;
    const z3d_status status = make_program(&b);
    release(&b);
    b.program->config.pipeline.timetables = NULL;
    if (status != Z3D_OK)
        z3d_program_destroy(b.program);
    else
        *out = b.program;
    return status;
}

void z3d_program_destroy(z3d_program *program) {
    if (!program) return;
    free(program->instruction);
    free(program->slot);
    free(program->buffer);
    free(program);
}
