/* The spans of this rank as Chrome trace events. */
#include "src/plan/price/simulate.h"

#include <stdio.h>

static const char *name_lane(int lane) {
    static const char *const names[] = {"copies", "disk", "disk writes", "host"};
    _Static_assert(sizeof names / sizeof *names == Z3D_LANES - Z3D_LANE_COPY, "a name each");
    return names[lane - Z3D_LANE_COPY];
}

static const char *name_of(int lane, z3d_axes_text *axes) {
    if (lane >= Z3D_LANE_COPY) return name_lane(lane);
    *axes = z3d_axes_name((z3d_axes)lane);
    return axes->text;
}

/* Row 0 is compute; a row for each group follows, then the other lanes. */
static int row_of(const z3d_simulation *simulation, int lane) {
    int row = 1;
    for (int before = 0; before < lane; before++)
        if (before >= Z3D_LANE_COPY || simulation->group[before]) row++;
    return row;
}

static void name_row(const z3d_timeline *t, int row, const char *name, const char *what) {
    z3d_string_append(t->out,
                      "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{"
                      "\"name\":\"%s%s\"}},\n",
                      t->simulation->mesh.rank, row, name, what);
}

void z3d_timeline_begin(const z3d_timeline *t) {
    z3d_string_append(t->out, "%s,\n", z3d_output_timeline.begins);
    name_row(t, 0, "compute", "");
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++)
        if (t->simulation->group[axes])
            name_row(t, row_of(t->simulation, axes), z3d_axes_name((z3d_axes)axes).text, " group");
    for (int lane = Z3D_LANE_COPY; lane < Z3D_LANES; lane++)
        name_row(t, row_of(t->simulation, lane), name_lane(lane), "");
}

void z3d_timeline_take(void *timeline, const z3d_span *span) {
    static const char *const category[] = {"compute", "wait", "wait", "beside"};
    const z3d_timeline *t = timeline;
    const z3d_simulation *simulation = t->simulation;
    char text[96];
    z3d_axes_text axes = {""};
    const char *name = "bubble";
    if (span->stage != simulation->own) return;
    if (span->kind == Z3D_SPAN_INSTRUCTION)
        name = z3d_instruction_describe(z3d_engine_program(simulation->engine, Z3D_MODE_TRAIN),
                                        span->instruction, text, sizeof text);
    if (span->kind == Z3D_SPAN_BESIDE) name = name_of(span->lane, &axes);
    if (span->kind == Z3D_SPAN_WAIT) {
        snprintf(text, sizeof text, "wait: %s", name_of(span->lane, &axes));
        name = text;
    }
    z3d_string_append(t->out, "{\"name\":");
    z3d_string_append_json(t->out, name);
    z3d_string_append(
        t->out, ",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f},\n",
        category[span->kind], simulation->mesh.rank,
        span->kind == Z3D_SPAN_BESIDE ? row_of(simulation, span->lane) : 0, span->begin * 1e6,
        (span->end - span->begin) * 1e6);
}

void z3d_timeline_end(const z3d_timeline *t) {
    z3d_string_append(t->out, "{}]\n");
}
