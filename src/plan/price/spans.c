/* The spans of a played step: this rank's as Chrome trace events; all pipeline stages' as a
 * picture. */
#include "src/plan/price/estimate.h"

#include "src/plan/timeline_picture.h"
#include "zero/program/layout.h"

/* ---- Chrome trace events ---- */

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
    fprintf(t->file,
            "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":"
            "\"%s%s\"}},\n",
            t->simulation->mesh.rank, row, name, what);
}

void z3d_timeline_begin(const z3d_timeline *t) {
    fprintf(t->file, "%s,\n", z3d_output_timeline.begins);
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

/* ---- a picture, with a row for each pipeline stage ---- */

typedef struct drawing {
    const z3d_simulation *simulation;
    z3d_timeline_picture *picture;
} drawing;

static void take(void *context, const z3d_span *span) {
    const drawing *d = context;
    z3d_timeline_span drawn = {
        .row = span->stage, .micro = -1, .chunk = -1, .begin = span->begin, .end = span->end};
    if (span->kind == Z3D_SPAN_INSTRUCTION) {
        const z3d_sim_entry *entry = &d->simulation->stage[span->stage].entry[span->instruction];
        if (!z3d_timeline_kind_of(entry->opcode, &drawn.kind)) return;
        drawn.micro = entry->micro;
        if (entry->unit >= 0)
            drawn.chunk = z3d_engine_layout(d->simulation->engine)->chunk_of_unit[entry->unit];
    } else if (span->kind == Z3D_SPAN_BESIDE ||
               (span->kind == Z3D_SPAN_WAIT && span->lane == Z3D_LANE_HOST)) {
        return; /* the host's optimizer step is drawn as its instruction */
    } else {
        drawn.kind = span->kind == Z3D_SPAN_WAIT ? Z3D_TIMELINE_EXPOSED : Z3D_TIMELINE_BUBBLE;
    }
    z3d_timeline_picture_take(d->picture, &drawn);
}

static z3d_timeline_shares shares_of(const z3d_simulation *simulation) {
    z3d_timeline_shares shares = {0};
    for (int s = 0; s < simulation->stages; s++) {
        const z3d_step_time *t = &simulation->stage[s].time;
        shares.compute += t->compute + t->host;
        shares.bubble += t->bubble;
        shares.exposed += t->seconds - t->compute - t->host - t->bubble;
    }
    return shares;
}

z3d_status z3d_schedule_picture(const z3d_case *of, const z3d_hardware *hardware, z3d_string *out) {
    const z3d_simulation *simulation = of->simulation;
    drawing d = {.simulation = simulation};
    z3d_spans spans = {take, &d};
    z3d_step_time time;
    z3d_string title = {0};
    Z3D_TRY(z3d_simulation_play(simulation, hardware, 0, NULL, &time));
    Z3D_TRY(z3d_timeline_picture_create(simulation->stages, time.seconds, &d.picture));
    z3d_status status = z3d_simulation_play(simulation, hardware, 0, &spans, &time);
    z3d_timeline_title(of->model, &of->mesh, &of->program, &title);
    z3d_string_append(&title, " on %s", hardware->device);
    z3d_timeline_head head = {title.text ? title.text : "", "pipeline stage", "seconds (predicted)",
                              NULL};
    z3d_timeline_shares shares = shares_of(simulation);
    z3d_status drawn =
        z3d_timeline_picture_finish(d.picture, &head, &shares, status == Z3D_OK ? out : NULL);
    z3d_string_free(&title);
    return status == Z3D_OK ? drawn : status;
}
