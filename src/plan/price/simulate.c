/* Runs a step of each pipeline stage on the sim device, and keeps its tape. */
#include "src/plan/price/simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/plan/plan.h"
#include "zero/program/layout.h"

/* ---- running ---- */

static z3d_status enter(void *context, const z3d_program *program, int index) {
    (void)program;
    return z3d_tape_append(context, &(z3d_event){.kind = Z3D_EVENT_INSTRUCTION, .id = index});
}

static z3d_status repeat_step(const z3d_simulation *simulation, const z3d_sim_stage *stage) {
    const z3d_program *train = z3d_engine_program(simulation->engine, Z3D_MODE_TRAIN);
    z3d_micro_batch *micro;
    z3d_step_result result;
    Z3D_TRY(z3d_new((size_t)train->config.accumulation, sizeof *micro, "micro-batches", &micro));
    z3d_tape_clear(stage->tape);
    z3d_step_input input = {.micro = micro, .global_targets = 1};
    z3d_status status = z3d_engine_train_step(simulation->engine, &input, &result);
    free(micro);
    return status;
}

static z3d_status create_group(z3d_simulation *simulation, const z3d_sim_stage *stage,
                               z3d_axes axes, int node_ranks) {
    const z3d_mesh *at = &stage->mesh;
    int size = z3d_mesh_size(at, axes);
    int64_t buffers = 0;
    if (node_ranks > 0) { /* a group's ranks are in ascending order */
        int first = z3d_mesh_member(at, axes, at->rank, 0);
        int last = z3d_mesh_member(at, axes, at->rank, size - 1);
        buffers = z3d_group_buffers_on_cpus(size, first / node_ranks == last / node_ranks);
    }
    return z3d_group_create_sim(axes, size, z3d_mesh_index(at, axes, at->rank), stage->tape,
                                buffers, &simulation->group[axes]);
}

bool z3d_sim_is_pass(z3d_opcode opcode) {
    return opcode == Z3D_OP_FORWARD || opcode == Z3D_OP_RECOMPUTE || opcode == Z3D_OP_BACKWARD ||
           opcode == Z3D_OP_BACKWARD_INPUT || opcode == Z3D_OP_BACKWARD_WEIGHT;
}

static bool uses(const z3d_unit *unit, int group) {
    for (int s = 0; s < unit->num_groups; s++)
        if (unit->group[s] == group) return true;
    return false;
}

static int64_t parameters_of(const z3d_layout *layout, const z3d_unit *unit) {
    int64_t count = 0;
    for (int s = 0; s < unit->num_groups; s++) count += layout->group[unit->group[s]].elements;
    return count;
}

/* z3d_sim_entry.recomputed of instruction `gather`, in parameters of this tensor rank. */
static int64_t recomputed_by(const z3d_program *train, int gather) {
    const int group = train->instruction[gather].group;
    for (int i = gather + 1; i < train->num_instructions; i++) {
        const z3d_instruction *in = &train->instruction[i];
        if (!z3d_sim_is_pass(in->opcode) || !uses(&train->model->unit[in->unit], group)) continue;
        return in->opcode == Z3D_OP_RECOMPUTE
                   ? parameters_of(train->layout, &train->model->unit[in->unit])
                   : 0;
    }
    return 0;
}

/* Keeps the facts of a stage that outlive its engine. */
static z3d_status keep(const z3d_simulation *simulation, z3d_sim_stage *stage) {
    const z3d_program *train = z3d_engine_program(simulation->engine, Z3D_MODE_TRAIN);
    const z3d_model_flops *flops = &train->model->facts.flops;
    memcpy(stage->arena, train->config.rough_memory ? train->bound : train->arena,
           sizeof stage->arena);
    stage->replayed = z3d_plan_hardware_flops(train) - flops->step;
    Z3D_TRY(z3d_new((size_t)train->num_instructions, sizeof *stage->entry, "a simulation",
                    &stage->entry));
    stage->num_entries = train->num_instructions;
    for (int i = 0; i < train->num_instructions; i++) {
        const z3d_instruction *in = &train->instruction[i];
        const int64_t recomputed = in->opcode == Z3D_OP_GATHER_PARAMS ? recomputed_by(train, i) : 0;
        stage->entry[i] = (z3d_sim_entry){in->opcode, in->unit, in->micro, recomputed};
    }
    return Z3D_OK;
}

static void drop_rank(z3d_simulation *simulation) {
    z3d_engine_destroy(simulation->engine);
    z3d_groups_destroy(simulation->group);
    z3d_device_destroy(simulation->device);
    simulation->engine = NULL;
    simulation->device = NULL;
}

/* config: without what belongs to a stage. */
static z3d_status run_stage(z3d_simulation *simulation, z3d_sim_stage *stage,
                            z3d_engine_config config, z3d_sim_node node) {
    Z3D_TRY(z3d_tape_create(&stage->tape));
    z3d_device_config device = {.backend = "sim", .threads = node.threads, .tape = stage->tape};
    Z3D_TRY(z3d_device_create(&device, &simulation->device));
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++)
        if (z3d_axes_have_group(&stage->mesh, (z3d_axes)axes))
            Z3D_TRY(create_group(simulation, stage, (z3d_axes)axes, node.ranks));
    config.mesh = stage->mesh;
    config.device = simulation->device;
    config.enter_context = stage->tape;
    memcpy(config.group, simulation->group, sizeof config.group);
    Z3D_TRY(z3d_engine_create(&config, &simulation->engine));
    Z3D_TRY(repeat_step(simulation, stage));
    return keep(simulation, stage);
}

/* Runs this rank's stage last, and keeps its engine. */
static z3d_status run_stages(z3d_simulation *simulation, z3d_engine_config config,
                             z3d_sim_node node) {
    const z3d_mesh *mesh = &simulation->mesh;
    Z3D_TRY(z3d_timetables_create(&config.program, simulation->stages, &simulation->timetables));
    config.program.pipeline.timetables = simulation->timetables;
    for (int n = 1; n <= simulation->stages; n++) {
        int s = (simulation->own + n) % simulation->stages;
        z3d_sim_stage *stage = &simulation->stage[s];
        stage->mesh = *mesh;
        stage->mesh.rank = z3d_mesh_member(mesh, Z3D_ROLE_STAGES, mesh->rank, s);
        Z3D_TRY(run_stage(simulation, stage, config, node));
        if (s != simulation->own) drop_rank(simulation);
    }
    return Z3D_OK;
}

z3d_status z3d_simulation_create(const z3d_model *model, const z3d_mesh *mesh,
                                 const z3d_program_config *program, double gradient_clipping,
                                 z3d_sim_node node, z3d_simulation **out) {
    const z3d_engine_config config = {
        .model = model,
        .program = *program,
        .optimizer = {.beta1 = 0.9F, .beta2 = 0.95F, .epsilon = 1e-8F},
        .gradient_clipping = gradient_clipping,
        .scaler = {.scale = 1},
        .without_values = true,
        .enter = enter,
    };
    *out = NULL;
    z3d_simulation *made;
    Z3D_TRY(z3d_new(1, sizeof *made, "a simulation", &made));
    made->mesh = *mesh;
    made->stages = z3d_mesh_size(mesh, Z3D_ROLE_STAGES);
    made->own = z3d_mesh_index(mesh, Z3D_ROLE_STAGES, mesh->rank);
    z3d_status status =
        z3d_new((size_t)made->stages, sizeof *made->stage, "a simulation", &made->stage);
    if (status == Z3D_OK) status = run_stages(made, config, node);
    if (status == Z3D_OK)
        *out = made;
    else
        z3d_simulation_destroy(made);
    return status;
}

z3d_status z3d_simulation_observe(const z3d_simulation *simulation,
                                  z3d_status (*observe)(void *, const z3d_kernel *),
                                  void *context) {
    z3d_device_set_recorder(simulation->device, observe, context);
    z3d_status status = repeat_step(simulation, &simulation->stage[simulation->own]);
    z3d_device_set_recorder(simulation->device, NULL, NULL);
    return status;
}

void z3d_simulation_destroy(z3d_simulation *simulation) {
    if (!simulation) return;
    drop_rank(simulation);
    z3d_timetables_destroy(simulation->timetables);
    for (int s = 0; s < simulation->stages && simulation->stage; s++) {
        z3d_tape_destroy(simulation->stage[s].tape);
        free(simulation->stage[s].entry);
    }
    free(simulation->stage);
    free(simulation);
}

/* ---- memory ---- */

double z3d_memory_host_free(const z3d_memory_need *need) {
    return need->host_capacity - (double)(need->host_arena + need->snapshot);
}

double z3d_memory_disk_free(const z3d_memory_need *need) {
    return need->disk_capacity - (double)need->disk_arena;
}

double z3d_memory_room(const z3d_memory_need *need) {
    double elsewhere = fmin(z3d_memory_host_free(need), z3d_memory_disk_free(need));
    return elsewhere < 0 && elsewhere < need->free ? elsewhere : need->free;
}

void z3d_memory_find(const int64_t arena[Z3D_SPACE_COUNT], int64_t snapshot,
                     const z3d_hardware *hardware, int ranks, double extra, z3d_memory_need *out) {
    const double share = 1073741824.0 / z3d_hardware_node_ranks(hardware, ranks);
    *out = (z3d_memory_need){
        .arena = arena[Z3D_SPACE_DEVICE],
        .host_arena = arena[Z3D_SPACE_HOST],
        .snapshot = snapshot,
        .overhead = hardware->overhead_gb * 1e9,
        .capacity = hardware->memory_gib * 1073741824.0,
        .host_capacity = hardware->host_memory_gib * share,
        .disk_arena = arena[Z3D_SPACE_DISK],
        .disk_capacity = hardware->nvme_gib > 0 ? hardware->nvme_gib * share : INFINITY,
    };
    out->free = out->capacity - (double)out->arena - out->overhead - extra;
    out->fits = z3d_memory_room(out) >= 0;
}
