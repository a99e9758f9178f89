/* GPT-2's transformer block, pre-norm:
 *
 *   x1  = x  + dropout(projection(attention(qkv(ln_1 x))))
 *   out = x1 + dropout(projection(gelu(fc(ln_2 x1))))
 *
 * Each half is one column-parallel and one row-parallel product: two sums over the tensor group
 * forward, two backward. Kept for backward besides the input: at most 11 batch x seq x hidden and
 * the statistics; gelu's output is computed again. A lean run keeps 8: the layernorms' outputs and
 * the attention are computed again too. A recompute without output stops before the last product,
 * and so before the second sum. Between the halves of backward lie at most 10 more: the gradients
 * of fc's output (4) and of qkv (3), those of the two residual branches, and a lean run's
 * attention.
 *
 * With sequence parallelism layernorms, dropout and residuals work on a rank's own rows, and the
 * products' inputs are gathered first: two all-gathers and two reduce-scatters each way. The
 * layernorms' outputs are kept whole; a lean run gathers them once more in backward. */
#include "src/model/gpt/units.h"

/* What forward saves for backward, in the order of allocation. */
typedef struct block_saved {
    void *ln_1, *qkv, *attention, *x1, *ln_2, *fc;
    float *mean_1, *rstd_1, *log_sum_exp, *mean_2, *rstd_2;
} block_saved;

static int64_t width(const z3d_unit_run *run, int64_t columns) {
    return columns * (int64_t)z3d_dtype_size(run->dtype);
}

static z3d_status take_saved(z3d_unit_run *run, block_saved *saved) {
    const z3d_gpt *gpt = gpt_of(run);
    int64_t rows = gpt_rows(run), own = z3d_gpt_own_rows(run).count;
    int64_t hidden = gpt->config.hidden_size;
    int64_t heads = gpt->local_heads * (int64_t)sizeof(float);
    saved->ln_1 = saved->ln_2 = saved->attention = NULL;
    if (!run->lean) {
        Z3D_TRY(z3d_unit_take_saved(run, rows, width(run, hidden), &saved->ln_1));
        Z3D_TRY(z3d_unit_take_saved(run, rows, width(run, hidden), &saved->ln_2));
        Z3D_TRY(z3d_unit_take_saved(run, rows, width(run, gpt->local_hidden), &saved->attention));
    }
    Z3D_TRY(z3d_unit_take_saved(run, own, sizeof(float), &saved->mean_1));
    Z3D_TRY(z3d_unit_take_saved(run, own, sizeof(float), &saved->rstd_1));
    Z3D_TRY(z3d_unit_take_saved(run, rows, width(run, 3 * gpt->local_hidden), &saved->qkv));
    Z3D_TRY(z3d_unit_take_saved(run, rows, heads, &saved->log_sum_exp));
    Z3D_TRY(z3d_unit_take_saved(run, own, width(run, hidden), &saved->x1));
    Z3D_TRY(z3d_unit_take_saved(run, own, sizeof(float), &saved->mean_2));
    Z3D_TRY(z3d_unit_take_saved(run, own, sizeof(float), &saved->rstd_2));
    return z3d_unit_take_saved(run, rows, width(run, gpt->local_inner), &saved->fc);
}

/* A linear layer of this block: weight at `index` of the group, its bias behind it. */
static z3d_linear linear_at(const z3d_unit_run *run, int index, int64_t in, int64_t out) {
    return z3d_unit_linear(run, 0, index, index + 1, gpt_rows(run), in, out);
}

static z3d_linear qkv_layer(const z3d_unit_run *run) {
    const z3d_gpt *gpt = gpt_of(run);
    return linear_at(run, GPT_ATTN_WEIGHT, gpt->config.hidden_size, 3 * gpt->local_hidden);
}

static z3d_linear projection_layer(const z3d_unit_run *run) {
    const z3d_gpt *gpt = gpt_of(run);
    return linear_at(run, GPT_ATTN_PROJ_WEIGHT, gpt->local_hidden, gpt->config.hidden_size);
}

static z3d_linear fc_layer(const z3d_unit_run *run) {
    const z3d_gpt *gpt = gpt_of(run);
    return linear_at(run, GPT_FC_WEIGHT, gpt->config.hidden_size, gpt->local_inner);
}

static z3d_linear mlp_projection_layer(const z3d_unit_run *run) {
    const z3d_gpt *gpt = gpt_of(run);
    return linear_at(run, GPT_MLP_PROJ_WEIGHT, gpt->local_inner, gpt->config.hidden_size);
}

/* *y (in workspace if it is not kept) = layernorm of x: of the own rows, then all. */
static z3d_status layernorm(z3d_unit_run *run, const z3d_tensor_lane *lane, int weight,
                            const void *x, void **y, float *mean, float *rstd) {
    int64_t rows = gpt_rows(run), hidden = gpt_of(run)->config.hidden_size;
    if (run->lean) Z3D_TRY(z3d_unit_take_workspace(run, rows, width(run, hidden), y));
    Z3D_TRY(Z3D_LAUNCH(
        run->device, layernorm_forward, .x = x, .weight = z3d_unit_parameter(run, 0, weight),
        .bias = z3d_unit_parameter(run, 0, weight + 1), .y = (char *)*y + z3d_gpt_own_offset(run),
        .mean = mean, .rstd = rstd, .rows = z3d_gpt_own_rows(run).count, .cols = hidden,
        .epsilon = GPT_EPSILON, .dtype = run->dtype));
    return z3d_gather_rows(lane, *y, rows, hidden);
}

/* The end of both halves, y = residual + dropout(projection of x), of the own rows. */
static z3d_status project(z3d_unit_run *run, const z3d_tensor_lane *lane,
                          const z3d_linear *projection, const void *x, const void *residual,
                          const char *site, void *y) {
    const z3d_gpt_config *c = &gpt_of(run)->config;
    z3d_row_range own = z3d_gpt_own_rows(run);
    int64_t mark = z3d_unit_workspace_mark(run);
    void *all;
    Z3D_TRY(z3d_gpt_take_all(run, y, &all));
    Z3D_TRY(z3d_row_linear_forward(lane, projection, x, all));
    z3d_unit_workspace_release(run, mark);
    return Z3D_LAUNCH(run->device, dropout_forward, .x = (char *)all + z3d_gpt_own_offset(run),
                      .bias = projection->bias, .residual = residual, .y = y, .rows = own.count,
                      .first = own.first, .seq = c->seq_length, .cols = c->hidden_size,
                      .dtype = run->dtype, .dropout = gpt_dropout(run, c->hidden_dropout, site));
}

/* Queries, keys and values lie beside each other in each row of qkv: where part 0, 1 or 2 begins.
 */
static void *qkv_part(const z3d_unit_run *run, void *qkv, int64_t part) {
    return (char *)qkv + part * width(run, gpt_of(run)->local_hidden);
}

/* saved->attention = the local heads' attention. */
static z3d_status attend(const z3d_unit_run *run, const block_saved *saved) {
    const z3d_gpt *gpt = gpt_of(run);
    return Z3D_LAUNCH(
        run->device, attention_forward, .q = saved->qkv, .k = qkv_part(run, saved->qkv, 1),
        .v = qkv_part(run, saved->qkv, 2), .out = saved->attention,
        .log_sum_exp = saved->log_sum_exp, .batch = run->batch, .seq = gpt->config.seq_length,
        .capacity = gpt->config.seq_length, .heads = gpt->local_heads, .kv_heads = gpt->local_heads,
        .head_dim = gpt->head_dim, .q_stride = 3 * gpt->local_hidden,
        .kv_stride = 3 * gpt->local_hidden,
        .first_head = gpt->local_heads * z3d_group_index(run->tensor), .dtype = run->dtype,
        .dropout = gpt_dropout(run, gpt->config.attention_dropout, "attention"));
}

static z3d_status attention_half(z3d_unit_run *run, const z3d_tensor_lane *lane,
                                 block_saved *saved) {
    z3d_linear qkv = qkv_layer(run), projection = projection_layer(run);
    int64_t mark = z3d_unit_workspace_mark(run);
    Z3D_TRY(layernorm(run, lane, GPT_LN_1_WEIGHT, run->input, &saved->ln_1, saved->mean_1,
                      saved->rstd_1));
    Z3D_TRY(z3d_column_linear_forward(lane, &qkv, saved->ln_1, saved->qkv));
    z3d_unit_workspace_release(run, mark);
    if (run->lean)
        Z3D_TRY(z3d_unit_take_workspace(run, projection.rows, width(run, projection.in),
                                        &saved->attention));
    Z3D_TRY(attend(run, saved));
    Z3D_TRY(project(run, lane, &projection, saved->attention, run->input, "projection", saved->x1));
    z3d_unit_workspace_release(run, mark);
    return Z3D_OK;
}

static z3d_status forward(z3d_unit_run *run) {
    z3d_tensor_lane lane = z3d_gpt_lane(run);
    block_saved saved;
    Z3D_TRY(take_saved(run, &saved));
    Z3D_TRY(attention_half(run, &lane, &saved));
    z3d_linear fc = fc_layer(run), projection = mlp_projection_layer(run);
    if (run->need_output)
        Z3D_TRY(z3d_unit_take_workspace(run, gpt_rows(run), width(run, fc.out), &fc.gelu));
    int64_t mark = z3d_unit_workspace_mark(run);
    Z3D_TRY(
        layernorm(run, &lane, GPT_LN_2_WEIGHT, saved.x1, &saved.ln_2, saved.mean_2, saved.rstd_2));
    Z3D_TRY(z3d_column_linear_forward(&lane, &fc, saved.ln_2, saved.fc));
    z3d_unit_workspace_release(run, mark);
    if (!run->need_output) return Z3D_OK;
    return project(run, &lane, &projection, fc.gelu, saved.x1, "mlp", run->output);
}

/* ---- backward: each function does a half or both; memory that both halves use is deferred ---- */

/* *dy = the gradient of all rows before the dropout at `site`, from that of the own rows after it.
 */
static z3d_status dropout_gradient(z3d_unit_run *run, gpt_halves halves, const void *after,
                                   const char *site, const void **dy) {
    void *all;
    *dy = after;
    if (z3d_gpt_dropout_is_identity(run)) return Z3D_OK;
    Z3D_TRY(z3d_unit_take_deferred(run, gpt_rows(run), width(run, gpt_of(run)->config.hidden_size),
                                   &all));
    *dy = all;
    return halves & GPT_INPUT_HALF ? z3d_gpt_dropout_gradient(run, after, site, all) : Z3D_OK;
}

/* *d_x1 = memory for the gradient of x1: input_gradient, where that of the block's input replaces
 * it in the end. But the projection's weight half reads it if its dropout does nothing. */
static z3d_status take_x1_gradient(z3d_unit_run *run, gpt_halves halves, void **d_x1) {
    *d_x1 = run->input_gradient;
    if (halves == GPT_BOTH_HALVES || !z3d_gpt_dropout_is_identity(run)) return Z3D_OK;
    return z3d_unit_take_deferred(run, gpt_rows(run), width(run, gpt_of(run)->config.hidden_size),
                                  d_x1);
}

/* output_gradient -> d_x1. */
static z3d_status mlp_backward(z3d_unit_run *run, const z3d_tensor_lane *lane, gpt_halves halves,
                               block_saved *saved, void *d_x1) {
    z3d_linear fc = fc_layer(run), projection = mlp_projection_layer(run);
    const bool weight = halves & GPT_WEIGHT_HALF, input = halves & GPT_INPUT_HALF;
    const int64_t rows = gpt_rows(run), inner = width(run, projection.in);
    const void *dy;
    void *d_inner, *gelu = NULL, *d_ln_2 = NULL;
    Z3D_TRY(dropout_gradient(run, halves, run->output_gradient, "mlp", &dy));
    Z3D_TRY(z3d_unit_take_deferred(run, rows, inner, &d_inner));
    int64_t mark = z3d_unit_workspace_mark(run);
    if (weight) {
        Z3D_TRY(z3d_unit_take_workspace(run, rows, inner, &gelu));
        Z3D_TRY(Z3D_LAUNCH(run->device, gelu_forward, .x = saved->fc, .y = gelu,
                           .count = rows * projection.in, .dtype = run->dtype));
    }
    projection.before_gelu = saved->fc;
    Z3D_TRY(z3d_row_linear_backward(lane, &projection, gelu, dy, input ? d_inner : NULL));
    z3d_unit_workspace_release(run, mark);
    if (input) Z3D_TRY(z3d_unit_take_workspace(run, rows, width(run, fc.in), &d_ln_2));
    if (weight && run->lean)
        Z3D_TRY(layernorm(run, lane, GPT_LN_2_WEIGHT, saved->x1, &saved->ln_2, saved->mean_2,
                          saved->rstd_2));
    Z3D_TRY(z3d_column_linear_backward(lane, &fc, weight ? saved->ln_2 : NULL, d_inner, d_ln_2));
    gpt_layernorm norm = {0, GPT_LN_2_WEIGHT, saved->x1, saved->mean_2, saved->rstd_2};
    return z3d_gpt_layernorm_backward(run, halves, &norm, d_ln_2, run->output_gradient, d_x1);
}

/* d_x1 -> d_qkv: backward of the projection and of the heads. */
static z3d_status heads_backward(z3d_unit_run *run, const z3d_tensor_lane *lane, gpt_halves halves,
                                 block_saved *saved, const void *d_x1, void *d_qkv) {
    const z3d_gpt *gpt = gpt_of(run);
    z3d_linear projection = projection_layer(run);
    const bool weight = halves & GPT_WEIGHT_HALF, input = halves & GPT_INPUT_HALF;
    const int64_t bytes = width(run, projection.in);
    const void *dy;
    void *d_attention = NULL;
    if (run->lean) Z3D_TRY(z3d_unit_take_deferred(run, projection.rows, bytes, &saved->attention));
    if (run->lean && input) Z3D_TRY(attend(run, saved));
    Z3D_TRY(dropout_gradient(run, halves, d_x1, "projection", &dy));
    if (input) Z3D_TRY(z3d_unit_take_workspace(run, projection.rows, bytes, &d_attention));
    Z3D_TRY(z3d_row_linear_backward(lane, &projection, weight ? saved->attention : NULL, dy,
                                    d_attention));
    if (!input) return Z3D_OK;
    return Z3D_LAUNCH(
        run->device, attention_backward, .q = saved->qkv, .k = qkv_part(run, saved->qkv, 1),
        .v = qkv_part(run, saved->qkv, 2), .out = saved->attention, .dout = d_attention,
        .log_sum_exp = saved->log_sum_exp, .dq = d_qkv, .dk = qkv_part(run, d_qkv, 1),
        .dv = qkv_part(run, d_qkv, 2), .batch = run->batch, .seq = gpt->config.seq_length,
        .heads = gpt->local_heads, .kv_heads = gpt->local_heads, .head_dim = gpt->head_dim,
        .q_stride = 3 * gpt->local_hidden, .kv_stride = 3 * gpt->local_hidden,
        .first_head = gpt->local_heads * z3d_group_index(run->tensor), .dtype = run->dtype,
        .dropout = gpt_dropout(run, gpt->config.attention_dropout, "attention"));
}

/* d_x1 -> input_gradient, which may be d_x1. */
static z3d_status attention_backward(z3d_unit_run *run, const z3d_tensor_lane *lane,
                                     gpt_halves halves, block_saved *saved, const void *d_x1) {
    z3d_linear qkv = qkv_layer(run);
    const bool weight = halves & GPT_WEIGHT_HALF;
    void *d_qkv, *d_ln_1 = NULL;
    Z3D_TRY(z3d_unit_take_deferred(run, qkv.rows, width(run, qkv.out), &d_qkv));
    int64_t mark = z3d_unit_workspace_mark(run);
    Z3D_TRY(heads_backward(run, lane, halves, saved, d_x1, d_qkv));
    z3d_unit_workspace_release(run, mark);
    if (halves & GPT_INPUT_HALF)
        Z3D_TRY(z3d_unit_take_workspace(run, qkv.rows, width(run, qkv.in), &d_ln_1));
    if (weight && run->lean)
        Z3D_TRY(layernorm(run, lane, GPT_LN_1_WEIGHT, run->input, &saved->ln_1, saved->mean_1,
                          saved->rstd_1));
    Z3D_TRY(z3d_column_linear_backward(lane, &qkv, weight ? saved->ln_1 : NULL, d_qkv, d_ln_1));
    gpt_layernorm norm = {0, GPT_LN_1_WEIGHT, run->input, saved->mean_1, saved->rstd_1};
    return z3d_gpt_layernorm_backward(run, halves, &norm, d_ln_1, d_x1, run->input_gradient);
}

static z3d_status run_backward(z3d_unit_run *run, gpt_halves halves) {
    z3d_tensor_lane lane = z3d_gpt_lane(run);
    block_saved saved;
    void *d_x1;
    Z3D_TRY(take_saved(run, &saved));
    Z3D_TRY(take_x1_gradient(run, halves, &d_x1));
    int64_t mark = z3d_unit_workspace_mark(run);
    Z3D_TRY(mlp_backward(run, &lane, halves, &saved, d_x1));
    z3d_unit_workspace_release(run, mark);
    return attention_backward(run, &lane, halves, &saved, d_x1);
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

const struct z3d_unit_ops z3d_gpt_block_ops = {.forward = forward,
                                               .backward = backward,
                                               .backward_input = backward_input,
                                               .backward_weight = backward_weight};
