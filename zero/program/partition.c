/* Cuts a model's chain of units into the chunks of a pipeline: the slowest chunk takes as little
 * time as possible, and the others are even. */
#include <stdlib.h>

#include "zero/program/layout.h"
#include "zero/program/pipeline.h"
#include "zero/program/traces.h"

/* A device moves a byte in the time of about so many FLOPs: kernels without products are bound by
 * memory. It need only be good enough to compare a block with the head. */
static const double FLOPS_PER_BYTE = 10;

static z3d_status find_times(const z3d_model *model, const z3d_program_config *config,
                             double *cost) {
    z3d_mesh alone;
    z3d_layout *layout = NULL;
    z3d_traces *traces = NULL;
    Z3D_TRY(z3d_mesh_make(model->tensor_size, 1, 1, 0, &alone));
    z3d_status status = z3d_layout_create(model, &alone, NULL, &layout);
    if (status == Z3D_OK) status = z3d_traces_record(model, layout, config, 1, &traces);
    for (int u = 0; u < model->num_units && status == Z3D_OK; u++) {
        const z3d_unit *unit = &model->unit[u];
        bool again = config->recompute && unit->checkpoint;
        for (int call = Z3D_CALL_FORWARD; call <= Z3D_CALL_BACKWARD; call++) {
            const z3d_trace *trace = z3d_traces_of(traces, Z3D_MODE_TRAIN, u, (z3d_call)call);
            if (call == Z3D_CALL_RECOMPUTE && !again) continue;
            cost[u] += trace->flops + FLOPS_PER_BYTE * (double)trace->bytes;
        }
    }
    z3d_traces_destroy(traces);
    z3d_layout_destroy(layout);
    return status;
}

/* A tied table counts at each use. */
static void count_parameters(const z3d_model *model, double *cost) {
    for (int u = 0; u < model->num_units; u++) {
        for (int s = 0; s < model->unit[u].num_groups; s++) {
            const z3d_parameter_group *group = &model->group[model->unit[u].group[s]];
            for (int i = 0; i < group->num_parameters; i++)
                cost[u] +=
                    (double)z3d_parameter_local_elements(&group->parameter[i], model->tensor_size);
        }
    }
}

/* The units to cut, the number of chunks, and the speeds of their stages. */
typedef struct cutter {
    const z3d_model *model;
    const double *cost;   /* of each unit */
    const double *before; /* of all units before each one; the last one: of all */
    int chunks, stages;
    int stage[Z3D_MAX_CHUNKS];
    double speed[Z3D_MAX_CHUNKS];
    int slowest; /* the first chunk with the lowest speed */
} cutter;

/* Fills chunks from the front: each with at least `least` units and as many as its stage can do in
 * `limit`. False: some do not fit. */
static bool fill(const cutter *c, double limit, int least, int *first) {
    int unit = 0, units = c->model->num_units;
    for (int chunk = 0; chunk < c->chunks; chunk++) {
        double sum = 0, room = limit * c->speed[chunk];
        int last = units - least * (c->chunks - 1 - chunk);
        first[chunk] = unit;
        while (unit < last && sum + c->cost[unit] <= room) sum += c->cost[unit++];
        if (unit - first[chunk] < least) return false;
    }
    first[c->chunks] = units;
    return unit == units;
}

/* The time of the slowest chunk. */
static double cut(const cutter *c, int least, int *first) {
    double low = 0, high = 0;
    for (int u = 0; u < c->model->num_units; u++) high += c->cost[u];
    high /= c->speed[c->slowest];
    for (int i = 0; i < 64; i++) {
        double middle = (low + high) / 2;
        *(fill(c, middle, least, first) ? &high : &low) = middle;
    }
    fill(c, high, least, first);
    return high;
}

/* Every chunk has at least one unit; refuses it if this takes longer than without. */
static z3d_status cut_all(const cutter *c, int *first) {
    double shortest = cut(c, 0, first);
    if (cut(c, 1, first) <= shortest * (1 + 1e-9)) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_CONFIG,
                     "pipeline stage %d with speed %g is too slow for even one of the model's %d "
                     "units; leave its ranks out, or write the units of each chunk",
                     c->stage[c->slowest], c->speed[c->slowest], c->model->num_units);
}

/* ---- evening out ---- */

/* How uneven a cut is: the time of the slowest stage; then all stages; then all chunks. */
typedef struct unevenness {
    double longest, stages, chunks;
} unevenness;

static unevenness measure(const cutter *c, const int *first) {
    double stage[Z3D_MAX_CHUNKS] = {0};
    unevenness out = {0};
    for (int chunk = 0; chunk < c->chunks; chunk++) {
        double sum = c->before[first[chunk + 1]] - c->before[first[chunk]];
        stage[c->stage[chunk]] += sum / c->speed[chunk];
        out.chunks += sum * sum;
    }
    for (int s = 0; s < c->stages; s++) {
        if (stage[s] > out.longest) out.longest = stage[s];
        out.stages += stage[s] * stage[s];
    }
    return out;
}

static bool is_less(double a, double b) {
    return a < b * (1 - 1e-9);
}

static bool is_better(const unevenness *a, const unevenness *b) {
    if (is_less(a->longest, b->longest) || is_less(b->longest, a->longest))
        return a->longest < b->longest;
    if (is_less(a->stages, b->stages) || is_less(b->stages, a->stages))
        return a->stages < b->stages;
    return is_less(a->chunks, b->chunks);
}

/* Moves one unit from chunk `from` to chunk `to`: the borders between them move by one. */
static bool move(int from, int to, int *first) {
    int low = from < to ? from : to, high = from < to ? to : from;
    if (first[from + 1] - first[from] < 2) return false;
    for (int border = low + 1; border <= high; border++) first[border] += from < to ? -1 : 1;
    return true;
}

/* Filling leaves the rest to the last chunks, and sees chunks, not stages with several. So units
 * change chunks while that improves the cut. */
static void even_out(const cutter *c, int *first) {
    enum { FAR = 128, PASSES = 64 }; /* with more chunks only neighbours exchange units */
    unevenness now = measure(c, first);
    bool better = true;
    for (int pass = 0; better && pass < PASSES; pass++) {
        better = false;
        for (int from = 0; from < c->chunks; from++) {
            int reach = c->chunks <= FAR ? c->chunks : 1;
            for (int to = from - reach; to <= from + reach; to++) {
                if (to < 0 || to >= c->chunks || to == from || !move(from, to, first)) continue;
                unevenness then = measure(c, first);
                bool takes = is_better(&then, &now);
                if (takes) now = then;
                better = better || takes;
                if (!takes) move(to, from, first);
            }
        }
    }
}

static z3d_status find_costs(const z3d_model *model, const z3d_program_config *config,
                             z3d_balance balance, double *cost) {
    if (balance == Z3D_BALANCE_TIME) return find_times(model, config, cost);
    if (balance == Z3D_BALANCE_PARAMETERS) count_parameters(model, cost);
    for (int u = 0; u < model->num_units && balance == Z3D_BALANCE_UNIFORM; u++) cost[u] = 1;
    return Z3D_OK;
}

z3d_status z3d_partition_units(const z3d_model *model, int stages, z3d_balance balance,
                               const double *speed, z3d_program_config *config) {
    int each = z3d_chunks_of_stage(&config->pipeline);
    int64_t chunks = (int64_t)stages * each;
    double *cost = NULL, *before = NULL;
    if (chunks > model->num_units || chunks > Z3D_MAX_CHUNKS)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "%d pipeline stages x %d chunks need as many units, but the model has %d "
                         "(at most %d chunks are possible)",
                         stages, each, model->num_units, Z3D_MAX_CHUNKS);
    size_t units = (size_t)model->num_units;
    z3d_status status = z3d_new(units, sizeof *cost, "pipeline stages", &cost);
    if (status == Z3D_OK) status = z3d_new(units + 1, sizeof *before, "pipeline stages", &before);
    if (status == Z3D_OK) status = find_costs(model, config, balance, cost);
    for (size_t u = 0; u < units && status == Z3D_OK; u++) before[u + 1] = before[u] + cost[u];
    cutter c = {
        .model = model, .cost = cost, .before = before, .chunks = (int)chunks, .stages = stages};
    for (int chunk = 0; chunk < c.chunks; chunk++) {
        c.stage[chunk] = z3d_schedule_stage(config->pipeline.schedule, stages, chunk);
        c.speed[chunk] = speed ? speed[c.stage[chunk]] : 1;
        if (c.speed[chunk] < c.speed[c.slowest]) c.slowest = chunk;
    }
    if (status == Z3D_OK) status = cut_all(&c, config->pipeline.first_unit);
    if (status == Z3D_OK) even_out(&c, config->pipeline.first_unit);
    free(before);
    free(cost);
    return status;
}
