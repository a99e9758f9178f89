/* The layers that are split along the vocabulary: the embedding lookup and softmax cross entropy.
 * Ranks exchange no logits, only a maximum and two sums for each row. */
#include "tensor_parallel/tensor_parallel.h"

z3d_vocab_range z3d_vocab_range_of(int64_t vocab, int64_t padded_vocab, int size, int index) {
    int64_t local = padded_vocab / size;
    int64_t first = local * index;
    int64_t valid = vocab - first;
    if (valid < 0) valid = 0;
    if (valid > local) valid = local;
    return (z3d_vocab_range){.first = first, .local = local, .valid = valid};
}

z3d_status z3d_vocab_embedding_forward(const z3d_tensor_lane *lane, z3d_vocab_range range,
                                       const int32_t *tokens, const void *table, int64_t rows,
                                       int64_t hidden, void *out) {
    Z3D_TRY(Z3D_LAUNCH(lane->device, embedding_forward, .tokens = tokens, .table = table,
                       .out = out, .rows = rows, .cols = hidden, .first = range.first,
                       .table_rows = range.local, .dtype = lane->dtype));
    z3d_collective sum = z3d_sum_rows(lane, out, rows, hidden);
    return z3d_collective_run(lane->group, &sum);
}

static z3d_status reduce_statistics(const z3d_tensor_lane *lane, z3d_reduce_op op, float *values,
                                    int64_t count) {
    z3d_collective call = {.kind = Z3D_COLLECTIVE_ALL_REDUCE,
                           .op = op,
                           .dtype = Z3D_F32,
                           .buffer = values,
                           .count = count,
                           .scalar = true};
    return z3d_collective_run(lane->group, &call);
}

z3d_status z3d_vocab_cross_entropy_forward(const z3d_tensor_lane *lane, z3d_vocab_range range,
                                           const void *logits, const int32_t *targets, int64_t rows,
                                           float *statistics, z3d_step_state *state) {
    float *max = statistics, *sums = statistics + rows;
    const bool alone = z3d_group_size(lane->group) == 1;
    Z3D_TRY(Z3D_LAUNCH(lane->device, cross_entropy_max, .logits = logits, .max_out = max,
                       .rows = rows, .cols = range.local, .valid = range.valid,
                       .dtype = lane->dtype, .alone = alone));
    Z3D_TRY(reduce_statistics(lane, Z3D_MAX, max, rows));
    Z3D_TRY(Z3D_LAUNCH(lane->device, cross_entropy_sum, .logits = logits, .max = max,
                       .targets = targets, .sums = sums, .rows = rows, .cols = range.local,
                       .valid = range.valid, .first = range.first, .dtype = lane->dtype,
                       .alone = alone));
    Z3D_TRY(reduce_statistics(lane, Z3D_SUM, sums, 2 * rows));
    return Z3D_LAUNCH(lane->device, cross_entropy_loss, .sums = sums, .targets = targets,
                      .rows = rows, .state = state);
}

z3d_status z3d_vocab_cross_entropy_backward(const z3d_tensor_lane *lane, z3d_vocab_range range,
                                            void *logits, const int32_t *targets, int64_t rows,
                                            const float *statistics, const z3d_step_state *state) {
    return Z3D_LAUNCH(lane->device, cross_entropy_backward, .logits = logits, .max = statistics,
                      .sums = statistics + rows, .targets = targets, .rows = rows,
                      .cols = range.local, .valid = range.valid, .first = range.first,
                      .dtype = lane->dtype, .state = state);
}
