/* plan --fit and --recommend: lower bounds of a candidate's time and memory, from one micro-batch
 * on a tensor group that has the whole model. A bound may be too low, but never too high, because
 * then the search could drop one of the best candidates. */
#include <math.h>
#include <stdlib.h>

#include "src/plan/choose/ways.h"
#include "zero/program/layout.h"

/* ---- a tensor group alone ---- */

/* Bytes that each unit keeps of a micro-batch for its backward; 0 if blocks are recomputed. */
static z3d_status find_saved(const z3d_fit_frame *frame, const z3d_fit_row *row, double *saved) {
    const z3d_model *model = frame->model;
    z3d_program_config program;
    z3d_layout *layout = NULL;
    z3d_traces *traces = NULL;
    if (row->granularity == Z3D_GRANULARITY_FULL) return Z3D_OK;
    Z3D_TRY(z3d_fit_apply(frame, row, 1));
    Z3D_TRY(z3d_plan_program_config(frame->config, model, &program));
    z3d_status status = z3d_layout_create(model, &frame->mesh, NULL, &layout);
    if (status == Z3D_OK) status = z3d_traces_record(model, layout, &program, 1, &traces);
    for (int u = 0; u < model->num_units && status == Z3D_OK; u++) {
        const z3d_trace *trace = z3d_traces_of(traces, Z3D_MODE_TRAIN, u, Z3D_CALL_FORWARD);
        if (u >= layout->first_trained) saved[u] = (double)trace->saved;
    }
    z3d_traces_destroy(traces);
    z3d_layout_destroy(layout);
    z3d_plan_program_config_release(&program);
    return status;
}

static z3d_status price_alone(z3d_fit_frame *frame, z3d_alone *out) {
    z3d_fit_price one, two;
    const z3d_fit_row row = {.granularity = out->granularity, .micro_batch = out->micro_batch};
    int units = frame->model->num_units;
    Z3D_TRY(z3d_new((size_t)units, sizeof *out->unit, "units", &out->unit));
    Z3D_TRY(z3d_new((size_t)units, sizeof *out->saved, "units", &out->saved));
    Z3D_TRY(z3d_fit_price_few(frame, &row, 1, out->unit, &one));
    for (int u = 0; u < units; u++) out->unit[u] = -out->unit[u];
    Z3D_TRY(z3d_fit_price_few(frame, &row, 2, out->unit, &two));
    Z3D_TRY(find_saved(frame, &row, out->saved));
    double first = one.seconds - one.loss[Z3D_LOSS_FULL_DEVICE] - one.loss[Z3D_LOSS_LAUNCH],
           both = two.seconds - two.loss[Z3D_LOSS_FULL_DEVICE] - two.loss[Z3D_LOSS_LAUNCH];
    out->pass = both - first;
    out->compute = two.compute - one.compute;
    out->rest = one.compute - out->compute;
    for (int k = 0; k < Z3D_CATEGORY_COUNT; k++) out->peak[k] = one.ledger.peak[k];
    return Z3D_OK;
}

void z3d_alone_release(z3d_alone *alone) {
    free(alone->unit);
    free(alone->saved);
}

z3d_status z3d_ways_alone(z3d_ways *w, z3d_fit_frame *frame, int granularity, int64_t micro_batch,
                          int *index) {
    z3d_alone made = {
        .layout = frame->layout, .granularity = granularity, .micro_batch = micro_batch};
    for (*index = 0; *index < w->num_alone; ++*index) {
        const z3d_alone *a = &w->alone_group[*index];
        if (z3d_same_tensor_groups(&a->layout, &made.layout) && a->granularity == granularity &&
            a->micro_batch == micro_batch)
            return Z3D_OK;
    }
    z3d_status status = price_alone(frame, &made);
    if (status == Z3D_OK)
        status = z3d_grow(w->num_alone, &w->alone_capacity, sizeof *w->alone_group, "tensor groups",
                          &w->alone_group);
    if (status == Z3D_OK)
        w->alone_group[w->num_alone++] = made;
    else
        z3d_alone_release(&made);
    return status;
}

/* ---- resident states ---- */

static void decide(int stage, bool reduce_per_step, z3d_fit_tiers tiers,
                   z3d_state state[Z3D_MAX_STATES]) {
    const z3d_program_config config = {.stage = stage,
                                       .accumulation = 2,
                                       .reduce_per_step = reduce_per_step,
                                       .offload = {.optimizer = z3d_plan_space(tiers.optimizer),
                                                   .parameters = z3d_plan_space(tiers.parameters)}};
    z3d_states_decide(&config, Z3D_ROLE_ROWS, INT64_MAX, true, false, state);
}

/* When gradients are reduced decides only whether ranks keep their own rows of gradients, not of
 * other states. */
bool z3d_way_shards(int stage, z3d_state_role role) {
    z3d_state state[Z3D_MAX_STATES];
    decide(stage, z3d_states_reduce_per_step(stage), (z3d_fit_tiers){0}, state);
    return state[role].at.sharded != Z3D_AXES_NONE;
}

/* The stage that needs most has at least the average of the states. Stage 0 keeps the activations
 * of as many micro-batches as there are stages. Half of the whole model's activations of one
 * micro-batch is less than that, also if units are not equal. */
static void least_bytes(const z3d_ways *w, const z3d_alone *alone, double micros, z3d_way *way) {
    const z3d_fit_layout *layout = &w->frame[way->frame].layout;
    double p = layout->pipeline, few = micros < p ? micros / p : 1, *bytes = way->bytes;
    bool elsewhere = way->partition || way->offload;
    z3d_state state[Z3D_MAX_STATES];
    decide(way->stage, z3d_plan_reduces_per_step(w->config, way->stage), way->tiers, state);
    if (!elsewhere) way->kept = 0.5 * few * (double)alone->peak[Z3D_CATEGORY_ACTIVATIONS];
    bytes[Z3D_SPACE_DEVICE] = way->kept;
    for (int role = 0; role < Z3D_STATE_COUNT; role++) {
        bool whole = role == Z3D_STATE_VALUE && way->gather == Z3D_PIPELINE_GATHER_PER_STEP;
        const int parts = layout->cut == Z3D_CUT_HYBRID ? layout->inner : layout->data;
        double all = (double)alone->peak[z3d_state_class_of(NULL, role)->category] / p,
               own = state[role].at.sharded != Z3D_AXES_NONE ? all / parts : all;
        if (state[role].kinds == 0) continue;
        if (whole) bytes[Z3D_SPACE_DEVICE] += all;
        if (state[role].at.space != Z3D_SPACE_DEVICE && !w->all) continue; /* a part stays */
        if (!whole || state[role].at.space != Z3D_SPACE_DEVICE) bytes[state[role].at.space] += own;
    }
}

double z3d_ways_capacity(const z3d_ways *w, int space) {
    const z3d_hardware *h = w->hardware;
    const double share = 1073741824.0 / z3d_hardware_node_ranks(h, w->ranks);
    if (space == Z3D_SPACE_DEVICE) return h->memory_gib * 1073741824.0 - h->overhead_gb * 1e9;
    if (space == Z3D_SPACE_HOST) return h->host_memory_gib * share;
    return h->nvme_gib > 0 ? h->nvme_gib * share : INFINITY;
}

bool z3d_way_may_fit(const z3d_ways *w, const z3d_way *way) {
    for (int space = 0; space < Z3D_SPACE_COUNT; space++)
        if (way->bytes[space] > z3d_ways_capacity(w, space)) return false;
    return true;
}

/* ---- seconds, with stages of equal work ---- */

/* Parameters that are not on the device are copied to it at least once for each micro-batch.
 * Gradients are copied in and out for each micro-batch, but the first micro-batch only writes
 * them. */
static z3d_fit_copies least_copied(const z3d_ways *w, const z3d_alone *alone, double micros,
                                   const z3d_way *way) {
    const z3d_fit_layout *layout = &w->frame[way->frame].layout;
    const double parts = (double)layout->pipeline * layout->data;
    const double parameters = (double)alone->peak[Z3D_CATEGORY_PARAMETERS] / parts,
                 gradients = (double)alone->peak[Z3D_CATEGORY_GRADIENTS] / parts;
    double times = way->gather == Z3D_PIPELINE_GATHER_PER_STEP ? 1 : micros;
    z3d_fit_copies out = {0};
    z3d_state state[Z3D_MAX_STATES];
    decide(way->stage, z3d_plan_reduces_per_step(w->config, way->stage), way->tiers, state);
    const z3d_space from = state[Z3D_STATE_VALUE].at.space, at = state[Z3D_STATE_GRADIENT].at.space;
    if (!w->all) return out;
    if (from != Z3D_SPACE_DEVICE) out.link += times * parameters;
    if (from == Z3D_SPACE_DISK) out.read += times * parameters;
    /* The gradient of a table that two chunks use stays on the device until its sum is complete.
     * The table is in one unit; gradients are at most twice as wide as parameters. */
    const double table = layout->pipeline > 1 ? 2 * w->frame[way->frame].largest_unit / parts : 0,
                 others = fmax(0, gradients - table);
    if (at != Z3D_SPACE_DEVICE) out.link += gradients + 2 * (micros - 1) * others;
    if (at == Z3D_SPACE_DISK) out.read += (micros - 1) * others, out.write += micros * others;
    return out;
}

/* Bytes of the matrices that the average pipeline stage sends through its data group: gradients
 * once a step or once a micro-batch; with ZeRO-3 also parameters before each pass of a chunk over
 * its units, except those of the unit that the pass before has ended with. Types are at least as
 * wide as the parameters'. */
static double least_sent(const z3d_ways *w, const z3d_alone *alone, double micros,
                         const z3d_way *way) {
    const z3d_fit_frame *frame = &w->frame[way->frame];
    double own = (double)alone->peak[Z3D_CATEGORY_PARAMETERS] / frame->layout.pipeline,
           kept = (double)frame->layout.chunks * frame->largest_unit,
           trained = own * frame->trained;
    double out = z3d_plan_reduces_per_step(w->config, way->stage) ? trained : micros * trained;
    if (!z3d_way_shards(way->stage, Z3D_STATE_VALUE) ||
        w->config->zero_optimization_stage3_param_persistence_threshold > 0 ||
        w->config->zero_optimization_stage3_max_reuse_distance > 0)
        return out;
    if (way->gather == Z3D_PIPELINE_GATHER_PER_STEP) return out + own;
    const int passes = frame->trained < 1 ? 1 : 2; /* frozen units may have no backward */
    return own > kept ? out + passes * micros * (own - kept) : out;
}

/* Seconds in which a data group's links are busy: at least the time of one collective that moves
 * all bytes. 0 (no bound) if the machine has measured times, because those of several sizes need
 * not add up, and if the data axis is cut, because it sends less. */
static double least_busy(const z3d_ways *w, const z3d_alone *alone, double micros,
                         const z3d_way *way) {
    const z3d_fit_frame *frame = &w->frame[way->frame];
    const int members = frame->layout.data;
    if (frame->layout.cut != Z3D_CUT_NONE) return 0;
    if (members == 1 || (w->hardware->measured.count > 0 && frame->links.nodes == 1)) return 0;
    double elements = least_sent(w, alone, micros, way) / members / 4;
    const z3d_event event = {.kind = Z3D_EVENT_START,
                             .of = Z3D_COLLECTIVE_REDUCE_SCATTER,
                             .dtype = Z3D_F32,
                             .count = (int64_t)elements};
    return z3d_links_collective(w->hardware, &frame->links, &event);
}

double z3d_way_once(const z3d_ways *w, const z3d_way *way) {
    const z3d_fit_frame *frame = &w->frame[way->frame];
    const z3d_alone *alone = &w->alone_group[w->work[way->work].alone];
    if (frame->layout.cut != Z3D_CUT_NONE) return INFINITY;
    const z3d_event event = {.kind = Z3D_EVENT_START,
                             .of = Z3D_COLLECTIVE_ALL_REDUCE,
                             .dtype = Z3D_F32,
                             .count = alone->peak[Z3D_CATEGORY_GRADIENTS] / 4};
    return 2 * z3d_links_collective(w->hardware, &frame->links, &event) / frame->layout.pipeline;
}

/* Seconds after the micro-batches, on the average stage: the optimizer's step on the device or the
 * host. A delayed update runs beside the next step's micro-batches and counts 0. */
static double least_tail(const z3d_ways *w, const z3d_alone *alone, const z3d_way *way) {
    if (w->config->zero_optimization_offload_optimizer_delayed_param_update &&
        way->tiers.optimizer != Z3D_OFFLOAD_DEVICE_NONE)
        return 0;
    const z3d_fit_layout *layout = &w->frame[way->frame].layout;
    const double shards = z3d_way_shards(way->stage, Z3D_STATE_OPTIMIZER) ? layout->data : 1,
                 parts = shards * layout->pipeline, rest = alone->rest / parts,
                 states = (double)alone->peak[Z3D_CATEGORY_OPTIMIZER];
    return w->all ? fmax(z3d_tiers_step(w, way->tiers, states / parts), rest) : rest;
}

/* The longest of three times. (1) Stages of equal work, with free communication over data ranks and
 * between stages, and the schedule's bubble, with the least shares that its halves can have: a
 * weight half is at most a third of a micro-batch's work, a forward at least a quarter. (2) The
 * copies of the micro-batches, which run beside their work. Both have a tail (least_tail). (3) The
 * data group's links, which work at full speed only while no kernel runs. */
static double least_seconds(const z3d_ways *w, const z3d_alone *alone, double micros,
                            const z3d_way *way) {
    const z3d_fit_frame *frame = &w->frame[way->frame];
    const z3d_fit_layout *layout = &frame->layout;
    double p = layout->pipeline, work = alone->pass / p, idle = (p - 1) * work;
    const z3d_schedule_row *row =
        z3d_schedule_row_of(z3d_schedule_of_key(layout->schedule, layout->chunks));
    idle = row->bubble > 0 ? idle / (row->bubble * layout->chunks) : 0;
    double copies = z3d_tiers_copies(w, least_copied(w, alone, micros, way));
    double busy = least_busy(w, alone, micros, way);
    double beside = z3d_hardware_overlap(w->hardware, frame->links.nodes > 1);
    work = fmax(micros * work + idle, copies) + least_tail(w, alone, way);
    return fmax(work, busy + (1 - beside) * micros * alone->compute / p);
}

void z3d_way_bound(const z3d_ways *w, z3d_way *way) {
    const z3d_alone *alone = &w->alone_group[w->work[way->work].alone];
    const int64_t micros = w->frame[way->frame].samples / alone->micro_batch;
    way->seconds = least_seconds(w, alone, (double)micros, way);
    least_bytes(w, alone, (double)micros, way);
}

/* ---- with the units that each stage has ---- */

static double chunk_sum(const z3d_pipeline_config *pipeline, int chunk, const double *unit) {
    double sum = 0;
    for (int u = pipeline->first_unit[chunk]; u < pipeline->first_unit[chunk + 1]; u++)
        sum += unit[u];
    return sum;
}

static double stage_sum(const z3d_fit_frame *frame, const z3d_pipeline_config *pipeline, int stage,
                        const double *unit) {
    const int stages = frame->layout.pipeline, chunks = stages * frame->layout.chunks;
    double sum = 0;
    for (int c = 0; c < chunks; c++)
        if (z3d_schedule_stage(pipeline->schedule, stages, c) == stage)
            sum += chunk_sum(pipeline, c, unit);
    return sum;
}

/* Every stage works on all micro-batches. Before its first pass and after its last pass a stage
 * waits for the stages before it: their first forwards and last backwards. In schedules with weight
 * halves it waits less. */
static void find_longest(const z3d_fit_frame *frame, const z3d_pipeline_config *pipeline,
                         const z3d_alone *alone, double micros, z3d_fit_work *out) {
    const z3d_schedule_row *row = z3d_schedule_row_of(pipeline->schedule);
    const int stages = frame->layout.pipeline;
    double before = 0, wait = row->bubble == 0 ? 0 : row->halves ? 0.25 : 1;
    for (int s = 0; s < stages; s++) {
        double stage = stage_sum(frame, pipeline, s, alone->unit),
               seconds = micros * stage + wait * before;
        out->micro = fmax(out->micro, stage);
        if (seconds > out->seconds) {
            out->seconds = seconds;
            out->share = stages * stage_sum(frame, pipeline, s, frame->share);
        }
        before += chunk_sum(pipeline, s, alone->unit); /* the first chunk of each stage */
    }
}

/* Before its first backward, stage 0 has run the forward of as many micro-batches as there are
 * stages, through all its chunks. If the chunks go down and up, it has run twice as many less one
 * through its first chunk, and one through its last chunk. */
static void find_kept(const z3d_fit_frame *frame, const z3d_pipeline_config *pipeline,
                      const z3d_alone *alone, double micros, z3d_fit_work *out) {
    const int stages = frame->layout.pipeline;
    if (pipeline->schedule == Z3D_SCHEDULE_FILE) return;
    if (z3d_schedule_row_of(pipeline->schedule)->v)
        out->kept = fmin(micros, 2 * stages - 1) * chunk_sum(pipeline, 0, alone->saved) +
                    chunk_sum(pipeline, 2 * stages - 1, alone->saved);
    else
        out->kept = fmin(micros, stages) * stage_sum(frame, pipeline, 0, alone->saved);
}

static z3d_status find_work(const z3d_ways *w, const z3d_way *way, z3d_fit_work *out) {
    const z3d_fit_frame *frame = &w->frame[way->frame];
    const z3d_alone *alone = &w->alone_group[out->alone];
    const int64_t micros = frame->samples / way->micro_batch;
    const z3d_fit_row row = {.layout = frame->layout,
                             .stage = way->stage,
                             .granularity = way->granularity,
                             .micro_batch = way->micro_batch};
    z3d_program_config program;
    int data;
    out->known = true;
    out->micro = alone->pass / frame->layout.pipeline;
    if (frame->layout.pipeline == 1) return Z3D_OK;
    Z3D_TRY(z3d_fit_apply(frame, &row, micros));
    z3d_status status = z3d_config_resolve(frame->config, &z3d_model_rules, w->ranks, &data);
    if (status == Z3D_OK) status = z3d_plan_program_config(frame->config, frame->model, &program);
    if (status == Z3D_ERR_CONFIG) return Z3D_OK; /* pricing reports the error */
    Z3D_TRY(status);
    find_longest(frame, &program.pipeline, alone, (double)micros, out);
    find_kept(frame, &program.pipeline, alone, (double)micros, out);
    z3d_plan_program_config_release(&program);
    return Z3D_OK;
}

z3d_status z3d_way_tighten(z3d_ways *w, z3d_way *way) {
    z3d_fit_work *work = &w->work[way->work];
    way->tight = true;
    if (!work->known) Z3D_TRY(find_work(w, way, work));
    const z3d_alone *alone = &w->alone_group[work->alone];
    way->seconds = fmax(way->seconds, work->seconds + work->share * least_tail(w, alone, way));
    if (!way->partition && !way->offload && work->kept > way->kept)
        way->bytes[Z3D_SPACE_DEVICE] += work->kept - way->kept;
    return Z3D_OK;
}
