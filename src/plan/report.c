/* A plan as text for people. */
#include "src/plan/plan.h"
#include "zero/program/layout.h"

static void print_world(const z3d_mesh *mesh, z3d_string *out) {
    z3d_axes axes[Z3D_AXIS_COUNT];
    const int count = z3d_mesh_axes(mesh, axes), ranks = z3d_mesh_size(mesh, Z3D_AXES_WORLD);
    z3d_string_append(out, "world          %d rank%s:", ranks, z3d_plural(ranks));
    for (int i = 0; i < count; i++)
        z3d_string_append(out, "%s %s %d", i ? " x" : "", z3d_axes_name(axes[i]).text,
                          z3d_mesh_size(mesh, axes[i]));
    z3d_string_append(out, "; this is rank %d (", mesh->rank);
    for (int i = 0; i < count; i++)
        if (axes[i] != Z3D_ROLE_STAGES || z3d_mesh_size(mesh, axes[i]) > 1)
            z3d_string_append(out, "%s%s %d", i ? ", " : "", z3d_axes_name(axes[i]).text,
                              z3d_mesh_index(mesh, axes[i], mesh->rank));
    z3d_string_append(out, ")\n");
}

static void print_model(const z3d_plan *plan, z3d_string *out) {
    const z3d_mesh *t = &plan->mesh;
    const z3d_program_config *c = &plan->program_config;
    const z3d_model_facts *facts = &plan->model->facts;
    int64_t samples = z3d_samples_in_all(c, t) * c->accumulation;
    z3d_string_append(out, "model          %s: %s, sequence %lld, vocabulary %lld (padded %lld)\n",
                      z3d_model_parameters_text(plan->model).text, facts->shape,
                      (long long)facts->tokens, (long long)facts->vocabulary,
                      (long long)facts->padded_vocabulary);
    print_world(t, out);
    z3d_string_append(out,
                      "step           %lld samples = micro-batch %lld x accumulation %d x data %d; "
                      "ZeRO-%d, %s%s%s, gradients %s%s%sreduced %s%s\n",
                      (long long)samples, (long long)c->micro_batch, c->accumulation,
                      z3d_mesh_size(t, Z3D_ROLE_SAMPLES), c->stage, z3d_dtype_name(c->dtype),
                      c->recompute ? ", activations recomputed" : "",
                      plan->model->sequence_parallel ? ", sequence parallel" : "",
                      c->grad_dtype != c->dtype ? "in fp32, " : "",
                      c->wire != Z3D_F32 ? z3d_dtype_name(c->wire) : "",
                      c->wire != Z3D_F32 ? " on the wire, " : "",
                      c->reduce_per_step ? "once a step" : "every micro-batch",
                      z3d_keeps_whole_gradients(plan->set.layout) ? " and kept whole until then"
                                                                  : "");
    if (c->first_sample)
        z3d_string_append(out, "share          %lld of a micro-batch's %lld samples\n",
                          (long long)plan->set.config.micro_batch,
                          (long long)z3d_samples_in_all(c, t));
    z3d_string_append(out, "P              %s padded parameters on this rank before ZeRO\n",
                      z3d_count_text((double)plan->set.layout->padded_total).text);
}

/* Of host memory and disk only the categories in use. */
static void print_peaks(const z3d_ledger *ledger, int space, z3d_string *out) {
    static const char *const where[] = {"", "  in host memory", "  on the disk"};
    for (int category = 0; category < Z3D_CATEGORY_COUNT; category++)
        if (ledger->peak[category] > 0 || space == Z3D_SPACE_DEVICE)
            z3d_string_append(out, "  %-16s %16lld  %10s%s\n",
                              z3d_category_name((z3d_category)category),
                              (long long)ledger->peak[category],
                              z3d_bytes_text(ledger->peak[category]).text, where[space]);
}

static void print_memory(const z3d_plan *plan, z3d_string *out) {
    static const char *const arena_name[] = {"device arena", "host arena", "disk file"};
    z3d_string_append(out, "\nmemory of rank %d   %16s\n", plan->mesh.rank, "peak bytes");
    for (int space = 0; space < Z3D_SPACE_COUNT; space++)
        print_peaks(&plan->ledger[Z3D_MODE_TRAIN][space], space, out);
    if (plan->snapshot > 0)
        z3d_string_append(
            out, "  %-16s %16lld  %10s  in host memory: the copy of checkpoint.async\n",
            "checkpoint copy", (long long)plan->snapshot, z3d_bytes_text(plan->snapshot).text);
    for (int space = 0; space < Z3D_SPACE_COUNT; space++) {
        int64_t arena = 0, least = 0;
        for (int mode = 0; mode < Z3D_MODE_COUNT; mode++) {
            const z3d_program *program = plan->set.program[mode];
            if (!program) continue;
            if (program->arena[space] > arena) arena = program->arena[space];
            if (program->bound[space] > least) least = program->bound[space];
        }
        if (arena == 0) continue;
        z3d_string_append(out, "  %-16s %16lld  %10s  lower bound %s, %.2f %% above it\n",
                          arena_name[space], (long long)arena, z3d_bytes_text(arena).text,
                          z3d_bytes_text(least).text,
                          least > 0 ? 100.0 * (double)(arena - least) / (double)least : 0.0);
    }
}

/* Gathers of P_a, and of inputs that other pipeline stages sent in parts, add to the tensor group's
 * communication: for each block b s h to the 10 b s h (12 with replay: full) that it sends without
 * them, each x (t-1)/t. */
static void print_partitioning(const z3d_program *program, z3d_string *out) {
    int64_t extra = 0, blocks = 0;
    for (int i = 0; i < program->num_instructions; i++) {
        const z3d_instruction *in = &program->instruction[i];
        int64_t volume = z3d_instruction_volume(program, i, Z3D_ROLE_PARTS, true);
        if (in->opcode == Z3D_OP_GATHER_INPUT || in->opcode == Z3D_OP_GATHER_INPUT_GRADIENT)
            extra += volume;
        else if (in->unit >= 0 && program->model->unit[in->unit].checkpoint)
            blocks += volume;
    }
    if (extra > 0)
        z3d_string_append(out, "    of them %-11s %16lld  = %.1f %% more than %s otherwise\n",
                          program->layout->stages > 1 ? "gathers" : "P_a", (long long)extra,
                          100.0 * (double)extra / (double)blocks,
                          program->layout->stages > 1 ? "blocks send"
                                                      : "the recomputed units send");
}

/* Elements that travel in another type than they are stored in. */
static void print_encoded(const z3d_program *program, z3d_axes axes, z3d_string *out) {
    int64_t volume = 0;
    for (int i = 0; i < program->num_instructions; i++)
        if (z3d_instruction_wire(program, &program->instruction[i]) != Z3D_F32)
            volume += z3d_instruction_volume(program, i, axes, false);
    if (volume > 0)
        z3d_string_append(out, "    of them in %-8s %16lld\n", z3d_dtype_name(program->config.wire),
                          (long long)volume);
}

/* A bucket size above the largest group has no effect. */
static void print_buckets(const z3d_plan *plan, z3d_string *out) {
    const z3d_program_config *c = &plan->program_config;
    int64_t largest = z3d_layout_largest(plan->set.layout);
    if (z3d_mesh_size(&plan->mesh, Z3D_ROLE_ROWS) == 1) return;
    const int64_t bucket[] = {c->reduce_bucket, c->gather_bucket};
    static const char *const name[] = {"reduce bucket", "gather bucket"};
    for (int k = 0; k < 2; k++)
        z3d_string_append(
            out, "  %-21s %16s  elements at most; the largest group has %s%s\n", name[k],
            z3d_count_text((double)bucket[k]).text, z3d_count_text((double)largest).text,
            bucket[k] >= largest ? ": one bucket a group" : "; with NCCL each bucket is copied");
}

static void print_communication(const z3d_plan *plan, z3d_string *out) {
    const z3d_program *program = plan->set.program[Z3D_MODE_TRAIN];
    z3d_string_append(out, "\ncommunication a step    %16s\n", "elements sent");
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++) {
        if (!z3d_axes_have_group(&plan->mesh, (z3d_axes)axes) || axes == Z3D_AXES_WORLD ||
            z3d_mesh_size(&plan->mesh, (z3d_axes)axes) < 2)
            continue;
        int64_t volume = z3d_program_volume(program, axes, true);
        if (axes == Z3D_ROLE_ROWS && z3d_mesh_size(&plan->mesh, Z3D_ROLE_NODES) > 1) continue;
        double p = (double)plan->set.layout->padded_total;
        int size = z3d_mesh_size(&plan->mesh, axes);
        z3d_string_append(out, "  %-21s %16lld", z3d_axes_name(axes).text, (long long)volume);
        if (axes == Z3D_ROLE_ROWS)
            z3d_string_append(out, "  = %.4g P (N-1)/N with N = %d",
                              (double)volume / p * size / (size - 1), size);
        z3d_string_append(out, "\n");
        print_encoded(program, (z3d_axes)axes, out);
        if (axes == Z3D_ROLE_PARTS) print_partitioning(program, out);
    }
    print_buckets(plan, out);
    if (z3d_mesh_size(&plan->mesh, Z3D_AXES_WORLD) == 1)
        z3d_string_append(out, "  none: one rank\n");
}

static void print_work(const z3d_plan *plan, z3d_string *out) {
    const z3d_program_config *c = &plan->program_config;
    const z3d_model_facts *facts = &plan->model->facts;
    const int stage = z3d_mesh_index(&plan->mesh, Z3D_ROLE_STAGES, plan->mesh.rank);
    double tokens =
        (double)(plan->set.config.micro_batch * c->accumulation) * (double)facts->tokens;
    double formula =
        facts->flops.step * tokens / z3d_mesh_size(&plan->mesh, Z3D_ROLE_PARTS | Z3D_ROLE_STAGES);
    z3d_string_append(out,
                      "\n"
                      "work a step\n"
                      "  %-21s %16s  (model FLOPs by the formula%s: %s)\n",
                      "FLOPs", z3d_count_text(plan->stage[stage].flops).text,
                      plan->set.layout->stages > 1 ? ", average of the pipeline stages" : "",
                      z3d_count_text(formula).text);
    for (int mode = 0; mode < Z3D_MODE_COUNT; mode++) {
        const z3d_program *program = plan->set.program[mode];
        if (program)
            z3d_string_append(out, "  %-21s %16d  instructions, %d buffers\n",
                              z3d_mode_name((z3d_mode)mode), program->num_instructions,
                              program->num_buffers);
    }
    const char *classes = plan->set.layout->stages > 1
                              ? "and one of each pipeline stage, which stands for its ranks"
                              : "of which one stands for all ranks: they differ in the rank only";
    z3d_string_append(out, "  verified: these programs, %s\n",
                      plan->set.classes ? classes
                                        : "and the programs of all ranks against each other");
}

void z3d_plan_print(const z3d_plan *plan, bool print_program, z3d_string *out) {
    print_model(plan, out);
    print_memory(plan, out);
    print_communication(plan, out);
    z3d_plan_print_stages(plan, out);
    print_work(plan, out);
    if (print_program) {
        z3d_string_append(out, "\n");
        z3d_program_print(plan->set.program[Z3D_MODE_TRAIN], out);
    }
}
