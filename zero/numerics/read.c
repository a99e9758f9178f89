/* Reads the sums of a training step from its programs: runs each list with terms in place of
 * numbers. The verifier proves that all columns of a buffer have the same history, so the first
 * columns stand for all. */
#include <stdlib.h>

#include "zero/numerics.h"
#include "zero/program.h"
#include "zero/program/layout.h"
#include "zero/program/pipeline.h"

typedef struct reader {
    z3d_terms *terms;
    const z3d_program *program;
    int groups;
    int *value; /* by buffer: the term of its gradients, -1: none */
    int *sent;  /* by pipeline stage and group: the sum that it sends, -1: not known (yet) */
    z3d_numerics *out;
} reader;

static int add(reader *r, int x, int y) {
    return z3d_terms_find(r->terms, (z3d_term){Z3D_TERM_ADD, x, y, 0});
}

int z3d_unit_part(const z3d_model *model, int group, int unit) {
    int before = 0;
    for (int u = 0; u < unit && group >= 0; u++)
        for (int s = 0; s < model->unit[u].num_groups; s++) {
            if (model->unit[u].group[s] != group) continue;
            if (model->unit[u].kind == model->unit[unit].kind) return before;
            before++;
        }
    return before;
}

static int part_of(reader *r, const z3d_instruction *in, int group) {
    int part = z3d_unit_part(r->program->model, group, in->unit);
    return z3d_terms_find(r->terms, (z3d_term){Z3D_TERM_PART, part, in->micro, 0});
}

/* The last unit's forward adds the loss of a micro-batch. */
static void read_forward(reader *r, const z3d_instruction *in) {
    if (!z3d_model_is_last(r->program->model, in->unit)) return;
    int part = part_of(r, in, -1);
    r->out->loss = r->out->loss < 0 ? part : add(r, r->out->loss, part);
}

static void read_backward(reader *r, const z3d_instruction *in) {
    const z3d_unit *unit = &r->program->model->unit[in->unit];
    for (int s = 0; s < unit->num_groups; s++) {
        int buffer = in->buffer[z3d_slot_gradients(s)];
        if (buffer < 0) continue;
        int part = part_of(r, in, unit->group[s]);
        r->value[buffer] =
            in->accumulate >> s & 1
                ? z3d_terms_find(r->terms, (z3d_term){Z3D_TERM_INTO, r->value[buffer], part, 0})
                : part;
    }
}

static int over(reader *r, const z3d_instruction *in, z3d_term_kind kind, z3d_axes axes,
                int value) {
    return z3d_terms_find(r->terms,
                          (z3d_term){kind, value, axes, z3d_instruction_wire(r->program, in)});
}

static int received(reader *r, const z3d_instruction *in) {
    int sum = r->sent[in->peer * r->groups + in->group];
    return sum >= 0 ? sum : z3d_terms_find(r->terms, (z3d_term){Z3D_TERM_TWIN, in->group, 0, 0});
}

static void read_gradients(reader *r, const z3d_instruction *in) {
    const z3d_opcode_info *info = z3d_opcode_info_of(in->opcode);
    int from = info->from < Z3D_SLOT_COUNT ? in->buffer[info->from] : -1;
    int to = info->to < Z3D_SLOT_COUNT ? in->buffer[info->to] : -1;
    switch (info->rules) {
    case Z3D_CLASS_REDUCE_SCATTER:
        r->value[to] = over(r, in, Z3D_TERM_REDUCE,
                            in->axes == Z3D_ROLE_ROWS ? Z3D_AXES_NONE : in->axes, r->value[to]);
        break;
    case Z3D_CLASS_ALL_REDUCE:
        r->value[to] = over(r, in, info->over == Z3D_OVER_COPY ? Z3D_TERM_COPIES : Z3D_TERM_TENSOR,
                            Z3D_AXES_NONE, r->value[to]);
        break;
    case Z3D_CLASS_SUM:
        r->value[to] = in->accumulate ? add(r, r->value[to], r->value[from]) : r->value[from];
        break;
    case Z3D_CLASS_COPY:
        r->value[to] = r->value[from];
        break;
    case Z3D_CLASS_SEND:
        r->sent[r->program->layout->stage * r->groups + in->group] = r->value[from];
        break;
    case Z3D_CLASS_RECV:
        r->value[to] = received(r, in);
        break;
    default: /* all-gathers bring the others' rows, which have the same history */
        break;
    }
}

static void read_entry(reader *r, const z3d_instruction *in) {
    const z3d_opcode_info *info = z3d_opcode_info_of(in->opcode);
    if (in->phase == Z3D_PHASE_WAIT || (in->group >= 0 && in->first > 0)) return;
    switch (info->rules) {
    case Z3D_CLASS_FORWARD:
        read_forward(r, in);
        break;
    case Z3D_CLASS_BACKWARD:
    case Z3D_CLASS_BACKWARD_WEIGHT:
        read_backward(r, in);
        break;
    case Z3D_CLASS_OPTIMIZER:
        r->out->gradient[in->group] = r->value[in->buffer[Z3D_SLOT_SHARD]];
        break;
    case Z3D_CLASS_HOST_OPTIMIZER:
        r->out->gradient[in->group] = r->value[in->buffer[Z3D_SLOT_INPUT]];
        break;
    default:
        if (info->moves == Z3D_MOVES_GRADIENTS) read_gradients(r, in);
    }
}

/* A delayed update applies the previous step's gradients, so two steps are read. */
static z3d_status read_program(reader *r) {
    const z3d_program *p = r->program;
    const int steps = p->config.offload.delayed ? 2 : 1;
    Z3D_TRY(z3d_new((size_t)p->num_buffers, sizeof *r->value, "sums", &r->value));
    for (int b = 0; b < p->num_buffers; b++) r->value[b] = -1;
    for (int step = 0; step < steps; step++) {
        if (z3d_layout_has_unit(p->layout, p->model->num_units - 1)) r->out->loss = -1;
        for (int i = 0; i < p->num_instructions; i++) read_entry(r, &p->instruction[i]);
    }
    free(r->value);
    return r->terms->status;
}

/* Reads the program of a pipeline stage's first rank. */
static z3d_status read_stage(reader *r, const z3d_traces *traces, int stage) {
    const z3d_numerics *of = r->out;
    z3d_program_config config = of->config;
    z3d_mesh mesh = of->mesh;
    z3d_layout *layout = NULL;
    z3d_program *program = NULL;
    mesh.rank = z3d_mesh_member(&mesh, Z3D_ROLE_STAGES, 0, stage);
    config.micro_batch = z3d_samples_of(&config, &mesh);
    z3d_status status = z3d_layout_create(of->model, &mesh, &config, &layout);
    if (status == Z3D_OK)
        status =
            z3d_program_build(of->model, layout, traces, &mesh, &config, Z3D_MODE_TRAIN, &program);
    r->program = program;
    if (status == Z3D_OK) status = read_program(r);
    z3d_program_destroy(program);
    z3d_layout_destroy(layout);
    return status;
}

/* Two turns: the first learns what each stage sends, the second what each receives. */
static z3d_status read_stages(reader *r) {
    const int stages = r->out->layout->stages, times = stages > 1 ? 2 : 1;
    z3d_traces *traces = NULL;
    Z3D_TRY(z3d_new((size_t)stages * (size_t)r->groups, sizeof *r->sent, "sums", &r->sent));
    for (int i = 0; i < stages * r->groups; i++) r->sent[i] = -1;
    z3d_status status =
        z3d_traces_record(r->out->model, r->out->layout, &r->out->config, 1, &traces);
    for (int turn = 0; turn < times; turn++)
        for (int stage = 0; stage < stages && status == Z3D_OK; stage++)
            status = read_stage(r, traces, stage);
    z3d_traces_destroy(traces);
    free(r->sent);
    return status;
}

z3d_status z3d_numerics_read(z3d_terms *terms, const z3d_model *model, const z3d_mesh *mesh,
                             const z3d_program_config *config, z3d_numerics *out) {
    reader r = {.terms = terms, .groups = model->num_groups, .out = out};
    z3d_timetables *timetables = NULL;
    *out = (z3d_numerics){.model = model, .mesh = *mesh, .config = *config};
    out->mesh.rank = 0;
    Z3D_TRY(z3d_layout_create(model, &out->mesh, config, &out->layout));
    Z3D_TRY(z3d_new((size_t)model->num_groups, sizeof *out->gradient, "sums", &out->gradient));
    if (!config->pipeline.timetables)
        Z3D_TRY(z3d_timetables_create(config, out->layout->stages, &timetables));
    if (timetables) out->config.pipeline.timetables = timetables;
    z3d_status status = read_stages(&r);
    z3d_timetables_destroy(timetables);
    out->config.pipeline.timetables = NULL;
    if (status == Z3D_OK) /* over all data ranks */
        out->loss = z3d_terms_find(terms, (z3d_term){Z3D_TERM_REDUCE, out->loss, 0, 0});
    return status == Z3D_OK ? terms->status : status;
}

void z3d_numerics_release(z3d_numerics *numerics) {
    z3d_layout_destroy(numerics->layout);
    free(numerics->gradient);
    *numerics = (z3d_numerics){0};
}
