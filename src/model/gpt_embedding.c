/* GPT-2's first unit: tokens -> wte[token] + wpe[position], with dropout. Keeps nothing. */
#include "src/model/gpt.h"

enum { WTE, WPE };

static z3d_status forward(z3d_unit_run *run) {
    const z3d_gpt *gpt = gpt_of(run);
    z3d_tensor_lane lane = z3d_unit_lane(run);
    int64_t seq = gpt->config.seq_length, hidden = gpt->config.hidden_size;
    Z3D_TRY(z3d_vocab_embedding_forward(&lane, gpt_vocab_range(run), run->field[0],
                                        z3d_unit_parameter(run, WTE, 0), gpt_rows(run), hidden,
                                        run->output));
    Z3D_TRY(Z3D_LAUNCH(run->device, position_forward, .x = run->output,
                       .positions = z3d_unit_parameter(run, WPE, 0), .batch = run->batch,
                       .seq = seq, .cols = hidden, .dtype = run->dtype));
    z3d_dropout dropout = gpt_dropout(run, gpt->config.hidden_dropout, "embedding");
    if (dropout.p == 0) return Z3D_OK;
    return Z3D_LAUNCH(run->device, dropout_forward, .x = run->output, .y = run->output,
                      .batch = run->batch, .seq = seq, .cols = hidden, .dtype = run->dtype,
                      .dropout = dropout);
}

static z3d_status backward(z3d_unit_run *run) {
    const z3d_gpt *gpt = gpt_of(run);
    int64_t seq = gpt->config.seq_length, hidden = gpt->config.hidden_size, rows = gpt_rows(run);
    z3d_vocab_range range = gpt_vocab_range(run);
    z3d_dropout dropout = gpt_dropout(run, gpt->config.hidden_dropout, "embedding");
    const void *dy = run->output_gradient;
    if (dropout.p > 0) {
        void *masked;
        Z3D_TRY(z3d_unit_take_workspace(run, rows, hidden * (int64_t)z3d_dtype_size(run->dtype),
                                        &masked));
        Z3D_TRY(Z3D_LAUNCH(run->device, dropout_backward, .dy = dy, .dx = masked,
                           .batch = run->batch, .seq = seq, .cols = hidden, .dtype = run->dtype,
                           .dropout = dropout));
        dy = masked;
    }
    Z3D_TRY(Z3D_LAUNCH(run->device, embedding_backward, .tokens = run->field[0], .dy = dy,
                       .table_gradient = z3d_unit_gradient(run, WTE, 0), .rows = rows,
                       .cols = hidden, .first = range.first, .table_rows = range.local,
                       .dtype = run->dtype, .gradient_dtype = run->gradient_dtype,
                       .accumulate = run->group[WTE].accumulate));
    return Z3D_LAUNCH(run->device, position_backward, .dy = dy,
                      .gradient = z3d_unit_gradient(run, WPE, 0), .batch = run->batch, .seq = seq,
                      .cols = hidden, .dtype = run->dtype, .gradient_dtype = run->gradient_dtype,
                      .accumulate = run->group[WPE].accumulate);
}

const struct z3d_unit_ops z3d_gpt_embedding_ops = {.forward = forward, .backward = backward};
