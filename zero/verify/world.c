/* Plays the programs of all ranks against each other. Every rank has one queue of all its
 * collectives, sends and receives, of all groups, in the order of their starts. A collective
 * completes when it is the head of every member's queue, with the same fields. A send and its
 * receive complete when each is the head of its rank's queue: nothing is buffered. NCCL with an old
 * driver works in this way. Every other backend is less strict, so programs that pass cannot
 * deadlock. A start puts its collective into the queue and continues. A wait, an inner collective
 * of a unit, an exchange or a result stops the rank until the collective is complete. A waiting
 * rank runs again only when its queue's head completes. Heads are finitely many, so the play ends.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zero/verify/rules.h"

/* A collective, send or receive. same_call and are_ends say what must agree. */
typedef struct call {
    const z3d_instruction *in;
    int child; /* its number within a unit, -1: the entry's own */
    z3d_child what;
    int64_t first; /* its first column */
} call;

enum { COPY = -1, IDLE = -2 };

static const char RANK[] = "rank", STAGE[] = "pipeline stage";

typedef struct queued {
    int entry, child;
} queued;

/* First in, first out. */
typedef struct lane {
    int64_t started, done; /* how many were put into the queue; how many of them are over */
    queued *queue;         /* ring of those that are not over */
    int capacity;
} lane;

typedef struct player {
    const z3d_program *program;
    int entry, child;      /* its position: inner collectives come before the entry's own */
    bool posted;           /* the collective at its position is in the queue */
    bool scheduled, ended; /* it is in world.to_run; its program has ended */
    bool listed;           /* it is in world.heads */
    lane lane;
    int64_t *number; /* by ticket: place in the lane; COPY: none; IDLE: not started */
} player;

typedef struct meeting {
    int arrived, first; /* members whose head is a collective of this group: how many; the first */
} meeting;

typedef struct world {
    int count;
    const char *whose; /* RANK, or STAGE: a program stands for all ranks of a stage */
    const z3d_mesh *mesh;
    player *player;
    meeting *meeting; /* by axes and the group's lowest rank */
    int *to_run, num_to_run;
    int *heads, num_heads; /* ranks with a new head */
} world;

/* ---- collectives ---- */

static queued *head(const lane *l) {
    return &l->queue[l->done % l->capacity];
}

/* The call at the head of the rank's queue. */
static call head_call(const player *player) {
    const z3d_program *p = player->program;
    const queued q = *head(&player->lane);
    const z3d_instruction *in = &p->instruction[q.entry];
    call c = {.in = in, .child = q.child};
    if (q.child >= 0) {
        c.what = in->child[q.child];
        return c;
    }
    c.what = (z3d_child){.kind = z3d_instruction_kind(in),
                         .dtype = z3d_instruction_dtype(p, in),
                         .axes = in->axes,
                         .scalar = !z3d_is_collective(in)};
    z3d_instruction_columns(p, in, &c.first, &c.what.count);
    return c;
}

static bool same_call(const call *a, const call *b) {
    const z3d_instruction *x = a->in, *y = b->in;
    return x->opcode == y->opcode && a->child == b->child && z3d_child_equal(&a->what, &b->what) &&
           x->group == y->group && x->unit == y->unit && x->micro == y->micro &&
           a->first == b->first && x->column == y->column && x->columns == y->columns;
}

/* ---- texts of errors ---- */

static void describe_head(const player *p, char *buf, size_t size) {
    char entry[128];
    const int index = head(&p->lane)->entry;
    const call c = head_call(p);
    z3d_instruction_describe(p->program, index, entry, sizeof entry);
    snprintf(buf, size, "entry %d, %s: %s of %lld %s over the %s group", index, entry,
             z3d_collective_name(c.what.kind), (long long)c.what.count,
             z3d_dtype_name(c.what.dtype), z3d_axes_name(c.what.axes).text);
    size_t used = strlen(buf);
    if (c.child < 0 && c.in->peer >= 0)
        snprintf(buf + used, size - used, ", %s stage %d",
                 c.what.kind == Z3D_COLLECTIVE_SEND ? "to" : "from", c.in->peer);
}

static z3d_status refuse_heads(const world *w, int first, int second, const char *why) {
    char a[256], b[256];
    describe_head(&w->player[first], a, sizeof a);
    describe_head(&w->player[second], b, sizeof b);
    return Z3D_ERROR(Z3D_ERR_PROGRAM, "%s: %s %d runs %s; %s %d runs %s", why, w->whose, first, a,
                     w->whose, second, b);
}

/* ---- the queue ---- */

static bool waits(const lane *l) {
    return l->done < l->started;
}

static bool head_is_transfer(const player *p) {
    const queued *q = head(&p->lane);
    return q->child < 0 && z3d_is_point_to_point(&p->program->instruction[q->entry]);
}

static void schedule(world *w, int rank) {
    player *p = &w->player[rank];
    if (p->scheduled || p->ended) return;
    p->scheduled = true;
    w->to_run[w->num_to_run++] = rank;
}

static void list_head(world *w, int rank) {
    player *p = &w->player[rank];
    if (p->listed || !waits(&p->lane)) return;
    p->listed = true;
    w->heads[w->num_heads++] = rank;
}

static void finish_head(world *w, int rank) {
    w->player[rank].lane.done++;
    schedule(w, rank);
    list_head(w, rank);
}

/* The rank arrives at the collective at its head. The last member of the group ends it for all. */
static z3d_status arrive(world *w, int rank) {
    const call mine = head_call(&w->player[rank]);
    const z3d_axes axes = mine.what.axes;
    meeting *m = &w->meeting[axes * w->count + z3d_mesh_member(w->mesh, axes, rank, 0)];
    if (m->arrived == 0) m->first = rank;
    const call theirs = head_call(&w->player[m->first]);
    if (!same_call(&mine, &theirs))
        return refuse_heads(w, m->first, rank, "ranks of one group run different collectives");
    const int size = z3d_mesh_size(w->mesh, axes);
    if (++m->arrived < size) return Z3D_OK;
    m->arrived = 0;
    for (int i = 0; i < size; i++) finish_head(w, z3d_mesh_member(w->mesh, axes, rank, i));
    return Z3D_OK;
}

/* ---- sends and receives ---- */

static bool are_ends(const call *a, const call *b) {
    bool send = a->what.kind == Z3D_COLLECTIVE_SEND;
    const z3d_instruction *x = a->in, *y = b->in;
    const z3d_opcode_info *info_x = z3d_opcode_info_of(x->opcode);
    const z3d_opcode_info *info_y = z3d_opcode_info_of(y->opcode);
    return b->what.kind == (send ? Z3D_COLLECTIVE_RECV : Z3D_COLLECTIVE_SEND) &&
           info_x->moves == info_y->moves && info_x->subject == info_y->subject &&
           a->what.dtype == b->what.dtype && x->group == y->group && x->unit == y->unit &&
           x->micro == y->micro && a->first == b->first && a->what.count == b->what.count;
}

/* The transfer is over if the head of its peer's queue is its other end. */
static z3d_status meet_peer(world *w, int rank) {
    const call mine = head_call(&w->player[rank]);
    int peer = z3d_mesh_member(w->mesh, mine.what.axes, rank, mine.in->peer);
    const player *other = &w->player[peer];
    if (!waits(&other->lane) || !head_is_transfer(other)) return Z3D_OK;
    const call yours = head_call(other);
    if (z3d_mesh_member(w->mesh, yours.what.axes, peer, yours.in->peer) != rank) return Z3D_OK;
    if (!are_ends(&mine, &yours))
        return refuse_heads(w, rank, peer, "a send and a receive do not belong together");
    finish_head(w, rank);
    finish_head(w, peer);
    return Z3D_OK;
}

/* Ends each collective and transfer that can end: at the listed heads, then at the heads that come
 * after them. */
static z3d_status meet(world *w) {
    while (w->num_heads > 0) {
        int rank = w->heads[--w->num_heads];
        player *p = &w->player[rank];
        p->listed = false;
        if (waits(&p->lane)) Z3D_TRY(head_is_transfer(p) ? meet_peer(w, rank) : arrive(w, rank));
    }
    return Z3D_OK;
}

static z3d_status enqueue(world *w, int rank, queued q) {
    lane *l = &w->player[rank].lane;
    int64_t length = l->started - l->done;
    if (length == l->capacity) {
        int capacity = l->capacity > 0 ? 2 * l->capacity : 8;
        queued *queue = NULL;
        Z3D_TRY(z3d_new((size_t)capacity, sizeof *queue, "verifier", &queue));
        for (int64_t i = l->done; i < l->started; i++)
            queue[i % capacity] = l->queue[i % l->capacity];
        free(l->queue);
        l->queue = queue;
        l->capacity = capacity;
    }
    l->queue[l->started++ % l->capacity] = q;
    if (length > 0) return Z3D_OK;
    list_head(w, rank);
    return meet(w);
}

/* ---- one rank ---- */

static z3d_status fail_entry(const world *w, int rank, int index, const char *why) {
    char entry[128];
    const z3d_program *p = w->player[rank].program;
    return Z3D_ERROR(Z3D_ERR_PROGRAM, "%s %d, entry %d, %s: %s", w->whose, rank, index,
                     z3d_instruction_describe(p, index, entry, sizeof entry), why);
}

static z3d_status wait(world *w, int rank, bool *over) {
    player *p = &w->player[rank];
    int64_t *number = &p->number[p->program->instruction[p->entry].ticket];
    if (*number == IDLE)
        return fail_entry(w, rank, p->entry, "it waits for an entry that was not started");
    *over = *number < p->lane.done;
    if (*over) *number = IDLE;
    return Z3D_OK;
}

/* Puts the collective at the rank's position into the queue, once; *over: it is complete. */
static z3d_status take_part(world *w, int rank, int child, bool *over) {
    player *p = &w->player[rank];
    if (!p->posted) {
        p->posted = true;
        Z3D_TRY(enqueue(w, rank, (queued){p->entry, child}));
    }
    *over = !waits(&p->lane); /* the queue is empty: it was the last */
    if (*over) p->posted = false;
    return Z3D_OK;
}

/* One step of the rank; *over: it need not wait. */
static z3d_status step(world *w, int rank, bool *over) {
    player *p = &w->player[rank];
    const z3d_instruction *in = &p->program->instruction[p->entry];
    *over = true;
    if (p->child < in->num_children && in->phase != Z3D_PHASE_WAIT) {
        Z3D_TRY(take_part(w, rank, p->child, over));
        if (*over) p->child++;
        return Z3D_OK;
    }
    if (in->phase == Z3D_PHASE_START) {
        bool meets = z3d_is_collective(in); /* a copy needs no other rank */
        p->number[in->ticket] = meets ? p->lane.started : COPY;
        if (meets) Z3D_TRY(enqueue(w, rank, (queued){p->entry, -1}));
    } else if (in->phase == Z3D_PHASE_WAIT) {
        Z3D_TRY(wait(w, rank, over));
    } else if (z3d_communicates(in)) {
        Z3D_TRY(take_part(w, rank, -1, over));
    }
    if (*over) {
        p->entry++;
        p->child = 0;
    }
    return Z3D_OK;
}

static z3d_status play(world *w, int rank) {
    player *p = &w->player[rank];
    bool over = true;
    p->scheduled = false;
    while (over && p->entry < p->program->num_instructions) Z3D_TRY(step(w, rank, &over));
    if (p->entry == p->program->num_instructions) p->ended = true;
    return Z3D_OK;
}

/* ---- the end ---- */

/* Names the first four ranks that wait and the first one that does not. */
static z3d_status report_standstill(const world *w) {
    z3d_string text = {0};
    int waiting = 0, ended = 0;
    for (int rank = 0; rank < w->count; rank++) {
        const player *p = &w->player[rank];
        const bool stuck = waits(&p->lane);
        char what[256] = "has ended";
        if (stuck ? waiting++ >= 4 : ended++ >= 1) continue;
        if (stuck) describe_head(p, what, sizeof what);
        z3d_string_append(&text, "%s%s %d %s%s", text.text ? "; " : "", w->whose, rank,
                          stuck ? "waits in " : "", what);
    }
    z3d_status status = Z3D_ERROR(Z3D_ERR_PROGRAM, "no progress, %d of %d %ss wait: %s", waiting,
                                  w->count, w->whose, text.text ? text.text : "");
    z3d_string_free(&text);
    return status;
}

static z3d_status check_ends(const world *w) {
    for (int rank = 0; rank < w->count; rank++) {
        const player *p = &w->player[rank];
        if (!p->ended || waits(&p->lane)) return report_standstill(w);
    }
    for (int rank = 0; rank < w->count; rank++) {
        const player *p = &w->player[rank];
        for (int i = 0; i < p->program->num_instructions; i++) {
            const z3d_instruction *in = &p->program->instruction[i];
            if (in->phase == Z3D_PHASE_START && p->number[in->ticket] != IDLE)
                return fail_entry(w, rank, i, "nothing waits for it");
        }
    }
    return Z3D_OK;
}

/* Whether the unit has a process group over these axes. */
static bool meets_over(const z3d_program *p, int unit, z3d_axes axes) {
    for (int slot = 0; slot < Z3D_MAX_PROCESS_GROUPS; slot++)
        if (z3d_unit_process_axes(&p->model->unit[unit], slot) == axes)
            return axes != Z3D_AXES_NONE;
    return false;
}

/* Refuses entries that cannot be played. */
static z3d_status check_entries(const z3d_program *p, const char *whose, int rank) {
    for (int i = 0; i < p->num_instructions; i++) {
        const z3d_instruction *in = &p->instruction[i];
        const z3d_status status = z3d_verify_fields(p, i);
        if (status != Z3D_OK) return z3d_error_context(status, "%s %d", whose, rank);
        bool known = in->num_children == 0 || (in->unit >= 0 && in->unit < p->model->num_units);
        for (int c = 0; c < in->num_children && known; c++)
            known = meets_over(p, in->unit, in->child[c].axes) &&
                    in->child[c].kind != Z3D_COLLECTIVE_SEND &&
                    in->child[c].kind != Z3D_COLLECTIVE_RECV;
        if (!known)
            return Z3D_ERROR(Z3D_ERR_PROGRAM,
                             "%s %d, entry %d: an inner collective is a send or a receive, or its "
                             "unit has no such process group",
                             whose, rank, i);
    }
    return Z3D_OK;
}

static z3d_status check_world(z3d_program *const *programs, int count) {
    if (count < 1) return Z3D_ERROR(Z3D_ERR_PROGRAM, "a world cannot have %d programs", count);
    const z3d_mesh *mesh = &programs[0]->mesh;
    Z3D_TRY(z3d_mesh_check(mesh));
    if (z3d_mesh_size(mesh, Z3D_AXES_WORLD) != count)
        return Z3D_ERROR(Z3D_ERR_PROGRAM, "%d programs for a world of %d ranks", count,
                         z3d_mesh_size(mesh, Z3D_AXES_WORLD));
    for (int rank = 0; rank < count; rank++) {
        const z3d_program *p = programs[rank];
        if (memcmp(p->mesh.size, mesh->size, sizeof mesh->size) != 0 ||
            p->mode != programs[0]->mode)
            return Z3D_ERROR(Z3D_ERR_PROGRAM,
                             "the programs of rank %d and rank 0 are of different worlds or modes",
                             rank);
        Z3D_TRY(check_entries(p, RANK, rank));
    }
    return Z3D_OK;
}

static z3d_status play_all(world *w, z3d_program *const *programs) {
    size_t count = (size_t)w->count;
    Z3D_TRY(z3d_new(count, sizeof *w->player, "verifier", &w->player));
    Z3D_TRY(z3d_new(count * Z3D_AXES_COUNT, sizeof *w->meeting, "verifier", &w->meeting));
    Z3D_TRY(z3d_new(count, sizeof *w->heads, "verifier", &w->heads));
    Z3D_TRY(z3d_new(count, sizeof *w->to_run, "verifier", &w->to_run));
    for (int rank = 0; rank < w->count; rank++) {
        player *p = &w->player[rank];
        p->program = programs[rank];
        const int tickets = p->program->num_tickets;
        Z3D_TRY(z3d_new((size_t)tickets, sizeof *p->number, "verifier", &p->number));
        for (int t = 0; t < tickets; t++) p->number[t] = IDLE;
    }
    for (int rank = w->count - 1; rank >= 0; rank--) schedule(w, rank);
    while (w->num_to_run > 0) Z3D_TRY(play(w, w->to_run[--w->num_to_run]));
    return check_ends(w);
}

static z3d_status play_world(z3d_program *const *programs, int count, const char *whose,
                             const z3d_mesh *mesh) {
    world w = {.count = count, .whose = whose, .mesh = mesh};
    z3d_status status = play_all(&w, programs);
    for (int rank = 0; w.player != NULL && rank < count; rank++) {
        free(w.player[rank].lane.queue);
        free(w.player[rank].number);
    }
    free(w.player);
    free(w.meeting);
    free(w.heads);
    free(w.to_run);
    return status;
}

z3d_status z3d_program_verify_world(z3d_program *const *programs, int count) {
    Z3D_TRY(check_world(programs, count));
    return play_world(programs, count, RANK, &programs[0]->mesh);
}

/* The programs of a stage's ranks communicate alike, so one of them plays for all. */
z3d_status z3d_program_verify_classes(z3d_program *const *programs, int stages) {
    z3d_mesh alone;
    Z3D_TRY(z3d_mesh_make(1, 1, stages, 0, &alone));
    for (int stage = 0; stage < stages; stage++)
        Z3D_TRY(check_entries(programs[stage], STAGE, stage));
    return play_world(programs, stages, STAGE, &alone);
}
