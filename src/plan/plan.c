/* Plans one rank: mesh, model, layout, traces, the three programs and their memory. */
#include <stdlib.h>
#include <unistd.h>

#include "src/plan/choose/choose.h"
#include "src/plan/plan.h"

#include "checkpoint/checkpoint.h"

/* Ranks that the configuration implies: parallel.world_size, the number of device_speeds, or tensor
 * x pipeline x the data size for which the batch keys agree. */
static int64_t implied_ranks(const z3d_config *config) {
    int64_t ranks, batch = config->train_batch_size, micro = config->train_micro_batch_size_per_gpu,
                   steps = config->gradient_accumulation_steps;
    int speeds;
    if (config->parallel_world_size != Z3D_AUTO) return config->parallel_world_size;
    if (z3d_config_device_speeds(config, NULL, 0, &speeds) == Z3D_SPEEDS_LIST) return speeds;
    ranks = z3d_config_model_ranks(config);
    bool all = batch != Z3D_AUTO && micro != Z3D_AUTO && steps != Z3D_AUTO;
    if (all && batch % (micro * steps) == 0 && !z3d_mul_i64(ranks, batch / (micro * steps), &ranks))
        return -1;
    return ranks;
}

int z3d_plan_threads(const z3d_config *config, int ranks) {
    if (config->training_threads != Z3D_AUTO) return (int)config->training_threads;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return ranks > 0 && cores > ranks ? (int)(cores / ranks) : 1;
}

double z3d_plan_hardware_flops(const z3d_program *program) {
    const z3d_model_flops *flops = &program->model->facts.flops;
    double replayed = 0;
    for (int i = 0; i < program->num_instructions; i++) {
        const z3d_instruction *instruction = &program->instruction[i];
        if (instruction->phase == Z3D_PHASE_WAIT || instruction->unit < 0 ||
            !z3d_unit_ends_part(program->model, instruction->unit)) /* a tiled block counts once */
            continue;
        if (instruction->opcode == Z3D_OP_RECOMPUTE)
            replayed += instruction->need_output ? flops->replay_with_output : flops->replay;
        else if ((instruction->opcode == Z3D_OP_BACKWARD ||
                  instruction->opcode == Z3D_OP_BACKWARD_INPUT) &&
                 program->config.selective && program->model->unit[instruction->unit].checkpoint)
            replayed += flops->attention;
    }
    return flops->step + replayed / program->config.accumulation;
}

z3d_status z3d_plan_mesh(const z3d_config *config, int ranks, int rank, z3d_mesh *out) {
    *out = (z3d_mesh){.rank = rank};
#define X(AXIS, field, path) out->size[Z3D_AXIS_##AXIS] = (int)config->field;
    Z3D_CONFIG_AXES(X)
#undef X
    const int data = ranks / (int)z3d_config_model_ranks(config);
    out->size[Z3D_AXIS_DATA_INNER] = (int)z3d_config_data_inner(config, data);
    out->size[Z3D_AXIS_DATA_OUTER] = data / out->size[Z3D_AXIS_DATA_INNER];
    return z3d_mesh_check(out);
}

z3d_status z3d_plan_place(z3d_config *config, int64_t ranks, int rank, z3d_mesh *out) {
    int data;
    Z3D_TRY(z3d_choose_nodes(config, 0));
    if (ranks == 0) ranks = implied_ranks(config);
    if (ranks < 1 || ranks > INT32_MAX)
        return Z3D_ERROR(Z3D_ERR_TOPOLOGY, "cannot plan a world of %lld ranks; use 1 to %d",
                         (long long)ranks, INT32_MAX);
    Z3D_TRY(z3d_config_settle(config, &z3d_model_rules, (int)ranks, &data));
    if (rank < 0 || rank >= ranks)
        return Z3D_ERROR(Z3D_ERR_TOPOLOGY, "rank %d is not in a world of %lld ranks; use 0 to %lld",
                         rank, (long long)ranks, (long long)ranks - 1);
    return z3d_plan_mesh(config, (int)ranks, rank, out);
}

bool z3d_plan_saves_beside(const z3d_config *config) {
    return config->checkpoint_async &&
           config->zero_optimization_offload_optimizer_device != Z3D_OFFLOAD_DEVICE_NVME;
}

bool z3d_plan_begins(const z3d_config *config) {
    return config->checkpoint_init_from[0] != '\0';
}

int64_t z3d_plan_outside(const z3d_mesh *mesh) {
    int64_t bytes = Z3D_OUTSIDE_BYTES;
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++) {
        if (!z3d_axes_have_group(mesh, (z3d_axes)axes)) continue;
        const int size = z3d_mesh_size(mesh, (z3d_axes)axes);
        const int64_t near = z3d_group_buffers_on_cpus(size, true),
                      far = z3d_group_buffers_on_cpus(size, false);
        bytes += near > far ? near : far;
    }
    return bytes;
}

z3d_status z3d_plan_snapshot(const z3d_config *config, const z3d_program_config *program,
                             const z3d_model *model, const z3d_mesh *mesh, int64_t *bytes) {
    *bytes = 0;
    if (!z3d_plan_saves_beside(config)) return Z3D_OK;
    return z3d_checkpoint_snapshot_bytes(model, mesh, program, z3d_plan_begins(config), bytes);
}

static z3d_status fill(z3d_plan *plan, z3d_config *config, int ranks, int rank) {
    Z3D_TRY(z3d_plan_place(config, ranks, rank, &plan->mesh));
    ranks = z3d_mesh_size(&plan->mesh, Z3D_AXES_WORLD);
    plan->threads = z3d_plan_threads(config, ranks);
    Z3D_TRY(z3d_model_from_config(config, &plan->model));
    Z3D_TRY(z3d_plan_program_config(config, plan->model, &plan->program_config));
    Z3D_TRY(z3d_program_set_create(plan->model, &plan->mesh, &plan->program_config, plan->threads,
                                   true, &plan->set));
    for (int mode = 0; mode < Z3D_MODE_COUNT; mode++)
        for (int space = 0; space < Z3D_SPACE_COUNT && plan->set.program[mode]; space++)
            z3d_program_ledger(plan->set.program[mode], (z3d_space)space,
                               &plan->ledger[mode][space]);
    Z3D_TRY(z3d_plan_stages(plan));
    return z3d_plan_snapshot(config, &plan->program_config, plan->model, &plan->mesh,
                             &plan->snapshot);
}

z3d_status z3d_plan_create(z3d_config *config, int ranks, int rank, z3d_plan **out) {
    z3d_plan *plan;
    *out = NULL;
    Z3D_TRY(z3d_new(1, sizeof *plan, "a plan", &plan));
    z3d_status status = fill(plan, config, ranks, rank);
    if (status == Z3D_OK)
        *out = plan;
    else
        z3d_plan_destroy(plan);
    return status;
}

void z3d_plan_destroy(z3d_plan *plan) {
    if (!plan) return;
    z3d_program_set_release(&plan->set);
    z3d_plan_program_config_release(&plan->program_config);
    z3d_model_destroy(plan->model);
    free(plan->stage);
    free(plan);
}
