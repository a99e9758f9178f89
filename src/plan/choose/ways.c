/* plan --fit and --recommend: which ways there are, and a cheap bound of each one's time and
 * memory. */
#include "src/plan/choose/ways.h"

#include <math.h>
#include <stdlib.h>

/* Room for one more; they are moved at each power of two. */
static z3d_status grow(void **array, int count, size_t size) {
    if (count & (count - 1)) return Z3D_OK;
    void *bigger = realloc(*array, (count ? 2 * (size_t)count : 1) * size);
    if (!bigger) return Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory for %d ways", count);
    *array = bigger;
    return Z3D_OK;
}

/* What the configuration or the model refuses is no way. */
static bool is_refused(z3d_status status) {
    return status == Z3D_ERR_CONFIG || status == Z3D_ERR_TOPOLOGY;
}

/* ---- layouts ---- */

static z3d_status open_frame(const z3d_ways *w, z3d_config *config, const z3d_fit_layout *layout,
                             int64_t batch, z3d_fit_frame *out) {
    *out = (z3d_fit_frame){.config = config,
                           .hardware = w->hardware,
                           .rough = true,
                           .replay = w->replay,
                           .checkpoints = w->checkpoints,
                           .micros = config == w->alone ? 0 : w->fixed.micros};
    z3d_fit_apply_layout(config, layout);
    config->train_batch_size = batch;
    config->train_micro_batch_size_per_gpu = 1;
    config->gradient_accumulation_steps = Z3D_AUTO;
    return z3d_fit_open(out, layout->tensor * layout->pipeline * layout->data);
}

/* With sequence parallelism where the model allows it, if the user does not say. */
static z3d_status open_either(const z3d_ways *w, z3d_fit_layout layout, z3d_fit_frame *out) {
    z3d_config *config = layout.pipeline > 1 ? w->config : w->flat;
    layout.sequence_parallel = layout.tensor > 1 && w->fixed.sequence_parallel != 0;
    layout.across_nodes = layout.tensor > 1 && w->fixed.across_nodes;
    z3d_status status = open_frame(w, config, &layout, w->batch, out);
    if (!is_refused(status) || !layout.sequence_parallel || w->fixed.sequence_parallel == 1)
        return status;
    z3d_fit_close(out);
    layout.sequence_parallel = false;
    return open_frame(w, config, &layout, w->batch, out);
}

static z3d_status add_layout(z3d_ways *w, z3d_fit_layout layout) {
    Z3D_TRY(grow((void **)&w->frame, w->frames, sizeof *w->frame));
    z3d_fit_frame *frame = &w->frame[w->frames];
    z3d_status status = open_either(w, layout, frame);
    if (status == Z3D_OK) {
        w->frames++;
        return Z3D_OK;
    }
    z3d_fit_close(frame);
    w->refusal = status;
    return is_refused(status) ? Z3D_OK : status;
}

static bool takes_chunks(int schedule, int chunks) {
    if (schedule == Z3D_PIPELINE_INTERLEAVED) return chunks > 1;
    if (schedule == Z3D_PIPELINE_ZB_V) return chunks == 2;
    return schedule == Z3D_PIPELINE_FILE || chunks == 1;
}

/* gpipe needs more memory than 1f1b and is not faster. */
static bool is_tried(const z3d_fixed *fixed, int schedule) {
    if (fixed->schedule) return schedule == fixed->schedule;
    return schedule != Z3D_PIPELINE_GPIPE && schedule != Z3D_PIPELINE_FILE;
}

static z3d_status add_schedules(z3d_ways *w, z3d_fit_layout layout, int64_t units) {
    const int some[] = {1, 2, 4}, *chunks = w->fixed.chunks ? &w->fixed.chunks : some;
    int count = w->fixed.chunks ? 1 : sizeof some / sizeof *some;
    layout.chunks = 1;
    layout.schedule = Z3D_PIPELINE_AUTO;
    if (layout.pipeline == 1) return add_layout(w, layout);
    for (int schedule = Z3D_PIPELINE_1F1B; schedule <= Z3D_PIPELINE_FILE; schedule++)
        for (int k = 0; k < count && is_tried(&w->fixed, schedule); k++) {
            layout.schedule = schedule;
            layout.chunks = chunks[k];
            if (takes_chunks(schedule, chunks[k]) && (int64_t)layout.pipeline * chunks[k] <= units)
                Z3D_TRY(add_layout(w, layout));
        }
    return Z3D_OK;
}

static bool may_be_tensor(const z3d_ways *w, const z3d_model_sizes *sizes, int t) {
    bool anywhere = w->fixed.across_nodes;
    if (w->ranks % t != 0) return false;
    if (w->fixed.tensor) return t == w->fixed.tensor;
    return sizes->tensor_limit % t == 0 && (anywhere || (int)w->hardware->devices % t == 0);
}

static bool may_be_pipeline(const z3d_ways *w, int rest, int p) {
    if (rest % p != 0 || w->batch % (rest / p) != 0 || p < w->fixed.least_pipeline) return false;
    return !w->fixed.pipeline || p == w->fixed.pipeline;
}

static z3d_status refuse_layouts(const z3d_ways *w, const z3d_model_sizes *sizes) {
    bool some = w->fixed.tensor || w->fixed.pipeline || w->fixed.chunks || w->fixed.schedule;
    if (w->refusal != Z3D_OK) return w->refusal;
    return Z3D_ERROR(
        Z3D_ERR_CONFIG,
        "no tensor, pipeline and data size for %d ranks and train_batch_size %lld%s: the "
        "model has %lld units for pipeline stages, tensor sizes divide %lld%s, and "
        "data sizes divide the batch",
        w->ranks, (long long)w->batch, some ? ", with those that the configuration sets" : "",
        (long long)sizes->units, (long long)sizes->tensor_limit,
        w->fixed.across_nodes ? "" : " and the devices of a node");
}

static z3d_status add_layouts(z3d_ways *w) {
    z3d_model_sizes sizes;
    Z3D_TRY(z3d_model_sizes_of(w->config, &sizes));
    for (int t = 1; t <= w->ranks; t++) {
        int rest = w->ranks / t;
        if (!may_be_tensor(w, &sizes, t)) continue;
        for (int p = 1; p <= rest && p <= sizes.units; p++) {
            z3d_fit_layout layout = {.tensor = t, .pipeline = p, .data = rest / p};
            if (may_be_pipeline(w, rest, p)) Z3D_TRY(add_schedules(w, layout, sizes.units));
        }
    }
    return w->frames > 0 ? Z3D_OK : refuse_layouts(w, &sizes);
}

/* ---- bounds ---- */

/* The tensor groups of the same size, alone. */
typedef struct alone_group {
    z3d_fit_frame frame;
    int count;
    z3d_alone *known;
} alone_group;

static z3d_status find_alone(alone_group *g, int granularity, int64_t micro_batch, z3d_alone *out) {
    z3d_fit_price one, two;
    for (int i = 0; i < g->count; i++)
        if (g->known[i].granularity == granularity && g->known[i].micro_batch == micro_batch) {
            *out = g->known[i];
            return Z3D_OK;
        }
    z3d_fit_row row = {.granularity = granularity, .micro_batch = micro_batch};
    Z3D_TRY(z3d_fit_price_few(&g->frame, &row, 1, &one));
    Z3D_TRY(z3d_fit_price_few(&g->frame, &row, 2, &two));
    double first = one.seconds - one.loss[Z3D_LOSS_FULL_DEVICE],
           both = two.seconds - two.loss[Z3D_LOSS_FULL_DEVICE];
    *out = (z3d_alone){granularity, micro_batch, both - first, first - (both - first), {0}};
    for (int k = 0; k < Z3D_CATEGORY_COUNT; k++) out->peak[k] = one.ledger.peak[k];
    Z3D_TRY(grow((void **)&g->known, g->count, sizeof *g->known));
    g->known[g->count++] = *out;
    return Z3D_OK;
}

static void decide(int stage, z3d_fit_tiers tiers, z3d_kept kept[Z3D_PART_COUNT]) {
    const z3d_program_config config = {.stage = stage,
                                       .accumulation = 2,
                                       .reduce_per_step = z3d_states_reduce_per_step(stage),
                                       .offload = {.optimizer = z3d_plan_space(tiers.optimizer),
                                                   .parameters = z3d_plan_space(tiers.parameters)}};
    z3d_states_decide(&config, true, kept);
}

bool z3d_way_shards(int stage, z3d_group_part part) {
    z3d_kept kept[Z3D_PART_COUNT];
    decide(stage, (z3d_fit_tiers){0, 0}, kept);
    return kept[part].rows == Z3D_ROWS_OWN;
}

/* Parameters that are kept elsewhere come once for each micro-batch at least. So do gradients, and
 * go back; but all are kept at least once, and the first time nothing is added to. */
static z3d_fit_copies least_copied(const z3d_ways *w, const z3d_alone *alone, double micros,
                                   const z3d_way *way) {
    const z3d_fit_layout *layout = &w->frame[way->frame].layout;
    const double parts = (double)layout->pipeline * layout->data;
    const double parameters = (double)alone->peak[Z3D_CATEGORY_PARAMETERS] / parts,
                 gradients = (double)alone->peak[Z3D_CATEGORY_GRADIENTS] / parts;
    double times = way->gather == Z3D_PIPELINE_GATHER_PER_STEP ? 1 : micros;
    z3d_fit_copies out = {0};
    z3d_kept kept[Z3D_PART_COUNT];
    decide(way->stage, way->tiers, kept);
    const z3d_space from = kept[Z3D_PART_PARAMETERS].space, at = kept[Z3D_PART_GRADIENTS].space;
    if (!w->all) return out;
    if (from != Z3D_SPACE_DEVICE) out.link += times * parameters;
    if (from == Z3D_SPACE_DISK) out.read += times * parameters;
    if (at != Z3D_SPACE_DEVICE) out.link += (2 * micros - 1) * gradients;
    if (at == Z3D_SPACE_DISK) out.read += (micros - 1) * gradients, out.write += micros * gradients;
    return out;
}

/* Stages of equal work, free communication over data ranks and between stages, and the schedule's
 * bubble (docs/pipelines.md) with the least shares that its halves can have: a weight half is at
 * most a third of a micro-batch's work, a forward at least a quarter. What is copied for the
 * micro-batches goes beside their work; the host steps behind it. A device steps no slower than the
 * host. */
static double least_seconds(const z3d_ways *w, const z3d_alone *alone, double micros,
                            const z3d_way *way) {
    const z3d_fit_layout *layout = &w->frame[way->frame].layout;
    const double shards = z3d_way_shards(way->stage, Z3D_PART_OPTIMIZER) ? layout->data : 1;
    const double states = (double)alone->peak[Z3D_CATEGORY_OPTIMIZER];
    double p = layout->pipeline, work = alone->pass / p, idle = (p - 1) * work;
    if (layout->schedule == Z3D_PIPELINE_FILE) idle = 0;
    if (layout->schedule == Z3D_PIPELINE_INTERLEAVED) idle /= layout->chunks;
    if (layout->schedule == Z3D_PIPELINE_ZB_H1) idle /= 3;
    if (layout->schedule == Z3D_PIPELINE_ZB_V) idle /= 8;
    double copies = z3d_tiers_copies(w, least_copied(w, alone, micros, way));
    double step = z3d_tiers_step(w, way->tiers, states / p / shards);
    double rest = alone->rest / p / shards;
    work = micros * work + idle;
    return (copies > work ? copies : work) + (w->all && step > rest ? step : rest);
}

/* The stage that needs most has the average of the states at least. Of activations, stage 0 keeps
 * as many micro-batches as there are stages; half of what the whole model has for one is less than
 * that, also where units are not equal. */
static void least_bytes(const z3d_ways *w, const z3d_alone *alone, double micros, z3d_way *way) {
    static const z3d_category category[] = {[Z3D_PART_PARAMETERS] = Z3D_CATEGORY_PARAMETERS,
                                            [Z3D_PART_GRADIENTS] = Z3D_CATEGORY_GRADIENTS,
                                            [Z3D_PART_OPTIMIZER] = Z3D_CATEGORY_OPTIMIZER};
    const z3d_fit_layout *layout = &w->frame[way->frame].layout;
    double p = layout->pipeline, few = micros < p ? micros / p : 1, *bytes = way->bytes;
    bool elsewhere = way->partition || way->offload;
    z3d_kept kept[Z3D_PART_COUNT];
    decide(way->stage, way->tiers, kept);
    if (!elsewhere)
        bytes[Z3D_SPACE_DEVICE] = 0.5 * few * (double)alone->peak[Z3D_CATEGORY_ACTIVATIONS];
    for (int part = 0; part < Z3D_PART_COUNT; part++) {
        bool whole = part == Z3D_PART_PARAMETERS && way->gather == Z3D_PIPELINE_GATHER_PER_STEP;
        double all = (double)alone->peak[category[part]] / p,
               own = kept[part].rows == Z3D_ROWS_OWN ? all / layout->data : all;
        if (whole) bytes[Z3D_SPACE_DEVICE] += all;
        if (kept[part].space != Z3D_SPACE_DEVICE && !w->all) continue; /* a share of it */
        if (!whole || kept[part].space != Z3D_SPACE_DEVICE) bytes[kept[part].space] += own;
    }
}

/* ---- ways ---- */

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

/* *any: it may fit. */
static z3d_status add_way(z3d_ways *w, const z3d_alone *alone, z3d_way way, bool *any) {
    const z3d_fit_frame *f = &w->frame[way.frame];
    int64_t count = f->samples / alone->micro_batch;
    double micros = (double)count;
    way.granularity = alone->granularity;
    way.micro_batch = alone->micro_batch;
    way.seconds = least_seconds(w, alone, micros, &way);
    least_bytes(w, alone, micros, &way);
    *any = *any || z3d_way_may_fit(w, &way);
    Z3D_TRY(grow((void **)&w->way, w->count, sizeof *w->way));
    w->way[w->count++] = way;
    return Z3D_OK;
}

/* Both, where it makes a difference and is not given. */
static z3d_status add_gathers(z3d_ways *w, const z3d_alone *alone, z3d_way way, bool *any) {
    const z3d_fit_layout *layout = &w->frame[way.frame].layout;
    if (layout->pipeline == 1 || layout->data == 1 ||
        !z3d_way_shards(way.stage, Z3D_PART_PARAMETERS))
        return add_way(w, alone, way, any);
    for (int gather = Z3D_PIPELINE_GATHER_PER_STEP; gather <= Z3D_PIPELINE_GATHER_PER_MICROBATCH;
         gather++) {
        way.gather = gather;
        if (!w->fixed.gather || gather == w->fixed.gather) Z3D_TRY(add_way(w, alone, way, any));
    }
    return Z3D_OK;
}

/* One data rank has no shards: its stages differ only in what may be kept elsewhere, gradients from
 * 2 on, parameters in 3. */
static bool makes_sense(const z3d_fit_layout *layout, int stage, z3d_fit_tiers tiers) {
    const bool parameters = z3d_way_shards(stage, Z3D_PART_PARAMETERS);
    if (tiers.parameters != Z3D_OFFLOAD_DEVICE_NONE) return parameters;
    if (layout->data > 1 || !z3d_way_shards(stage, Z3D_PART_OPTIMIZER)) return true;
    return z3d_way_shards(stage, Z3D_PART_GRADIENTS) && !parameters &&
           tiers.optimizer != Z3D_OFFLOAD_DEVICE_NONE;
}

/* Without a choice along an axis the values are alike: one tensor rank has nothing to share, nor
 * have ranks whose checkpoints are parts by nature (sequence parallelism); one data rank no shards.
 * *any: one of them may fit. */
static z3d_status add_methods(z3d_ways *w, int frame, const z3d_alone *alone, bool *any) {
    const z3d_fit_layout *layout = &w->frame[frame].layout;
    bool full = alone->granularity == Z3D_GRANULARITY_FULL,
         shares = full && layout->tensor > 1 && !layout->sequence_parallel;
    *any = false;
    for (int t = 0; t < w->num_tiers; t++)
        for (int stage = 0; stage <= 3; stage++)
            for (int partition = 0; partition <= shares; partition++)
                for (int offload = 0; offload <= full; offload++) {
                    const z3d_way way = {.frame = frame,
                                         .stage = stage,
                                         .tiers = w->tiers[t],
                                         .partition = partition,
                                         .offload = offload};
                    if (makes_sense(layout, stage, way.tiers))
                        Z3D_TRY(add_gathers(w, alone, way, any));
                }
    return Z3D_OK;
}

static z3d_status add_ways(z3d_ways *w, int frame, alone_group *group) {
    enum { FEW_FRAMES = 16, FEW_DIVISORS = 32 };
    const z3d_fit_frame *f = &w->frame[frame];
    int64_t ratio = w->frames <= FEW_FRAMES && f->divisors <= FEW_DIVISORS ? 1 : 2;
    for (int granularity = 0; granularity <= Z3D_GRANULARITY_NONE; granularity++) {
        int64_t last = 0;
        bool any = true;
        for (int i = 0; i < f->divisors && any; i++) {
            z3d_alone alone;
            if (f->divisor[i] < ratio * last) continue;
            last = f->divisor[i];
            z3d_status status = find_alone(group, granularity, last, &alone);
            if (is_refused(status)) { /* sizes beyond 64 bits, or what ranks cannot be */
                w->refusal = status;
                break;
            }
            Z3D_TRY(status);
            Z3D_TRY(add_methods(w, frame, &alone, &any));
        }
    }
    return Z3D_OK;
}

/* Layouts first .. last - 1 have the same tensor size. */
static z3d_status add_group(z3d_ways *w, int first, int last) {
    alone_group group = {.count = 0};
    z3d_fit_layout alone = w->frame[first].layout;
    alone.pipeline = alone.data = alone.chunks = 1;
    alone.schedule = Z3D_PIPELINE_AUTO;
    z3d_status status = open_frame(w, w->alone, &alone, 2, &group.frame);
    for (int f = first; f < last && status == Z3D_OK; f++) status = add_ways(w, f, &group);
    z3d_fit_close(&group.frame);
    free(group.known);
    return status;
}

static int compare(int64_t a, int64_t b) {
    return (a > b) - (a < b);
}

static int tier_of(const z3d_way *way) {
    return way->tiers.parameters * Z3D_TIERS + way->tiers.optimizer;
}

static int by_seconds(const void *a, const void *b) {
    const z3d_way *x = a, *y = b;
    int order = (x->seconds > y->seconds) - (x->seconds < y->seconds);
    if (!order) order = compare(tier_of(x), tier_of(y));
    if (!order) order = compare(x->stage, y->stage);
    if (!order) order = compare(x->frame, y->frame);
    if (!order) order = compare(y->granularity, x->granularity);
    if (!order) order = compare(x->micro_batch, y->micro_batch);
    if (!order) order = compare(x->partition + 2 * x->offload, y->partition + 2 * y->offload);
    return order ? order : compare(x->gather, y->gather);
}

z3d_status z3d_ways_open(z3d_ways *w) {
    Z3D_TRY(add_layouts(w));
    for (int first = 0, last; first < w->frames; first = last) {
        for (last = first; last < w->frames; last++)
            if (w->frame[last].layout.tensor != w->frame[first].layout.tensor) break;
        Z3D_TRY(add_group(w, first, last));
    }
    if (w->count == 0) return w->refusal;
    qsort(w->way, (size_t)w->count, sizeof *w->way, by_seconds);
    return Z3D_OK;
}

void z3d_ways_close(z3d_ways *w) {
    for (int f = 0; f < w->frames; f++) z3d_fit_close(&w->frame[f]);
    free(w->frame);
    free(w->way);
    z3d_config_destroy(w->flat);
    z3d_config_destroy(w->alone);
}
