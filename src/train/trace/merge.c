/* One timeline of all ranks, for Perfetto: a process for each rank, one clock. */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "src/train/trace/trace.h"

typedef struct merge {
    const z3d_trace_run *run;
    int rank;
    double zero; /* seconds, on rank 0's clock: the first event */
    bool any;
    z3d_string *out;
} merge;

static void append_value(z3d_string *out, const z3d_json *value) {
    const char *separator = "";
    switch (value->type) {
    case Z3D_JSON_STRING:
        z3d_string_append_json(out, value->text);
        return;
    case Z3D_JSON_NUMBER:
        z3d_string_append(out, "%s", value->text);
        return;
    case Z3D_JSON_BOOL:
        z3d_string_append(out, value->truth ? "true" : "false");
        return;
    case Z3D_JSON_NULL:
        z3d_string_append(out, "null");
        return;
    default:
        break;
    }
    bool object = value->type == Z3D_JSON_OBJECT;
    z3d_string_append(out, object ? "{" : "[");
    for (const z3d_json *m = value->first; m; m = m->next, separator = ",") {
        z3d_string_append(out, "%s", separator);
        if (object) z3d_string_append_json(out, m->key);
        if (object) z3d_string_append(out, ":");
        append_value(out, m);
    }
    z3d_string_append(out, object ? "}" : "]");
}

/* The event as it is, at its time on the common clock. */
static z3d_status take(void *context, const z3d_trace_line *line) {
    merge *m = context;
    z3d_string *out = m->out;
    double shift = m->run->rank[m->rank].ahead + m->zero;
    const char *separator = m->any ? ",\n{" : "{";
    for (const z3d_json *member = line->json->first; member; member = member->next) {
        z3d_string_append(out, "%s", separator);
        separator = ",";
        z3d_string_append_json(out, member->key);
        z3d_string_append(out, ":");
        if (line->begin > 0 && strcmp(member->key, "ts") == 0)
            z3d_string_append(out, "%.3f", (line->begin - shift) * 1e6);
        else
            append_value(out, member);
    }
    z3d_string_append(out, "}");
    m->any = true;
    return out->failed
               ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a timeline of %d ranks", m->run->count)
               : Z3D_OK;
}

z3d_status z3d_trace_merge(const z3d_trace_run *run, z3d_string *out) {
    z3d_trace_head head;
    merge m = {.run = run, .zero = DBL_MAX, .out = out};
    for (int r = 0; r < run->count; r++) {
        double first = run->rank[r].first - run->rank[r].ahead;
        if (first < m.zero) m.zero = first;
    }
    z3d_string_append(out, "[\n");
    for (m.rank = 0; m.rank < run->count; m.rank++) {
        z3d_string_append(out,
                          "%s{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%d,"
                          "\"args\":{\"sort_index\":%d}}",
                          m.any ? ",\n" : "", m.rank, m.rank);
        m.any = true;
        Z3D_TRY(z3d_trace_read_rank(run, m.rank, &head, take, &m));
    }
    z3d_string_append(out, "\n]\n");
    return out->failed
               ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a timeline of %d ranks", run->count)
               : Z3D_OK;
}
