/* Finds the tensors that an optimizer updates, and launches the update. */
#include "zero/execute/executor.h"

bool z3d_executor_find(const z3d_executor *executor, int group, z3d_tensor_kind kind,
                       z3d_group_part *part, int *tensor) {
    const z3d_layout *layout = executor->program->layout;
    *part = Z3D_PART_OPTIMIZER;
    *tensor = z3d_kept_index(layout, group, Z3D_PART_OPTIMIZER, kind);
    if (*tensor >= 0) return true;
    const bool gradient = kind == Z3D_TENSOR_GRADIENT || kind == Z3D_TENSOR_PENDING;
    *part = gradient ? Z3D_PART_GRADIENTS : Z3D_PART_PARAMETERS;
    *tensor = 0;
    return gradient || kind == Z3D_TENSOR_PARAMETER;
}

static z3d_kernel_kind kernel_of(z3d_optimizer optimizer) {
    static const z3d_kernel_kind kernels[] = {
#define X(_, id, name, reads, states, flops) Z3D_KERNEL_##id,
        Z3D_OPTIMIZERS(X, )
#undef X
    };
    return kernels[optimizer];
}

/* What an entry steps, and where it finds it. */
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
    const unsigned kinds = layout->group[s->group].kept[Z3D_PART_OPTIMIZER].kinds;
    const int tensor = z3d_kept_index(layout, s->group, Z3D_PART_OPTIMIZER, kind);
    return tensor >= 0 ? address(s, s->states, tensor, z3d_count_kinds(kinds), Z3D_F32) : NULL;
}

static stepped stepped_by(const z3d_executor *executor, const z3d_instruction *i) {
    const bool host = z3d_opcode_info_of(i->opcode)->rules == Z3D_CLASS_HOST_OPTIMIZER;
    const int64_t first = z3d_kept_first(executor->program->layout, i->group, Z3D_PART_OPTIMIZER);
    return (stepped){.executor = executor,
                     .group = i->group,
                     .flat = first + i->first,
                     .states = i->buffer[Z3D_SLOT_OPTIMIZER],
                     .gradients = i->buffer[host ? Z3D_SLOT_INPUT : Z3D_SLOT_SHARD],
                     .parameters = i->buffer[Z3D_SLOT_PARAMETERS]};
}

/* Of a skipped step: the parameters that go back are the old ones. */
static z3d_status narrow(const stepped *s, int64_t count) {
    const z3d_dtype dtype = s->executor->program->config.dtype;
    return Z3D_LAUNCH(s->executor->host, cast,
                      .destination = address(s, s->parameters, 0, 1, dtype),
                      .source = state(s, Z3D_TENSOR_PARAMETER), .count = count,
                      .destination_dtype = dtype, .source_dtype = Z3D_F32);
}

/* What is behind the group's last element goes back, too: zeros, not what the buffer had before. */
static z3d_status clear_padding(const stepped *s, int64_t first, int64_t end) {
    const z3d_dtype dtype = s->executor->program->config.dtype;
    char *parameters = address(s, s->parameters, 0, 1, dtype);
    if (first < 0) first = 0;
    if (first >= end) return Z3D_OK;
    return Z3D_LAUNCH(s->executor->host, fill,
                      .x = parameters + first * (int64_t)z3d_dtype_size(dtype),
                      .count = end - first, .dtype = dtype, .value = 0);
}

/* The optimizer group of the element at `flat`; *end: where its parameter ends. */
static int optimizer_group_at(const stepped *s, int64_t flat, int64_t *end) {
    const z3d_program *p = s->executor->program;
    const z3d_parameter_group *group = &p->model->group[s->group];
    const int tensor_size = p->layout->tensor_size;
    for (int i = 0; i < group->num_parameters; i++) {
        const z3d_parameter *parameter = &group->parameter[i];
        const int64_t first = p->layout->group[s->group].offset[i];
        *end = first + z3d_parameter_local_elements(parameter, tensor_size);
        if (flat >= first && flat < *end) return parameter->optimizer_group;
    }
    *end = flat + 1;
    return 0;
}

/* How many elements from the first on, at most `most`, are in one optimizer group. */
static int64_t alike(const stepped *s, int64_t most, int *index) {
    int64_t end;
    *index = optimizer_group_at(s, s->flat, &end);
    for (int64_t next; end < s->flat + most; end = next)
        if (optimizer_group_at(s, end, &next) != *index) break;
    return end - s->flat < most ? end - s->flat : most;
}

/* A group's ranges lie end to end, those that decay in front: one launch steps all that has the
 * same numbers. */
static z3d_status step(const stepped *s, int64_t count, int index, bool host) {
    const z3d_executor *executor = s->executor;
    const z3d_program *p = executor->program;
    const z3d_group_layout *group = &p->layout->group[s->group];
    const z3d_optimizer_group *groups = executor->optimizer_group;
    const z3d_optimizer_group *own = groups && index > 0 ? &groups[index - 1] : NULL;
    z3d_optimizer_constants constants = executor->optimizer;
    int64_t decayed = -s->flat;
    for (int r = 0; r < group->num_ranges && group->range[r].weight_decay; r++)
        decayed += group->range[r].count;
    constants.lr_scale = own ? own->lr_scale : 1;
    if (own && own->decays) {
        constants.weight_decay = own->weight_decay;
        decayed = count;
    }
    void *parameter = address(s, s->parameters, 0, 1, p->config.dtype);
    float *master = state(s, Z3D_TENSOR_PARAMETER);
    const z3d_kernel kernel = {
        .kind = kernel_of(p->config.optimizer),
        .as.update = {
            .master = master ? master : parameter,
#define X(NAME, name) .name = state(s, Z3D_TENSOR_##NAME),
            Z3D_OPTIMIZER_STATES(X)
#undef X
                .gradient = address(s, s->gradients, 0, 1, p->config.grad_dtype),
            .parameter = master ? parameter : NULL,
            .count = count,
            .decayed = decayed,
            .dtype = p->config.dtype,
            .gradient_dtype = p->config.grad_dtype,
            .constants = constants,
            .state = host ? &executor->now : z3d_executor_state(executor),
        }};
    return z3d_launch(host ? executor->host : executor->device, &kernel);
}

/* Of a shard, or of the entry's columns. */
z3d_status z3d_executor_optimize(z3d_executor *executor, const z3d_instruction *i) {
    const z3d_layout *layout = executor->program->layout;
    const stepped s = stepped_by(executor, i);
    const bool host = z3d_opcode_info_of(i->opcode)->rules == Z3D_CLASS_HOST_OPTIMIZER;
    const bool some = i->rows == Z3D_ROWS_OWN && i->count > 0;
    int64_t most = some ? i->count : z3d_kept_elements(layout, i->group, Z3D_PART_OPTIMIZER);
    int64_t left = layout->group[i->group].elements - s.flat;
    int64_t count = left < most ? left : most;
    if (host) Z3D_TRY(clear_padding(&s, count, most));
    if (count <= 0) return Z3D_OK; /* padding */
    stepped run = s;
    for (int64_t n; run.flat < s.flat + count; run.flat += n) {
        int index;
        n = alike(&run, s.flat + count - run.flat, &index);
        Z3D_TRY(step(&run, n, index, host));
    }
    return host && executor->now.skip ? narrow(&s, count) : Z3D_OK;
}
