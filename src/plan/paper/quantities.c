/* Predicts the numbers of a published run. */
#include "src/plan/paper/paper.h"

#include <math.h>
#include <stdlib.h>

const char *const z3d_quantities[Z3D_Q_COUNT] = {
#define X(name) #name,
    Z3D_QUANTITIES(X)
#undef X
};

/* ---- memory ---- */

/* The most that forward passes leave for backward on this rank: bytes of activations; blocks after
 * their forward and before their backward. */
typedef struct left {
    double bytes;
    int blocks;
} left;

static bool is_block(const z3d_case *of, const z3d_sim_entry *entry) {
    return entry->unit > 0 && entry->unit < of->model->num_units - 1;
}

static z3d_status find_left(const z3d_case *of, left *out) {
    const z3d_program *program = z3d_engine_program(of->simulation->engine, Z3D_MODE_TRAIN);
    const z3d_sim_stage *stage = &of->simulation->stage[of->simulation->own];
    int64_t *change, alive = 0;
    int blocks = 0;
    *out = (left){0};
    Z3D_TRY(z3d_new((size_t)program->num_instructions + 1, sizeof *change, "memory over a step",
                    &change));
    for (int i = 0; i < program->num_buffers; i++) {
        const z3d_buffer *b = &program->buffer[i];
        if (b->space != Z3D_SPACE_DEVICE || b->category != Z3D_CATEGORY_ACTIVATIONS) continue;
        change[b->first] += b->bytes;
        change[b->last] -= b->bytes; /* the last instruction frees it */
    }
    for (int i = 0; i < stage->num_entries; i++) {
        const z3d_sim_entry *entry = &stage->entry[i];
        const bool forward = entry->opcode == Z3D_OP_FORWARD;
        alive += change[i];
        if (forward && (double)alive > out->bytes) out->bytes = (double)alive;
        if (!is_block(of, entry)) continue;
        blocks += forward;
        blocks -= entry->opcode == Z3D_OP_BACKWARD || entry->opcode == Z3D_OP_BACKWARD_INPUT;
        out->blocks = blocks > out->blocks ? blocks : out->blocks;
    }
    free(change);
    return Z3D_OK;
}

/* ---- passes ---- */

/* Times of passes. stage: begin of the first, end of the last, and sum of all passes. forward,
 * backward: number and seconds over all blocks. */
enum { MOST_STAGES = 1024 };
typedef struct passes {
    const z3d_case *of;
    struct {
        double begin, end, busy;
    } stage[MOST_STAGES];
    struct {
        double seconds;
        int count;
    } forward, backward;
} passes;

/* Recomputation counts as backward. */
static void take_block(passes *p, z3d_opcode opcode, double seconds) {
    if (opcode == Z3D_OP_FORWARD) {
        p->forward.seconds += seconds;
        p->forward.count++;
    } else {
        p->backward.seconds += seconds;
        p->backward.count += opcode == Z3D_OP_BACKWARD || opcode == Z3D_OP_BACKWARD_INPUT;
    }
}

static void take_pass(void *context, const z3d_span *span) {
    passes *p = context;
    if (span->kind != Z3D_SPAN_INSTRUCTION || span->instruction < 0) return;
    const z3d_sim_entry *entry = &p->of->simulation->stage[span->stage].entry[span->instruction];
    if (!z3d_sim_is_pass(entry->opcode)) return;
    if (p->stage[span->stage].busy == 0) p->stage[span->stage].begin = span->begin;
    p->stage[span->stage].end = span->end;
    p->stage[span->stage].busy += span->end - span->begin;
    if (is_block(p->of, entry)) take_block(p, entry->opcode, span->end - span->begin);
}

static double mean_ms(double seconds, int count) {
    return count > 0 ? 1e3 * seconds / count : 0;
}

/* The bubble of arXiv 2401.10241: (cost - passes) / cost, of the stage with the largest cost. */
static double bubble_of(const passes *p) {
    double cost = 0, busy = 0;
    for (int s = 0; s < p->of->simulation->stages; s++) {
        double took = p->stage[s].end - p->stage[s].begin;
        if (took <= cost) continue;
        cost = took;
        busy = p->stage[s].busy;
    }
    return cost > 0 ? 1 - busy / cost : 0;
}

/* ---- all quantities ---- */

static void find_memory(const z3d_case *of, const z3d_estimate *e, const left *forward,
                        double kept_per_element, z3d_predicted *out) {
    const double gib = 1.0 / (1 << 30);
    const z3d_ledger *ledger = z3d_engine_planned(of->simulation->engine, Z3D_SPACE_DEVICE);
    const double tokens = (double)of->program.micro_batch * (double)of->model->facts.tokens;
    const double kept = gib * kept_per_element * tokens * forward->blocks;
    out->value[Z3D_Q_states_gib] =
        gib * (double)(ledger->peak[Z3D_CATEGORY_PARAMETERS] +
                       ledger->peak[Z3D_CATEGORY_GRADIENTS] + ledger->peak[Z3D_CATEGORY_OPTIMIZER]);
    out->own[Z3D_Q_activations_gib] = gib * forward->bytes;
    out->value[Z3D_Q_activations_gib] = out->own[Z3D_Q_activations_gib] + kept;
    out->own[Z3D_Q_memory_gib] = gib * (double)e->memory.arena;
    out->value[Z3D_Q_memory_gib] = out->own[Z3D_Q_memory_gib] + kept;
    out->value[Z3D_Q_fits] = e->fullest.fits;
}

z3d_status z3d_quantities_find(const z3d_case *of, const z3d_hardware *hardware, int hidden_size,
                               double kept_per_bsh, z3d_predicted *out) {
    z3d_estimate e;
    left forward;
    passes played = {.of = of};
    Z3D_TRY(z3d_estimate_make(of, hardware, 0, &(z3d_spans){take_pass, &played}, &e));
    Z3D_TRY(find_left(of, &forward));
    const double gpu_seconds = e.time.seconds * z3d_mesh_size(&of->mesh, Z3D_AXES_WORLD);
    for (int q = 0; q < Z3D_Q_COUNT; q++) out->own[q] = NAN;
    out->value[Z3D_Q_tflops_per_gpu] = e.tflops_96;
    out->value[Z3D_Q_model_tflops_per_gpu] = e.tflops_72;
    out->value[Z3D_Q_parameter_tflops_per_gpu] =
        8e-12 * (double)z3d_model_parameter_count(of->model) * e.tokens / gpu_seconds;
    out->value[Z3D_Q_seconds] = e.time.seconds;
    out->value[Z3D_Q_samples_per_gpu_s] = e.samples / gpu_seconds;
    out->value[Z3D_Q_tokens_per_gpu_s] = e.tokens / gpu_seconds;
    out->value[Z3D_Q_bubble] = bubble_of(&played);
    out->value[Z3D_Q_block_forward_ms] = mean_ms(played.forward.seconds, played.forward.count);
    out->value[Z3D_Q_block_backward_ms] = mean_ms(played.backward.seconds, played.backward.count);
    find_memory(of, &e, &forward, kept_per_bsh * hidden_size, out);
    return Z3D_OK;
}
