/* A picture of the played timeline, with a row for each pipeline stage. */
#include "src/plan/price/estimate.h"
#include "src/plan/timeline_picture.h"
#include "zero/program/layout.h"

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
