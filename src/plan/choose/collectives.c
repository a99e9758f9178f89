/* The number of ranks of a node, if collectives depend on it. It follows from the nodes, never from
 * a measurement, so a run on equal nodes has equal sums. */
#include "src/plan/choose/choose.h"

z3d_status z3d_choose_nodes(z3d_config *config, int64_t node) {
    const int algorithm = config->parallel_collective_algorithm;
    const bool matters =
        algorithm != Z3D_ALGORITHM_RING || config->zero_optimization_zero_hpz_partition_size > 1;
    if (!matters || config->parallel_ranks_per_node != Z3D_AUTO) return Z3D_OK;
    if (node > 0) config->parallel_ranks_per_node = node;
    if (node > 0 || algorithm != Z3D_ALGORITHM_HIERARCHICAL) return Z3D_OK;
    return z3d_config_error(config, "parallel.collective_algorithm",
                            "hierarchical needs nodes of equally many ranks, and their number is "
                            "not known here; set parallel.ranks_per_node, or write ring");
}
