/* GPT-2's last unit: ln_f (of the own rows; then all rows are gathered), logits = h wte^T (the tied
 * table, column-parallel over the vocabulary: logits stay split) and the loss. Its backward turns
 * the kept logits into their gradient in place; in halves, the input half does. In generation: the
 * whole vocabulary's logits of one row per sample. */
#include "src/model/gpt/units.h"

enum { WTE, LN_F };
enum { WEIGHT, BIAS };

typedef struct head_saved {
    void *h, *logits;
    float *mean, *rstd, *statistics;
} head_saved;

static int64_t width(const z3d_unit_run *run, int64_t columns) {
    return columns * (int64_t)z3d_dtype_size(run->dtype);
}

static z3d_status take_saved(z3d_unit_run *run, head_saved *saved) {
    int64_t rows = gpt_rows(run), hidden = gpt_of(run)->config.hidden_size;
    int64_t own = z3d_gpt_own_rows(run).count;
    Z3D_TRY(z3d_unit_take_saved(run, rows, width(run, hidden), &saved->h));
    Z3D_TRY(z3d_unit_take_saved(run, own, sizeof(float), &saved->mean));
    Z3D_TRY(z3d_unit_take_saved(run, own, sizeof(float), &saved->rstd));
    Z3D_TRY(z3d_unit_take_saved(run, rows, width(run, gpt_vocab_range(run).local), &saved->logits));
    return z3d_unit_take_saved(run, rows, 3 * sizeof(float), &saved->statistics);
}

static z3d_status layernorm(const z3d_unit_run *run, int64_t rows, const void *x, void *y,
                            float *mean, float *rstd) {
    return Z3D_LAUNCH(run->device, layernorm_forward, .x = x,
                      .weight = z3d_unit_parameter(run, LN_F, WEIGHT),
                      .bias = z3d_unit_parameter(run, LN_F, BIAS), .y = y, .mean = mean,
                      .rstd = rstd, .rows = rows, .cols = gpt_of(run)->config.hidden_size,
                      .epsilon = GPT_EPSILON, .dtype = run->dtype);
}

static z3d_linear logits_layer(const z3d_unit_run *run) {
    return z3d_unit_linear(run, WTE, 0, -1, gpt_rows(run), gpt_of(run)->config.hidden_size,
                           gpt_vocab_range(run).local);
}

/* Each sample's row of the output is a [tensor size x local vocabulary] matrix: this rank's product
 * is written directly to its own part, and the other parts are gathered around it. */
static z3d_status generate(z3d_unit_run *run) {
    const z3d_gpt *gpt = gpt_of(run);
    int64_t hidden = gpt->config.hidden_size, batch = run->batch;
    z3d_vocab_range range = gpt_vocab_range(run);
    char *output = run->output;
    void *row, *h;
    float *mean, *rstd;
    Z3D_TRY(z3d_unit_take_workspace(run, batch, width(run, hidden), &row));
    Z3D_TRY(z3d_unit_take_workspace(run, batch, width(run, hidden), &h));
    Z3D_TRY(z3d_unit_take_workspace(run, batch, sizeof(float), &mean));
    Z3D_TRY(z3d_unit_take_workspace(run, batch, sizeof(float), &rstd));
    Z3D_TRY(Z3D_LAUNCH(run->device, select_row, .x = run->input, .y = row, .batch = batch,
                       .seq = run->tokens, .cols = hidden, .dtype = run->dtype,
                       .row = z3d_unit_output_rows(run)));
    Z3D_TRY(layernorm(run, batch, row, h, mean, rstd));
    Z3D_TRY(Z3D_LAUNCH(run->device, gemm, .m = batch, .n = range.local, .k = hidden,
                       .transpose_b = true, .inference = true, .a = h,
                       .b = z3d_unit_parameter(run, WTE, 0), .c = output + width(run, range.first),
                       .lda = hidden, .ldb = hidden, .ldc = gpt->padded_vocab, .dtype = run->dtype,
                       .c_dtype = run->dtype));
    for (int64_t b = 0; b < batch; b++) {
        z3d_collective gather = {.kind = Z3D_COLLECTIVE_ALL_GATHER,
                                 .dtype = run->dtype,
                                 .buffer = output + width(run, b * gpt->padded_vocab),
                                 .count = range.local,
                                 .stride = range.local};
        Z3D_TRY(z3d_collective_run(run->tensor, &gather));
    }
    return Z3D_OK;
}

static z3d_status forward(z3d_unit_run *run) {
    if (z3d_mode_generates(run->mode)) return generate(run);
    z3d_tensor_lane lane = z3d_gpt_lane(run);
    z3d_linear layer = logits_layer(run);
    head_saved saved;
    Z3D_TRY(take_saved(run, &saved));
    Z3D_TRY(layernorm(run, z3d_gpt_own_rows(run).count, run->input,
                      (char *)saved.h + z3d_gpt_own_offset(run), saved.mean, saved.rstd));
    Z3D_TRY(z3d_gather_rows(&lane, saved.h, layer.rows, layer.in));
    Z3D_TRY(z3d_column_linear_forward(&lane, &layer, saved.h, saved.logits));
    return z3d_vocab_cross_entropy_forward(&lane, gpt_vocab_range(run), saved.logits, run->field[1],
                                           layer.rows, saved.statistics, run->state);
}

static z3d_status run_backward(z3d_unit_run *run, gpt_halves halves) {
    z3d_tensor_lane lane = z3d_gpt_lane(run);
    z3d_linear layer = logits_layer(run);
    head_saved saved;
    void *dh = NULL;
    Z3D_TRY(take_saved(run, &saved));
    if (halves & GPT_INPUT_HALF) {
        Z3D_TRY(z3d_vocab_cross_entropy_backward(&lane, gpt_vocab_range(run), saved.logits,
                                                 run->field[1], layer.rows, saved.statistics,
                                                 run->state));
        Z3D_TRY(z3d_unit_take_workspace(run, layer.rows, width(run, layer.in), &dh));
    }
    Z3D_TRY(z3d_column_linear_backward(&lane, &layer, halves & GPT_WEIGHT_HALF ? saved.h : NULL,
                                       saved.logits, dh));
    gpt_layernorm norm = {LN_F, WEIGHT, run->input, saved.mean, saved.rstd};
    return z3d_gpt_layernorm_backward(run, halves, &norm, dh, NULL, run->input_gradient);
}

static z3d_status backward(z3d_unit_run *run) {
    return run_backward(run, GPT_BOTH_HALVES);
}

static z3d_status backward_input(z3d_unit_run *run) {
    return run_backward(run, GPT_INPUT_HALF);
}

static z3d_status backward_weight(z3d_unit_run *run) {
    return run_backward(run, GPT_WEIGHT_HALF);
}

const struct z3d_unit_ops z3d_gpt_head_ops = {.forward = forward,
                                              .backward = backward,
                                              .backward_input = backward_input,
                                              .backward_weight = backward_weight};
