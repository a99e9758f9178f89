/* plan --recommend: which ways there are, and a cheap bound of each one's time and memory. */
#include "src/plan/choose/ways.h"

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

static z3d_status open_frame(const z3d_ways *w, const z3d_fit_layout *layout, int64_t batch,
                             z3d_fit_frame *out) {
    z3d_config *c = w->config;
    *out = (z3d_fit_frame){.config = c, .hardware = w->hardware, .rough = true};
    z3d_fit_apply_layout(c, layout);
    c->train_batch_size = batch;
    c->train_micro_batch_size_per_gpu = 1;
    c->gradient_accumulation_steps = Z3D_AUTO;
    return z3d_fit_open(out, layout->tensor * layout->pipeline * layout->data);
}

/* With sequence parallelism where the model allows it, if the user does not say. */
static z3d_status open_either(const z3d_ways *w, z3d_fit_layout layout, int64_t batch,
                              z3d_fit_frame *out) {
    layout.sequence_parallel = layout.tensor > 1 && w->sequence_parallel != 0;
    z3d_status status = open_frame(w, &layout, batch, out);
    if (!is_refused(status) || !layout.sequence_parallel || w->sequence_parallel == 1)
        return status;
    z3d_fit_close(out);
    layout.sequence_parallel = false;
    return open_frame(w, &layout, batch, out);
}

static z3d_status add_layout(z3d_ways *w, z3d_fit_layout layout) {
    Z3D_TRY(grow((void **)&w->frame, w->frames, sizeof *w->frame));
    z3d_fit_frame *frame = &w->frame[w->frames];
    z3d_status status = open_either(w, layout, w->batch, frame);
    if (status == Z3D_OK) {
        w->frames++;
        return Z3D_OK;
    }
    z3d_fit_close(frame);
    if (!is_refused(status)) return status;
    if (w->refused.tensor == 0) w->refused = layout;
    return Z3D_OK;
}

/* gpipe needs more memory than 1f1b and is not faster. */
static z3d_status add_schedules(z3d_ways *w, z3d_fit_layout layout, int64_t units) {
    static const struct {
        int schedule, chunks;
    } choice[] = {{Z3D_PIPELINE_1F1B, 1},
                  {Z3D_PIPELINE_INTERLEAVED, 2},
                  {Z3D_PIPELINE_INTERLEAVED, 4},
                  {Z3D_PIPELINE_ZB_H1, 1},
                  {Z3D_PIPELINE_ZB_V, 2}};
    if (layout.pipeline == 1) {
        layout.schedule = Z3D_PIPELINE_AUTO;
        layout.chunks = 1;
        return add_layout(w, layout);
    }
    for (size_t i = 0; i < sizeof choice / sizeof *choice; i++) {
        layout.schedule = choice[i].schedule;
        layout.chunks = choice[i].chunks;
        if ((int64_t)layout.pipeline * layout.chunks <= units) Z3D_TRY(add_layout(w, layout));
    }
    return Z3D_OK;
}

/* If it is not the sizes, it is something else in the configuration. */
static z3d_status refuse_all(z3d_ways *w, const z3d_model_sizes *sizes) {
    if (w->refused.tensor > 0) {
        z3d_fit_frame frame;
        z3d_status status = open_either(w, w->refused, w->batch, &frame);
        z3d_fit_close(&frame);
        if (status != Z3D_OK) return status;
    }
    return Z3D_ERROR(
        Z3D_ERR_CONFIG,
        "no tensor, pipeline and data size for %d ranks and train_batch_size %lld: the "
        "model has %lld units for pipeline stages, tensor sizes divide %lld%s, and "
        "data sizes divide the batch",
        w->ranks, (long long)w->batch, (long long)sizes->units, (long long)sizes->tensor_limit,
        w->config->parallel_allow_tensor_across_nodes ? "" : " and the devices of a node");
}

static z3d_status add_layouts(z3d_ways *w) {
    z3d_model_sizes sizes;
    bool anywhere = w->config->parallel_allow_tensor_across_nodes;
    int devices = (int)w->hardware->devices;
    Z3D_TRY(z3d_model_sizes_of(w->config, &sizes));
    for (int t = 1; t <= w->ranks; t++) {
        if (w->ranks % t != 0 || sizes.tensor_limit % t != 0) continue;
        if (!anywhere && devices % t != 0) continue;
        for (int p = 1; p <= w->ranks / t && p <= sizes.units; p++) {
            int data = w->ranks / t / p;
            if (w->ranks / t % p == 0 && w->batch % data == 0)
                Z3D_TRY(add_schedules(w, (z3d_fit_layout){.tensor = t, .pipeline = p, .data = data},
                                      sizes.units));
        }
    }
    return w->frames > 0 ? Z3D_OK : refuse_all(w, &sizes);
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

bool z3d_way_shards(int stage, z3d_group_part part) {
    const z3d_program_config config = {
        .stage = stage, .accumulation = 2, .reduce_per_step = z3d_states_reduce_per_step(stage)};
    z3d_kept kept[Z3D_PART_COUNT];
    z3d_states_decide(&config, kept);
    return kept[part].rows == Z3D_ROWS_OWN;
}

/* Stages of equal work, free communication over data ranks and between stages, and the schedule's
 * bubble (docs/pipelines.md) with the least shares that its halves can have: a weight half is at
 * most a third of a micro-batch's work, a forward at least a quarter. */
static double least_seconds(const z3d_fit_layout *layout, const z3d_alone *alone, double micros,
                            int stage) {
    double p = layout->pipeline, work = alone->pass / p, idle = (p - 1) * work;
    if (layout->schedule == Z3D_PIPELINE_INTERLEAVED) idle /= layout->chunks;
    if (layout->schedule == Z3D_PIPELINE_ZB_H1) idle /= 3;
    if (layout->schedule == Z3D_PIPELINE_ZB_V) idle /= 8;
    return micros * work + idle +
           alone->rest / p / (z3d_way_shards(stage, Z3D_PART_OPTIMIZER) ? layout->data : 1);
}

/* The stage that needs most has the average of the states at least. Of activations, stage 0 keeps
 * as many micro-batches as there are stages; half of what the whole model has for one is less than
 * that, also where units are not equal. */
static double least_bytes(const z3d_fit_layout *layout, const z3d_alone *alone, double micros,
                          int stage) {
    static const z3d_category category[] = {[Z3D_PART_PARAMETERS] = Z3D_CATEGORY_PARAMETERS,
                                            [Z3D_PART_GRADIENTS] = Z3D_CATEGORY_GRADIENTS,
                                            [Z3D_PART_OPTIMIZER] = Z3D_CATEGORY_OPTIMIZER};
    double p = layout->pipeline, kept = micros < p ? micros / p : 1;
    double bytes = 0.5 * kept * (double)alone->peak[Z3D_CATEGORY_ACTIVATIONS];
    for (int part = 0; part < Z3D_PART_COUNT; part++)
        bytes += (double)alone->peak[category[part]] / p /
                 (z3d_way_shards(stage, (z3d_group_part)part) ? layout->data : 1);
    return bytes;
}

/* ---- ways ---- */

double z3d_ways_capacity(const z3d_ways *w) {
    return w->hardware->memory_gib * 1073741824.0 - w->hardware->overhead_gb * 1e9;
}

/* *any: one of its stages may fit. */
static z3d_status add_stages(z3d_ways *w, int frame, const z3d_alone *alone, int given, bool *any) {
    const z3d_fit_frame *f = &w->frame[frame];
    bool shards = f->layout.data > 1;
    int64_t count = f->samples / alone->micro_batch;
    double micros = (double)count;
    *any = false;
    for (int stage = shards ? 0 : given; stage <= (shards ? 3 : given); stage++) {
        Z3D_TRY(grow((void **)&w->way, w->count, sizeof *w->way));
        z3d_way *way = &w->way[w->count++];
        *way = (z3d_way){.frame = frame,
                         .stage = stage,
                         .granularity = alone->granularity,
                         .micro_batch = alone->micro_batch,
                         .seconds = least_seconds(&f->layout, alone, micros, stage),
                         .bytes = least_bytes(&f->layout, alone, micros, stage)};
        *any = *any || way->bytes <= z3d_ways_capacity(w);
    }
    return Z3D_OK;
}

static z3d_status add_ways(z3d_ways *w, int frame, int given, alone_group *group) {
    const z3d_fit_frame *f = &w->frame[frame];
    for (int granularity = 0; granularity <= Z3D_GRANULARITY_NONE; granularity++) {
        int64_t last = 0;
        bool any = true;
        for (int i = 0; i < f->divisors && any; i++) {
            z3d_alone alone;
            if (f->divisor[i] < 2 * last) continue;
            last = f->divisor[i];
            z3d_status status = find_alone(group, granularity, last, &alone);
            if (is_refused(status)) break; /* sizes beyond 64 bits */
            Z3D_TRY(status);
            Z3D_TRY(add_stages(w, frame, &alone, given, &any));
        }
    }
    return Z3D_OK;
}

/* Layouts first .. last - 1 have the same tensor size. */
static z3d_status add_group(z3d_ways *w, int first, int last, int given) {
    alone_group group = {.count = 0};
    z3d_fit_layout alone = w->frame[first].layout;
    alone.pipeline = alone.data = alone.chunks = 1;
    alone.schedule = Z3D_PIPELINE_AUTO;
    z3d_status status = open_frame(w, &alone, 2, &group.frame);
    for (int f = first; f < last && status == Z3D_OK; f++) status = add_ways(w, f, given, &group);
    z3d_fit_close(&group.frame);
    free(group.known);
    return status;
}

static int compare(int64_t a, int64_t b) {
    return (a > b) - (a < b);
}

static int by_seconds(const void *a, const void *b) {
    const z3d_way *x = a, *y = b;
    int order = (x->seconds > y->seconds) - (x->seconds < y->seconds);
    if (!order) order = compare(x->stage, y->stage);
    if (!order) order = compare(x->frame, y->frame);
    if (!order) order = compare(y->granularity, x->granularity);
    return order ? order : compare(x->micro_batch, y->micro_batch);
}

z3d_status z3d_ways_open(z3d_ways *w) {
    int given = (int)w->config->zero_optimization_stage;
    Z3D_TRY(add_layouts(w));
    for (int first = 0, last; first < w->frames; first = last) {
        for (last = first; last < w->frames; last++)
            if (w->frame[last].layout.tensor != w->frame[first].layout.tensor) break;
        Z3D_TRY(add_group(w, first, last, given));
    }
    qsort(w->way, (size_t)w->count, sizeof *w->way, by_seconds);
    return Z3D_OK;
}

void z3d_ways_close(z3d_ways *w) {
    for (int f = 0; f < w->frames; f++) z3d_fit_close(&w->frame[f]);
    free(w->frame);
    free(w->way);
}
