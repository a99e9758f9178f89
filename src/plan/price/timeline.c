/* The spans of this rank as Chrome trace events. */
#include "src/plan/price/simulate.h"

/* Compute is row 0, then one for each group, then the copies. */
static int row_of(const z3d_simulation *simulation, int lane) {
    int row = 1;
    for (int axes = 0; axes < lane; axes++)
        if (simulation->group[axes]) row++;
    return row;
}

static void name_row(const z3d_timeline *t, int row, const char *name, const char *what) {
    fprintf(t->file,
            "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":"
            "\"%s%s\"}},\n",
            t->simulation->mesh.rank, row, name, what);
}

void z3d_timeline_begin(const z3d_timeline *t) {
    fprintf(t->file, "[\n");
    name_row(t, 0, "compute", "");
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++)
        if (t->simulation->group[axes])
            name_row(t, row_of(t->simulation, axes), z3d_axes_name((z3d_axes)axes).text, " group");
    name_row(t, row_of(t->simulation, Z3D_LANE_COPY), "copies", "");
}

void z3d_timeline_take(void *timeline, const z3d_span *span) {
    static const char *const category[] = {"compute", "wait", "wait", "beside"};
    const z3d_timeline *t = timeline;
    const z3d_simulation *simulation = t->simulation;
    char text[96];
    z3d_axes_text axes = {""};
    const char *name = span->kind == Z3D_SPAN_WAIT ? "wait" : "bubble";
    if (span->stage != simulation->own) return;
    if (span->kind == Z3D_SPAN_INSTRUCTION)
        name = z3d_instruction_describe(z3d_engine_program(simulation->engine, Z3D_MODE_TRAIN),
                                        span->instruction, text, sizeof text);
    if (span->kind == Z3D_SPAN_BESIDE && span->lane < Z3D_AXES_COUNT)
        axes = z3d_axes_name((z3d_axes)span->lane);
    if (span->kind == Z3D_SPAN_BESIDE) name = span->lane == Z3D_LANE_COPY ? "copy" : axes.text;
    z3d_string json = {0};
    z3d_string_append_json(&json, name);
    fprintf(t->file,
            "{\"name\":%s,\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,"
            "\"dur\":%.3f},\n",
            json.text ? json.text : "\"?\"", category[span->kind], simulation->mesh.rank,
            span->kind == Z3D_SPAN_BESIDE ? row_of(simulation, span->lane) : 0, span->begin * 1e6,
            (span->end - span->begin) * 1e6);
    z3d_string_free(&json);
}

void z3d_timeline_end(const z3d_timeline *t) {
    fprintf(t->file, "{}]\n");
}
