/* plan --fit and --recommend: the fastest candidates on the given ranks. The search takes
 * candidates in the order of their least possible time. A candidate is not priced
 * - if it needs too much memory: by the bound of bounds.c; or because a candidate that needs less
 *   was too large already (smaller micro-batch, more recompute, P_a, host memory, parameters
 *   gathered for each micro-batch); or because its programs of few micro-batches do not fit on the
 *   pipeline stages that can need most (0, 1 and the last);
 * - if a candidate that computes and copies no more fits and leaves some memory free: less
 *   recompute, no P_a, no host memory, states and parameters no farther away (tiers.c), and
 *   otherwise equal. If that candidate sends more, it may be slower, but only by the bytes that it
 *   sends once a step (ZeRO-2 sends more than ZeRO-1, but beside compute): its time less theirs is
 *   then only a bound;
 * - once its least possible time, and so that of all later candidates, is above the tenth best and
 *   above the times that count as equal to the best.
 * The sim plays each candidate that is priced and checks the memory of all stages. Memory is the
 * lower bound of the arena, which the planner reaches within a percent. Memory is really planned
 * for the best, and for candidates that leave less than three percent free. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/plan/choose/ways.h"

typedef struct search {
    z3d_ways ways;
    z3d_recommendation *out;
    z3d_way **queue; /* candidates that the search has not yet taken, as a heap: the fastest bound
                        is the first */
    int queued;
    const z3d_way **large, **crowded; /* candidates that were too large for the device (large), for
                                         host memory or the disk (crowded) */
    struct priced {
        const z3d_way *way;
        double seconds; /* at least */
    } * roomy;          /* candidates that fit and leave some memory free */
    int larges, crowdeds, roomies;
} search;

/* Whether b needs no more device memory than a, if both have the same ZeRO stage. Offloaded
 * parameters may need more device memory than others, because they are fetched ahead. */
static bool needs_no_more(const z3d_way *b, const z3d_way *a) {
    return b->granularity <= a->granularity && b->micro_batch <= a->micro_batch &&
           b->partition >= a->partition && b->offload >= a->offload && b->gather >= a->gather &&
           (b->tiers.optimizer > 0) >= (a->tiers.optimizer > 0) &&
           (b->tiers.parameters > 0) == (a->tiers.parameters > 0);
}

/* *device: device memory is too small, not another space. */
static bool is_too_large(const search *s, const z3d_way *way, bool *device) {
    *device = way->bytes[Z3D_SPACE_DEVICE] > z3d_ways_capacity(&s->ways, Z3D_SPACE_DEVICE);
    if (!z3d_way_may_fit(&s->ways, way)) return true;
    *device = true;
    for (int i = 0; i < s->larges; i++) {
        const z3d_way *l = s->large[i];
        if (l->frame == way->frame && l->stage == way->stage && needs_no_more(l, way)) return true;
    }
    *device = false;
    for (int i = 0; i < s->crowdeds; i++) {
        const z3d_way *c = s->crowded[i];
        if (c->frame == way->frame && c->stage == way->stage &&
            c->tiers.optimizer == way->tiers.optimizer &&
            c->tiers.parameters == way->tiers.parameters)
            return true;
    }
    return false;
}

/* Whether b sends no more than a, if they are otherwise equal: b has a lower ZeRO stage from 1 on,
 * or gathers parameters once a step. */
static bool sends_no_more(const z3d_way *b, const z3d_way *a) {
    if (b->stage == a->stage) return b->gather <= a->gather;
    return b->stage < a->stage && z3d_way_shards(b->stage, Z3D_STATE_OPTIMIZER);
}

/* Whether a needs at least b's time. */
static bool is_no_slower(const z3d_way *b, const z3d_way *a) {
    return b->frame == a->frame && b->micro_batch == a->micro_batch &&
           b->granularity >= a->granularity && b->partition <= a->partition &&
           b->offload <= a->offload && z3d_tiers_no_slower(b->tiers, a->tiers) &&
           sends_no_more(b, a);
}

/* Raises the bound of `way` by the times of candidates that fit; INFINITY: one of them is
 * better. */
static void raise_bound(const search *s, z3d_way *way) {
    for (int i = 0; i < s->roomies; i++) {
        const z3d_way *r = s->roomy[i].way;
        if (!is_no_slower(r, way)) continue;
        bool same = r->stage == way->stage && r->gather == way->gather;
        double least = same ? INFINITY : s->roomy[i].seconds - z3d_way_once(&s->ways, r);
        if (least > way->seconds) way->seconds = least;
    }
}

/* Inserts a row by its seconds; z3d_rows_order sorts at the end of the search. */
static void insert(z3d_recommendation *out, const z3d_fit_row *row) {
    int at = out->count < Z3D_CANDIDATES ? out->count++ : Z3D_CANDIDATES;
    for (; at > 0 && out->row[at - 1].seconds > row->seconds; at--)
        if (at < Z3D_CANDIDATES) out->row[at] = out->row[at - 1];
    if (at < Z3D_CANDIDATES) out->row[at] = *row;
}

static z3d_fit_row row_of(const search *s, const z3d_way *way) {
    return (z3d_fit_row){.layout = s->ways.frame[way->frame].layout,
                         .stage = way->stage,
                         .granularity = way->granularity,
                         .gather = way->gather,
                         .tiers = way->tiers,
                         .partition = way->partition,
                         .offload = way->offload};
}

/* Plans the row's memory. */
static z3d_status place(const z3d_fit_frame *frame, z3d_fit_row *row, int64_t accumulation) {
    z3d_fit_frame planned = *frame;
    planned.node.rough = false;
    return z3d_fit_memory(&planned, row, accumulation);
}

/* A candidate with so many seconds or more is no answer: it is slower than the tenth best, and not
 * equally fast as the best. */
static double limit(const search *s) {
    const z3d_recommendation *out = s->out;
    if (out->count < Z3D_RECOMMENDED) return INFINITY;
    double equal = Z3D_EQUALLY_FAST * out->row[0].seconds;
    if (out->count == Z3D_CANDIDATES) equal = fmin(equal, out->row[Z3D_CANDIDATES - 1].seconds);
    return fmax(equal, out->row[Z3D_RECOMMENDED - 1].seconds);
}

static z3d_status price(search *s, const z3d_way *way) {
    const z3d_fit_frame *frame = &s->ways.frame[way->frame];
    z3d_fit_row row = row_of(s, way);
    bool nearly_full = false;
    z3d_status status = z3d_fit_try(frame, &row, way->micro_batch);
    if (status == Z3D_OK && row.fits && row.memory.free < 0.03 * row.memory.capacity)
        status = place(frame, &row, z3d_fit_few(frame, row.accumulation));
    if (status == Z3D_OK && row.fits)
        status = z3d_fit_time(frame, s->ways.work[way->work].micro, limit(s), &row, &nearly_full);
    if (status != Z3D_OK && status != Z3D_ERR_CONFIG) return status;
    if (status != Z3D_OK || !row.fits) { /* ERR_CONFIG: sizes beyond 64 bits */
        const bool device = status != Z3D_OK || row.memory.free < 0;
        if (status == Z3D_OK) z3d_misses_add(&s->out->misses, &row);
        /* If only host memory is short, candidates that use less of it may fit. */
        if (device)
            s->large[s->larges++] = way;
        else if (!way->offload)
            s->crowded[s->crowdeds++] = way;
        *(device ? &s->out->misses.device : &s->out->misses.elsewhere) += 1;
        return Z3D_OK;
    }
    s->out->priced++;
    if (!nearly_full && !z3d_row_is_tight(&row))
        s->roomy[s->roomies++] = (struct priced){way, row.seconds};
    if (row.seconds < limit(s)) insert(s->out, &row); /* other rows have only a bound */
    return Z3D_OK;
}

/* Restores the heap after the bound of its first item was raised. */
static void sink(search *s) {
    for (int at = 0;;) {
        int least = at;
        for (int child = 2 * at + 1; child <= 2 * at + 2 && child < s->queued; child++)
            if (z3d_way_compare(s->queue[child], s->queue[least]) < 0) least = child;
        if (least == at) return;
        z3d_way *moved = s->queue[at];
        s->queue[at] = s->queue[least];
        s->queue[least] = moved;
        at = least;
    }
}

/* Takes the candidate with the least possible time and prices it, or raises its bound. */
static z3d_status look_at_first(search *s) {
    z3d_way *way = s->queue[0];
    const double before = way->seconds;
    const bool known = way->tight;
    bool device, large = is_too_large(s, way, &device);
    if (!large) raise_bound(s, way);
    if (!large && !known && isfinite(way->seconds)) Z3D_TRY(z3d_way_tighten(&s->ways, way));
    if (!large && (!known || way->seconds > before)) {
        sink(s);
        return Z3D_OK;
    }
    s->queue[0] = s->queue[--s->queued];
    sink(s);
    s->out->misses.device += large && device;
    s->out->misses.elsewhere += large && !device;
    return large ? Z3D_OK : price(s, way);
}

static z3d_status price_all(search *s) {
    size_t count = (size_t)s->ways.count;
    Z3D_TRY(z3d_new(count, sizeof *s->large, "ways", &s->large));
    Z3D_TRY(z3d_new(count, sizeof *s->crowded, "ways", &s->crowded));
    Z3D_TRY(z3d_new(count, sizeof *s->roomy, "ways", &s->roomy));
    Z3D_TRY(z3d_new(count, sizeof(z3d_way *), "ways", &s->queue));
    for (; s->queued < s->ways.count; s->queued++) s->queue[s->queued] = &s->ways.way[s->queued];
    while (s->queued > 0 && s->queue[0]->seconds < limit(s)) Z3D_TRY(look_at_first(s));
    return Z3D_OK;
}

static const z3d_fit_frame *frame_of(const search *s, const z3d_fit_layout *layout) {
    const z3d_fit_frame *frame = s->ways.frame;
    while (!z3d_same_tensor_groups(&frame->layout, layout) ||
           frame->layout.pipeline != layout->pipeline || frame->layout.chunks != layout->chunks ||
           frame->layout.schedule != layout->schedule || frame->layout.cut != layout->cut)
        frame++;
    return frame;
}

/* Plans the memory of the best rows; for the first, with all micro-batches of the step. Drops rows
 * that do not fit after all. */
static z3d_status settle_best(search *s) {
    z3d_recommendation *out = s->out;
    z3d_rows_order(out->row, out->count);
    for (int i = 0; i < out->count && i < Z3D_RECOMMENDED;) {
        z3d_fit_row *row = &out->row[i];
        const z3d_fit_frame *frame = frame_of(s, &row->layout);
        int64_t few = z3d_fit_few(frame, row->accumulation);
        Z3D_TRY(place(frame, row, i == 0 ? row->accumulation : few));
        if (row->fits) {
            i++;
            continue;
        }
        z3d_misses_add(&s->out->misses, row);
        out->count--;
        for (int k = i; k < out->count; k++) out->row[k] = out->row[k + 1];
    }
    if (out->count > Z3D_RECOMMENDED) out->count = Z3D_RECOMMENDED;
    return Z3D_OK;
}

static bool tries(const z3d_ways *w, int device) {
    for (int t = 0; t < w->num_tiers; t++)
        if (w->tiers[t].optimizer == device) return true;
    return false;
}

static void say_remedies(const search *s, z3d_string *out) {
    const z3d_ways *w = &s->ways;
    z3d_string_append(out, "; use more ranks");
    if (w->fixed.tensor || w->fixed.pipeline)
        z3d_string_append(out, ", or leave tensor and pipeline size out");
    if (w->tiers_written)
        z3d_string_append(out, ", or leave the devices of offload_optimizer and offload_param out");
    else if (!tries(w, Z3D_OFFLOAD_DEVICE_NVME))
        z3d_string_append(out, ", or describe the node's disks (node.nvme_read_gb_per_s, "
                               "node.nvme_write_gb_per_s), where states and parameters may lie");
}

/* Plans all stages of the nearest misses, because the search stopped at the first pipeline stage
 * that does not fit. */
static z3d_status measure_misses(search *s) {
    z3d_fit_row *rows[] = {&s->out->misses.nearest, &s->out->misses.nearest_elsewhere};
    for (int i = 0; i < 2; i++) {
        if (rows[i]->accumulation == 0) continue;
        z3d_fit_frame all = *frame_of(s, &rows[i]->layout);
        all.rough = all.node.rough = false;
        Z3D_TRY(z3d_fit_memory(&all, rows[i], z3d_fit_few(&all, rows[i]->accumulation)));
    }
    return Z3D_OK;
}

/* Refuses with the candidates that lack least: among the planned ones, else the one with the least
 * bound. */
static z3d_status refuse(search *s) {
    z3d_string why = {0};
    const z3d_way *least = s->ways.way;
    for (int i = 1; i < s->ways.count; i++)
        if (s->ways.way[i].bytes[Z3D_SPACE_DEVICE] <= least->bytes[Z3D_SPACE_DEVICE])
            least = &s->ways.way[i];
    z3d_fit_row row = row_of(s, least);
    Z3D_TRY(z3d_fit_try(&s->ways.frame[least->frame], &row, least->micro_batch));
    z3d_misses_add(&s->out->misses, &row);
    Z3D_TRY(measure_misses(s));
    z3d_string_append(&why, ": ");
    z3d_misses_say(&s->out->misses, &why);
    say_remedies(s, &why);
    double bytes = s->ways.hardware->memory_gib * 1073741824.0;
    z3d_status status =
        Z3D_ERROR(Z3D_ERR_MEMORY, "no candidate fits %d ranks with %s each%s", s->out->ranks,
                  z3d_bytes_text((int64_t)bytes).text, why.failed ? "" : why.text);
    z3d_string_free(&why);
    return status;
}

/* ---- the search ---- */

static void describe(const search *s) {
    z3d_recommendation *out = s->out;
    const z3d_model_facts *facts = &s->ways.frame[0].model->facts;
    const z3d_config *c = s->ways.config;
    out->ranks = s->ways.ranks;
    out->samples = s->ways.batch;
    out->tokens = (double)out->samples * (double)facts->tokens;
    out->flops = out->tokens * facts->flops.step;
    out->parameters = (double)z3d_model_parameter_count(s->ways.frame[0].model);
    out->peak = z3d_hardware_peak(s->ways.hardware, z3d_plan_dtype(c));
    out->layouts = s->ways.frames;
    out->ways = s->ways.count;
    out->largest_tensor = s->ways.largest_tensor;
}

static z3d_status take_best(search *s) {
    int data;
    const z3d_fit_row *best = &s->out->row[0];
    z3d_fit_frame frame = *frame_of(s, &best->layout);
    frame.config = s->ways.config;
    if (best->layout.pipeline == 1) Z3D_TRY(z3d_ways_leave_pipeline(frame.config));
    Z3D_TRY(z3d_fit_apply(&frame, best, best->accumulation));
    snprintf(s->out->folder, sizeof s->out->folder, "%s",
             frame.config->zero_optimization_offload_optimizer_nvme_path);
    return z3d_config_resolve(frame.config, &z3d_model_rules, s->out->ranks, &data);
}

z3d_status z3d_recommend(z3d_config *config, int ranks, const z3d_hardware *hardware, bool keep,
                         const z3d_goal *goal, z3d_recommendation *out) {
    search s = {.ways = {.config = config, .hardware = hardware}, .out = out};
    *out = (z3d_recommendation){.hardware = *hardware};
    z3d_status status = z3d_ways_begin(&s.ways, ranks, keep);
    if (status == Z3D_OK) status = z3d_ways_open(&s.ways);
    if (status == Z3D_OK) {
        describe(&s);
        if (goal) out->goal = *goal;
        status = z3d_bill_check(out->goal.tokens, out->tokens);
    }
    if (status == Z3D_OK) status = price_all(&s);
    if (status == Z3D_OK) status = settle_best(&s);
    if (status == Z3D_OK) status = out->count == 0 ? refuse(&s) : measure_misses(&s);
    if (status == Z3D_OK) status = take_best(&s);
    z3d_ways_close(&s.ways);
    free(s.queue);
    free(s.large);
    free(s.crowded);
    free(s.roomy);
    return status;
}
