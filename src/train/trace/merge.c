/* One timeline of all ranks, for Perfetto: a process for each rank, on one clock. A transfer beside
 * compute also has a bar of its own, from its start to the end of its wait. */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "src/train/trace/trace.h"

enum { FIRST_ROW = 16 }; /* the first tid of rows with such bars: larger than those in a file */

/* A transfer in flight; its index in the list is its row. */
typedef struct flight {
    int ticket; /* -1: the row is free */
    int entry;  /* the entry of its start */
    double begin;
    char *name;
} flight;

typedef struct merge {
    const z3d_trace_run *run;
    int rank;
    double zero; /* when the first event began, seconds on rank 0's clock */
    int rows;    /* of this rank */
    flight *flight;
    z3d_string *out;
} merge;

static double microseconds(const merge *m, double seconds) {
    return (seconds - m->run->rank[m->rank].ahead - m->zero) * 1e6;
}

/* ---- transfers in flight ---- */

static void land(flight *f) {
    free(f->name);
    *f = (flight){.ticket = -1};
}

static flight *find(const merge *m, int ticket) {
    for (int r = 0; r < m->rows; r++)
        if (m->flight[r].ticket == ticket) return &m->flight[r];
    return NULL;
}

static z3d_status add_row(merge *m) {
    flight *more = realloc(m->flight, ((size_t)m->rows + 1) * sizeof *more);
    if (!more) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for what a rank has started");
    m->flight = more;
    m->flight[m->rows] = (flight){.ticket = -1};
    z3d_string_append(m->out,
                      ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
                      "\"args\":{\"name\":\"beside compute %d\"}}",
                      m->rank, FIRST_ROW + m->rows, m->rows + 1);
    m->rows++;
    return Z3D_OK;
}

static z3d_status take_off(merge *m, const z3d_trace_line *line) {
    const char *name = z3d_json_text(line->json, "name");
    if (strncmp(name, "start ", 6) == 0) name += 6;
    if (!find(m, -1)) Z3D_TRY(add_row(m));
    flight *f = find(m, -1);
    f->name = strdup(name);
    if (!f->name) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for what a rank has started");
    f->ticket = line->event->ticket;
    f->entry = line->event->entry;
    f->begin = line->event->begin;
    return Z3D_OK;
}

static void append_flight(const merge *m, const flight *f, const z3d_trace_event *wait) {
    z3d_string *out = m->out;
    z3d_string_append(out, ",\n{\"name\":");
    z3d_string_append_json(out, f->name);
    z3d_string_append(out,
                      ",\"cat\":\"beside\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%d,"
                      "\"tid\":%d,\"args\":{\"step\":%lld,\"started_by\":%d,\"awaited_by\":%d}}",
                      microseconds(m, f->begin), (wait->end - f->begin) * 1e6, m->rank,
                      FIRST_ROW + (int)(f - m->flight), (long long)wait->step, f->entry,
                      wait->entry);
}

/* An incomplete step leaves transfers in flight; the next step begins without them. */
static z3d_status follow(merge *m, const z3d_trace_line *line) {
    const z3d_trace_event *e = line->event;
    if (!e || e->wait || e->ticket < 0) return Z3D_OK;
    flight *f = find(m, e->ticket);
    if (e->phase == Z3D_PHASE_WAIT && f && f->begin <= e->end) append_flight(m, f, e);
    if (f) land(f);
    return e->phase == Z3D_PHASE_START ? take_off(m, line) : Z3D_OK;
}

static void land_all(merge *m) {
    for (int r = 0; r < m->rows; r++) land(&m->flight[r]);
    free(m->flight);
    m->flight = NULL;
    m->rows = 0;
}

/* ---- events ---- */

/* Appends the event unchanged, except for its time on the common clock. */
static z3d_status take(void *context, const z3d_trace_line *line) {
    merge *m = context;
    z3d_string *out = m->out;
    const char *separator = ",\n{";
    for (const z3d_json *member = line->json->first; member; member = member->next) {
        z3d_string_append(out, "%s", separator);
        separator = ",";
        z3d_string_append_json(out, member->key);
        z3d_string_append(out, ":");
        if (line->begin > 0 && strcmp(member->key, "ts") == 0)
            z3d_string_append(out, "%.3f", microseconds(m, line->begin));
        else
            z3d_json_append(member, "", out);
    }
    z3d_string_append(out, "}");
    Z3D_TRY(follow(m, line));
    return out->failed
               ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a timeline of %d ranks", m->run->count)
               : Z3D_OK;
}

static z3d_status merge_rank(merge *m) {
    z3d_trace_head head;
    if (m->rank == 0)
        z3d_string_append(m->out, "%s", z3d_output_timeline.begins);
    else
        z3d_string_append(m->out,
                          ",\n{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%d,"
                          "\"args\":{\"sort_index\":%d}}",
                          m->rank, m->rank);
    z3d_status status = z3d_trace_read_rank(m->run, m->rank, &head, take, m);
    land_all(m);
    return status;
}

z3d_status z3d_trace_merge(const z3d_trace_run *run, z3d_string *out) {
    merge m = {.run = run, .zero = DBL_MAX, .out = out};
    for (int r = 0; r < run->count; r++) {
        double first = run->rank[r].first - run->rank[r].ahead;
        if (first < m.zero) m.zero = first;
    }
    for (m.rank = 0; m.rank < run->count; m.rank++) Z3D_TRY(merge_rank(&m));
    z3d_string_append(out, "\n]\n");
    return out->failed
               ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a timeline of %d ranks", run->count)
               : Z3D_OK;
}
