/* Offload: what of a parameter group is kept in host memory or on the disk comes to where it is
 * used and goes back, beside compute (ZeRO-Offload, Ren et al. 2101.06840; ZeRO-Infinity,
 * Rajbhandari et al. 2104.07857). Parameters travel ahead of the gathers that read them. The host
 * steps pieces of groups: while it steps one, gradients and states of the next come, and those of
 * the last go. */
#include <stdlib.h>

#include "src/base/disk.h"
#include "zero/build/builder.h"

static z3d_space space_of(const struct builder *b, int g, z3d_group_part part) {
    return b->program->layout->group[g].kept[part].space;
}

static bool rows_own(const struct builder *b, int g) {
    return b->program->layout->group[g].kept[Z3D_PART_OPTIMIZER].rows == Z3D_ROWS_OWN;
}

/* A piece's elements in host memory. disk: they come from a disk or go to it, in whole blocks. */
static int host_buffer(struct builder *b, z3d_category category, const char *what,
                       const struct piece *piece, int tensors, z3d_dtype dtype, bool disk) {
    z3d_program *p = b->program;
    const int64_t rows = piece->rows == Z3D_ROWS_ALL ? p->layout->group[piece->group].rows : 1;
    const int64_t bytes = z3d_bytes_of(dtype, rows * piece->count);
    int buffer =
        z3d_builder_buffer(b, category, tensors * z3d_round_up(bytes, disk ? Z3D_DISK_ALIGN : 1),
                           what, p->model->group[piece->group].name, -1);
    if (buffer < 0) return buffer;
    p->buffer[buffer].space = Z3D_SPACE_HOST;
    p->buffer[buffer].rows = piece->rows;
    p->buffer[buffer].first_column = piece->first;
    return buffer;
}

/* A start, or with its ticket the wait. */
static void copy(struct builder *b, z3d_opcode opcode, z3d_phase phase, int *ticket,
                 const struct piece *piece, int from, int to) {
    const z3d_opcode_info *info = z3d_opcode_info_of(opcode);
    z3d_instruction *i = z3d_builder_emit_group(b, opcode, phase, ticket, piece->group);
    i->rows = piece->rows;
    i->first = piece->first;
    i->count = piece->count;
    i->buffer[info->from] = from;
    i->buffer[info->to] = to;
}

/* ---- parameters: fetched before they are gathered ---- */

bool z3d_builder_fetches(const struct builder *b, int g) {
    return space_of(b, g, Z3D_PART_PARAMETERS) != Z3D_SPACE_DEVICE && !b->group[g].fresh;
}

static struct piece own_row(const struct builder *b, int g) {
    return (struct piece){
        .group = g, .rows = Z3D_ROWS_OWN, .count = b->program->layout->group[g].shard};
}

static void from_disk(struct builder *b, int g, z3d_phase phase) {
    struct group_state *group = &b->group[g];
    const struct piece row = own_row(b, g);
    copy(b, Z3D_OP_FETCH_PARAMS, phase, &group->fetching, &row,
         z3d_program_group_buffer(b->program, g, Z3D_PART_PARAMETERS), group->staged);
}

static void from_host(struct builder *b, int g, z3d_phase phase) {
    struct group_state *group = &b->group[g];
    const struct piece row = own_row(b, g);
    copy(b, Z3D_OP_FETCH_PARAMS, phase, &group->fetching, &row, group->staged, group->fetched);
}

/* Starts the leg from the disk. */
static void stage(struct builder *b, int g) {
    struct group_state *group = &b->group[g];
    if (space_of(b, g, Z3D_PART_PARAMETERS) == Z3D_SPACE_HOST) {
        group->staged = z3d_program_group_buffer(b->program, g, Z3D_PART_PARAMETERS);
    } else {
        const struct piece row = own_row(b, g);
        group->staged = host_buffer(b, Z3D_CATEGORY_PARAMETERS, "staged", &row, 1,
                                    b->program->config.dtype, true);
        from_disk(b, g, Z3D_PHASE_START);
    }
    group->leg = LEG_STAGED;
}

/* Starts the leg to the device. */
static void fetch(struct builder *b, int g) {
    struct group_state *group = &b->group[g];
    if (space_of(b, g, Z3D_PART_PARAMETERS) == Z3D_SPACE_DISK) from_disk(b, g, Z3D_PHASE_WAIT);
    group->fetched = z3d_builder_block_buffer(b, g);
    from_host(b, g, Z3D_PHASE_START);
    group->leg = LEG_FETCHED;
}

void z3d_builder_fetch(struct builder *b, int g, enum leg until) {
    struct group_state *group = &b->group[g];
    if (group->leg < LEG_STAGED && until >= LEG_STAGED) stage(b, g);
    if (group->leg < LEG_FETCHED && until >= LEG_FETCHED) fetch(b, g);
    if (until < LEG_THERE) return;
    from_host(b, g, Z3D_PHASE_WAIT);
    group->leg = LEG_NONE;
}

/* ---- gradients: they leave the device as soon as they are reduced ---- */

bool z3d_builder_gradients_leave(const struct builder *b, int g) {
    return space_of(b, g, Z3D_PART_GRADIENTS) != Z3D_SPACE_DEVICE;
}

static bool gradients_on_disk(const struct builder *b, int g) {
    return space_of(b, g, Z3D_PART_GRADIENTS) == Z3D_SPACE_DISK;
}

static void move_sum(struct builder *b, z3d_opcode opcode, z3d_phase phase, int g, int from,
                     int to) {
    const struct piece row = own_row(b, g);
    copy(b, opcode, phase, &b->group[g].sum.ticket, &row, from, to);
}

/* Where a group's gradients are in host memory on their way, or for good. */
static int stage_sum(struct builder *b, int g) {
    const struct piece row = own_row(b, g);
    if (!gradients_on_disk(b, g))
        return z3d_program_group_buffer(b->program, g, Z3D_PART_GRADIENTS);
    return host_buffer(b, Z3D_CATEGORY_GRADIENTS, "staged gradients", &row, 1,
                       b->program->config.grad_dtype, true);
}

/* One leg further out. */
static void store_on(struct builder *b, int g) {
    struct group_state *group = &b->group[g];
    const int kept = z3d_program_group_buffer(b->program, g, Z3D_PART_GRADIENTS);
    const int device = b->sum[2 * g].kept;
    const bool staged = group->sum.out == OUT_TO_HOST && gradients_on_disk(b, g);
    if (group->sum.out == OUT_TO_HOST)
        move_sum(b, Z3D_OP_STORE_GRADS, Z3D_PHASE_WAIT, g, device, group->sum.staged);
    else
        move_sum(b, Z3D_OP_STORE_GRADS, Z3D_PHASE_WAIT, g, group->sum.staged, kept);
    if (staged) move_sum(b, Z3D_OP_STORE_GRADS, Z3D_PHASE_START, g, group->sum.staged, kept);
    group->sum.out = staged ? OUT_TO_DISK : OUT_NONE;
}

static void finish_storing(struct builder *b, int g) {
    while (b->group[g].sum.out != OUT_NONE && b->status == Z3D_OK) store_on(b, g);
}

void z3d_builder_go_on_storing(struct builder *b) {
    int left = 0;
    for (int n = 0; n < b->num_leaving; n++) {
        const int g = b->leaving[n];
        if (b->group[g].sum.out != OUT_NONE) store_on(b, g);
        if (b->group[g].sum.out != OUT_NONE) b->leaving[left++] = g;
    }
    b->num_leaving = left;
}

void z3d_builder_store_sum(struct builder *b, int g) {
    struct group_state *group = &b->group[g];
    z3d_builder_step_before(b, g);
    group->sum.staged = stage_sum(b, g);
    group->sum.out = OUT_TO_HOST;
    move_sum(b, Z3D_OP_STORE_GRADS, Z3D_PHASE_START, g, b->sum[2 * g].kept, group->sum.staged);
    if (!b->program->config.overlap) {
        finish_storing(b, g);
        return;
    }
    for (int n = 0; n < b->num_leaving; n++)
        if (b->leaving[n] == g) return;
    b->leaving[b->num_leaving++] = g;
}

static void start_sum(struct builder *b, int g) {
    struct group_state *group = &b->group[g];
    finish_storing(b, g);
    group->sum.staged = stage_sum(b, g);
    if (gradients_on_disk(b, g))
        move_sum(b, Z3D_OP_FETCH_GRADS, Z3D_PHASE_START, g,
                 z3d_program_group_buffer(b->program, g, Z3D_PART_GRADIENTS), group->sum.staged);
    group->sum.leg = LEG_STAGED;
}

static void sum_to_device(struct builder *b, int g) {
    z3d_program *p = b->program;
    struct group_state *group = &b->group[g];
    if (gradients_on_disk(b, g))
        move_sum(b, Z3D_OP_FETCH_GRADS, Z3D_PHASE_WAIT, g,
                 z3d_program_group_buffer(p, g, Z3D_PART_GRADIENTS), group->sum.staged);
    group->sum.fetched = z3d_builder_buffer(
        b, Z3D_CATEGORY_TEMPORARY, z3d_bytes_of(p->config.grad_dtype, p->layout->group[g].shard),
        "gradients", p->model->group[g].name, -1);
    if (group->sum.fetched >= 0) p->buffer[group->sum.fetched].rows = Z3D_ROWS_OWN;
    move_sum(b, Z3D_OP_FETCH_GRADS, Z3D_PHASE_START, g, group->sum.staged, group->sum.fetched);
    group->sum.leg = LEG_FETCHED;
}

int z3d_builder_fetch_sum(struct builder *b, int g, enum leg until) {
    struct group_state *group = &b->group[g];
    if (group->sum.leg < LEG_STAGED) start_sum(b, g);
    if (group->sum.leg < LEG_FETCHED && until >= LEG_FETCHED) sum_to_device(b, g);
    if (until < LEG_THERE) return -1;
    move_sum(b, Z3D_OP_FETCH_GRADS, Z3D_PHASE_WAIT, g, group->sum.staged, group->sum.fetched);
    group->sum.leg = LEG_NONE;
    return group->sum.fetched;
}

/* ---- the optimizer, on the host ---- */

bool z3d_builder_steps_on_host(const struct builder *b, int g) {
    return space_of(b, g, Z3D_PART_OPTIMIZER) != Z3D_SPACE_DEVICE;
}

static int kept(const struct builder *b, const struct piece *piece, z3d_group_part part) {
    return z3d_program_group_buffer(b->program, piece->group, part);
}

/* A piece's gradients come to the host, unless they are kept there. */
static void move_gradients(struct builder *b, struct piece *piece, z3d_phase phase) {
    static const z3d_opcode opcode[] = {
        [Z3D_SPACE_DEVICE] = Z3D_OP_STORE_GRADS, [Z3D_SPACE_DISK] = Z3D_OP_FETCH_GRADS};
    const z3d_space space = space_of(b, piece->group, Z3D_PART_GRADIENTS);
    if (space != Z3D_SPACE_HOST)
        copy(b, opcode[space], phase, &piece->moving_gradients, piece,
             kept(b, piece, Z3D_PART_GRADIENTS), piece->gradients);
}

static bool is_delayed(const struct builder *b) {
    return b->program->config.offload.delayed;
}

/* What the host reads sets out. */
static void begin(struct builder *b, struct piece *piece) {
    const z3d_program_config *c = &b->program->config;
    const int g = piece->group;
    const unsigned kinds = b->program->layout->group[g].kept[Z3D_PART_OPTIMIZER].kinds;
    if (!is_delayed(b)) {
        z3d_builder_share_wait(b, g);
        finish_storing(b, g);
    }
    piece->gradients = kept(b, piece, Z3D_PART_GRADIENTS);
    if (space_of(b, g, Z3D_PART_GRADIENTS) != Z3D_SPACE_HOST)
        piece->gradients = host_buffer(b, Z3D_CATEGORY_GRADIENTS, "gradients on the host", piece, 1,
                                       c->grad_dtype, gradients_on_disk(b, g));
    move_gradients(b, piece, Z3D_PHASE_START);
    piece->states = kept(b, piece, Z3D_PART_OPTIMIZER);
    if (space_of(b, g, Z3D_PART_OPTIMIZER) != Z3D_SPACE_DISK) return;
    piece->states = host_buffer(b, Z3D_CATEGORY_OPTIMIZER, "optimizer on the host", piece,
                                z3d_count_kinds(kinds), Z3D_F32, true);
    copy(b, Z3D_OP_FETCH_STATES, Z3D_PHASE_START, &piece->fetching, piece,
         kept(b, piece, Z3D_PART_OPTIMIZER), piece->states);
}

/* Delayed, the parameters wait beside those that are still read. */
static void step(struct builder *b, struct piece *piece) {
    const z3d_program_config *c = &b->program->config;
    const bool disk = c->offload.optimizer == Z3D_SPACE_DISK;
    move_gradients(b, piece, Z3D_PHASE_WAIT);
    if (disk)
        copy(b, Z3D_OP_FETCH_STATES, Z3D_PHASE_WAIT, &piece->fetching, piece,
             kept(b, piece, Z3D_PART_OPTIMIZER), piece->states);
    const z3d_space home = space_of(b, piece->group, Z3D_PART_PARAMETERS);
    piece->parameters = kept(b, piece, Z3D_PART_PARAMETERS);
    if (home != Z3D_SPACE_HOST || is_delayed(b))
        piece->parameters = host_buffer(b, Z3D_CATEGORY_PARAMETERS, "stepped", piece, 1, c->dtype,
                                        home == Z3D_SPACE_DISK);
    z3d_instruction *i =
        z3d_builder_emit_group(b, Z3D_OP_HOST_STEP, Z3D_PHASE_WHOLE, NULL, piece->group);
    i->rows = piece->rows;
    i->first = piece->first;
    i->count = piece->count;
    i->buffer[Z3D_SLOT_INPUT] = piece->gradients;
    i->buffer[Z3D_SLOT_OPTIMIZER] = piece->states;
    i->buffer[Z3D_SLOT_PARAMETERS] = piece->parameters;
}

/* What the host has written goes to where it is kept: starts, or waits. */
static void store_parameters(struct builder *b, struct piece *piece, z3d_phase phase) {
    const int home = kept(b, piece, Z3D_PART_PARAMETERS);
    if (piece->parameters != home)
        copy(b, Z3D_OP_STORE_PARAMS, phase, &piece->storing_parameters, piece, piece->parameters,
             home);
}

static void store_states(struct builder *b, struct piece *piece, z3d_phase phase) {
    if (b->program->config.offload.optimizer == Z3D_SPACE_DISK)
        copy(b, Z3D_OP_STORE_STATES, phase, &piece->storing_states, piece, piece->states,
             kept(b, piece, Z3D_PART_OPTIMIZER));
}

/* Columns of a group that are stepped at a time. Whole rows are one piece. */
static int64_t columns_of(const struct builder *b, int g) {
    const int64_t shard = b->program->layout->group[g].shard;
    int64_t columns = b->program->config.offload.sub_group;
    if (!rows_own(b, g) || columns <= 0 || columns >= shard) return shard;
    return z3d_round_up(columns, Z3D_OFFLOAD_ALIGN);
}

static bool is_stepped_here(const struct builder *b, int g) {
    return b->program->layout->group[g].held && z3d_builder_steps_on_host(b, g);
}

enum { ENTRIES = 9 }; /* of a piece, at most */

static z3d_status count_pieces(const struct builder *b, int64_t *total) {
    const z3d_layout *layout = b->program->layout;
    *total = 0;
    for (int g = 0; g < layout->num_groups; g++)
        if (is_stepped_here(b, g))
            *total += (layout->group[g].shard + columns_of(b, g) - 1) / columns_of(b, g);
    if (*total <= (MAX_ENTRIES - b->program->num_instructions) / ENTRIES) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_CONFIG,
                     "the step program would have more than %d entries: "
                     "zero_optimization.sub_group_size %lld cuts the parameters into %lld "
                     "pieces; use a larger one (the default is 1e9)",
                     MAX_ENTRIES, (long long)b->program->config.offload.sub_group,
                     (long long)*total);
}

/* A group's pieces follow those that are listed; once. */
static void list_group(struct builder *b, int g) {
    struct host_steps *host = &b->host;
    const z3d_group_layout *group = &b->program->layout->group[g];
    if (!is_stepped_here(b, g) || b->group[g].end_piece > 0) return;
    b->group[g].first_piece = host->count;
    for (int64_t first = 0; first < group->shard; first += columns_of(b, g)) {
        const int64_t left = group->shard - first, columns = columns_of(b, g);
        host->piece[host->count++] = (struct piece){.group = g,
                                                    .rows = group->kept[Z3D_PART_OPTIMIZER].rows,
                                                    .first = first,
                                                    .count = left < columns ? left : columns};
    }
    b->group[g].end_piece = host->count;
}

static z3d_status make_room(struct builder *b) {
    int64_t total;
    Z3D_TRY(count_pieces(b, &total));
    Z3D_TRY(z3d_new((size_t)total, sizeof *b->host.piece, "pieces of the optimizer step",
                    &b->host.piece));
    if (!is_delayed(b)) return Z3D_OK;
    return z3d_new((size_t)total, sizeof *b->host.leaving, "pieces of the optimizer step",
                   &b->host.leaving);
}

/* The oldest that goes has come to where it is kept. */
static void finish_oldest(struct builder *b) {
    struct piece *piece = &b->host.piece[b->host.over++];
    if (!is_delayed(b)) store_parameters(b, piece, Z3D_PHASE_WAIT);
    store_states(b, piece, Z3D_PHASE_WAIT);
}

static void let_go(struct builder *b, int k) {
    b->host.leaving[b->host.left++] = k;
    store_parameters(b, &b->host.piece[k], Z3D_PHASE_START);
}

/* Delayed: nothing reads the group's old parameters any more. */
static bool is_read_out(const struct builder *b, int g) {
    return b->group[g].last_reader < b->work_over;
}

/* Under way at once are pieces whose gradients and states come, the one that is stepped, and the
 * one before it, which goes. */
static void step_next(struct builder *b) {
    const z3d_program_config *c = &b->program->config;
    struct host_steps *host = &b->host;
    const int depth = !c->overlap ? 1 : c->offload.pieces > 0 ? c->offload.pieces : 3;
    const int late = depth > 2, ahead = depth - 1 - late, k = host->stepped++;
    struct piece *piece = &host->piece[k];
    while (host->begun < host->count && host->begun <= k + ahead)
        begin(b, &host->piece[host->begun++]);
    step(b, piece);
    host->done += piece->count;
    if (!is_delayed(b))
        store_parameters(b, piece, Z3D_PHASE_START);
    else if (is_read_out(b, piece->group))
        let_go(b, k);
    store_states(b, piece, Z3D_PHASE_START);
    while (host->over + late <= k) finish_oldest(b);
}

/* In the order in which gradients are complete. */
void z3d_builder_step_on_host(struct builder *b) {
    struct host_steps *host = &b->host;
    if (b->status == Z3D_OK) b->status = make_room(b);
    if (b->status != Z3D_OK) return;
    for (int g = b->program->layout->num_groups - 1; g >= 0; g--) list_group(b, g);
    while (host->stepped < host->count && b->status == Z3D_OK) step_next(b);
    while (host->over < host->count && b->status == Z3D_OK) finish_oldest(b);
}

/* ---- the same one step late, beside forward and backward ---- */

/* Whether this work is what makes the kept gradients of its unit's group number `s` be written:
 * where backward adds to those that are kept any unit's is, else that which completes them. */
static bool writes_kept(const struct builder *b, struct work work, const z3d_trace *trace, int s) {
    const int g = b->program->model->unit[work.unit].group[s];
    const bool backward = work.kind == WORK_BACKWARD || work.kind == WORK_BACKWARD_WEIGHT;
    if (!backward || !trace->writes_gradients[s] ||
        z3d_layout_use(b->program->layout, work.unit, g))
        return false;
    return b->group[g].decided.reduce_kept || b->sum[2 * g].last_writer == work.unit;
}

/* In the order in which this step writes over the gradients that wait. */
static void list_in_order_of_writes(struct builder *b) {
    double flops = 0;
    for (int w = 0; w < b->num_work; w++) {
        const z3d_unit *unit = &b->program->model->unit[b->work[w].unit];
        const z3d_trace *trace = z3d_builder_trace(b, b->work[w]);
        flops += trace->flops;
        for (int s = 0; s < unit->num_groups; s++) {
            if (!writes_kept(b, b->work[w], trace, s)) continue;
            if (b->group[unit->group[s]].end_piece == 0) b->host.beside = flops;
            list_group(b, unit->group[s]);
        }
    }
}

void z3d_builder_begin_delayed(struct builder *b) {
    struct host_steps *host = &b->host;
    if (!is_delayed(b) || b->program->mode != Z3D_MODE_TRAIN) return;
    if (b->status == Z3D_OK) b->status = make_room(b);
    if (b->status != Z3D_OK) return;
    list_in_order_of_writes(b);
    for (int k = 0; k < host->count; k++) host->elements += host->piece[k].count;
    if (host->count > 0 && b->program->config.overlap) begin(b, &host->piece[host->begun++]);
}

void z3d_builder_step_before(struct builder *b, int g) {
    while (b->host.stepped < b->group[g].end_piece && b->status == Z3D_OK) step_next(b);
}

/* Parameters that set out before have arrived. */
static void finish_parameters(struct builder *b, int left) {
    struct host_steps *host = &b->host;
    while (host->arrived < left)
        store_parameters(b, &host->piece[host->leaving[host->arrived++]], Z3D_PHASE_WAIT);
}

/* Whether the next piece's share of the work is enqueued: that runs beside its step. */
static bool is_due(const struct host_steps *host) {
    const double elements = (double)(host->done + host->piece[host->stepped].count);
    return elements * host->beside <= host->been * (double)host->elements;
}

/* The host keeps pace with the work that it may be beside. */
void z3d_builder_step_beside(struct builder *b) {
    struct host_steps *host = &b->host;
    if (host->count == 0) return;
    host->been += z3d_builder_trace(b, b->work[b->work_over])->flops;
    while (host->stepped < host->count && is_due(host) && b->status == Z3D_OK) step_next(b);
}

/* Stepped parameters go once the last work that reads the old ones is over. */
void z3d_builder_let_parameters_go(struct builder *b) {
    struct host_steps *host = &b->host;
    const int over = b->work_over++;
    const z3d_unit *unit = &b->program->model->unit[b->work[over].unit];
    if (host->count == 0) return;
    finish_parameters(b, host->left_before);
    for (int s = 0; s < unit->num_groups; s++) {
        const struct group_state *group = &b->group[unit->group[s]];
        if (group->last_reader != over) continue;
        for (int k = group->first_piece; k < group->end_piece && k < host->stepped; k++)
            let_go(b, k);
    }
    host->left_before = host->left;
}

/* The gradients of this step stay. */
void z3d_builder_finish_delayed(struct builder *b) {
    if (b->host.count == 0) return;
    for (int g = 0; g < b->program->layout->num_groups; g++) {
        if (!is_stepped_here(b, g)) continue;
        z3d_builder_share_wait(b, g);
        finish_storing(b, g);
    }
    finish_parameters(b, b->host.left);
    while (b->host.over < b->host.stepped) finish_oldest(b);
}
