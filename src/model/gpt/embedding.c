/* GPT-2's first unit: tokens -> wte[token] + wpe[position], with dropout. Keeps nothing. After the
 * sum over the tensor group a rank has its own rows; positions and dropout work on these. */
#include "src/model/gpt/units.h"

enum { WTE, WPE };

static z3d_status forward(z3d_unit_run *run) {
    const z3d_gpt *gpt = gpt_of(run);
    z3d_tensor_lane lane = z3d_gpt_lane(run);
    z3d_row_range own = z3d_gpt_own_rows(run);
    int64_t seq = run->tokens, hidden = gpt->config.hidden_size;
    void *all;
    Z3D_TRY(z3d_gpt_take_all(run, run->output, &all));
    Z3D_TRY(z3d_vocab_embedding_forward(&lane, gpt_vocab_range(run), run->field[0],
                                        z3d_unit_parameter(run, WTE, 0), gpt_rows(run), hidden,
                                        all));
    char *x = (char *)all + z3d_gpt_own_offset(run);
    Z3D_TRY(Z3D_LAUNCH(run->device, position_forward, .x = x,
                       .positions = z3d_unit_parameter(run, WPE, 0), .starts = z3d_unit_starts(run),
                       .capacity = gpt->config.seq_length, .rows = own.count, .first = own.first,
                       .seq = seq, .cols = hidden, .dtype = run->dtype));
    z3d_dropout dropout = gpt_dropout(run, gpt->config.hidden_dropout, "embedding");
    if (dropout.p == 0 && all == run->output) return Z3D_OK;
    return Z3D_LAUNCH(run->device, dropout_forward, .x = x, .y = run->output, .rows = own.count,
                      .first = own.first, .seq = seq, .cols = hidden, .dtype = run->dtype,
                      .dropout = dropout);
}

static z3d_status backward(z3d_unit_run *run) {
    const z3d_gpt *gpt = gpt_of(run);
    z3d_row_range own = z3d_gpt_own_rows(run);
    int64_t seq = run->tokens, hidden = gpt->config.hidden_size, rows = gpt_rows(run);
    z3d_vocab_range range = gpt_vocab_range(run);
    const void *dy = run->output_gradient;
    if (!z3d_gpt_dropout_is_identity(run)) {
        void *all;
        Z3D_TRY(
            z3d_unit_take_workspace(run, rows, hidden * (int64_t)z3d_dtype_size(run->dtype), &all));
        Z3D_TRY(z3d_gpt_dropout_gradient(run, dy, "embedding", all));
        dy = all;
    }
    Z3D_TRY(Z3D_LAUNCH(run->device, embedding_backward, .tokens = run->field[0], .dy = dy,
                       .table_gradient = z3d_unit_gradient(run, WTE, 0), .rows = rows,
                       .cols = hidden, .first = range.first, .table_rows = range.local,
                       .dtype = run->dtype, .gradient_dtype = run->gradient_dtype,
                       .accumulate = run->group[WTE].accumulate));
    return Z3D_LAUNCH(
        run->device, position_backward, .dy = (const char *)dy + z3d_gpt_own_offset(run),
        .gradient = z3d_unit_gradient(run, WPE, 0), .rows = own.count, .first = own.first,
        .seq = seq, .cols = hidden, .dtype = run->dtype, .gradient_dtype = run->gradient_dtype,
        .accumulate = run->group[WPE].accumulate);
}

/* There is no input. */
static z3d_status backward_input(z3d_unit_run *run) {
    (void)run;
    return Z3D_OK;
}

const struct z3d_unit_ops z3d_gpt_embedding_ops = {.forward = forward,
                                                   .backward = backward,
                                                   .backward_input = backward_input,
                                                   .backward_weight = backward};
