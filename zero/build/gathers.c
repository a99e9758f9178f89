/* Parameters: gathered before use, ahead of it, at the start of a step; released after it. In parts
 * a gather has two halves: over the nodes, then over the ranks of a node. */
#include "zero/build/builder.h"

z3d_axes z3d_builder_axes(const struct builder *b, int g, z3d_axes part) {
    return b->group[g].decided.in_parts ? part : b->program->layout->group[g].shard_axes;
}

/* The buffer for all rows of group g's parameters. */
static int whole_parameters(struct builder *b, int g) {
    const z3d_program *p = b->program;
    if (!b->group[g].decided.gather_each_use)
        return z3d_program_group_buffer(p, g, Z3D_STATE_VALUE);
    return z3d_builder_buffer(b, Z3D_CATEGORY_TEMPORARY,
                              z3d_bytes_of(p->config.dtype, p->layout->group[g].padded), "gathered",
                              p->model->group[g].name, -1);
}

/* Of hpZ the secondary value's, which persists; else the group's whole parameters. */
int z3d_builder_block_buffer(struct builder *b, int g) {
    const z3d_program *p = b->program;
    if (p->layout->group[g].state[Z3D_STATE_SECONDARY].kinds)
        return z3d_program_group_buffer(p, g, Z3D_STATE_SECONDARY);
    return whole_parameters(b, g);
}

/* All gathers of this group's parameters copy their own rows from where these are kept, unless they
 * lie there already. */
static struct matrix_move gather_of(const struct builder *b, int g, z3d_axes axes, int buffer,
                                    int from) {
    if (from == buffer || z3d_builder_fetches(b, g)) from = -1;
    return (struct matrix_move){Z3D_OP_GATHER_PARAMS, axes, g, -1, buffer, from};
}

static void widen(struct builder *b, int g, z3d_phase phase) {
    const int own = z3d_program_group_buffer(b->program, g, Z3D_STATE_VALUE);
    z3d_builder_emit_buckets(b, phase, &b->group[g].widening,
                             gather_of(b, g, Z3D_ROLE_NODES, b->group[g].block, own));
}

/* In parts: the first half of a gather, over the nodes, fills this rank's block. */
static void start_widening(struct builder *b, int g) {
    struct group_state *group = &b->group[g];
    if (!group->decided.in_parts || group->block >= 0) return;
    group->block = z3d_builder_fetches(b, g) ? z3d_builder_fetch(b, g, ARRIVED)
                                             : z3d_builder_block_buffer(b, g);
    if (!group->fresh) widen(b, g, Z3D_PHASE_START);
}

static void wait_widening(struct builder *b, int g) {
    struct group_state *group = &b->group[g];
    if (!group->decided.in_parts || group->fresh) return;
    widen(b, g, Z3D_PHASE_WAIT);
    group->fresh = b->program->layout->group[g].state[Z3D_STATE_SECONDARY].kinds != 0;
}

static void gather(struct builder *b, int g, z3d_phase phase) {
    const int from = b->group[g].decided.in_parts
                         ? b->group[g].block
                         : z3d_program_group_buffer(b->program, g, Z3D_STATE_VALUE);
    z3d_builder_emit_buckets(
        b, phase, &b->group[g].gathering,
        gather_of(b, g, z3d_builder_axes(b, g, Z3D_ROLE_BLOCKS), b->group[g].parameters, from));
}

static void start_gather(struct builder *b, int g) {
    struct group_state *group = &b->group[g];
    start_widening(b, g);
    wait_widening(b, g);
    if (group->decided.in_parts && !b->program->layout->group[g].state[Z3D_STATE_SECONDARY].kinds) {
        group->parameters = group->block;
    } else if (z3d_builder_fetches(b, g)) { /* its own row is there */
        group->parameters = z3d_builder_fetch(b, g, ARRIVED);
    } else {
        group->parameters = whole_parameters(b, g);
    }
    gather(b, g, Z3D_PHASE_START);
}

static void wait_gather(struct builder *b, int g) {
    gather(b, g, Z3D_PHASE_WAIT);
    b->group[g].gathering = -1;
}

/* For the groups that work `step` reads and that are not there yet: starts their gathers, or of
 * those in parts the first half. */
static void start_for(struct builder *b, int step, void (*start)(struct builder *b, int g)) {
    if (step >= b->num_work) return;
    const z3d_unit *unit = &b->program->model->unit[b->work[step].unit];
    for (int s = 0; s < unit->num_groups; s++)
        if (b->group[unit->group[s]].parameters < 0 &&
            z3d_builder_reads_group(b, step, unit->group[s]))
            start(b, unit->group[s]);
}

static bool widens(const struct builder *b) {
    return b->program->layout->group[0].block > 1;
}

/* The next work of another unit. */
static int next_unit(const struct builder *b, int step) {
    int next = step + 1;
    while (next < b->num_work && step < b->num_work && b->work[next].unit == b->work[step].unit)
        next++;
    return next;
}

/* What is kept elsewhere, and that work `step` will gather, sets out or goes on. */
static void fetch_for(struct builder *b, int step, int left) {
    const z3d_unit *unit = &b->program->model->unit[b->work[step].unit];
    for (int s = 0; s < unit->num_groups; s++) {
        int g = unit->group[s];
        if (z3d_builder_fetches(b, g) && b->group[g].parameters < 0 && b->group[g].block < 0 &&
            z3d_builder_reads_group(b, step, g))
            z3d_builder_fetch(b, g, left);
    }
}

/* Elements of the matrices that work `step` gathers; fetched: of what is kept elsewhere. */
static int64_t gathered_elements(const struct builder *b, int step, bool fetched) {
    const z3d_unit *unit = &b->program->model->unit[b->work[step].unit];
    int64_t elements = 0;
    for (int s = 0; s < unit->num_groups; s++) {
        const int g = unit->group[s];
        const bool counts =
            fetched ? z3d_builder_fetches(b, g) : b->group[g].decided.gather_each_use;
        if (counts && z3d_builder_reads_group(b, step, g))
            elements += b->program->layout->group[g].padded;
    }
    return elements;
}

/* Of the units from work `step` on, the first sets out or goes on, and those behind it that make no
 * more than config.prefetch elements with it. Gives the work behind them. Behind as many units as
 * there are, the same come again. */
static int fetch_ahead(struct builder *b, int step, int left) {
    int64_t elements = 0;
    for (int n = 0; n < b->program->model->num_units && step < b->num_work; n++) {
        elements += gathered_elements(b, step, true);
        if (n > 0 && elements > b->program->config.prefetch) break;
        fetch_for(b, step, left);
        step = next_unit(b, step);
    }
    return step;
}

/* Starts the gathers of the units after work `step`: of the next one, and of those behind it that
 * make no more than config.gather_ahead elements with it. Gives the work behind them. */
static int gather_ahead(struct builder *b, int step) {
    const int64_t most = b->program->config.gather_ahead;
    int64_t elements = 0;
    int next = next_unit(b, step);
    for (int n = 0; n < b->program->model->num_units && next < b->num_work; n++) {
        elements += gathered_elements(b, next, false);
        if (n > 0 && (most == 0 || elements > most)) break;
        start_for(b, next, start_gather);
        next = next_unit(b, next);
    }
    return next;
}

/* Before work `step`: what it reads is there, and what the next one reads is on its way. */
void z3d_builder_gather_before(struct builder *b, int step) {
    const z3d_unit *unit = &b->program->model->unit[b->work[step].unit];
    if (widens(b) && b->program->config.overlap) { /* of the first work; later ones' are there */
        start_for(b, step, start_widening);
        start_for(b, next_unit(b, step), start_widening);
    }
    start_for(b, step, start_gather);
    for (int s = 0; s < unit->num_groups; s++)
        if (b->group[unit->group[s]].gathering >= 0 &&
            z3d_builder_reads_group(b, step, unit->group[s]))
            wait_gather(b, unit->group[s]);
    if (!b->program->config.overlap) return;
    int next = gather_ahead(b, step); /* travels while this computes */
    if (widens(b)) {
        start_for(b, next, start_widening);
        next = next_unit(b, next);
    }
    if (b->program->config.offload.parameters == Z3D_SPACE_DEVICE) return;
    int fetched = fetch_ahead(b, next, ON_LAST_LEG);
    fetch_ahead(b, fetched, ON_LEG_BEFORE);
}

/* By what comes next, or, where parameters are gathered once a step, by anything. */
static bool is_read_later(const struct builder *b, int step, int g) {
    if (b->program->config.pipeline.gather_per_step) return step < b->group[g].last_reader;
    return z3d_builder_reads_group(b, step + 1, g);
}

void z3d_builder_release_after(struct builder *b, int step) {
    const z3d_unit *unit = &b->program->model->unit[b->work[step].unit];
    for (int s = 0; s < unit->num_groups; s++) {
        int g = unit->group[s];
        if (!b->group[g].decided.gather_each_use) continue;
        if (!z3d_builder_reads_group(b, step, g) || is_read_later(b, step, g)) continue;
        z3d_instruction *i =
            z3d_builder_emit_group(b, Z3D_OP_RELEASE_PARAMS, Z3D_PHASE_WHOLE, NULL, g);
        i->buffer[Z3D_SLOT_PARAMETERS] = b->group[g].parameters;
        b->group[g].parameters = b->group[g].block = -1;
    }
}

/* At the start of a step, in the order of first use, so that they overlap the forward. */
void z3d_builder_gather_at_start(struct builder *b) {
    const z3d_program *p = b->program;
    for (int step = 0; step < b->num_work; step++) {
        const z3d_unit *unit = &p->model->unit[b->work[step].unit];
        for (int s = 0; s < unit->num_groups; s++) {
            int g = unit->group[s];
            if (!b->group[g].decided.gather_at_start || b->group[g].parameters >= 0 ||
                !z3d_builder_reads_group(b, step, g))
                continue;
            if (b->group[g].decided.in_parts && p->config.overlap) {
                start_widening(b, g); /* the other half comes before its first use */
                continue;
            }
            start_gather(b, g);
            if (!p->config.overlap) wait_gather(b, g);
        }
    }
}
