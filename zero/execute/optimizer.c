/* Finds the tensors that an optimizer updates, and launches the update. */
#include "zero/execute/executor.h"

float *z3d_executor_values(const z3d_executor *executor, int group, z3d_tensor_kind kind,
                           int64_t element) {
    const z3d_layout *layout = executor->program->layout;
    int index = z3d_kept_index(layout, group, Z3D_PART_OPTIMIZER, kind);
    if (index >= 0)
        return (float *)z3d_executor_kept_address(executor, group, Z3D_PART_OPTIMIZER, element) +
               index * z3d_kept_elements(layout, group, Z3D_PART_OPTIMIZER);
    if (kind != Z3D_TENSOR_PARAMETER) return NULL;
    return z3d_executor_kept_address(executor, group, Z3D_PART_PARAMETERS, element);
}

static z3d_kernel_kind kernel_of(z3d_optimizer optimizer) {
    static const z3d_kernel_kind kernels[] = {
#define X(_, id, name, reads, states, flops) Z3D_KERNEL_##id,
        Z3D_OPTIMIZERS(X, )
#undef X
    };
    return kernels[optimizer];
}

/* A group's ranges lie end to end, those that decay in front: one launch steps all of a shard. */
z3d_status z3d_executor_optimize(z3d_executor *executor, int g) {
    const z3d_program *p = executor->program;
    const z3d_group_layout *group = &p->layout->group[g];
    int64_t rows = z3d_kept_elements(p->layout, g, Z3D_PART_OPTIMIZER);
    int64_t first = z3d_kept_first(p->layout, g, Z3D_PART_OPTIMIZER), decayed = -first;
    int64_t count = group->elements - first < rows ? group->elements - first : rows;
    if (count <= 0) return Z3D_OK; /* padding */
    for (int r = 0; r < group->num_ranges && group->range[r].weight_decay; r++)
        decayed += group->range[r].count;
    void *parameter = z3d_executor_kept_address(executor, g, Z3D_PART_PARAMETERS, first);
    float *master = z3d_executor_values(executor, g, Z3D_TENSOR_PARAMETER, first);
    const z3d_kernel kernel = {
        .kind = kernel_of(p->config.optimizer),
        .as.update = {
            .master = master,
#define X(NAME, name) .name = z3d_executor_values(executor, g, Z3D_TENSOR_##NAME, first),
            Z3D_OPTIMIZER_STATES(X)
#undef X
                .gradient = z3d_executor_kept_address(executor, g, Z3D_PART_GRADIENTS, first),
            .parameter = parameter == master ? NULL : parameter,
            .count = count,
            .decayed = decayed,
            .dtype = p->config.dtype,
            .gradient_dtype = p->config.grad_dtype,
            .constants = executor->optimizer,
            .state = z3d_executor_state(executor),
        }};
    return z3d_launch(executor->device, &kernel);
}
