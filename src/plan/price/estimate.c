/* Cases on the sim device, priced. */
#include "src/plan/price/estimate.h"

#include <stdlib.h>
#include <string.h>

z3d_sim_node z3d_case_node(const z3d_config *config, const z3d_hardware *hardware) {
    if (!z3d_hardware_is_cpu(hardware) && strcmp(hardware->kind, Z3D_HARDWARE_NOMINAL) != 0)
        return (z3d_sim_node){0};
    bool given = config->training_threads != Z3D_AUTO;
    return (z3d_sim_node){
        .threads = given ? (int)config->training_threads : (int)hardware->threads,
        .ranks = (int)hardware->devices,
    };
}

z3d_status z3d_case_create(z3d_config *config, int ranks, int rank, z3d_sim_node node,
                           z3d_case **out) {
    *out = NULL;
    z3d_case *made;
    z3d_status status = z3d_new(1, sizeof *made, "a case", &made);
    if (status != Z3D_OK) return status;
    Z3D_TRY_GOTO(status, z3d_plan_place(config, ranks, rank, &made->mesh), failed);
    made->tensor_across_nodes = config->parallel_allow_tensor_across_nodes;
    made->begins = z3d_plan_begins(config);
    Z3D_TRY_GOTO(status, z3d_model_from_config(config, &made->model), failed);
    Z3D_TRY_GOTO(status, z3d_plan_program_config(config, made->model, &made->program), failed);
    made->program.rough_memory = node.rough;
    Z3D_TRY_GOTO(status,
                 z3d_simulation_create(made->model, &made->mesh, &made->program,
                                       config->gradient_clipping, node, &made->simulation),
                 failed);
    for (int s = 0; s < made->simulation->stages; s++) {
        z3d_sim_stage *stage = &made->simulation->stage[s];
        Z3D_TRY_GOTO(
            status,
            z3d_plan_snapshot(config, &made->program, made->model, &stage->mesh, &stage->snapshot),
            failed);
    }
    *out = made;
    return Z3D_OK;
failed:
    z3d_case_destroy(made);
    return status;
}

void z3d_case_destroy(z3d_case *of) {
    if (!of) return;
    z3d_simulation_destroy(of->simulation);
    z3d_plan_program_config_release(&of->program);
    z3d_model_destroy(of->model);
    free(of);
}

z3d_run_kind z3d_case_kind(const z3d_case *of) {
    const z3d_offload_plan *offload = &of->program.offload;
    const bool states =
        offload->optimizer != Z3D_SPACE_DEVICE || offload->parameters != Z3D_SPACE_DEVICE;
    return (z3d_run_kind){
        .ranks = z3d_mesh_size(&of->mesh, Z3D_AXES_WORLD),
        .stage = z3d_mesh_size(&of->mesh, Z3D_AXES_DATA) > 1 ? of->program.stage : 0,
        .offload = z3d_offload_kind(states, of->program.checkpoint_space != Z3D_SPACE_DEVICE),
        .parameters = (double)z3d_model_parameter_count(of->model)};
}

static z3d_status check_nodes(const z3d_case *of, const z3d_hardware *hardware) {
    z3d_links links;
    int devices = (int)hardware->devices;
    if (of->tensor_across_nodes) return Z3D_OK;
    Z3D_TRY(z3d_links_find(&of->mesh, Z3D_ROLE_PARTS, devices, &links));
    if (links.nodes < 2) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_TOPOLOGY,
                     "tensor groups of %d ranks straddle nodes of %d devices (%s): use a tensor "
                     "size that divides %d, or set parallel.allow_tensor_across_nodes=true",
                     links.members, devices, hardware->name, devices);
}

/* Refuses a machine without the rates of host or disk that this configuration needs. */
static z3d_status check_rates(const z3d_case *of, const z3d_hardware *hardware) {
    const z3d_offload_plan *offload = &of->program.offload;
    int64_t disk = 0;
    for (int s = 0; s < of->simulation->stages; s++)
        disk += of->simulation->stage[s].arena[Z3D_SPACE_DISK];
    if (disk > 0 && !(hardware->nvme_read > 0 && hardware->nvme_write > 0))
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "offload to nvme has no price on %s: its hardware file gives no "
                         "node.nvme_read_gb_per_s and node.nvme_write_gb_per_s; add them (zero3d "
                         "doctor --measure measures a disk)",
                         hardware->name);
    if (offload->optimizer != Z3D_SPACE_DEVICE && !z3d_hardware_is_cpu(hardware) &&
        !(hardware->host_optimizer > 0))
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "offload_optimizer has no price on %s: its hardware file gives no "
                         "node.host_optimizer_gb_per_s; add it (zero3d doctor --measure on its "
                         "host measures it)",
                         hardware->name);
    return Z3D_OK;
}

static void count_speed(const z3d_case *of, const z3d_hardware *hardware, z3d_estimate *e) {
    const z3d_model_flops *flops = &of->model->facts.flops;
    double devices = z3d_mesh_size(&of->mesh, Z3D_AXES_WORLD);
    double rate = e->tokens / e->time.seconds / devices * 1e-12;
    double peak = z3d_hardware_peak(hardware, of->program.dtype) * 1e-12;
    e->tflops_96 = rate * flops->recomputed_step;
    e->tflops_72 = rate * flops->step;
    e->mfu = e->tflops_72 / peak;
    double hardware_flops = flops->step;
    for (int s = 0; s < of->simulation->stages; s++)
        hardware_flops += of->simulation->stage[s].replayed;
    e->hfu = rate * hardware_flops / peak;
}

static z3d_memory_need need_of(const z3d_simulation *simulation, int stage,
                               const z3d_hardware *hardware, double extra) {
    const z3d_sim_stage *of = &simulation->stage[stage];
    z3d_memory_need need;
    z3d_memory_find(of->arena, of->snapshot, hardware,
                    z3d_mesh_size(&simulation->mesh, Z3D_AXES_WORLD), extra, &need);
    return need;
}

static void find_memory(const z3d_simulation *simulation, const z3d_hardware *hardware,
                        double extra, z3d_estimate *e) {
    e->memory = e->fullest = need_of(simulation, simulation->own, hardware, extra);
    e->fullest_stage = simulation->own;
    for (int s = 0; s < simulation->stages; s++) {
        const z3d_memory_need need = need_of(simulation, s, hardware, extra);
        if (z3d_memory_room(&need) >= z3d_memory_room(&e->fullest)) continue;
        e->fullest = need;
        e->fullest_stage = s;
    }
}

z3d_status z3d_estimate_make(const z3d_case *of, const z3d_hardware *hardware, double extra,
                             const z3d_spans *spans, z3d_estimate *out) {
    *out = (z3d_estimate){0};
    Z3D_TRY(check_nodes(of, hardware));
    Z3D_TRY(z3d_hardware_check_products(hardware, of->program.dtype));
    Z3D_TRY(check_rates(of, hardware));
    find_memory(of->simulation, hardware, extra, out);
    double used = 1 - out->fullest.free / out->fullest.capacity;
    Z3D_TRY(z3d_simulation_play(of->simulation, hardware, used, spans, &out->time));
    out->slowest_stage = z3d_simulation_slowest(of->simulation);
    out->bubble = z3d_simulation_bubble(of->simulation, &out->sends);
    Z3D_REQUIRE(out->time.seconds > 0, "a step that takes no time");
    out->samples = (double)z3d_samples_in_all(&of->program, &of->mesh) * of->program.accumulation;
    out->tokens = out->samples * (double)of->model->facts.tokens;
    count_speed(of, hardware, out);
    return Z3D_OK;
}

z3d_status z3d_estimate_config(z3d_config *config, int ranks, const z3d_hardware *hardware,
                               z3d_estimate *out) {
    z3d_case *of;
    Z3D_TRY(z3d_case_create(config, ranks, 0, z3d_case_node(config, hardware), &of));
    z3d_status status = z3d_estimate_make(of, hardware, 0, NULL, out);
    z3d_case_destroy(of);
    return status;
}
