/* The first unit: tokens -> table[token] (+ positions[position], if the model has such a table),
 * with dropout. Saves nothing. After the sum over the tensor group a rank has its own rows;
 * positions and dropout work on these rows. */
#include "src/model/transformer.h"

enum { TABLE, POSITIONS };

static z3d_status forward(z3d_unit_run *run) {
    const z3d_transformer *shape = z3d_transformer_of(run);
    z3d_tensor_lane lane = z3d_transformer_lane(run);
    z3d_row_range own = z3d_unit_own_rows(run);
    int64_t seq = run->tokens, hidden = shape->hidden_size;
    void *all;
    Z3D_TRY(z3d_unit_take_all_rows(run, run->output, &all));
    Z3D_TRY(z3d_vocab_embedding_forward(&lane, z3d_unit_vocab_range(run), run->field[0],
                                        z3d_unit_parameter(run, TABLE, 0), z3d_unit_rows(run),
                                        hidden, all));
    char *x = (char *)all + z3d_unit_own_offset(run);
    if (shape->learned_positions)
        Z3D_TRY(Z3D_LAUNCH(run->device, position_forward, .x = x,
                           .positions = z3d_unit_parameter(run, POSITIONS, 0),
                           .starts = z3d_unit_starts(run),
                           .row_position = z3d_unit_row_position(run),
                           .capacity = shape->seq_length, .rows = own.count, .first = own.first,
                           .seq = seq, .cols = hidden, .dtype = run->dtype));
    z3d_dropout dropout = z3d_unit_dropout(run, shape->hidden_dropout, "embedding");
    if (dropout.p == 0 && all == run->output) return Z3D_OK;
    return Z3D_LAUNCH(run->device, dropout_forward, .x = x, .y = run->output, .rows = own.count,
                      .first = own.first, .seq = seq, .cols = hidden, .dtype = run->dtype,
                      .dropout = dropout);
}

/* The unit has no input. */
static z3d_status backward_halves(z3d_unit_run *run, z3d_halves halves) {
    if (halves == Z3D_INPUT_HALF) return Z3D_OK;
    const z3d_transformer *shape = z3d_transformer_of(run);
    z3d_row_range own = z3d_unit_own_rows(run);
    int64_t seq = run->tokens, hidden = shape->hidden_size, rows = z3d_unit_rows(run);
    z3d_vocab_range range = z3d_unit_vocab_range(run);
    const void *dy = run->output_gradient;
    if (!z3d_residual_dropout_is_identity(run)) {
        void *all;
        Z3D_TRY(z3d_unit_take_all(run, &all));
        Z3D_TRY(z3d_residual_dropout_gradient(run, dy, "embedding", all));
        dy = all;
    }
    if (z3d_unit_gradient(run, TABLE, 0))
        Z3D_TRY(Z3D_LAUNCH(run->device, embedding_backward, .tokens = run->field[0], .dy = dy,
                           .table_gradient = z3d_unit_gradient(run, TABLE, 0), .rows = rows,
                           .cols = hidden, .first = range.first, .table_rows = range.local,
                           .dtype = run->dtype, .gradient_dtype = run->gradient_dtype,
                           .accumulate = run->group[TABLE].accumulate));
    if (!shape->learned_positions || !z3d_unit_gradient(run, POSITIONS, 0)) return Z3D_OK;
    const void *own_dy = (const char *)dy + z3d_unit_own_offset(run);
    if (z3d_unit_row_position(run))
        return Z3D_LAUNCH(
            run->device, embedding_backward, .tokens = z3d_unit_row_position(run) + own.first,
            .dy = own_dy, .table_gradient = z3d_unit_gradient(run, POSITIONS, 0), .rows = own.count,
            .cols = hidden, .table_rows = seq, .dtype = run->dtype,
            .gradient_dtype = run->gradient_dtype, .accumulate = run->group[POSITIONS].accumulate);
    return Z3D_LAUNCH(run->device, position_backward, .dy = own_dy,
                      .gradient = z3d_unit_gradient(run, POSITIONS, 0), .rows = own.count,
                      .first = own.first, .seq = seq, .cols = hidden, .dtype = run->dtype,
                      .gradient_dtype = run->gradient_dtype,
                      .accumulate = run->group[POSITIONS].accumulate);
}

const struct z3d_unit_ops z3d_embedding_ops = {.forward = forward,
                                               .backward_halves = backward_halves};
