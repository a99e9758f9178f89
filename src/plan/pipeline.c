/* Turns configuration keys into the division of the units among pipeline stages. */
#include "zero/program/pipeline.h"
#include "src/plan/plan.h"

/* The user lists the number of units of each chunk. */
static z3d_status cut_as_listed(const z3d_config *config, const z3d_model *model,
                                z3d_pipeline_config *out) {
    int64_t units[Z3D_MAX_CHUNKS], first = 0;
    int count;
    (void)z3d_config_partition(config, units, Z3D_MAX_CHUNKS, &count);
    if (count != z3d_config_chunks(config))
        return z3d_config_error(config, "parallel.pipeline_partition",
                                "%d numbers for %lld chunks; write the units of each chunk", count,
                                (long long)z3d_config_chunks(config));
    for (int c = 0; c < count; c++) {
        out->first_unit[c] = (int)first;
        if (units[c] < 1 || units[c] > model->num_units - first) break;
        first += units[c];
    }
    out->first_unit[count] = (int)first;
    return first == model->num_units
               ? Z3D_OK
               : z3d_config_error(config, "parallel.pipeline_partition",
                                  "write numbers above 0 whose sum is the model's %d units",
                                  model->num_units);
}

static z3d_status cut(const z3d_config *config, const z3d_model *model,
                      const z3d_plan_speeds *speeds, z3d_program_config *out) {
    static const z3d_balance balance[] = {[Z3D_PARTITION_TIME] = Z3D_BALANCE_TIME,
                                          [Z3D_PARTITION_PARAMETERS] = Z3D_BALANCE_PARAMETERS,
                                          [Z3D_PARTITION_UNIFORM] = Z3D_BALANCE_UNIFORM};
    int unused;
    z3d_partition partition = z3d_config_partition(config, NULL, 0, &unused);
    if (partition == Z3D_PARTITION_LIST) return cut_as_listed(config, model, &out->pipeline);
    return z3d_partition_units(model, (int)config->parallel_pipeline_model_parallel_size,
                               balance[partition], speeds->stage, out);
}

z3d_status z3d_plan_pipeline(const z3d_config *config, const z3d_model *model,
                             const z3d_plan_speeds *speeds, z3d_program_config *out) {
    z3d_schedule *file = NULL;
    if (config->parallel_pipeline_model_parallel_size == 1) return Z3D_OK;
    out->pipeline.schedule = z3d_config_pipeline_schedule(config);
    out->pipeline.chunks_per_stage = (int)config->parallel_virtual_pipeline_model_parallel_size;
    out->pipeline.gather_per_step =
        config->zero_optimization_pipeline_gather == Z3D_PIPELINE_GATHER_PER_STEP;
    Z3D_TRY(cut(config, model, speeds, out));
    if (out->pipeline.schedule != Z3D_SCHEDULE_FILE) return Z3D_OK;
    Z3D_TRY(z3d_schedule_read(config->parallel_pipeline_schedule_file,
                              (int)config->parallel_pipeline_model_parallel_size,
                              (int)z3d_config_chunks(config), out->accumulation, &file));
    out->pipeline.file = file;
    return Z3D_OK;
}
