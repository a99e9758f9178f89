/* Rules of a data axis that is cut into the ranks of a node and the nodes: hpZ, hybrid sharding,
 * hierarchical collectives. */
#include "src/base/config/table.h"

#define STAGE "zero_optimization.stage"
#define PERSISTENCE "zero_optimization.stage3_param_persistence_threshold"
#define LIVE "zero_optimization.stage3_max_live_parameters"
#define REUSE "zero_optimization.stage3_max_reuse_distance"
#define HPZ "zero_optimization.zero_hpz_partition_size"
#define MICS "zero_optimization.mics_shard_size"
#define ALGORITHM "parallel.collective_algorithm"
#define NODE "parallel.ranks_per_node"
#define COMMS "comms_logger.enabled"
#define GATHER "zero_optimization.pipeline_gather"
#define OVERLAP "zero_optimization.overlap_comm"

z3d_data_cut z3d_config_data_cut(const z3d_config *config) {
    if (config->zero_optimization_mics_shard_size > 0) return Z3D_CUT_HYBRID;
    if (config->zero_optimization_zero_hpz_partition_size > 1) return Z3D_CUT_HPZ;
    return config->parallel_collective_algorithm == Z3D_ALGORITHM_RING ? Z3D_CUT_NONE
                                                                       : Z3D_CUT_HIERARCHICAL;
}

bool z3d_cut_takes_stage(z3d_data_cut cut, int stage) {
    return cut == Z3D_CUT_HPZ ? stage == 3 : cut != Z3D_CUT_HYBRID || stage > 0;
}

/* data_inner of hierarchical collectives. With auto the axis is not cut (`data`) if nodes do not
 * have whole tensor groups or do not divide the data ranks. */
static int64_t ranks_of_node(const z3d_config *config, int64_t data) {
    const int64_t tensor = config->parallel_tensor_model_parallel_size,
                  node = config->parallel_ranks_per_node, inner = node / tensor;
    const bool fits = node != Z3D_AUTO && node % tensor == 0 && data % inner == 0;
    if (node == Z3D_AUTO) return data;
    return config->parallel_collective_algorithm == Z3D_ALGORITHM_AUTO && !fits ? data : inner;
}

int64_t z3d_config_data_inner(const z3d_config *config, int64_t data) {
    const int64_t size[] = {
        [Z3D_CUT_NONE] = data,
        [Z3D_CUT_HIERARCHICAL] = ranks_of_node(config, data),
        [Z3D_CUT_HPZ] = config->zero_optimization_zero_hpz_partition_size,
        [Z3D_CUT_HYBRID] = config->zero_optimization_mics_shard_size,
    };
    const int64_t inner = size[z3d_config_data_cut(config)];
    return inner < 1 || inner > data ? data : inner;
}

static void check_node(config_checker *k) {
    const z3d_config *c = k->c;
    if (z3d_config_data_cut(c) == Z3D_CUT_NONE && !c->comms_logger_enabled)
        config_note_idle(k, NODE, ALGORITHM " " HPZ " " COMMS,
                         "while " ALGORITHM " is ring, " HPZ " is 1 and " COMMS " is false", NULL,
                         true);
}

/* With gathers for each use, LIVE limits only parameters gathered ahead or kept. */
static void check_live(config_checker *k) {
    const z3d_config *c = k->c;
    const bool per_step = c->zero_optimization_pipeline_gather == Z3D_PIPELINE_GATHER_PER_STEP;
    if (!config_sound(k, STAGE, LIVE, REUSE, GATHER, OVERLAP, NULL)) return;
    if (per_step)
        config_note_idle(k, REUSE, GATHER, "while " GATHER " is per_step: all stay gathered", NULL,
                         true);
    else if (!c->zero_optimization_overlap_comm &&
             c->zero_optimization_stage3_max_reuse_distance == 0)
        config_note_idle(k, LIVE, OVERLAP " " REUSE,
                         "while " OVERLAP " is false and " REUSE " is 0: only the unit that runs "
                         "has gathered parameters",
                         NULL, true);
}

void config_check_sharding(config_checker *k) {
    const z3d_config *c = k->c;
    const int64_t hpz = c->zero_optimization_zero_hpz_partition_size,
                  mics = c->zero_optimization_mics_shard_size, stage = c->zero_optimization_stage;
    if (!config_refuse_below_3(k, PERSISTENCE " " LIVE " " REUSE, NULL, true)) check_live(k);
    check_node(k);
    if (!config_sound(k, STAGE, HPZ, MICS, ALGORITHM, NULL)) return;
    if (mics == 0)
        config_complain(k, MICS, "0 ranks cannot share the states; write 1 or more, or -1 (off)");
    else if (mics > 0 && hpz > 1)
        config_complain(
            k, HPZ, "%lld, but with " MICS " %lld every gather stays inside the partition; write 1",
            (long long)hpz, (long long)mics);
    else if (mics > 0 && !z3d_cut_takes_stage(z3d_config_data_cut(c), (int)stage))
        config_complain(k, MICS,
                        "%lld, but " STAGE " 0 shards nothing; write stage 1, 2 or 3, or "
                        "-1 (off)",
                        (long long)mics);
    else if (hpz > 1 && !z3d_cut_takes_stage(z3d_config_data_cut(c), (int)stage))
        config_complain(k, HPZ,
                        "%lld, but " STAGE " %lld keeps whole parameters, which need no second "
                        "copy; write stage 3, or 1 (off)",
                        (long long)hpz, (long long)stage);
    else if ((mics > 0 || hpz > 1) && c->parallel_collective_algorithm != Z3D_ALGORITHM_RING)
        config_complain(k, ALGORITHM,
                        "with %s collectives run inside the partition, then over the nodes; "
                        "write ring",
                        mics > 0 ? MICS : HPZ);
}

/* Refuses a size that does not divide `of`, with the nearest sizes that do. */
static bool divides(config_checker *k, const char *path, int64_t size, int64_t of,
                    const char *whose) {
    int64_t below = size, above = size;
    if (of % size == 0) return true;
    while (of % below != 0) below--;
    while (of % above != 0) above++;
    config_complain(k, path, "%lld does not divide the %lld %s; write %lld or %lld",
                    (long long)size, (long long)of, whose, (long long)below, (long long)above);
    return false;
}

/* Nodes must have whole tensor groups, and each partition must be inside a node. */
static bool fits_node(config_checker *k, const char *path, int64_t size) {
    const z3d_config *c = k->c;
    const int64_t tensor = c->parallel_tensor_model_parallel_size,
                  node = c->parallel_ranks_per_node;
    if (node == Z3D_AUTO) return true;
    return divides(k, "parallel.tensor_model_parallel_size", tensor, node, "ranks of a node") &&
           (!path ||
            divides(k, path, size, node / tensor, "data ranks of a node (" NODE " / tensor size)"));
}

bool config_check_partition(config_checker *k, int64_t data) {
    const z3d_config *c = k->c;
    const z3d_data_cut cut = z3d_config_data_cut(c);
    const int64_t inner = z3d_config_data_inner(c, data);
    if (cut == Z3D_CUT_NONE || inner == data) return true;
    if (cut == Z3D_CUT_HYBRID) return divides(k, MICS, inner, data, "data ranks");
    if (cut == Z3D_CUT_HPZ)
        return divides(k, HPZ, inner, data, "data ranks") && fits_node(k, HPZ, inner);
    if (!fits_node(k, NULL, 0)) return false;
    if (data % inner == 0) return true;
    config_complain(
        k, ALGORITHM,
        "nodes of %lld data ranks do not divide the %lld data ranks; start whole nodes, or "
        "write ring",
        (long long)inner, (long long)data);
    return false;
}
