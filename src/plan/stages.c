/* Parameters, memory and work of each pipeline stage. */
#include "src/plan/plan.h"
#include "zero/program/layout.h"

void z3d_stage_units(const z3d_model *model, const z3d_layout *layout, int stage, z3d_string *out) {
    const char *comma = "";
    for (int c = 0; c < layout->num_chunks; c++) {
        if (layout->stage_of_chunk[c] != stage) continue;
        int first = layout->first_unit[c], last = layout->first_unit[c + 1] - 1;
        z3d_string_append(out, "%s%s", comma, model->unit[first].name);
        if (last > first) z3d_string_append(out, " - %s", model->unit[last].name);
        comma = ", ";
    }
}

/* src/device/interface/cost.c counts the FLOPs of kernels. */
static double flops_of(const z3d_program *program) {
    double flops = 0;
    for (int i = 0; i < program->num_instructions; i++) {
        const z3d_instruction *instruction = &program->instruction[i];
        const z3d_opcode_info *info = z3d_opcode_info_of(instruction->opcode);
        if (info->subject != Z3D_SUBJECT_UNIT || info->moves != Z3D_MOVES_NONE) continue;
        flops += z3d_traces_of(program->traces, Z3D_MODE_TRAIN, instruction->unit,
                               z3d_instruction_call(instruction))
                     ->flops;
    }
    return flops;
}

static void take(const z3d_program_set *set, z3d_plan_stage *out) {
    const z3d_program *train = set->program[Z3D_MODE_TRAIN];
    out->padded_total = set->layout->padded_total;
    for (int space = 0; space < Z3D_SPACE_COUNT; space++) out->arena[space] = train->arena[space];
    out->flops = flops_of(train);
    out->sent = z3d_program_volume(train, Z3D_ROLE_STAGES, false);
}

z3d_status z3d_plan_stages(z3d_plan *plan) {
    const z3d_mesh *mesh = &plan->mesh;
    int stages = z3d_mesh_size(mesh, Z3D_ROLE_STAGES);
    int own = z3d_mesh_index(mesh, Z3D_ROLE_STAGES, mesh->rank);
    z3d_program_config config = plan->program_config;
    config.pipeline.timetables = plan->set.config.pipeline.timetables;
    Z3D_TRY(z3d_new((size_t)stages, sizeof *plan->stage, "pipeline stages", &plan->stage));
    for (int s = 0; s < stages; s++) {
        z3d_program_set set;
        z3d_mesh at = *mesh;
        if (s == own) {
            take(&plan->set, &plan->stage[s]);
            continue;
        }
        at.rank = z3d_mesh_member(mesh, Z3D_ROLE_STAGES, mesh->rank, s);
        z3d_status status =
            z3d_program_set_create(plan->model, &at, &config, plan->threads, false, &set);
        if (status == Z3D_OK) take(&set, &plan->stage[s]);
        z3d_program_set_release(&set);
        Z3D_TRY(status);
    }
    return Z3D_OK;
}

void z3d_plan_few_micro_batches(const z3d_program_config *program, int stages, const char *before,
                                z3d_string *out) {
    int micros = program->accumulation;
    if (micros >= stages) return;
    z3d_string_append(out,
                      "%sfewer micro-batches (%d) than pipeline stages (%d): at most %d stage%s at "
                      "a time; raise gradient_accumulation_steps\n",
                      before, micros, stages, micros, micros == 1 ? " works" : "s work");
}

static int fullest(const z3d_plan *plan) {
    int most = 0;
    for (int s = 1; s < plan->set.layout->stages; s++)
        if (plan->stage[s].arena[Z3D_SPACE_DEVICE] > plan->stage[most].arena[Z3D_SPACE_DEVICE])
            most = s;
    return most;
}

static void append_stage(const z3d_plan *plan, int s, z3d_string *out) {
    const z3d_plan_stage *stage = &plan->stage[s];
    z3d_string_append(out, "  %5d %16lld  %10s %10s %10s %16lld  ", s,
                      (long long)stage->arena[Z3D_SPACE_DEVICE],
                      z3d_bytes_text(stage->arena[Z3D_SPACE_DEVICE]).text,
                      z3d_count_text((double)stage->padded_total).text,
                      z3d_count_text(stage->flops).text, (long long)stage->sent);
    z3d_stage_units(plan->model, plan->set.layout, s, out);
    if (stage->arena[Z3D_SPACE_HOST] > 0)
        z3d_string_append(out, "; %s in host memory",
                          z3d_bytes_text(stage->arena[Z3D_SPACE_HOST]).text);
    z3d_string_append(out, "\n");
}

void z3d_plan_print_stages(const z3d_plan *plan, z3d_string *out) {
    const z3d_layout *layout = plan->set.layout;
    int most = fullest(plan);
    if (layout->stages == 1) return;
    z3d_string_append(
        out,
        "\npipeline       %s, %d stages x %d chunk%s; stage %d needs most memory: %s\n"
        "  stage     device arena                      P      FLOPs  elements passed  units\n",
        z3d_schedule_name(plan->program_config.pipeline.schedule), layout->stages,
        layout->num_chunks / layout->stages, layout->num_chunks > layout->stages ? "s" : "", most,
        z3d_bytes_text(plan->stage[most].arena[Z3D_SPACE_DEVICE]).text);
    for (int s = 0; s < layout->stages; s++) append_stage(plan, s, out);
    z3d_plan_few_micro_batches(&plan->program_config, layout->stages, "  warning: ", out);
}
