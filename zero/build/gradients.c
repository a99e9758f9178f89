/* Gradients: reduced as soon as a group's backward is done, then kept, summed over copies,
 * gathered. */
#include <string.h>

#include "zero/build/builder.h"

/* ---- the buffers that backward writes ---- */

/* The sum that this unit's backward adds to. */
static struct sum_state *sum_of(const struct builder *b, struct work w, int g) {
    return &b->group[g].sum[z3d_layout_use(b->program->layout, w.unit, g)];
}

/* A group's first sum persists. A second one, of another chunk, does not. */
void z3d_builder_place_sums(struct builder *b) {
    z3d_program *p = b->program;
    for (int g = 0; g < p->model->num_groups; g++) {
        b->group[g].sum[0].kept = z3d_program_group_buffer(p, g, Z3D_STATE_GRADIENT);
        if (p->layout->group[g].second_chunk < 0 || p->mode != Z3D_MODE_TRAIN) continue;
        bool all = b->group[g].decided.reduce_kept; /* else it is a sum of reduced shards */
        const z3d_group_layout *layout = &p->layout->group[g];
        int64_t bytes = z3d_bytes_of(p->config.grad_dtype, all ? layout->padded : layout->shard);
        int second = z3d_builder_buffer(b, Z3D_CATEGORY_GRADIENTS, bytes, "second gradients",
                                        p->model->group[g].name, -1);
        if (second < 0) return;
        p->buffer[second].rows = all ? Z3D_ROWS_ALL : Z3D_ROWS_OWN;
        b->group[g].sum[1].kept = second;
    }
}

void z3d_builder_give_gradients(struct builder *b, struct work w, z3d_instruction *i,
                                const int gradients[Z3D_MAX_UNIT_GROUPS]) {
    const z3d_unit *unit = &b->program->model->unit[w.unit];
    for (int s = 0; s < unit->num_groups; s++) {
        if (gradients[s] < 0) continue;
        struct sum_state *sum = sum_of(b, w, unit->group[s]);
        i->buffer[z3d_slot_gradients(s)] = gradients[s];
        if (sum->written) i->accumulate |= UINT64_C(1) << s;
        sum->written = true;
    }
}

/* ---- reductions, sums ---- */

/* sum_copies and sum_replicated come after the last reduction: once a training step, on this
 * rank's row in every ZeRO stage. */
static void emit_sum(struct builder *b, z3d_opcode opcode, z3d_phase phase, int g) {
    z3d_instruction *i = z3d_builder_emit_group(b, opcode, phase, &b->group[g].summing, g);
    i->buffer[Z3D_SLOT_SHARD] = b->group[g].sum[0].kept;
}

/* Whether this rank's row must be summed over the copies of the states, or over the tensor group
 * (replicated parameters). */
static bool adds_up(const struct builder *b, int g) {
    return b->group[g].decided.sum_copies || b->group[g].decided.sum_replicated;
}

static void start_sum(struct builder *b, int g) {
    const bool copies = b->group[g].decided.sum_copies;
    emit_sum(b, copies ? Z3D_OP_SUM_COPIES : Z3D_OP_SUM_REPLICATED, Z3D_PHASE_START, g);
}

static void wait_sum(struct builder *b, int g) {
    if (b->group[g].decided.sum_copies) emit_sum(b, Z3D_OP_SUM_COPIES, Z3D_PHASE_WAIT, g);
    if (!b->group[g].decided.sum_replicated) return;
    if (b->group[g].decided.sum_copies) emit_sum(b, Z3D_OP_SUM_REPLICATED, Z3D_PHASE_START, g);
    emit_sum(b, Z3D_OP_SUM_REPLICATED, Z3D_PHASE_WAIT, g);
}

/* ---- gathers of reduced gradients ---- */

/* first: over the nodes, if the gather is in parts. The groups' gradients are complete at
 * different times, so their gathers are not joined. */
static void start_sharing(struct builder *b, int g, bool first) {
    const z3d_axes axes = z3d_builder_axes(b, g, first ? Z3D_ROLE_NODES : Z3D_ROLE_BLOCKS);
    const int kept = z3d_program_group_buffer(b->program, g, Z3D_STATE_GRADIENT);
    z3d_builder_start(
        b, &(struct matrix_move){Z3D_OP_GATHER_GRADS, axes, g, -1, kept, -1, &b->group[g].sharing},
        1);
}

/* After this rank's row is complete: it goes to host or disk, or all rows are gathered, or it stays
 * as it is. */
static void share_gradients(struct builder *b, int g) {
    if (z3d_gradients_leave(b->program->layout, g)) {
        z3d_instruction *i =
            z3d_builder_emit_group(b, Z3D_OP_SQUARE_GRADS, Z3D_PHASE_WHOLE, NULL, g);
        i->buffer[Z3D_SLOT_SHARD] = b->group[g].sum[0].kept;
        z3d_builder_store_sum(b, g);
    }
    if (b->group[g].decided.gather_gradients) start_sharing(b, g, true);
}

static void wait_sums(struct builder *b) {
    for (int i = 0; i < b->summing.count; i++) {
        wait_sum(b, b->summing.of[i]->group);
        share_gradients(b, b->summing.of[i]->group);
    }
    b->summing.count = 0;
}

static void add_started(struct started *started, struct sum_state *sum, int micro) {
    int at = 0;
    started->micro = micro;
    while (at < started->count && started->of[at]->group > sum->group) at++;
    for (int i = started->count++; i > at; i--) started->of[i] = started->of[i - 1];
    started->of[at] = sum;
}

/* Adds a micro-batch's reduced shard to the kept gradients. If the kept ones leave the device, the
 * first shard's buffer becomes the sum; later shards are added to the fetched sum. */
static void keep_shard(struct builder *b, struct sum_state *sum, int micro) {
    const int g = sum->group;
    bool leaves = z3d_gradients_leave(b->program->layout, g);
    if (leaves) sum->kept = micro > 0 ? z3d_builder_fetch_sum(b, g, ARRIVED) : sum->gradients;
    if (leaves && micro == 0) {
        sum->gradients = -1;
        return;
    }
    if (sum == &b->group[g].sum[0]) z3d_builder_step_before(b, g);
    z3d_instruction *i = z3d_builder_emit_group(b, Z3D_OP_KEEP_SHARD, Z3D_PHASE_WHOLE, NULL, g);
    i->micro = micro;
    i->buffer[Z3D_SLOT_GRADIENTS] = sum->gradients;
    i->buffer[Z3D_SLOT_SHARD] = sum->kept;
    i->accumulate = micro > 0;
    sum->gradients = -1;
}

/* Starts the reductions of one unit's groups, or their second halves. In parts the first half is
 * over the ranks of a node, the second half over the nodes. */
static void start_reductions(struct builder *b, struct sum_state *const *sums, int count, int micro,
                             bool first) {
    struct matrix_move move[Z3D_MAX_UNIT_GROUPS];
    for (int n = 0; n < count; n++) {
        struct sum_state *sum = sums[n];
        const int g = sum->group;
        const z3d_axes axes = z3d_builder_axes(b, g, first ? Z3D_ROLE_BLOCKS : Z3D_ROLE_NODES);
        int *under_way = first ? &sum->reducing : &sum->narrowing;
        move[n] = (struct matrix_move){Z3D_OP_REDUCE_GRADS, axes, g,        micro,
                                       sum->gradients,      -1,   under_way};
        sum->under_way = true;
    }
    if (first) b->reducing[b->num_reducing].count = 0;
    for (int at = 0, end = 0; at < count; at = end) {
        end += z3d_builder_joined(b, move + at, count - at);
        z3d_builder_start(b, move + at, end - at);
        for (int n = at; n < end; n++) {
            const int g = sums[n]->group;
            if (first && micro > 0 && b->program->config.overlap &&
                z3d_gradients_leave(b->program->layout, g))
                z3d_builder_fetch_sum(b, g, ON_LAST_LEG);
            add_started(first ? &b->reducing[b->num_reducing] : &b->narrowing, sums[n], micro);
        }
    }
}

/* After a reduction: keeps this rank's row. After the last micro-batch it may start sum_copies,
 * sum_replicated or a gather. */
static void end_reduction(struct builder *b, struct sum_state *sum, int micro) {
    z3d_program *p = b->program;
    const int g = sum->group;
    bool last = micro == p->config.accumulation - 1;
    sum->under_way = false;
    if (!b->group[g].decided.reduce_kept) keep_shard(b, sum, micro);
    if (!last && z3d_gradients_leave(b->program->layout, g)) z3d_builder_store_sum(b, g);
    if (!last || z3d_adds_two_sums(&p->layout->group[g])) return;
    if (adds_up(b, g)) {
        if (b->summing.count == Z3D_MAX_UNIT_GROUPS) wait_sums(b);
        start_sum(b, g);
        add_started(&b->summing, sum, micro);
    } else {
        share_gradients(b, g);
    }
}

static void wait_narrowings(struct builder *b) {
    for (int n = 0; n < b->narrowing.count; n++) {
        z3d_builder_wait(b, b->narrowing.of[n]->narrowing);
        end_reduction(b, b->narrowing.of[n], b->narrowing.micro);
    }
    b->narrowing.count = 0;
}

/* Ends the oldest reductions. Of those in parts it ends the first half and starts the second. */
static void end_oldest(struct builder *b) {
    const struct started *over = &b->reducing[0];
    struct sum_state *half[Z3D_MAX_UNIT_GROUPS];
    int halves = 0;
    wait_narrowings(b);
    for (int n = 0; n < over->count; n++) {
        struct sum_state *sum = over->of[n];
        if (sum->reducing >= 0) { /* before this wait, start second halves */
            start_reductions(b, half, halves, over->micro, false);
            halves = 0;
        }
        z3d_builder_wait(b, sum->reducing);
        if (b->group[sum->group].decided.in_parts)
            half[halves++] = sum;
        else
            end_reduction(b, sum, over->micro);
    }
    start_reductions(b, half, halves, over->micro, false);
    b->narrowing.task = over->task;
    b->num_reducing--;
    memmove(b->reducing, b->reducing + 1, (size_t)b->num_reducing * sizeof *b->reducing);
}

/* Ends this sum's reduction of an earlier micro-batch, so that backward gets a new buffer. */
static void end_until(struct builder *b, const struct sum_state *sum) {
    while (sum->under_way) {
        wait_narrowings(b);
        if (sum->under_way) end_oldest(b);
    }
}

int z3d_builder_gradient_buffer(struct builder *b, struct work w, int g) {
    z3d_program *p = b->program;
    struct sum_state *sum = sum_of(b, w, g);
    end_until(b, sum);
    if (!b->group[g].decided.reduce_kept) { /* ending earlier reductions frees memory */
        while (b->num_reducing > 0 && b->reducing[0].task != w.task) end_oldest(b);
        if (b->narrowing.count > 0 && b->narrowing.task != w.task) wait_narrowings(b);
    }
    if (sum->gradients >= 0) return sum->gradients;
    int64_t bytes = z3d_bytes_of(p->config.grad_dtype, p->layout->group[g].padded);
    if (b->group[g].decided.reduce_kept && sum == &b->group[g].sum[0])
        z3d_builder_step_before(b, g);
    sum->gradients = b->group[g].decided.reduce_kept
                         ? sum->kept
                         : z3d_builder_buffer(b, Z3D_CATEGORY_TEMPORARY, bytes, "full gradients",
                                              p->model->group[g].name, w.micro);
    sum->written = false;
    if (w.micro > 0 && p->config.overlap && z3d_gradients_leave(b->program->layout, g))
        z3d_builder_fetch_sum(b, g, ON_LEG_BEFORE); /* beside this backward */
    return sum->gradients;
}

static int64_t elements_of(const struct builder *b, struct sum_state *const *sums, int count) {
    int64_t elements = 0;
    for (int n = 0; n < count; n++) elements += b->program->layout->group[sums[n]->group].padded;
    return elements;
}

/* Advances all that is under way; up to `most` elements may stay in reductions. */
static void go_on_reducing(struct builder *b, int64_t most) {
    int64_t elements = 0;
    z3d_builder_go_on_storing(b);
    wait_sums(b);
    wait_narrowings(b);
    for (int n = 0; n < b->num_reducing; n++)
        elements += elements_of(b, b->reducing[n].of, b->reducing[n].count);
    while (b->num_reducing == REDUCTIONS || (b->num_reducing > 0 && elements > most)) {
        elements -= elements_of(b, b->reducing[0].of, b->reducing[0].count);
        end_oldest(b);
    }
}

static void wait_reductions(struct builder *b) {
    go_on_reducing(b, 0);
    if (b->narrowing.count > 0) go_on_reducing(b, 0);
    if (!b->program->config.overlap) wait_sums(b);
}

/* Elements of group g's gradients, if their buffer is temporary. */
static int64_t temporary_elements(const struct builder *b, int g) {
    return b->group[g].decided.reduce_kept ? 0 : b->program->layout->group[g].padded;
}

/* The temporary elements of all reductions under way. */
static int64_t temporary_under_way(const struct builder *b) {
    int64_t elements = 0;
    for (int r = 0; r < b->num_reducing; r++)
        for (int n = 0; n < b->reducing[r].count; n++)
            elements += temporary_elements(b, b->reducing[r].of[n]->group);
    for (int n = 0; n < b->narrowing.count; n++)
        elements += temporary_elements(b, b->narrowing.of[n]->group);
    return elements;
}

void z3d_builder_reduce_after(struct builder *b, struct work w) {
    const z3d_program *p = b->program;
    const z3d_unit *unit = &p->model->unit[w.unit];
    struct sum_state *complete[Z3D_MAX_UNIT_GROUPS];
    int count = 0;
    for (int s = 0; s < unit->num_groups; s++) {
        const int g = unit->group[s];
        struct sum_state *sum = sum_of(b, w, g);
        if (sum->last_writer != w.unit) continue;
        if (b->group[g].decided.reduce_kept && w.micro < p->config.accumulation - 1) continue;
        complete[count++] = sum;
    }
    if (count == 0 && temporary_under_way(b) == 0) return; /* no wait would free memory */
    /* In parts, only one unit's first halves can be under way. */
    const bool several = count == 0 || !b->group[complete[0]->group].decided.in_parts;
    const int64_t room = p->config.gather_ahead - elements_of(b, complete, count);
    go_on_reducing(b, several && room > 0 ? room : 0);
    b->reducing[b->num_reducing].task = w.task;
    start_reductions(b, complete, count, w.micro, true);
    b->num_reducing += count > 0;
    if (!p->config.overlap) wait_reductions(b);
}

/* The number of the next backward, or half of one, after work number `at`; -1: none. */
static int next_backward(const struct builder *b, int at) {
    while (++at < b->num_work)
        if (b->work[at].kind != Z3D_CALL_FORWARD && b->work[at].kind != Z3D_CALL_RECOMPUTE)
            return at;
    return -1;
}

/* Whether all reductions may stay under way until the backward `next`: none goes on to host
 * or disk, which is slow, and their temporary gradients, without those that `next` ends, need at
 * most the memory of those that `next` writes. */
static bool may_stay_under_way(const struct builder *b, int next) {
    const struct work w = b->work[next];
    const z3d_unit *unit = &b->program->model->unit[w.unit];
    const z3d_trace *trace = z3d_builder_trace(b, w);
    int64_t spare = -temporary_under_way(b);
    for (int g = 0; g < b->program->model->num_groups && spare < 0; g++)
        if ((b->group[g].sum[0].under_way || b->group[g].sum[1].under_way) &&
            z3d_gradients_leave(b->program->layout, g))
            return false;
    for (int s = 0; s < unit->num_groups; s++) {
        const int g = unit->group[s];
        if (!trace->writes_gradients[s]) continue;
        spare += temporary_elements(b, g);
        if (sum_of(b, w, g)->under_way) spare += temporary_elements(b, g);
    }
    return spare >= 0;
}

void z3d_builder_reduce_between(struct builder *b, int at) {
    const int next = next_backward(b, at);
    z3d_builder_go_on_storing(b);
    while (next >= 0 && b->num_reducing + b->narrowing.count > 0 && !may_stay_under_way(b, next)) {
        if (b->num_reducing > 0)
            end_oldest(b);
        else
            wait_narrowings(b);
    }
}

/* The two sums of a group that two chunks use become one. */
void z3d_builder_complete_gradients(struct builder *b) {
    const z3d_program *p = b->program;
    wait_reductions(b);
    wait_sums(b);
    for (int g = 0; g < p->model->num_groups; g++) {
        const z3d_group_layout *group = &p->layout->group[g];
        if (!z3d_adds_two_sums(group)) continue;
        int other = group->twin >= 0 ? z3d_builder_exchange(b, g) : b->group[g].sum[1].kept;
        z3d_instruction *i = z3d_builder_emit_group(b, Z3D_OP_ADD_GRADS, Z3D_PHASE_WHOLE, NULL, g);
        i->buffer[Z3D_SLOT_GRADIENTS] = other;
        i->buffer[Z3D_SLOT_SHARD] = b->group[g].sum[0].kept;
        i->accumulate = true;
        if (adds_up(b, g)) start_sum(b, g);
        wait_sum(b, g);
        share_gradients(b, g);
    }
}

void z3d_builder_share_wait(struct builder *b, int g) {
    if (!b->group[g].decided.gather_gradients || b->group[g].shared) return;
    z3d_builder_wait(b, b->group[g].sharing);
    if (b->group[g].decided.in_parts) {
        start_sharing(b, g, false);
        z3d_builder_wait(b, b->group[g].sharing);
    }
    b->group[g].shared = true;
}
