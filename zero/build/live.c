/* Gathered parameters: their buffers, which ones stay for later work (reuse_distance,
 * gather_per_step), and the limit of their elements (config.max_live). */
#include "zero/build/builder.h"

int z3d_builder_whole_buffer(struct builder *b, int g) {
    const z3d_program *p = b->program;
    if (!b->group[g].decided.gather_each_use)
        return z3d_program_group_buffer(p, g, Z3D_STATE_VALUE);
    return z3d_builder_buffer(b, Z3D_CATEGORY_TEMPORARY,
                              z3d_bytes_of(p->config.dtype, p->layout->group[g].padded), "gathered",
                              p->model->group[g].name, -1);
}

bool z3d_builder_keeps_block(const struct builder *b, int g) {
    return b->program->layout->group[g].state[Z3D_STATE_SECONDARY].kinds != 0;
}

int z3d_builder_block_buffer(struct builder *b, int g) {
    const z3d_program *p = b->program;
    if (z3d_builder_keeps_block(b, g)) return z3d_program_group_buffer(p, g, Z3D_STATE_SECONDARY);
    return z3d_builder_whole_buffer(b, g);
}

/* Elements of the groups that work number `at` reads and the work before it does not read. */
static int64_t coming(const struct builder *b, int at) {
    const z3d_unit *unit = &b->program->model->unit[b->work[at].unit];
    int64_t elements = 0;
    for (int s = 0; s < unit->num_groups; s++) {
        const int g = unit->group[s];
        if (b->group[g].decided.gather_each_use && z3d_builder_reads_group(b, at, g) &&
            !z3d_builder_reads_group(b, at - 1, g))
            elements += b->program->layout->group[g].padded;
    }
    return elements;
}

/* The number of the next work that reads group g; -1: g does not stay. It stays if the next work
 * reads it, if fewer than config.reuse_distance elements of other groups are read before its next
 * use, or with gather_per_step. */
static int stays_for(const struct builder *b, int at, int g) {
    const z3d_program_config *c = &b->program->config;
    const int64_t most = c->pipeline.gather_per_step ? INT64_MAX : c->reuse_distance;
    int64_t others = 0;
    for (int next = at + 1; next <= b->group[g].last_reader; next++) {
        if (next > at + 1 && others >= most) return -1;
        if (z3d_builder_reads_group(b, next, g)) return next;
        others += coming(b, next);
    }
    return -1;
}

static void release(struct builder *b, int g) {
    z3d_instruction *i = z3d_builder_emit_group(b, Z3D_OP_RELEASE_PARAMS, Z3D_PHASE_WHOLE, NULL, g);
    i->buffer[Z3D_SLOT_PARAMETERS] = b->group[g].parameters;
    b->group[g].parameters = b->group[g].block = -1;
}

void z3d_builder_release_after(struct builder *b, int at) {
    const z3d_unit *unit = &b->program->model->unit[b->work[at].unit];
    for (int s = 0; s < unit->num_groups; s++) {
        const int g = unit->group[s];
        struct group_state *group = &b->group[g];
        if (!group->decided.gather_each_use || !z3d_builder_reads_group(b, at, g)) continue;
        group->wanted = stays_for(b, at, g);
        if (group->wanted < 0) release(b, g);
    }
}

/* Whether a buffer for all rows of group g's parameters is in use. hpZ's block is in a buffer of
 * its own, which persists. */
static bool is_live(const struct builder *b, int g) {
    const struct group_state *group = &b->group[g];
    if (!group->decided.gather_each_use) return false;
    if (z3d_builder_keeps_block(b, g)) return group->parameters >= 0;
    return group->parameters >= 0 || group->block >= 0 || group->parameters_in.left == ON_LAST_LEG;
}

/* Elements of all gathered groups, and of those that work number `at` must still gather. */
static int64_t live_with(const struct builder *b, int at) {
    int64_t elements = 0;
    for (int g = 0; g < b->program->model->num_groups; g++) {
        const bool missing =
            b->group[g].decided.gather_each_use && z3d_builder_reads_group(b, at, g);
        if (missing || is_live(b, g)) elements += b->program->layout->group[g].padded;
    }
    return elements;
}

/* The gathered group whose next reader comes latest, if after work number `at`; -1: none. */
static int wanted_last(const struct builder *b, int at) {
    int last = -1;
    for (int g = 0; g < b->program->model->num_groups; g++) {
        const struct group_state *group = &b->group[g];
        if (is_live(b, g) && group->parameters >= 0 && group->gathering < 0 &&
            group->wanted > (last < 0 ? at : b->group[last].wanted))
            last = g;
    }
    return last;
}

bool z3d_builder_make_room(struct builder *b, int at) {
    const int64_t most = b->program->config.max_live;
    if (most == 0 || most >= b->program->layout->padded_total) return true;
    while (at < b->num_work && live_with(b, at) > most) {
        const int g = wanted_last(b, at);
        if (g < 0) return false;
        release(b, g);
    }
    return true;
}
