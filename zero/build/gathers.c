/* Gathers of parameters: right before a use, earlier, or at the start of a program. A gather in
 * parts has two halves: over the nodes, then over the ranks of a node. */
#include "zero/build/builder.h"

/* The gather copies this rank's rows from buffer `from`, unless they are already in `buffer`. */
static void set_buffers(const struct builder *b, struct matrix_move *move, int buffer, int from) {
    move->buffer = buffer;
    move->from = from == buffer || z3d_builder_fetches(b, move->group) ? -1 : from;
}

/* Starts the first half of gathers in parts: over the nodes, into this rank's row blocks. */
static void start_widening(struct builder *b, struct matrix_move *move, int count) {
    struct matrix_move half[Z3D_MAX_UNIT_GROUPS];
    int halves = 0;
    for (int n = 0; n < count; n++) {
        const int g = move[n].group;
        struct group_state *group = &b->group[g];
        if (!group->decided.in_parts || group->block >= 0) continue;
        group->block = z3d_builder_fetches(b, g) ? z3d_builder_fetch(b, g, ARRIVED)
                                                 : z3d_builder_block_buffer(b, g);
        if (group->fresh) continue;
        half[halves] = move[n];
        half[halves].axes = Z3D_ROLE_NODES;
        half[halves].under_way = &group->widening;
        set_buffers(b, &half[halves++], group->block,
                    z3d_program_group_buffer(b->program, g, Z3D_STATE_VALUE));
        group->fresh = z3d_builder_keeps_block(b, g);
    }
    z3d_builder_start(b, half, halves);
}

static void start_gather(struct builder *b, struct matrix_move *move, int count) {
    start_widening(b, move, count);
    for (int n = 0; n < count; n++) z3d_builder_wait(b, b->group[move[n].group].widening);
    for (int n = 0; n < count; n++) {
        const int g = move[n].group;
        struct group_state *group = &b->group[g];
        const bool in_parts = group->decided.in_parts;
        if (in_parts && !z3d_builder_keeps_block(b, g)) {
            group->parameters = group->block;
        } else if (z3d_builder_fetches(b, g)) { /* the fetch brings this rank's row */
            group->parameters = z3d_builder_fetch(b, g, ARRIVED);
        } else {
            group->parameters = z3d_builder_whole_buffer(b, g);
        }
        const int own = z3d_program_group_buffer(b->program, g, Z3D_STATE_VALUE);
        set_buffers(b, &move[n], group->parameters, in_parts ? group->block : own);
        move[n].under_way = &group->gathering;
    }
    z3d_builder_start(b, move, count);
}

typedef void start_function(struct builder *b, struct matrix_move *move, int count);

/* Calls `start` for the ungathered groups that work number `at` reads, once for each joined gather
 * or single group, so that it starts before the next group's fetch. */
static void start_some(struct builder *b, int at, bool at_start, start_function *start) {
    struct matrix_move move[Z3D_MAX_UNIT_GROUPS];
    if (at >= b->num_work) return;
    const z3d_unit *unit = &b->program->model->unit[b->work[at].unit];
    int count = 0;
    for (int s = 0; s < unit->num_groups; s++) {
        const int g = unit->group[s];
        if (b->group[g].parameters >= 0 || !z3d_builder_reads_group(b, at, g)) continue;
        if (at_start && !b->group[g].decided.gather_at_start) continue;
        b->group[g].wanted = at;
        move[count++] = (struct matrix_move){.opcode = Z3D_OP_GATHER_PARAMS,
                                             .axes = z3d_builder_axes(b, g, Z3D_ROLE_BLOCKS),
                                             .group = g,
                                             .micro = -1};
    }
    for (int n = 0, joined; n < count; n += joined) {
        joined = z3d_builder_joined(b, move + n, count - n);
        start(b, move + n, joined);
    }
}

/* The same ahead of time, if config.max_live allows it. */
static bool start_ahead(struct builder *b, int at, start_function *start) {
    if (!z3d_builder_make_room(b, at)) return false;
    start_some(b, at, false, start);
    return true;
}

static bool widens(const struct builder *b) {
    return b->program->layout->group[0].block > 1;
}

/* The next work of another unit. */
static int next_unit(const struct builder *b, int at) {
    int next = at + 1;
    while (next < b->num_work && at < b->num_work && b->work[next].unit == b->work[at].unit) next++;
    return next;
}

/* Advances the fetches of all groups that work number `at` must gather from host or disk. */
static void fetch_for(struct builder *b, int at, int left) {
    const z3d_unit *unit = &b->program->model->unit[b->work[at].unit];
    for (int s = 0; s < unit->num_groups; s++) {
        int g = unit->group[s];
        if (z3d_builder_fetches(b, g) && b->group[g].parameters < 0 && b->group[g].block < 0 &&
            z3d_builder_reads_group(b, at, g))
            z3d_builder_fetch(b, g, left);
    }
}

/* Elements of groups that are gathered for work number `at`; fetched: only from host or disk. */
static int64_t gathered_elements(const struct builder *b, int at, bool fetched) {
    const z3d_unit *unit = &b->program->model->unit[b->work[at].unit];
    int64_t elements = 0;
    for (int s = 0; s < unit->num_groups; s++) {
        const int g = unit->group[s];
        const bool counts =
            fetched ? z3d_builder_fetches(b, g) : b->group[g].decided.gather_each_use;
        if (counts && z3d_builder_reads_group(b, at, g))
            elements += b->program->layout->group[g].padded;
    }
    return elements;
}

/* Advances the fetches of work number `at`, and of the units after it while the sum is at most
 * config.prefetch elements. Returns the number of the work after them. */
static int fetch_ahead(struct builder *b, int at, int left) {
    int64_t elements = 0;
    for (int n = 0; n < b->program->model->num_units && at < b->num_work; n++) {
        elements += gathered_elements(b, at, true);
        if (n > 0 && elements > b->program->config.prefetch) break;
        if (left == ON_LAST_LEG && !z3d_builder_make_room(b, at)) break;
        fetch_for(b, at, left);
        at = next_unit(b, at);
    }
    return at;
}

/* Starts the gathers of the next unit, and of the units after it while the sum is at most
 * config.gather_ahead elements. Returns the number of the work after them. */
static int gather_ahead(struct builder *b, int at) {
    const int64_t most = b->program->config.gather_ahead;
    int64_t elements = 0;
    int next = next_unit(b, at);
    for (int n = 0; n < b->program->model->num_units && next < b->num_work; n++) {
        elements += gathered_elements(b, next, false);
        if (n > 0 && (most == 0 || elements > most)) break;
        if (!start_ahead(b, next, start_gather)) break;
        next = next_unit(b, next);
    }
    return next;
}

/* Starts the gathers of work number `at` and waits for them. With overlap it starts those of later
 * work, which run beside this work. */
void z3d_builder_gather_before(struct builder *b, int at) {
    const z3d_unit *unit = &b->program->model->unit[b->work[at].unit];
    z3d_builder_make_room(b, at);
    if (widens(b) && b->program->config.overlap) { /* usually begun already */
        start_some(b, at, false, start_widening);
        start_ahead(b, next_unit(b, at), start_widening);
    }
    start_some(b, at, false, start_gather);
    for (int s = 0; s < unit->num_groups; s++)
        if (b->group[unit->group[s]].gathering >= 0 &&
            z3d_builder_reads_group(b, at, unit->group[s]))
            z3d_builder_wait(b, b->group[unit->group[s]].gathering);
    if (!b->program->config.overlap) return;
    int next = gather_ahead(b, at); /* beside this work */
    if (widens(b) && start_ahead(b, next, start_widening)) next = next_unit(b, next);
    if (b->program->config.offload.parameters == Z3D_SPACE_DEVICE) return;
    int fetched = fetch_ahead(b, next, ON_LAST_LEG);
    fetch_ahead(b, fetched, ON_LEG_BEFORE);
}

/* With overlap, gathers in parts start only their first half. */
static void start_at_start(struct builder *b, struct matrix_move *move, int count) {
    const bool overlap = b->program->config.overlap;
    if (widens(b) && overlap) {
        start_widening(b, move, count);
        return;
    }
    start_gather(b, move, count);
    if (!overlap) z3d_builder_wait(b, b->group[move->group].gathering);
}

/* In the order of first use: with overlap they run beside the forward. */
void z3d_builder_gather_at_start(struct builder *b) {
    for (int at = 0; at < b->num_work; at++) start_some(b, at, true, start_at_start);
}
