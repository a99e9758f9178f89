/* The last unit: the final norm (of the own rows; then all rows are gathered), logits = h table^T
 * (column-parallel over the vocabulary: logits stay split) and the loss. Backward (of the halves,
 * the input half) turns the saved logits into their gradient in place. In generation: the logits of
 * the whole vocabulary, of one row per sample. */
#include "src/model/transformer.h"

enum { TABLE, NORM };

typedef struct head_saved {
    void *h, *logits;
    z3d_norm norm;
    float *statistics;
} head_saved;

static z3d_status take_saved(z3d_unit_run *run, head_saved *saved) {
    int64_t rows = z3d_unit_rows(run), hidden = z3d_transformer_of(run)->hidden_size;
    int64_t own = z3d_unit_own_rows(run).count;
    Z3D_TRY(z3d_unit_take_saved(run, rows, z3d_row_bytes(run, hidden), &saved->h));
    saved->norm = (z3d_norm){.slot = NORM, .x = run->input};
    Z3D_TRY(z3d_norm_take_saved(run, own, &saved->norm));
    Z3D_TRY(z3d_unit_take_saved(run, rows, z3d_row_bytes(run, z3d_unit_vocab_range(run).local),
                                &saved->logits));
    return z3d_unit_take_saved(run, rows, 3 * sizeof(float), &saved->statistics);
}

static z3d_linear logits_layer(const z3d_unit_run *run) {
    return z3d_unit_linear(run, TABLE, 0, -1, z3d_unit_rows(run),
                           z3d_transformer_of(run)->hidden_size, z3d_unit_vocab_range(run).local);
}

/* Each sample's row of the output is a [tensor size x local vocabulary] matrix: this rank's product
 * is written directly to its own part, and an all-gather fills the other parts. */
static z3d_status generate(z3d_unit_run *run) {
    const z3d_transformer *shape = z3d_transformer_of(run);
    int64_t hidden = shape->hidden_size, batch = run->batch;
    z3d_vocab_range range = z3d_unit_vocab_range(run);
    char *output = run->output;
    void *row, *h;
    z3d_norm norm = {.slot = NORM};
    Z3D_TRY(z3d_unit_take_workspace(run, batch, z3d_row_bytes(run, hidden), &row));
    Z3D_TRY(z3d_unit_take_workspace(run, batch, z3d_row_bytes(run, hidden), &h));
    Z3D_TRY(z3d_norm_take_workspace(run, batch, &norm));
    Z3D_TRY(Z3D_LAUNCH(run->device, select_row, .x = run->input, .y = row, .batch = batch,
                       .seq = run->tokens, .cols = hidden, .dtype = run->dtype,
                       .row = z3d_unit_output_rows(run)));
    norm.x = row;
    Z3D_TRY(z3d_norm_forward(run, &norm, batch, h));
    Z3D_TRY(Z3D_LAUNCH(run->device, gemm, .m = batch, .n = range.local, .k = hidden,
                       .transpose_b = true, .inference = true, .a = h,
                       .b = z3d_unit_parameter(run, TABLE, 0),
                       .c = output + z3d_row_bytes(run, range.first), .lda = hidden, .ldb = hidden,
                       .ldc = shape->padded_vocab, .dtype = run->dtype, .c_dtype = run->dtype));
    for (int64_t b = 0; b < batch; b++) {
        z3d_collective gather = {.kind = Z3D_COLLECTIVE_ALL_GATHER,
                                 .dtype = run->dtype,
                                 .buffer = output + z3d_row_bytes(run, b * shape->padded_vocab),
                                 .count = range.local,
                                 .stride = range.local};
        Z3D_TRY(z3d_collective_run(run->process_group[0], &gather));
    }
    return Z3D_OK;
}

static z3d_status forward(z3d_unit_run *run) {
    if (z3d_mode_generates(run->mode)) return generate(run);
    z3d_tensor_lane lane = z3d_transformer_lane(run);
    z3d_linear layer = logits_layer(run);
    head_saved saved;
    Z3D_TRY(take_saved(run, &saved));
    Z3D_TRY(z3d_norm_forward_all(run, &saved.norm, saved.h));
    Z3D_TRY(z3d_column_linear_forward(&lane, &layer, saved.h, saved.logits));
    return z3d_vocab_cross_entropy_forward(&lane, z3d_unit_vocab_range(run), saved.logits,
                                           run->field[1], layer.rows, saved.statistics, run->state);
}

static z3d_status backward_halves(z3d_unit_run *run, z3d_halves halves) {
    z3d_tensor_lane lane = z3d_transformer_lane(run);
    z3d_linear layer = logits_layer(run);
    head_saved saved;
    void *dh = NULL;
    layer.input_only = halves == Z3D_INPUT_HALF;
    Z3D_TRY(take_saved(run, &saved));
    if (halves & Z3D_INPUT_HALF) {
        Z3D_TRY(z3d_vocab_cross_entropy_backward(&lane, z3d_unit_vocab_range(run), saved.logits,
                                                 run->field[1], layer.rows, saved.statistics,
                                                 run->state));
        if (z3d_norm_needs_gradient(run, &saved.norm)) Z3D_TRY(z3d_unit_take_all(run, &dh));
    }
    Z3D_TRY(z3d_column_linear_backward(&lane, &layer, saved.h, saved.logits, dh));
    return z3d_norm_backward(run, halves, &saved.norm, z3d_unit_own_part(run, dh), NULL,
                             run->input_gradient);
}

const struct z3d_unit_ops z3d_head_ops = {.forward = forward, .backward_halves = backward_halves};
