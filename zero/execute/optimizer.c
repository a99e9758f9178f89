/* Finds the tensors of an optimizer step and launches its kernels. */
#include <stdio.h>

#include "src/base/rng.h"
#include "zero/execute/engine.h"
#include "zero/program/layout.h"

static z3d_kernel_kind kernel_of(z3d_optimizer optimizer) {
    static const z3d_kernel_kind kernels[] = {
#define X(_, id, name, reads, states, flops) Z3D_KERNEL_##id,
        Z3D_OPTIMIZER_KERNELS(X, )
#undef X
    };
    return kernels[optimizer];
}

/* The elements that an entry steps, and their buffers. */
typedef struct stepped {
    const z3d_executor *executor;
    int group;
    int64_t flat; /* the first element */
    int states;   /* buffers */
    int gradients, parameters;
} stepped;

static void *address(const stepped *s, int buffer, int tensor, int tensors, z3d_dtype dtype) {
    return s->executor->arena[s->executor->program->buffer[buffer].space] +
           z3d_executor_place(s->executor, s->group, buffer, tensor, tensors, s->flat, dtype);
}

/* NULL: the optimizer has no such tensor. */
static float *state(const stepped *s, z3d_tensor_kind kind) {
    const z3d_layout *layout = s->executor->program->layout;
    const unsigned kinds = layout->group[s->group].state[Z3D_STATE_OPTIMIZER].kinds;
    const int tensor = z3d_state_index(layout, s->group, Z3D_STATE_OPTIMIZER, kind);
    return tensor >= 0 ? address(s, s->states, tensor, z3d_count_kinds(kinds), Z3D_F32) : NULL;
}

static stepped stepped_by(const z3d_executor *executor, const z3d_instruction *i) {
    const bool host = z3d_opcode_info_of(i->opcode)->rules == Z3D_CLASS_HOST_OPTIMIZER;
    const int64_t first = z3d_state_first(executor->program->layout, i->group, Z3D_STATE_OPTIMIZER);
    return (stepped){.executor = executor,
                     .group = i->group,
                     .flat = first + i->first,
                     .states = i->buffer[Z3D_SLOT_OPTIMIZER],
                     .gradients = i->buffer[host ? Z3D_SLOT_INPUT : Z3D_SLOT_SHARD],
                     .parameters = i->buffer[Z3D_SLOT_PARAMETERS]};
}

/* After a skipped step: the buffer that is stored gets the old parameters. */
static z3d_status narrow(const stepped *s, int64_t count) {
    const z3d_dtype dtype = s->executor->program->config.dtype;
    return Z3D_LAUNCH(s->executor->host, cast,
                      .destination = address(s, s->parameters, 0, 1, dtype),
                      .source = state(s, Z3D_TENSOR_PARAMETER), .count = count,
                      .destination_dtype = dtype, .source_dtype = Z3D_F32);
}

/* In the buffer that is stored the padding after the group's last element is zero. */
static z3d_status clear_padding(const stepped *s, int64_t first, int64_t end) {
    const z3d_dtype dtype = s->executor->program->config.dtype;
    char *parameters = address(s, s->parameters, 0, 1, dtype);
    if (first < 0) first = 0;
    if (first >= end) return Z3D_OK;
    return Z3D_LAUNCH(s->executor->host, fill, .x = parameters + z3d_bytes_of(dtype, first),
                      .count = end - first, .dtype = dtype, .value = 0);
}

/* The number of the parameter with the element at `flat`; *end: where the parameter ends. */
static int parameter_at(const stepped *s, int64_t flat, int64_t *end) {
    const z3d_program *p = s->executor->program;
    const z3d_parameter_group *group = &p->model->group[s->group];
    const int tensor_size = p->layout->tensor_size;
    for (int i = 0; i < group->num_parameters; i++) {
        const int64_t first = p->layout->group[s->group].offset[i];
        *end = first + z3d_parameter_local_elements(&group->parameter[i], tensor_size);
        if (flat >= first && flat < *end) return i;
    }
    *end = flat + 1;
    return 0;
}

/* Whether the kernel needs places in parameters: they key the rounding of bf16 moments. */
static bool reads_place(const z3d_program *p) {
    return z3d_optimizer_kinds(p->config.optimizer) & Z3D_KIND(MOMENTS);
}

/* The number of elements, from the first on and at most `most`, that one launch may step: those of
 * one optimizer group and, if the kernel needs places, of one parameter. */
static int64_t alike(const stepped *s, int64_t most, const z3d_parameter **parameter) {
    const z3d_program *p = s->executor->program;
    const z3d_parameter *all = p->model->group[s->group].parameter;
    const bool alone = reads_place(p);
    int64_t end;
    *parameter = &all[parameter_at(s, s->flat, &end)];
    for (int64_t next; !alone && end < s->flat + most; end = next)
        if (all[parameter_at(s, end, &next)].optimizer_group != (*parameter)->optimizer_group)
            break;
    return end - s->flat < most ? end - s->flat : most;
}

static z3d_parameter_place place_of(const stepped *s, const z3d_parameter *parameter) {
    const z3d_program *p = s->executor->program;
    const z3d_parameter_group *group = &p->model->group[s->group];
    const int i = (int)(parameter - group->parameter);
    const struct z3d_slice slice = z3d_slice_of(parameter, p->layout);
    char name[2 * Z3D_NAME + 2];
    snprintf(name, sizeof name, "%s/%s", z3d_parameter_home(group, i), parameter->name);
    return (z3d_parameter_place){.key = z3d_key(0, name),
                                 .first = s->flat - p->layout->group[s->group].offset[i],
                                 .local = slice.local,
                                 .global = slice.global,
                                 .inner = slice.inner,
                                 .offset = slice.offset};
}

/* One launch for elements with the same hyperparameters. A group's ranges lie end to end, those
 * that decay first. */
static z3d_status step(const stepped *s, int64_t count, const z3d_parameter *parameter, bool host) {
    const z3d_executor *executor = s->executor;
    const z3d_program *p = executor->program;
    const z3d_group_layout *group = &p->layout->group[s->group];
    const z3d_optimizer_group *groups = executor->config->optimizer_group;
    const int index = parameter->optimizer_group;
    const z3d_optimizer_group *own = groups && index > 0 ? &groups[index - 1] : NULL;
    z3d_optimizer_constants constants = executor->config->optimizer;
    int64_t decayed = -s->flat;
    for (int r = 0; r < group->num_ranges && group->range[r].weight_decay; r++)
        decayed += group->range[r].count;
    constants.lr_scale = own ? own->lr_scale : 1;
    if (own && own->decays) {
        constants.weight_decay = own->weight_decay;
        decayed = count;
    }
    void *narrow = address(s, s->parameters, 0, 1, p->config.dtype);
    float *master = state(s, Z3D_TENSOR_PARAMETER);
    const z3d_kernel kernel = {
        .kind = kernel_of(p->config.optimizer),
        .as.update = {
            .master = master ? master : narrow,
#define X(NAME, name) .name = state(s, Z3D_TENSOR_##NAME),
            Z3D_OPTIMIZER_STATES(X)
#undef X
                .gradient = address(s, s->gradients, 0, 1, p->config.grad_dtype),
            .parameter = master ? narrow : NULL,
            .count = count,
            .decayed = decayed,
            .dtype = p->config.dtype,
            .gradient_dtype = p->config.grad_dtype,
            .place = reads_place(p) ? place_of(s, parameter) : (z3d_parameter_place){0},
            .constants = constants,
            .state = host ? &executor->now : z3d_executor_state(executor),
        }};
    return z3d_launch(host ? executor->host : executor->device, &kernel);
}

z3d_status z3d_executor_optimize(z3d_executor *executor, const z3d_instruction *i) {
    const z3d_layout *layout = executor->program->layout;
    const stepped s = stepped_by(executor, i);
    const bool host = z3d_opcode_info_of(i->opcode)->rules == Z3D_CLASS_HOST_OPTIMIZER;
    const bool some = i->rows == Z3D_ROWS_OWN && i->count > 0;
    int64_t most = some ? i->count : z3d_state_elements(layout, i->group, Z3D_STATE_OPTIMIZER);
    int64_t left = layout->group[i->group].elements - s.flat;
    int64_t count = left < most ? left : most;
    if (host) Z3D_TRY(clear_padding(&s, count, most));
    if (count <= 0) return Z3D_OK; /* padding */
    stepped run = s;
    for (int64_t n; run.flat < s.flat + count; run.flat += n) {
        const z3d_parameter *parameter;
        n = alike(&run, s.flat + count - run.flat, &parameter);
        Z3D_TRY(step(&run, n, parameter, host));
    }
    return host && executor->now.skip ? narrow(&s, count) : Z3D_OK;
}
