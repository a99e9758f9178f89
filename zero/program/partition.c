/* Cuts a model's chain of units into the chunks of a pipeline, so that the chunk that costs most
 * costs as little as possible. */
#include <stdlib.h>

#include "zero/program.h"

/* A device moves a byte in the time of about so many FLOPs, as kernels without products are bound
 * by memory. It only has to rank units: a block against the head. */
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
            const z3d_trace *trace =
                z3d_traces_get(traces, Z3D_MODE_TRAIN, unit->kind, (z3d_call)call);
            if (call == Z3D_CALL_RECOMPUTE && !again) continue;
            cost[u] += trace->flops + FLOPS_PER_BYTE * (double)trace->bytes;
        }
    }
    z3d_traces_destroy(traces);
    z3d_layout_destroy(layout);
    return status;
}

/* A tied table is counted where it is used, each time. */
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

/* Fills chunks from the front with up to `limit` each, leaving one unit at least to each of those
 * behind it. False: some do not fit. */
static bool fill(const z3d_model *model, const double *cost, int chunks, double limit, int *first) {
    int unit = 0, units = model->num_units;
    for (int c = 0; c < chunks; c++) {
        double sum = cost[unit];
        first[c] = unit++;
        while (unit < units - (chunks - 1 - c) && sum + cost[unit] <= limit) sum += cost[unit++];
        if (sum > limit) return false;
    }
    first[chunks] = units;
    return unit == units;
}

static void cut(const z3d_model *model, const double *cost, int chunks, int *first) {
    double low = 0, high = 0;
    for (int u = 0; u < model->num_units; u++) high += cost[u];
    for (int i = 0; i < 64; i++) {
        double middle = (low + high) / 2;
        *(fill(model, cost, chunks, middle, first) ? &high : &low) = middle;
    }
    fill(model, cost, chunks, high, first);
}

z3d_status z3d_partition_units(const z3d_model *model, int stages, z3d_balance balance,
                               z3d_program_config *config) {
    int each = z3d_chunks_of_stage(&config->pipeline);
    int64_t chunks = (int64_t)stages * each;
    double *cost;
    if (chunks > model->num_units || chunks > Z3D_MAX_CHUNKS)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "%d pipeline stages x %d chunks need as many units, but the model has %d "
                         "(at most %d chunks are possible)",
                         stages, each, model->num_units, Z3D_MAX_CHUNKS);
    Z3D_TRY(z3d_new((size_t)model->num_units, sizeof *cost, "pipeline stages", &cost));
    z3d_status status = Z3D_OK;
    if (balance == Z3D_BALANCE_TIME) status = find_times(model, config, cost);
    if (balance == Z3D_BALANCE_PARAMETERS) count_parameters(model, cost);
    for (int u = 0; u < model->num_units && balance == Z3D_BALANCE_UNIFORM; u++) cost[u] = 1;
    if (status == Z3D_OK) cut(model, cost, (int)chunks, config->pipeline.first_unit);
    free(cost);
    return status;
}
