/* plan --fit and --recommend: lists the candidates. */
#include "src/plan/choose/ways.h"

#include <stdlib.h>

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
                           .micros = config == w->alone ? 0 : w->fixed.micros,
                           .layout = *layout};
    const int64_t stage = config->zero_optimization_stage;
    z3d_fit_apply_layout(config, layout);
    if (layout->cut_open && layout->cut != Z3D_CUT_NONE)
        config->zero_optimization_stage = 3; /* every cut allows it */
    config->train_batch_size = batch;
    config->train_micro_batch_size_per_gpu = 1;
    config->gradient_accumulation_steps = Z3D_AUTO;
    z3d_status status = z3d_fit_open(out, layout->tensor * layout->pipeline * layout->data);
    config->zero_optimization_stage = stage;
    return status;
}

static z3d_status add_layout(z3d_ways *w, z3d_fit_layout layout) {
    z3d_config *config = layout.pipeline > 1 ? w->config : w->flat;
    Z3D_TRY(z3d_grow(w->frames, &w->frame_capacity, sizeof *w->frame, "layouts", &w->frame));
    z3d_fit_frame *frame = &w->frame[w->frames];
    z3d_status status = open_frame(w, config, &layout, w->batch, frame);
    if (status == Z3D_OK) {
        w->frames++;
        w->uncut += layout.cut == Z3D_CUT_NONE || !layout.cut_open;
        return Z3D_OK;
    }
    z3d_fit_close(frame);
    w->refusal = status;
    return is_refused(status) ? Z3D_OK : status;
}

static bool is_tried(const z3d_fixed *fixed, int kind) {
    if (fixed->schedule) return kind == fixed->schedule - 1;
    return !z3d_schedule_row_of((z3d_schedule_kind)kind)->all;
}

static z3d_status add_schedules(z3d_ways *w, z3d_fit_layout layout, int64_t units) {
    const int some[] = {1, 2, 4}, *chunks = w->fixed.chunks ? &w->fixed.chunks : some;
    int count = w->fixed.chunks ? 1 : sizeof some / sizeof *some;
    layout.chunks = 1;
    layout.schedule = Z3D_PIPELINE_AUTO;
    if (layout.pipeline == 1) return add_layout(w, layout);
    for (int kind = 0; kind < Z3D_SCHEDULE_COUNT; kind++)
        for (int k = 0; k < count && is_tried(&w->fixed, kind); k++) {
            layout.schedule = kind + 1;
            layout.chunks = chunks[k];
            if (z3d_schedule_has_chunks((z3d_schedule_kind)kind, chunks[k]) &&
                (int64_t)layout.pipeline * chunks[k] <= units)
                Z3D_TRY(add_layout(w, layout));
        }
    return Z3D_OK;
}

/* Whether tensor groups of t ranks leave a node, though the model allows t. */
static bool leaves_node(const z3d_ways *w, const z3d_model_sizes *sizes, int t) {
    return !w->fixed.tensor && !w->fixed.across_nodes && t > (int)w->hardware->devices &&
           w->ranks % t == 0 && sizes->tensor_limit % t == 0;
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

/* Adds one ring over all data ranks. If the data ranks fill several nodes evenly, it also adds the
 * other methods of communication. */
static z3d_status add_cuts(z3d_ways *w, z3d_fit_layout layout, int64_t units) {
    const int devices = (int)w->hardware->devices, inner = devices / layout.tensor;
    const bool parts = devices % layout.tensor == 0 && layout.data > inner && inner > 1 &&
                       layout.data % inner == 0;
    layout.cut_open = !w->fixed.cut;
    Z3D_TRY(add_schedules(w, layout, units));
    layout.inner = inner;
    for (int cut = Z3D_CUT_NONE + 1; cut <= Z3D_CUT_HYBRID && parts && layout.cut_open; cut++) {
        layout.cut = (z3d_data_cut)cut;
        Z3D_TRY(add_schedules(w, layout, units));
    }
    return Z3D_OK;
}

static z3d_status add_pipelines(z3d_ways *w, const z3d_model_sizes *sizes, int tensor,
                                bool sequence_parallel) {
    const int rest = w->ranks / tensor;
    for (int p = 1; p <= rest && p <= sizes->units; p++) {
        z3d_fit_layout layout = {.tensor = tensor,
                                 .pipeline = p,
                                 .data = rest / p,
                                 .sequence_parallel = sequence_parallel,
                                 .across_nodes = tensor > 1 && w->fixed.across_nodes};
        if (may_be_pipeline(w, rest, p)) Z3D_TRY(add_cuts(w, layout, sizes->units));
    }
    return Z3D_OK;
}

static z3d_status add_layouts(z3d_ways *w) {
    z3d_model_sizes sizes;
    Z3D_TRY(z3d_model_sizes_of(w->config, &sizes));
    for (int t = 1; t <= w->ranks; t++) {
        if (leaves_node(w, &sizes, t)) w->largest_tensor = (int)w->hardware->devices;
        if (!may_be_tensor(w, &sizes, t)) continue;
        if (t > 1 && w->fixed.sequence_parallel != 0) Z3D_TRY(add_pipelines(w, &sizes, t, true));
        if (t == 1 || w->fixed.sequence_parallel != 1) Z3D_TRY(add_pipelines(w, &sizes, t, false));
    }
    return w->frames > 0 ? Z3D_OK : refuse_layouts(w, &sizes);
}

/* ---- ways ---- */

/* *any becomes true if the candidate may fit. */
static z3d_status add_way(z3d_ways *w, z3d_way way, bool *any) {
    const z3d_alone *alone = &w->alone_group[w->work[way.work].alone];
    way.granularity = alone->granularity;
    way.micro_batch = alone->micro_batch;
    z3d_way_bound(w, &way);
    *any = *any || z3d_way_may_fit(w, &way);
    Z3D_TRY(z3d_grow(w->count, &w->way_capacity, sizeof *w->way, "candidates", &w->way));
    w->way[w->count++] = way;
    return Z3D_OK;
}

/* Adds both values of pipeline_gather if the key has an effect and is not set. */
static z3d_status add_gathers(z3d_ways *w, z3d_way way, bool *any) {
    const z3d_fit_layout *layout = &w->frame[way.frame].layout;
    if (layout->pipeline == 1 || layout->data == 1 || !z3d_way_shards(way.stage, Z3D_STATE_VALUE))
        return add_way(w, way, any);
    for (int gather = Z3D_PIPELINE_GATHER_PER_STEP; gather <= Z3D_PIPELINE_GATHER_PER_MICROBATCH;
         gather++) {
        way.gather = gather;
        /* A cut gathers less over nodes, so keeping parameters for the whole step is seldom worth
         * the memory. */
        if (layout->cut_open && layout->cut != Z3D_CUT_NONE && gather != w->fixed.gather &&
            gather == Z3D_PIPELINE_GATHER_PER_STEP)
            continue;
        if (!w->fixed.gather || gather == w->fixed.gather) Z3D_TRY(add_way(w, way, any));
    }
    return Z3D_OK;
}

/* With one data rank nothing is sharded. Then ZeRO stages differ only in the states that may be
 * offloaded: gradients from stage 2 on, parameters with 3. */
static bool makes_sense(const z3d_fit_layout *layout, int stage, z3d_fit_tiers tiers) {
    const bool parameters = z3d_way_shards(stage, Z3D_STATE_VALUE);
    if (tiers.parameters != Z3D_OFFLOAD_DEVICE_NONE) return parameters;
    if (layout->data > 1 || !z3d_way_shards(stage, Z3D_STATE_OPTIMIZER)) return true;
    return z3d_way_shards(stage, Z3D_STATE_GRADIENT) && !parameters &&
           tiers.optimizer != Z3D_OFFLOAD_DEVICE_NONE;
}

/* Adds only values that differ: P_a has no effect on one tensor rank, nor with sequence
 * parallelism, whose checkpoints are already parts; ZeRO stages have none on one data rank. *any
 * becomes true if one of the candidates may fit. */
static z3d_status add_methods(z3d_ways *w, int work, bool *any) {
    const z3d_fit_layout *layout = &w->frame[w->work[work].frame].layout;
    bool full = w->alone_group[w->work[work].alone].granularity == Z3D_GRANULARITY_FULL,
         shares = full && layout->tensor > 1 && !layout->sequence_parallel;
    *any = false;
    for (int t = 0; t < w->num_tiers; t++)
        for (int stage = 0; stage <= 3; stage++)
            for (int partition = 0; partition <= shares; partition++)
                for (int offload = 0; offload <= full; offload++) {
                    const z3d_way way = {.frame = w->work[work].frame,
                                         .work = work,
                                         .stage = stage,
                                         .tiers = w->tiers[t],
                                         .partition = partition,
                                         .offload = offload};
                    if (makes_sense(layout, stage, way.tiers) &&
                        z3d_cut_takes_stage(layout->cut, stage))
                        Z3D_TRY(add_gathers(w, way, any));
                }
    return Z3D_OK;
}

static z3d_status add_ways(z3d_ways *w, int frame, z3d_fit_frame *group) {
    enum { FEW_FRAMES = 24, FEW_DIVISORS = 32 };
    const z3d_fit_frame *f = &w->frame[frame];
    int64_t ratio = w->uncut <= FEW_FRAMES && f->divisors <= FEW_DIVISORS ? 1 : 2;
    for (int granularity = 0; granularity <= Z3D_GRANULARITY_NONE; granularity++) {
        int64_t last = 0;
        bool any = true;
        for (int i = 0; i < f->divisors && any; i++) {
            int alone;
            if (f->divisor[i] < ratio * last) continue;
            last = f->divisor[i];
            z3d_status status = z3d_ways_alone(w, group, granularity, last, &alone);
            if (is_refused(status)) { /* sizes beyond 64 bits, or an arrangement that ranks cannot
                                         have */
                w->refusal = status;
                break;
            }
            Z3D_TRY(status);
            Z3D_TRY(z3d_grow(w->works, &w->work_capacity, sizeof *w->work, "candidates", &w->work));
            w->work[w->works] = (z3d_fit_work){.frame = frame, .alone = alone};
            Z3D_TRY(add_methods(w, w->works++, &any));
        }
    }
    return Z3D_OK;
}

bool z3d_same_tensor_groups(const z3d_fit_layout *a, const z3d_fit_layout *b) {
    return a->tensor == b->tensor && a->sequence_parallel == b->sequence_parallel;
}

/* Layouts first .. last - 1 have equal tensor groups. */
static z3d_status add_group(z3d_ways *w, int first, int last) {
    z3d_fit_frame group;
    z3d_fit_layout alone = w->frame[first].layout;
    alone.pipeline = alone.data = alone.chunks = alone.inner = 1;
    alone.cut = Z3D_CUT_NONE;
    alone.schedule = Z3D_PIPELINE_AUTO;
    z3d_status status = open_frame(w, w->alone, &alone, 2, &group);
    for (int f = first; f < last && status == Z3D_OK; f++) status = add_ways(w, f, &group);
    z3d_fit_close(&group);
    return status;
}

static int compare(int64_t a, int64_t b) {
    return (a > b) - (a < b);
}

static int tier_of(const z3d_way *way) {
    return way->tiers.parameters * Z3D_TIERS + way->tiers.optimizer;
}

int z3d_way_compare(const void *a, const void *b) {
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
            if (!z3d_same_tensor_groups(&w->frame[last].layout, &w->frame[first].layout)) break;
        Z3D_TRY(add_group(w, first, last));
    }
    if (w->count == 0) return w->refusal;
    qsort(w->way, (size_t)w->count, sizeof *w->way, z3d_way_compare);
    return Z3D_OK;
}

void z3d_ways_close(z3d_ways *w) {
    for (int f = 0; f < w->frames; f++) z3d_fit_close(&w->frame[f]);
    for (int a = 0; a < w->num_alone; a++) z3d_alone_release(&w->alone_group[a]);
    free(w->alone_group);
    free(w->work);
    free(w->frame);
    free(w->way);
    z3d_config_destroy(w->flat);
    z3d_config_destroy(w->alone);
}
