/* The programs of one configuration on one rank, made in one way for all callers: layout, traces,
 * programs, memory, verification. The engine and `plan` refuse the same. */
#include <stdlib.h>

#include "zero/program/layout.h"
#include "zero/program/pipeline.h"
#include "zero/program/set.h"

/* Up to this world size, and up to so many instructions together (about 3 GB), every rank's program
 * is built and all are played against each other. In a larger world one program stands for each
 * pipeline stage, whose programs differ only in the rank. */
enum { BUILT_APART = 64, MAX_PLAYED_INSTRUCTIONS = 20 * 1000 * 1000 };

/* Whether parameters are gathered once a step, not once a run: each rank keeps all rows, or a
 * block, but steps only its own rows. */
static bool relies_on_gathers(const z3d_layout *layout, z3d_mode mode) {
    if (mode == Z3D_MODE_TRAIN) return false;
    for (int g = 0; g < layout->num_groups; g++)
        if (layout->group[g].state[Z3D_STATE_SECONDARY].kinds ||
            (z3d_state_is_whole(layout, g, Z3D_STATE_VALUE) &&
             !z3d_state_is_whole(layout, g, Z3D_STATE_OPTIMIZER)))
            return true;
    return false;
}

static z3d_status build_mode(z3d_program_set *set, z3d_mode mode) {
    z3d_program_config again = set->config;
    again.gathered = true;
    if (!z3d_model_has_mode(set->model, mode)) return Z3D_OK;
    if (!z3d_needs_mode(&set->config, mode)) return Z3D_OK;
    Z3D_TRY(z3d_program_build(set->model, set->layout, set->traces, &set->mesh, &set->config, mode,
                              &set->program[mode]));
    if (!relies_on_gathers(set->layout, mode)) return Z3D_OK;
    return z3d_program_build(set->model, set->layout, set->traces, &set->mesh, &again, mode,
                             &set->again[mode]);
}

int z3d_program_set_list(const z3d_program_set *set, z3d_program *all[2 * Z3D_MODE_COUNT]) {
    int count = 0;
    for (int mode = 0; mode < Z3D_MODE_COUNT; mode++) {
        if (set->program[mode]) all[count++] = set->program[mode];
        if (set->again[mode]) all[count++] = set->again[mode];
    }
    return count;
}

/* The program of another rank, and its parts. */
typedef struct peer {
    z3d_layout *layout;
    z3d_traces *traces; /* NULL: this rank's, which has as many samples */
    z3d_program *program;
} peer;

static z3d_status build_for_rank(const z3d_program_set *set, const z3d_program *mine, int rank,
                                 peer *out) {
    z3d_mesh mesh = set->mesh;
    z3d_program_config config = mine->config;
    mesh.rank = rank;
    config.pipeline.timetables = set->config.pipeline.timetables;
    config.micro_batch = z3d_samples_of(&config, &mesh);
    Z3D_TRY(z3d_layout_create(set->model, &mesh, &config, &out->layout));
    if (config.micro_batch != mine->config.micro_batch)
        Z3D_TRY(z3d_traces_record(set->model, out->layout, &config, set->traces->threads,
                                  &out->traces));
    Z3D_TRY(z3d_program_build(set->model, out->layout, out->traces ? out->traces : set->traces,
                              &mesh, &config, mine->mode, &out->program));
    /* The play of all ranks does not read buffers. */
    free(out->program->buffer);
    out->program->buffer = NULL;
    out->program->num_buffers = 0;
    return Z3D_OK;
}

/* The builder is pure, so every rank can build every rank's program. In a large world it takes this
 * data rank's pipeline stages: samples do not change what data ranks do together. */
static z3d_status verify_world(const z3d_program_set *set, const z3d_program *mine) {
    const z3d_mesh *mesh = &set->mesh;
    int count = z3d_mesh_size(mesh, set->classes ? Z3D_ROLE_STAGES : Z3D_AXES_WORLD);
    z3d_program **program = NULL;
    peer *all = NULL;
    z3d_status status = z3d_new((size_t)count, sizeof(z3d_program *), "verifier", &program);
    if (status == Z3D_OK) status = z3d_new((size_t)count, sizeof *all, "verifier", &all);
    for (int i = 0; i < count && status == Z3D_OK; i++) {
        int rank = set->classes ? z3d_mesh_member(mesh, Z3D_ROLE_STAGES, mesh->rank, i) : i;
        status = build_for_rank(set, mine, rank, &all[i]);
        program[i] = all[i].program;
    }
    if (status == Z3D_OK)
        status = set->classes ? z3d_program_verify_classes(program, count)
                              : z3d_program_verify_world(program, count);
    for (int i = 0; i < count && all; i++) {
        z3d_program_destroy(all[i].program);
        z3d_traces_destroy(all[i].traces);
        z3d_layout_destroy(all[i].layout);
    }
    free(program);
    free(all);
    return status;
}

z3d_status z3d_program_set_create(const z3d_model *model, const z3d_mesh *mesh,
                                  const z3d_program_config *config, int threads, bool verify,
                                  z3d_program_set *set) {
    z3d_program *all[2 * Z3D_MODE_COUNT];
    int64_t world = z3d_mesh_size(mesh, Z3D_AXES_WORLD);
    *set = (z3d_program_set){.model = model, .mesh = *mesh, .config = *config};
    set->config.micro_batch = z3d_samples_of(config, mesh);
    Z3D_TRY(z3d_layout_create(model, mesh, &set->config, &set->layout));
    Z3D_TRY(z3d_traces_record(model, set->layout, &set->config, threads, &set->traces));
    if (!config->pipeline.timetables)
        Z3D_TRY(z3d_timetables_create(config, set->layout->stages, &set->timetables));
    if (set->timetables) set->config.pipeline.timetables = set->timetables;
    for (int mode = 0; mode < Z3D_MODE_COUNT; mode++) Z3D_TRY(build_mode(set, (z3d_mode)mode));
    int count = z3d_program_set_list(set, all);
    if (count == 0)
        return Z3D_ERROR(Z3D_ERR_USAGE, "this model has no output, so it cannot generate");
    set->classes =
        world > BUILT_APART ||
        world * set->program[z3d_program_set_main(set)]->num_instructions > MAX_PLAYED_INSTRUCTIONS;
    Z3D_TRY(z3d_program_plan(all, count));
    for (int k = 0; k < count && verify; k++) {
        Z3D_TRY(z3d_program_verify(all[k]));
        Z3D_TRY(verify_world(set, all[k]));
    }
    return Z3D_OK;
}

void z3d_program_set_release(z3d_program_set *set) {
    for (int mode = 0; mode < Z3D_MODE_COUNT; mode++) {
        z3d_program_destroy(set->program[mode]);
        z3d_program_destroy(set->again[mode]);
    }
    z3d_timetables_destroy(set->timetables);
    z3d_traces_destroy(set->traces);
    z3d_layout_destroy(set->layout);
    *set = (z3d_program_set){0};
}
