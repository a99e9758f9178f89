/* Offload: states in host memory or on the disk go to the device or host that uses them, and back,
 * beside compute (ZeRO-Offload, Ren et al. 2101.06840; ZeRO-Infinity, Rajbhandari
 * et al. 2104.07857). Parameters are fetched ahead of the gathers that read them. The host steps
 * groups in pieces. Meanwhile gradients and states of the next pieces arrive, and parameters and
 * states of the piece before are stored. */
#include <stdlib.h>

#include "src/base/disk.h"
#include "zero/build/builder.h"

/* A buffer in host memory for a subject. disk: it is read from or written to a disk, in whole
 * blocks. */
static int host_buffer(struct builder *b, z3d_category category, const char *what,
                       const struct subject *subject, int tensors, z3d_dtype dtype, bool disk) {
    z3d_program *p = b->program;
    const z3d_group_layout *group = &p->layout->group[subject->group];
    const int64_t rows = subject->rows == Z3D_ROWS_ALL ? group->rows : 1;
    const int64_t bytes = z3d_bytes_of(dtype, rows * subject->count);
    int buffer =
        z3d_builder_buffer(b, category, tensors * z3d_round_up(bytes, disk ? Z3D_DISK_ALIGN : 1),
                           what, p->model->group[subject->group].name, -1);
    if (buffer < 0) return buffer;
    p->buffer[buffer].space = Z3D_SPACE_HOST;
    p->buffer[buffer].rows = subject->rows;
    p->buffer[buffer].first_column = subject->first;
    return buffer;
}

static struct subject columns(int g, z3d_rows rows, int64_t first, int64_t count) {
    return (struct subject){-1, -1, g, rows, first, count};
}

static struct subject own_row(const struct builder *b, int g) {
    return columns(g, Z3D_ROWS_OWN, 0, b->program->layout->group[g].shard);
}

/* The buffer in host memory with this rank's row of a group's state: the state itself, or a buffer
 * on the way to or from the disk. */
static int staged(struct builder *b, int g, z3d_state_role role, z3d_category category,
                  const char *what) {
    const struct subject row = own_row(b, g);
    if (z3d_state_space(b->program->layout, g, role) != Z3D_SPACE_DISK)
        return z3d_program_group_buffer(b->program, g, role);
    return host_buffer(b, category, what, &row, 1,
                       b->program->layout->group[g].state[role].at.codec, true);
}

/* ---- parameters: fetched before they are gathered ---- */

bool z3d_builder_fetches(const struct builder *b, int g) {
    return z3d_state_space(b->program->layout, g, Z3D_STATE_VALUE) != Z3D_SPACE_DEVICE &&
           !b->group[g].fresh;
}

int z3d_builder_fetch(struct builder *b, int g, int left) {
    struct route *route = &b->group[g].parameters_in;
    if (route->left == 0) {
        *route = z3d_builder_route(own_row(b, g),
                                   z3d_program_group_buffer(b->program, g, Z3D_STATE_VALUE));
        z3d_builder_extend(route, Z3D_OP_FETCH_PARAMS,
                           staged(b, g, Z3D_STATE_VALUE, Z3D_CATEGORY_PARAMETERS, "staged"));
        z3d_builder_extend(route, Z3D_OP_FETCH_PARAMS, z3d_builder_block_buffer(b, g));
    }
    z3d_builder_advance(b, route, left);
    return z3d_builder_end(route);
}

/* ---- gradients: they leave the device as soon as they are reduced ---- */

static int staged_sum(struct builder *b, int g) {
    return staged(b, g, Z3D_STATE_GRADIENT, Z3D_CATEGORY_GRADIENTS, "staged gradients");
}

void z3d_builder_go_on_storing(struct builder *b) {
    int kept = 0;
    for (int n = 0; n < b->num_leaving; n++) {
        struct route *route = &b->group[b->leaving[n]].gradients_out;
        z3d_builder_advance(b, route, route->left > 2 ? route->left - 2 : ARRIVED);
        if (route->left > 0) b->leaving[kept++] = b->leaving[n];
    }
    b->num_leaving = kept;
}

void z3d_builder_store_sum(struct builder *b, int g) {
    struct route *route = &b->group[g].gradients_out;
    z3d_builder_step_before(b, g);
    *route = z3d_builder_route(own_row(b, g), b->group[g].sum[0].kept);
    z3d_builder_extend(route, Z3D_OP_STORE_GRADS, staged_sum(b, g));
    z3d_builder_extend(route, Z3D_OP_STORE_GRADS,
                       z3d_program_group_buffer(b->program, g, Z3D_STATE_GRADIENT));
    z3d_builder_advance(b, route, b->program->config.overlap ? route->left - 1 : ARRIVED);
    for (int n = 0; n < b->num_leaving; n++)
        if (b->leaving[n] == g) return;
    if (route->left > 0) b->leaving[b->num_leaving++] = g;
}

int z3d_builder_fetch_sum(struct builder *b, int g, int left) {
    z3d_program *p = b->program;
    struct route *route = &b->group[g].gradients_in;
    if (route->left == 0) {
        z3d_builder_advance(b, &b->group[g].gradients_out, ARRIVED);
        int fetched =
            z3d_builder_buffer(b, Z3D_CATEGORY_TEMPORARY,
                               z3d_bytes_of(p->config.grad_dtype, p->layout->group[g].shard),
                               "gradients", p->model->group[g].name, -1);
        if (fetched >= 0) p->buffer[fetched].rows = Z3D_ROWS_OWN;
        *route =
            z3d_builder_route(own_row(b, g), z3d_program_group_buffer(p, g, Z3D_STATE_GRADIENT));
        z3d_builder_extend(route, Z3D_OP_FETCH_GRADS, staged_sum(b, g));
        z3d_builder_extend(route, Z3D_OP_FETCH_GRADS, fetched);
    }
    z3d_builder_advance(b, route, left);
    return z3d_builder_end(route);
}

/* ---- the optimizer, on the host ---- */

bool z3d_builder_steps_on_host(const struct builder *b, int g) {
    return b->program->layout->group[g].held &&
           z3d_state_space(b->program->layout, g, Z3D_STATE_OPTIMIZER) != Z3D_SPACE_DEVICE;
}

static int kept(const struct builder *b, const struct piece *piece, z3d_state_role role) {
    return z3d_program_group_buffer(b->program, piece->subject.group, role);
}

/* The route of a piece of a state to host memory; no leg if it is kept there. */
static struct route to_host(struct builder *b, const struct piece *piece, z3d_state_role role,
                            z3d_category category, const char *what) {
    const int g = piece->subject.group, from = kept(b, piece, role);
    const z3d_state *of = &b->program->layout->group[g].state[role];
    const bool disk = of->at.space == Z3D_SPACE_DISK;
    struct route route = z3d_builder_route(piece->subject, from);
    z3d_opcode opcode = disk ? Z3D_OP_FETCH_GRADS : Z3D_OP_STORE_GRADS;
    if (role == Z3D_STATE_OPTIMIZER) opcode = Z3D_OP_FETCH_STATES;
    if (of->at.space != Z3D_SPACE_HOST)
        z3d_builder_extend(&route, opcode,
                           host_buffer(b, category, what, &piece->subject,
                                       z3d_count_kinds(of->kinds), of->at.codec, disk));
    return route;
}

static bool is_delayed(const struct builder *b) {
    return b->program->config.offload.delayed;
}

/* Starts the transfers of a piece's gradients and states to the host. */
static void begin_piece(struct builder *b, struct piece *piece) {
    const int g = piece->subject.group;
    if (!is_delayed(b)) {
        z3d_builder_share_wait(b, g);
        z3d_builder_advance(b, &b->group[g].gradients_out, ARRIVED);
    }
    piece->gradients =
        to_host(b, piece, Z3D_STATE_GRADIENT, Z3D_CATEGORY_GRADIENTS, "gradients on the host");
    piece->states =
        to_host(b, piece, Z3D_STATE_OPTIMIZER, Z3D_CATEGORY_OPTIMIZER, "optimizer on the host");
    z3d_builder_advance(b, &piece->gradients, ON_LAST_LEG);
    z3d_builder_advance(b, &piece->states, ON_LAST_LEG);
}

/* Delayed steps need a buffer for new parameters: the old ones are still read. */
static void step_piece(struct builder *b, struct piece *piece) {
    const int home = kept(b, piece, Z3D_STATE_VALUE);
    const z3d_space space =
        z3d_state_space(b->program->layout, piece->subject.group, Z3D_STATE_VALUE);
    int parameters = home;
    z3d_builder_advance(b, &piece->gradients, ARRIVED);
    z3d_builder_advance(b, &piece->states, ARRIVED);
    if (space != Z3D_SPACE_HOST || is_delayed(b))
        parameters = host_buffer(b, Z3D_CATEGORY_PARAMETERS, "stepped", &piece->subject, 1,
                                 b->program->config.dtype, space == Z3D_SPACE_DISK);
    z3d_instruction *i =
        z3d_builder_emit_subject(b, Z3D_OP_HOST_STEP, Z3D_PHASE_WHOLE, NULL, &piece->subject);
    i->buffer[Z3D_SLOT_INPUT] = z3d_builder_end(&piece->gradients);
    i->buffer[Z3D_SLOT_OPTIMIZER] = z3d_builder_end(&piece->states);
    i->buffer[Z3D_SLOT_PARAMETERS] = parameters;
    piece->stepped_parameters = z3d_builder_route(piece->subject, parameters);
    z3d_builder_extend(&piece->stepped_parameters, Z3D_OP_STORE_PARAMS, home);
    piece->stepped_states = z3d_builder_route(piece->subject, z3d_builder_end(&piece->states));
    z3d_builder_extend(&piece->stepped_states, Z3D_OP_STORE_STATES,
                       kept(b, piece, Z3D_STATE_OPTIMIZER));
}

/* Columns of a piece. If this rank steps all rows, the group is one piece. */
static int64_t piece_columns(const struct builder *b, int g) {
    const int64_t shard = b->program->layout->group[g].shard;
    const z3d_rows rows = z3d_state_rows(b->program->layout, g, Z3D_STATE_OPTIMIZER);
    int64_t columns = b->program->config.offload.sub_group;
    if (rows != Z3D_ROWS_OWN || columns <= 0 || columns >= shard) return shard;
    return z3d_round_up(columns, Z3D_OFFLOAD_ALIGN);
}

enum { ENTRIES = 9 }; /* of a piece, at most */

static z3d_status count_pieces(const struct builder *b, int64_t *total) {
    const z3d_layout *layout = b->program->layout;
    *total = 0;
    for (int g = 0; g < layout->num_groups; g++)
        if (z3d_builder_steps_on_host(b, g))
            *total += (layout->group[g].shard + piece_columns(b, g) - 1) / piece_columns(b, g);
    if (*total <= (MAX_ENTRIES - b->program->num_instructions) / ENTRIES) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_CONFIG,
                     "the step program would have more than %d entries: "
                     "zero_optimization.sub_group_size %lld cuts the parameters into %lld "
                     "pieces; use a larger one (the default is 1e9)",
                     MAX_ENTRIES, (long long)b->program->config.offload.sub_group,
                     (long long)*total);
}

/* Adds a group's pieces to the list, once. */
static void list_group(struct builder *b, int g) {
    struct host_steps *host = &b->host;
    const z3d_group_layout *group = &b->program->layout->group[g];
    if (!z3d_builder_steps_on_host(b, g) || b->group[g].end_piece > 0) return;
    b->group[g].first_piece = host->count;
    for (int64_t first = 0; first < group->shard; first += piece_columns(b, g)) {
        const int64_t rest = group->shard - first, most = piece_columns(b, g);
        host->piece[host->count++].subject =
            columns(g, z3d_state_rows(b->program->layout, g, Z3D_STATE_OPTIMIZER), first,
                    rest < most ? rest : most);
    }
    b->group[g].end_piece = host->count;
}

static z3d_status make_room(struct builder *b) {
    int64_t total;
    Z3D_TRY(b->status);
    Z3D_TRY(count_pieces(b, &total));
    Z3D_TRY(z3d_new((size_t)total, sizeof *b->host.piece, "pieces of the optimizer step",
                    &b->host.piece));
    if (!is_delayed(b)) return Z3D_OK;
    return z3d_new((size_t)total, sizeof *b->host.storing, "pieces of the optimizer step",
                   &b->host.storing);
}

static void finish_oldest(struct builder *b) {
    struct piece *piece = &b->host.piece[b->host.over++];
    if (!is_delayed(b)) z3d_builder_advance(b, &piece->stepped_parameters, ARRIVED);
    z3d_builder_advance(b, &piece->stepped_states, ARRIVED);
}

static void start_store(struct builder *b, int k) {
    b->host.storing[b->host.num_storing++] = k;
    z3d_builder_advance(b, &b->host.piece[k].stepped_parameters, ON_LAST_LEG);
}

/* At most `depth` pieces at a time: some arrive, one is stepped and, from depth 3 on, the one
 * before is stored. */
static void step_next(struct builder *b) {
    const z3d_program_config *c = &b->program->config;
    struct host_steps *host = &b->host;
    const int depth = !c->overlap ? 1 : c->offload.pieces > 0 ? c->offload.pieces : 3;
    const int late = depth > 2, ahead = depth - 1 - late, k = host->stepped++;
    struct piece *piece = &host->piece[k];
    while (host->begun < host->count && host->begun <= k + ahead)
        begin_piece(b, &host->piece[host->begun++]);
    step_piece(b, piece);
    host->done += piece->subject.count;
    if (!is_delayed(b))
        z3d_builder_advance(b, &piece->stepped_parameters, ON_LAST_LEG);
    else if (b->group[piece->subject.group].last_reader < b->work_over)
        start_store(b, k); /* no later work reads the group's old parameters */
    z3d_builder_advance(b, &piece->stepped_states, ON_LAST_LEG);
    while (host->over + late <= k) finish_oldest(b);
}

/* Groups in the order in which their gradients are complete. */
void z3d_builder_step_on_host(struct builder *b) {
    struct host_steps *host = &b->host;
    b->status = make_room(b);
    if (b->status != Z3D_OK) return;
    for (int g = b->program->layout->num_groups - 1; g >= 0; g--) list_group(b, g);
    while (host->stepped < host->count && b->status == Z3D_OK) step_next(b);
    while (host->over < host->count && b->status == Z3D_OK) finish_oldest(b);
}

/* ---- delayed: one training step later, beside forward and backward ---- */

/* Whether this backward writes the kept gradients of the unit's group number `s`, or completes
 * those of a micro-batch for keep_shard. */
static bool writes_kept(const struct builder *b, struct work work, const z3d_trace *trace, int s) {
    const int g = b->program->model->unit[work.unit].group[s];
    const bool backward = work.kind == Z3D_CALL_BACKWARD || work.kind == Z3D_CALL_BACKWARD_WEIGHT;
    if (!backward || !trace->writes_gradients[s] ||
        z3d_layout_use(b->program->layout, work.unit, g))
        return false;
    return b->group[g].decided.reduce_kept || b->group[g].sum[0].last_writer == work.unit;
}

/* Lists groups in the order in which this program overwrites their pending gradients. */
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
    b->status = make_room(b);
    if (b->status != Z3D_OK) return;
    list_in_order_of_writes(b);
    for (int k = 0; k < host->count; k++) host->elements += host->piece[k].subject.count;
    if (host->count > 0 && b->program->config.overlap) begin_piece(b, &host->piece[host->begun++]);
}

void z3d_builder_step_before(struct builder *b, int g) {
    while (b->host.stepped < b->group[g].end_piece && b->status == Z3D_OK) step_next(b);
}

static void finish_parameters(struct builder *b, int end) {
    struct host_steps *host = &b->host;
    while (host->stored < end)
        z3d_builder_advance(b, &host->piece[host->storing[host->stored++]].stepped_parameters,
                            ARRIVED);
}

/* Whether, with the next piece, the stepped share of elements is at most the share of FLOPs that
 * are done. */
static bool is_due(const struct host_steps *host) {
    const double elements = (double)(host->done + host->piece[host->stepped].subject.count);
    return elements * host->beside <= host->been * (double)host->elements;
}

/* The host's steps keep pace with the work that overlaps them. */
void z3d_builder_step_beside(struct builder *b) {
    struct host_steps *host = &b->host;
    if (host->count == 0) return;
    host->been += z3d_builder_trace(b, b->work[b->work_over])->flops;
    while (host->stepped < host->count && is_due(host) && b->status == Z3D_OK) step_next(b);
}

/* Stores stepped parameters after the last work that reads the old ones. */
void z3d_builder_store_parameters(struct builder *b) {
    struct host_steps *host = &b->host;
    const int over = b->work_over++;
    const z3d_unit *unit = &b->program->model->unit[b->work[over].unit];
    if (host->count == 0) return;
    finish_parameters(b, host->due);
    for (int s = 0; s < unit->num_groups; s++) {
        const struct group_state *group = &b->group[unit->group[s]];
        if (group->last_reader != over) continue;
        for (int k = group->first_piece; k < group->end_piece && k < host->stepped; k++)
            start_store(b, k);
    }
    host->due = host->num_storing;
}

/* This step's gradients are stepped in the next step. */
void z3d_builder_finish_delayed(struct builder *b) {
    if (b->host.count == 0) return;
    for (int g = 0; g < b->program->layout->num_groups; g++) {
        if (!z3d_builder_steps_on_host(b, g)) continue;
        z3d_builder_share_wait(b, g);
        z3d_builder_advance(b, &b->group[g].gradients_out, ARRIVED);
    }
    finish_parameters(b, b->host.num_storing);
    while (b->host.over < b->host.stepped) finish_oldest(b);
}
