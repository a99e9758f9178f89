/* A rank's rows between the tensor-parallel layers, and the two operators that change the layout:
 * g-bar sums and leaves each rank its own rows, g gathers all rows (Korthikanti et al., arXiv
 * 2205.05198, figure 5). Together they move as many bytes as the single all-reduce that is used
 * without sequence parallelism. */
#include "tensor_parallel/tensor_parallel.h"

z3d_row_range z3d_own_rows(const z3d_tensor_lane *lane, int64_t rows) {
    if (!lane->sequence_parallel) return (z3d_row_range){0, rows};
    int64_t count = rows / z3d_group_size(lane->group);
    return (z3d_row_range){z3d_group_index(lane->group) * count, count};
}

z3d_collective z3d_sum_rows(const z3d_tensor_lane *lane, void *buffer, int64_t rows, int64_t cols) {
    int64_t count = z3d_own_rows(lane, rows).count * cols;
    return (z3d_collective){.kind = lane->sequence_parallel ? Z3D_COLLECTIVE_REDUCE_SCATTER
                                                            : Z3D_COLLECTIVE_ALL_REDUCE,
                            .op = Z3D_SUM,
                            .dtype = lane->dtype,
                            .buffer = buffer,
                            .count = count,
                            .stride = count};
}

z3d_status z3d_gather_rows(const z3d_tensor_lane *lane, void *buffer, int64_t rows, int64_t cols) {
    int64_t count = z3d_own_rows(lane, rows).count * cols;
    if (!lane->sequence_parallel) return Z3D_OK;
    z3d_collective gather = {.kind = Z3D_COLLECTIVE_ALL_GATHER,
                             .dtype = lane->dtype,
                             .buffer = buffer,
                             .count = count,
                             .stride = count};
    return z3d_collective_run(lane->group, &gather);
}
