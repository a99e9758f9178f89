/* The use of one step's time on all ranks, and its picture. */
#include <stdio.h>
#include <stdlib.h>

#include "src/train/trace/trace.h"

/* The events of the step on one rank, on rank 0's clock: instructions in order; the waits of an
 * instruction are directly before it in the list and inside its time. */
typedef struct timeline {
    const z3d_trace_rank *rank;
    int64_t step;
    z3d_trace_event *event;
    int count, kept; /* kept: up to the last instruction of the step */
    int64_t capacity;
    int stage;
    double *met;    /* by ticket: when the other rank started a send or receive; 0: unknown */
    double control; /* when the rank began to wait in step_control */
} timeline;

typedef struct timelines {
    const z3d_trace_run *run;
    timeline *rank;
    double begin, end; /* of the step, on all ranks */
} timelines;

/* ---- the events of the step ---- */

static double clamp(double value, double low, double high) {
    return value < low ? low : value > high ? high : value;
}

/* Corrects rounded times: no events overlap, and waits are inside their instruction. */
static void put_in_order(timeline *t, z3d_trace_event *e) {
    double before = t->kept > 0 ? t->event[t->kept - 1].end : e->begin;
    if (e->begin < before) e->begin = before;
    if (e->end < e->begin) e->end = e->begin;
    before = e->begin;
    for (int w = t->kept; w < t->count; w++) {
        t->event[w].begin = clamp(t->event[w].begin, before, e->end);
        before = t->event[w].end = clamp(t->event[w].end, t->event[w].begin, e->end);
    }
}

static z3d_status take(void *context, const z3d_trace_line *line) {
    timeline *t = context;
    if (!line->event && line->begin == 0) return Z3D_OK;
    bool own = line->event && (line->event->wait || line->event->step == t->step);
    if (!own) { /* earlier waits belong to another program or step */
        t->count = t->kept;
        return Z3D_OK;
    }
    z3d_trace_event e = *line->event;
    e.begin -= t->rank->ahead;
    e.end -= t->rank->ahead;
    if (!e.wait) put_in_order(t, &e);
    Z3D_TRY(z3d_grow(t->count, &t->capacity, sizeof e, "a timeline's events", &t->event));
    t->event[t->count++] = e;
    if (!e.wait) t->kept = t->count;
    return Z3D_OK;
}

static z3d_status read_timeline(timelines *all, int r) {
    const z3d_trace_rank *rank = &all->run->rank[r];
    const z3d_mesh *mesh = &rank->head.mesh;
    timeline *t = &all->rank[r];
    z3d_trace_head head;
    *t = (timeline){.rank = rank,
                    .step = all->run->step,
                    .stage = z3d_mesh_index(mesh, Z3D_ROLE_STAGES, mesh->rank)};
    Z3D_TRY(z3d_trace_read_rank(all->run, r, &head, take, t));
    t->count = t->kept;
    if (t->count == 0)
        return Z3D_ERROR(Z3D_ERR_DATA, "%.300s/trace-rank%d.json changed while it was read",
                         all->run->folder, r);
    Z3D_TRY(z3d_new((size_t)t->count, sizeof *t->met, "a timeline", &t->met));
    if (r == 0 || t->event[0].begin < all->begin) all->begin = t->event[0].begin;
    if (r == 0 || t->event[t->count - 1].end > all->end) all->end = t->event[t->count - 1].end;
    return Z3D_OK;
}

/* ---- matching sends and receives ---- */

/* The next start of a send to that pipeline stage, or of a receive from it. */
static const z3d_trace_event *next_start(const timeline *t, int stage, int *at) {
    while (*at < t->count) {
        const z3d_trace_event *e = &t->event[(*at)++];
        bool is = !e->wait && e->phase == Z3D_PHASE_START && e->peer == stage;
        if (is && e->ticket >= 0 && e->ticket < t->count) return e;
    }
    return NULL;
}

/* Matches the transfers of two ranks, which have the same order on both. */
static void meet(const timelines *all, timeline *t) {
    const z3d_mesh *mesh = &t->rank->head.mesh;
    int stages = z3d_mesh_size(mesh, Z3D_ROLE_STAGES);
    for (int stage = 0; stage < stages; stage++) {
        int peer = z3d_mesh_member(mesh, Z3D_ROLE_STAGES, mesh->rank, stage), here = 0, there = 0;
        const z3d_trace_event *mine, *other;
        while ((mine = next_start(t, stage, &here)) &&
               (other = next_start(&all->rank[peer], t->stage, &there)))
            t->met[mine->ticket] = other->begin;
    }
}

static void find_control(timeline *t) {
    for (int n = 0; n < t->count; n++) {
        const z3d_trace_event *e = &t->event[n];
        if (e->wait || e->opcode != Z3D_OP_STEP_CONTROL) continue;
        bool waits = n > 0 && t->event[n - 1].wait;
        t->control = waits ? t->event[n - 1].begin : e->end;
    }
}

/* The time until which a wait in instruction e was for the other pipeline stage; after it, the wait
 * was for the transfer. */
static double bubble_end(const timelines *all, const timeline *t, const z3d_trace_event *e) {
    double until = 0;
    if (e->peer >= 0 && e->ticket >= 0 && e->ticket < t->count) return t->met[e->ticket];
    if (e->opcode != Z3D_OP_STEP_CONTROL) return 0;
    for (int r = 0; r < all->run->count; r++)
        if (all->rank[r].stage != t->stage && all->rank[r].control > until)
            until = all->rank[r].control;
    return until;
}

/* ---- the use of the time ---- */

typedef struct account {
    const timelines *all;
    z3d_timeline_picture *picture; /* NULL: none */
    int row;
    z3d_timeline_shares shares; /* of this row */
} account;

static void draw(account *a, z3d_timeline_kind kind, const z3d_trace_event *e, double begin,
                 double end) {
    double zero = a->all->begin;
    z3d_timeline_span span = {kind,         a->row,    e ? e->micro : -1, e ? e->chunk : -1,
                              begin - zero, end - zero};
    if (kind == Z3D_TIMELINE_EXPOSED) a->shares.exposed += end - begin;
    if (kind == Z3D_TIMELINE_BUBBLE) a->shares.bubble += end - begin;
    if (a->picture && end > begin) z3d_timeline_picture_take(a->picture, &span);
}

/* Counts an instruction and the waits before it in the list. */
static void count(account *a, const timeline *t, int first, int instruction) {
    const z3d_trace_event *e = &t->event[instruction];
    bool copy =
        e->phase == Z3D_PHASE_WAIT && z3d_opcode_info_of(e->opcode)->rules == Z3D_CLASS_COPY;
    double waited = 0, until = bubble_end(a->all, t, e);
    z3d_timeline_kind kind;
    if (z3d_timeline_kind_of(e->opcode, &kind)) draw(a, kind, e, e->begin, e->end);
    for (int w = first; w < instruction && !copy; w++) {
        const z3d_trace_event *wait = &t->event[w];
        double middle = clamp(until, wait->begin, wait->end);
        draw(a, Z3D_TIMELINE_BUBBLE, NULL, wait->begin, middle);
        draw(a, Z3D_TIMELINE_EXPOSED, NULL, middle, wait->end);
        waited += wait->end - wait->begin;
    }
    if (copy) draw(a, Z3D_TIMELINE_EXPOSED, NULL, e->begin, e->end);
    if (!copy) a->shares.compute += e->end - e->begin - waited;
}

/* After its last instruction a rank waits for the other pipeline stages. Time before its first
 * instruction and between two instructions is outside of the step. */
static void account_for(account *a, const timeline *t) {
    int stages = z3d_mesh_size(&t->rank->head.mesh, Z3D_ROLE_STAGES), first = 0;
    double last = t->event[t->count - 1].end;
    a->shares = (z3d_timeline_shares){0};
    for (int n = 0; n < t->count; n++) {
        if (t->event[n].wait) continue;
        count(a, t, first, n);
        first = n + 1;
    }
    if (stages > 1) draw(a, Z3D_TIMELINE_BUBBLE, NULL, last, a->all->end);
    a->shares.outside =
        a->all->end - a->all->begin - a->shares.compute - a->shares.exposed - a->shares.bubble;
}

static void append_row(z3d_string *text, const char *rank, const char *stage,
                       const z3d_timeline_shares *s) {
    double all = s->compute + s->exposed + s->bubble + s->outside;
    z3d_string_append(text, "%5s  %5s  %8.2f  %8.2f  %8.2f  %8.2f\n", rank, stage,
                      100 * s->compute / all, 100 * s->exposed / all, 100 * s->bubble / all,
                      100 * s->outside / all);
}

static z3d_status report(const timelines *all, z3d_timeline_picture *picture, int *stage,
                         z3d_timeline_shares *sum, z3d_string *text) {
    account a = {.all = all, .picture = picture};
    char rank[16], at[16];
    z3d_string_append(text,
                      "%s\nstep %lld: %.4g s; %% of it on each rank\n\n rank  stage   compute   "
                      "exposed    bubble   outside\n",
                      all->run->rank[0].head.run, (long long)all->run->step, all->end - all->begin);
    for (a.row = 0; a.row < all->run->count; a.row++) {
        const timeline *t = &all->rank[a.row];
        account_for(&a, t);
        stage[a.row] = t->stage;
        snprintf(rank, sizeof rank, "%d", a.row);
        snprintf(at, sizeof at, "%d", t->stage);
        append_row(text, rank, at, &a.shares);
        sum->compute += a.shares.compute;
        sum->exposed += a.shares.exposed;
        sum->bubble += a.shares.bubble;
        sum->outside += a.shares.outside;
    }
    append_row(text, "all", "", sum);
    if (all->run->cut >= 0) {
        const z3d_trace_rank *cut = &all->run->rank[all->run->cut];
        z3d_string_append(
            text, "\ntrace-rank%d.json ends within step %lld: it is cut, or the run is not over\n",
            all->run->cut, (long long)cut->step[cut->num_steps - 1].step);
    }
    return text->failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the text") : Z3D_OK;
}

/* ---- public functions ---- */

static z3d_status read_all(timelines *all) {
    for (int r = 0; r < all->run->count; r++) Z3D_TRY(read_timeline(all, r));
    if (all->end <= all->begin)
        return Z3D_ERROR(Z3D_ERR_DATA, "%.300s: step %lld takes no time", all->run->folder,
                         (long long)all->run->step);
    for (int r = 0; r < all->run->count; r++) meet(all, &all->rank[r]);
    for (int r = 0; r < all->run->count; r++) find_control(&all->rank[r]);
    return Z3D_OK;
}

z3d_status z3d_trace_step_report(const z3d_trace_run *run, z3d_string *text, z3d_string *picture) {
    timelines all = {.run = run};
    z3d_timeline_picture *drawn = NULL;
    z3d_timeline_shares sum = {0};
    z3d_string title = {0};
    int *stage = NULL;
    z3d_status status, finished;
    Z3D_TRY(z3d_new((size_t)run->count, sizeof *all.rank, "timelines", &all.rank));
    Z3D_TRY_GOTO(status, z3d_new((size_t)run->count, sizeof *stage, "timelines", &stage), release);
    Z3D_TRY_GOTO(status, read_all(&all), release);
    if (picture)
        Z3D_TRY_GOTO(status, z3d_timeline_picture_create(run->count, all.end - all.begin, &drawn),
                     release);
    status = report(&all, drawn, stage, &sum, text);
    z3d_string_append(&title, "%s, step %lld", run->rank[0].head.run, (long long)run->step);
    z3d_timeline_head head = {title.text ? title.text : "", "rank", "seconds", stage};
    finished = z3d_timeline_picture_finish(drawn, &head, &sum, status == Z3D_OK ? picture : NULL);
    if (status == Z3D_OK) status = finished;
release:
    for (int r = 0; r < run->count; r++) {
        free(all.rank[r].event);
        free(all.rank[r].met);
    }
    free(all.rank);
    free(stage);
    z3d_string_free(&title);
    return status;
}
