/* Runs each distinct unit once on the recording device and records its inner collectives in order,
 * its memory, its FLOPs and bytes, and which of its operands it reads and writes. */
#include <stdlib.h>
#include <string.h>

#include "zero/program/layout.h"
#include "zero/program/traces.h"

/* Ranges of addresses, without memory: a pointer's range says which operand it is. */
enum region {
    REGION_INPUT = 1,
    REGION_OUTPUT,
    REGION_OUTPUT_GRADIENT,
    REGION_INPUT_GRADIENT,
    REGION_SAVED,
    REGION_DEFERRED,
    REGION_WORKSPACE,
    REGION_STATE,
    REGION_CACHE,
    REGION_FIELD,
    REGION_PARAMETERS = REGION_FIELD + Z3D_MAX_FIELDS,
    REGION_GRADIENTS = REGION_PARAMETERS + Z3D_MAX_UNIT_GROUPS,
    REGION_END = REGION_GRADIENTS + Z3D_MAX_UNIT_GROUPS
};
enum { REGION_SHIFT = 44 };
static const int64_t REGION_BYTES = INT64_C(1) << (REGION_SHIFT - 1);

static void *region_base(int region) {
    return (void *)((uintptr_t)region << REGION_SHIFT);
}

struct recorder {
    z3d_trace *trace;
    int threads;
    int64_t capacity; /* of trace->child */
};

static void note_operand(z3d_trace *trace, const z3d_operand *operand) {
    int region = (int)((uintptr_t)operand->pointer >> REGION_SHIFT);
    if (region == REGION_INPUT && operand->read) trace->reads_input = true;
    if (region == REGION_CACHE) trace->uses_cache = true;
    if (region == REGION_OUTPUT_GRADIENT && operand->read) trace->reads_output_gradient = true;
    if (region == REGION_INPUT_GRADIENT && operand->written) trace->writes_input_gradient = true;
    int slot = region - REGION_PARAMETERS;
    if (slot >= 0 && slot < Z3D_MAX_UNIT_GROUPS && operand->read)
        trace->reads_parameters[slot] = true;
    slot = region - REGION_GRADIENTS;
    if (slot >= 0 && slot < Z3D_MAX_UNIT_GROUPS && operand->written)
        trace->writes_gradients[slot] = true;
}

static z3d_status record_kernel(void *context, const z3d_kernel *kernel) {
    struct recorder *recorder = context;
    z3d_trace *trace = recorder->trace;
    z3d_cost cost;
    z3d_kernel_cost(kernel, &cost);
    trace->flops += cost.flops;
    trace->bytes += cost.bytes_read + cost.bytes_written;
    int64_t scratch = z3d_kernel_scratch(kernel, recorder->threads);
    if (scratch > trace->scratch) trace->scratch = scratch;
    for (int i = 0; i < cost.num_operands; i++) note_operand(trace, &cost.operands[i]);
    return Z3D_OK;
}

z3d_status z3d_unit_call(z3d_unit_run *run, z3d_call call) {
    const struct z3d_unit_ops *ops = run->unit->ops;
    const z3d_halves halves = call == Z3D_CALL_BACKWARD_INPUT    ? Z3D_INPUT_HALF
                              : call == Z3D_CALL_BACKWARD_WEIGHT ? Z3D_WEIGHT_HALF
                                                                 : Z3D_BOTH_HALVES;
    if (call < Z3D_CALL_BACKWARD) return ops->forward(run);
    return ops->backward_halves ? ops->backward_halves(run, halves) : ops->backward(run);
}

void z3d_unit_take_groups(z3d_unit_run *run, z3d_group *const group[Z3D_AXES_COUNT]) {
    for (int slot = 0; slot < Z3D_MAX_PROCESS_GROUPS; slot++)
        run->process_group[slot] = group[z3d_unit_process_axes(run->unit, slot)];
}

void z3d_unit_set_observer(const z3d_unit_run *run,
                           z3d_status (*observe)(void *context, z3d_group *group,
                                                 const z3d_collective *call),
                           void *context) {
    for (int slot = 0; slot < Z3D_MAX_PROCESS_GROUPS; slot++)
        if (run->process_group[slot])
            z3d_group_set_observer(run->process_group[slot], observe, context);
}

z3d_child z3d_child_of(const z3d_group *group, const z3d_collective *call) {
    return (z3d_child){call->kind,  call->op,    call->dtype, z3d_group_axes(group),
                       call->count, call->scalar};
}

bool z3d_child_equal(const z3d_child *a, const z3d_child *b) {
    return a->kind == b->kind && a->op == b->op && a->dtype == b->dtype && a->axes == b->axes &&
           a->count == b->count && a->scalar == b->scalar;
}

static z3d_status record_collective(void *context, z3d_group *group, const z3d_collective *call) {
    struct recorder *recorder = context;
    z3d_trace *trace = recorder->trace;
    Z3D_TRY(z3d_grow(trace->num_children, &recorder->capacity, sizeof *trace->child,
                     "a unit's collectives", &trace->child));
    trace->child[trace->num_children++] = z3d_child_of(group, call);
    return Z3D_OK;
}

z3d_unit_run z3d_unit_run_of(const z3d_model *model, const z3d_layout *layout,
                             const z3d_program_config *config, z3d_mode mode, int unit) {
    z3d_unit_run run = {
        .unit = &model->unit[unit],
        .dtype = config->dtype,
        .gradient_dtype = config->grad_dtype,
        .mode = mode,
        .batch = z3d_samples_in_mode(config, mode),
        .tokens = model->tokens[mode],
        .positions = z3d_cache_positions(config, model),
        .cache_samples = z3d_samples_in_caches(config),
        .ends_backward = !z3d_layout_wants_input_gradient(layout, unit),
        .lean = config->selective,
        .keep_activation = config->keep_activation,
    };
    for (int s = 0; s < run.unit->num_groups; s++) {
        run.group[s].offset = layout->group[run.unit->group[s]].offset;
        run.group[s].frozen = layout->group[run.unit->group[s]].frozen;
    }
    return run;
}

/* A run of unit u; each pointer is in its own region. */
static z3d_unit_run recording_run(const z3d_model *model, const z3d_layout *layout,
                                  const z3d_program_config *config, z3d_mode mode, int u) {
    const z3d_unit *unit = &model->unit[u];
    z3d_unit_run run = z3d_unit_run_of(model, layout, config, mode, u);
    run.need_output = true;
    run.state = region_base(REGION_STATE);
    run.saved = (z3d_bump){region_base(REGION_SAVED), 0, 0, REGION_BYTES};
    run.workspace = (z3d_bump){region_base(REGION_WORKSPACE), 0, 0, REGION_BYTES};
    for (int f = 0; f < model->num_fields; f++) run.field[f] = region_base(REGION_FIELD + f);
    for (int s = 0; s < unit->num_groups; s++) {
        run.group[s].parameters = region_base(REGION_PARAMETERS + s);
        if (!run.group[s].frozen) run.group[s].gradients = region_base(REGION_GRADIENTS + s);
    }
    if (z3d_model_input(model, u, mode) >= 0) {
        run.input = region_base(REGION_INPUT);
        if (!run.ends_backward) run.input_gradient = region_base(REGION_INPUT_GRADIENT);
    }
    if (z3d_mode_generates(mode) && unit->cache_columns > 0) run.cache = region_base(REGION_CACHE);
    if (unit->output_elements[mode] > 0) {
        run.output = region_base(REGION_OUTPUT);
        run.output_gradient = region_base(REGION_OUTPUT_GRADIENT);
    }
    return run;
}

static const char *call_name(z3d_call call) {
    static const char *const name[Z3D_CALL_COUNT] = {"forward", "recompute", "backward",
                                                     "backward_input", "backward_weight"};
    return name[call];
}

static z3d_status record_call(z3d_unit_run run, z3d_call call, int threads, z3d_trace *trace) {
    struct recorder recorder = {.trace = trace, .threads = threads};
    z3d_device_set_recorder(run.device, record_kernel, &recorder);
    z3d_unit_set_observer(&run, record_collective, &recorder);
    for (int slot = 0; slot < run.unit->num_groups && call < Z3D_CALL_BACKWARD; slot++)
        run.group[slot].gradients = NULL;
    if (call > Z3D_CALL_BACKWARD)
        run.deferred = (z3d_bump){region_base(REGION_DEFERRED), 0, 0, REGION_BYTES};
    if (call == Z3D_CALL_RECOMPUTE) {
        run.need_output = false;
        run.output = NULL;
    }
    z3d_status status = z3d_unit_call(&run, call);
    z3d_unit_set_observer(&run, NULL, NULL);
    z3d_device_set_recorder(run.device, NULL, NULL);
    if (status != Z3D_OK)
        return z3d_error_context(status, "recording unit %s, %s", run.unit->name, call_name(call));
    trace->recorded = true;
    trace->saved = run.saved.used;
    trace->deferred = run.deferred.used;
    trace->workspace = run.workspace.peak;
    return Z3D_OK;
}

/* All calls must take the same saved memory. */
static z3d_status check_saved(const z3d_unit *unit, const z3d_trace *trace) {
    for (int call = 1; call < Z3D_CALL_COUNT; call++)
        if (trace[call].recorded && trace[call].saved != trace[0].saved)
            return Z3D_ERROR(Z3D_ERR_PROGRAM,
                             "unit %s: %s requests %lld bytes of saved memory, but forward "
                             "requested %lld; both must request the same sizes in the same order",
                             unit->name, call_name((z3d_call)call), (long long)trace[call].saved,
                             (long long)trace[0].saved);
    return Z3D_OK;
}

/* The halves of backward together do what backward does. */
static z3d_status check_halves(const z3d_unit *unit, const z3d_trace *trace) {
    const z3d_trace *whole = &trace[Z3D_CALL_BACKWARD], *input = &trace[Z3D_CALL_BACKWARD_INPUT];
    const z3d_trace *weight = &trace[Z3D_CALL_BACKWARD_WEIGHT];
    if (!input->recorded) return Z3D_OK;
    if (input->deferred != weight->deferred)
        return Z3D_ERROR(Z3D_ERR_PROGRAM,
                         "unit %s: backward_weight requests %lld bytes of deferred memory, but "
                         "backward_input requested %lld; both must request the same sizes in the "
                         "same order",
                         unit->name, (long long)weight->deferred, (long long)input->deferred);
    if (weight->writes_input_gradient ||
        input->writes_input_gradient != whole->writes_input_gradient)
        return Z3D_ERROR(Z3D_ERR_PROGRAM,
                         "unit %s: backward_%s input_gradient; backward_input must write it as "
                         "backward does, and backward_weight must not",
                         unit->name,
                         weight->writes_input_gradient ? "weight writes" : "input does not write");
    for (int slot = 0; slot < unit->num_groups; slot++) {
        if (input->writes_gradients[slot])
            return Z3D_ERROR(Z3D_ERR_PROGRAM,
                             "unit %s: backward_input writes gradients of parameter group %d of "
                             "the unit; only backward_weight may do so",
                             unit->name, slot);
        if (weight->writes_gradients[slot] != whole->writes_gradients[slot])
            return Z3D_ERROR(Z3D_ERR_PROGRAM,
                             "unit %s: backward_weight %s gradients of parameter group %d of the "
                             "unit, but backward %s; both must write the same ones",
                             unit->name, weight->writes_gradients[slot] ? "writes" : "writes no",
                             slot, whole->writes_gradients[slot] ? "does" : "does not");
    }
    return Z3D_OK;
}

static z3d_status record_unit(const z3d_model *model, const z3d_layout *layout,
                              const z3d_program_config *config, z3d_mode mode, int u,
                              z3d_device *device, z3d_group *const group[Z3D_AXES_COUNT],
                              int threads, z3d_trace *trace) {
    z3d_unit_run run = recording_run(model, layout, config, mode, u);
    int calls = mode == Z3D_MODE_TRAIN && u >= layout->first_trained ? Z3D_CALL_COUNT : 1;
    run.device = device;
    z3d_unit_take_groups(&run, group);
    for (int call = 0; call < calls; call++) {
        if (call == Z3D_CALL_RECOMPUTE && !run.unit->checkpoint) continue;
        if (call > Z3D_CALL_BACKWARD && !run.unit->ops->backward_halves) continue;
        Z3D_TRY(record_call(run, (z3d_call)call, threads, &trace[call]));
    }
    if (mode != Z3D_MODE_TRAIN) return Z3D_OK;
    Z3D_TRY(check_saved(run.unit, trace));
    return check_halves(run.unit, trace);
}

/* Makes a group for each set of axes that a unit communicates over. */
static z3d_status make_groups(const z3d_model *model, const z3d_mesh *mesh,
                              z3d_group *group[Z3D_AXES_COUNT]) {
    for (int u = 0; u < model->num_units; u++)
        for (int slot = 0; slot < Z3D_MAX_PROCESS_GROUPS; slot++) {
            const z3d_axes axes = z3d_unit_process_axes(&model->unit[u], slot);
            if (axes == Z3D_AXES_NONE || group[axes]) continue;
            Z3D_TRY(z3d_group_create_recording(axes, z3d_mesh_size(mesh, axes),
                                               z3d_mesh_index(mesh, axes, mesh->rank),
                                               &group[axes]));
        }
    return Z3D_OK;
}

/* ---- the distinct units ---- */

static bool same_parameters(const z3d_parameter_group *a, const z3d_parameter_group *b) {
    if (a->num_parameters != b->num_parameters) return false;
    for (int i = 0; i < a->num_parameters; i++)
        if (strcmp(a->parameter[i].name, b->parameter[i].name) != 0) return false;
    return true;
}

/* Whether two units of one kind have the same frozen parameters and the same needed gradients. */
static bool are_alike(const z3d_model *model, const z3d_layout *layout, int a, int b) {
    const z3d_unit *x = &model->unit[a], *y = &model->unit[b];
    const int first = layout->first_trained;
    if (first > 0 && ((a < first) != (b < first) || (a == first) != (b == first))) return false;
    if (x->num_groups != y->num_groups) return false;
    for (int s = 0; s < x->num_groups; s++) {
        const z3d_parameter_group *p = &model->group[x->group[s]], *q = &model->group[y->group[s]];
        if (p->frozen != q->frozen || !x->place[s] != !y->place[s]) return false;
        if (x->place[s] && !same_parameters(p, q)) return false;
    }
    return true;
}

/* The kind of unit u: that of the first earlier unit like it; else a new one. */
static int find_kind(const z3d_model *model, const z3d_layout *layout, const int *kind, int u,
                     int num_kinds) {
    bool first = true;
    for (int v = 0; v < u; v++) {
        if (model->unit[v].kind != model->unit[u].kind) continue;
        if (are_alike(model, layout, u, v)) return kind[v];
        first = false;
    }
    return first ? model->unit[u].kind : num_kinds;
}

static z3d_status find_kinds(const z3d_model *model, const z3d_layout *layout, z3d_traces *traces) {
    Z3D_TRY(z3d_new((size_t)model->num_units, sizeof *traces->kind, "traces", &traces->kind));
    for (int u = 0; u < model->num_units; u++)
        if (model->unit[u].kind >= traces->num_kinds) traces->num_kinds = model->unit[u].kind + 1;
    for (int u = 0; u < model->num_units; u++) {
        traces->kind[u] = find_kind(model, layout, traces->kind, u, traces->num_kinds);
        if (traces->kind[u] == traces->num_kinds) traces->num_kinds++;
    }
    return Z3D_OK;
}

static z3d_status record_all(const z3d_model *model, const z3d_layout *layout,
                             const z3d_program_config *config, z3d_device **device,
                             z3d_group *group[Z3D_AXES_COUNT], z3d_traces *traces) {
    Z3D_TRY(find_kinds(model, layout, traces));
    const size_t per_mode = (size_t)traces->num_kinds * Z3D_CALL_COUNT;
    Z3D_TRY(z3d_new(Z3D_MODE_COUNT * per_mode, sizeof *traces->trace, "traces", &traces->trace));
    Z3D_TRY(z3d_device_create(&(z3d_device_config){.backend = "record"}, device));
    Z3D_TRY(make_groups(model, &layout->mesh, group));
    for (int mode = 0; mode < Z3D_MODE_COUNT; mode++) {
        if (!z3d_needs_mode(config, (z3d_mode)mode)) continue;
        for (int u = 0; u < model->num_units && z3d_model_has_mode(model, (z3d_mode)mode); u++) {
            z3d_trace *trace =
                &traces->trace[(size_t)mode * per_mode + (size_t)traces->kind[u] * Z3D_CALL_COUNT];
            if (trace[0].recorded) continue; /* its kind is recorded */
            Z3D_TRY(record_unit(model, layout, config, (z3d_mode)mode, u, *device, group,
                                traces->threads, trace));
        }
    }
    return Z3D_OK;
}

z3d_status z3d_traces_record(const z3d_model *model, const z3d_layout *layout,
                             const z3d_program_config *config, int threads, z3d_traces **out) {
    z3d_traces *traces;
    z3d_device *device = NULL;
    z3d_group *group[Z3D_AXES_COUNT] = {NULL};
    *out = NULL;
    Z3D_TRY(z3d_new(1, sizeof *traces, "traces", &traces));
    traces->threads = threads;
    z3d_status status = record_all(model, layout, config, &device, group, traces);
    z3d_groups_destroy(group);
    z3d_device_destroy(device);
    if (status == Z3D_OK)
        *out = traces;
    else
        z3d_traces_destroy(traces);
    return status;
}

void z3d_traces_destroy(z3d_traces *traces) {
    if (!traces) return;
    int count = traces->trace ? Z3D_MODE_COUNT * traces->num_kinds * Z3D_CALL_COUNT : 0;
    for (int i = 0; i < count; i++) free(traces->trace[i].child);
    free(traces->trace);
    free(traces->kind);
    free(traces);
}

const z3d_trace *z3d_traces_get(const z3d_traces *traces, z3d_mode mode, int kind, z3d_call call) {
    return &traces->trace[((int)mode * traces->num_kinds + kind) * Z3D_CALL_COUNT + (int)call];
}

const z3d_trace *z3d_traces_of(const z3d_traces *traces, z3d_mode mode, int unit, z3d_call call) {
    return z3d_traces_get(traces, mode, traces->kind[unit], call);
}

static int64_t largest_of_kind(const z3d_traces *traces, int kind) {
    int64_t largest = 0;
    for (int mode = 0; mode < Z3D_MODE_COUNT; mode++)
        for (int call = 0; call < Z3D_CALL_COUNT; call++) {
            const z3d_trace *trace = z3d_traces_get(traces, (z3d_mode)mode, kind, (z3d_call)call);
            if (trace->scratch > largest) largest = trace->scratch;
        }
    return largest;
}

int64_t z3d_traces_scratch(const z3d_traces *traces, const z3d_model *model,
                           const z3d_layout *layout) {
    int64_t largest = 64, bytes; /* the planner has no empty buffers */
    for (int u = 0; u < model->num_units; u++) {
        if (!z3d_layout_has_unit(layout, u)) continue;
        bytes = largest_of_kind(traces, traces->kind[u]);
        if (bytes > largest) largest = bytes;
    }
    for (int g = 0; g < layout->num_groups; g++) {
        z3d_kernel norm = {.kind = Z3D_KERNEL_sum_squares,
                           .as.sum_squares = {.count = layout->group[g].padded}};
        const bool squares = layout->group[g].counts && !layout->group[g].frozen;
        bytes = squares ? z3d_kernel_scratch(&norm, traces->threads) : 0;
        if (bytes > largest) largest = bytes;
    }
    return largest;
}
