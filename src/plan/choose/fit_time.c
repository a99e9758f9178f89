/* plan --fit and --recommend: the time of a step, and the causes that lengthen it. */
#include "src/plan/choose/ways.h"

/* The losses' means over the pipeline stages. */
static void find_losses(const z3d_simulation *simulation, double step_flops, z3d_fit_price *out) {
    double replayed = 0, compute = 0, share = 1.0 / simulation->stages, *loss = out->loss;
    for (int s = 0; s < simulation->stages; s++) {
        const z3d_step_time *time = &simulation->stage[s].time;
        loss[Z3D_LOSS_BUBBLE] += share * time->bubble;
        loss[Z3D_LOSS_TENSOR] += share * time->exposed[Z3D_ROLE_PARTS];
        loss[Z3D_LOSS_DATA] +=
            share * (time->exposed[Z3D_ROLE_ROWS] + time->exposed[Z3D_ROLE_BLOCKS] +
                     time->exposed[Z3D_ROLE_NODES]);
        loss[Z3D_LOSS_PIPELINE] += share * time->exposed[Z3D_ROLE_STAGES];
        loss[Z3D_LOSS_TRANSFER] += share * time->transfer;
        loss[Z3D_LOSS_HOST] += share * time->host;
        loss[Z3D_LOSS_DISK] += share * time->disk;
        loss[Z3D_LOSS_FULL_DEVICE] += share * time->allocator;
        loss[Z3D_LOSS_LAUNCH] += share * time->launch;
        double busy = time->seconds - time->bubble - time->allocator - time->launch;
        if (busy > out->busiest) out->busiest = busy;
        compute += share * time->compute;
        replayed += simulation->stage[s].replayed;
    }
    out->recompute = (step_flops + replayed) / step_flops - 1;
    loss[Z3D_LOSS_RECOMPUTE] = compute * replayed / (step_flops + replayed);
}

/* The program whose instructions are timed, and the array for their seconds. */
typedef struct by_unit {
    const z3d_simulation *simulation;
    double *seconds;
} by_unit;

/* Waits for the host do not count: a stage of a pipeline gives the host more time. */
static void add_unit(void *context, const z3d_span *span) {
    const by_unit *to = context;
    const bool waits = span->kind == Z3D_SPAN_WAIT && span->lane == Z3D_LANE_HOST;
    if ((span->kind != Z3D_SPAN_INSTRUCTION && !waits) || span->stage != to->simulation->own ||
        span->instruction < 0)
        return;
    int unit = to->simulation->stage[span->stage].entry[span->instruction].unit;
    if (unit >= 0) to->seconds[unit] += (waits ? -1 : 1) * (span->end - span->begin);
}

z3d_status z3d_fit_price_few(const z3d_fit_frame *w, const z3d_fit_row *row, int64_t accumulation,
                             double *unit, z3d_fit_price *out) {
    z3d_case *of;
    z3d_estimate e;
    *out = (z3d_fit_price){0};
    Z3D_TRY(z3d_fit_apply(w, row, accumulation));
    Z3D_TRY(z3d_case_create(w->config, z3d_mesh_size(&w->mesh, Z3D_AXES_WORLD), 0, w->node, &of));
    by_unit units = {of->simulation, unit};
    z3d_spans spans = {add_unit, &units};
    z3d_status status = z3d_estimate_make(of, w->hardware, 0, unit ? &spans : NULL, &e);
    if (status == Z3D_OK) {
        out->seconds = e.time.seconds;
        out->compute = e.time.compute;
        out->fullest = e.fullest;
        for (int axes = 0; axes < Z3D_AXES_COUNT; axes++) out->bytes += e.time.bytes[axes];
        find_losses(of->simulation, of->model->facts.flops.step, out);
        if (unit)
            z3d_program_ledger(z3d_engine_program(of->simulation->engine, Z3D_MODE_TRAIN),
                               Z3D_SPACE_DEVICE, &out->ledger);
    }
    z3d_case_destroy(of);
    return status;
}

/* A long step is the short step and `more` micro-batches like the middle ones. Each adds the time
 * that it keeps the busiest stage busy, also if the schedule makes up for an earlier wait. */
static void lengthen(z3d_fit_price *p, const z3d_fit_price *shorter, double more) {
    double longer = p->seconds - shorter->seconds, least = p->busiest - shorter->busiest;
    double caught_up = longer < least ? least - longer : 0;
    p->seconds += more * (longer + caught_up);
    p->bytes += more * (p->bytes - shorter->bytes);
    for (int k = 0; k < Z3D_LOSS_COUNT; k++) p->loss[k] += more * (p->loss[k] - shorter->loss[k]);
    p->loss[Z3D_LOSS_BUBBLE] += more * caught_up;
}

z3d_status z3d_fit_time(const z3d_fit_frame *w, double micro, double limit, z3d_fit_row *row,
                        bool *nearly_full) {
    z3d_fit_price p, shorter;
    int64_t few = z3d_fit_few(w, row->accumulation), period = w->layout.pipeline;
    Z3D_TRY(z3d_fit_price_few(w, row, few, NULL, &p));
    *nearly_full = p.loss[Z3D_LOSS_FULL_DEVICE] > 0;
    if (w->rough) {
        row->memory = p.fullest;
        z3d_fit_add_batch(w, row, row->micro_batch, few);
    }
    row->seconds = p.seconds + (double)(row->accumulation - few) * micro;
    if (row->seconds >= limit) return Z3D_OK;
    if (row->accumulation > few) {
        Z3D_TRY(z3d_fit_price_few(w, row, few - period, NULL, &shorter));
        lengthen(&p, &shorter, (double)(row->accumulation - few) / (double)period);
    }
    row->seconds = p.seconds;
    row->bytes_sent = p.bytes;
    row->recompute = p.recompute;
    for (int k = 0; k < Z3D_LOSS_COUNT; k++) row->loss[k] = p.loss[k];
    return Z3D_OK;
}
