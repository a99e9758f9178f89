/* GPT-2's transformer block, pre-norm:
 *
 *   x1  = x  + dropout(projection(attention(qkv(ln_1 x))))
 *   out = x1 + dropout(projection(gelu(fc(ln_2 x1))))
 *
 * Each half is one column-parallel and one row-parallel product: two sums over the tensor group
 * forward, two backward. Kept for backward besides the input: at most 11 batch x seq x hidden and
 * the statistics; gelu's output is computed again. A lean run keeps 8: the layernorms' outputs and
 * the attention are computed again too. A recompute without output stops before the last product,
 * and so before the second sum.
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

/* saved->attention (in workspace if it is not kept) = the local heads' attention. */
static z3d_status attend(z3d_unit_run *run, block_saved *saved) {
    const z3d_gpt *gpt = gpt_of(run);
    if (run->lean)
        Z3D_TRY(z3d_unit_take_workspace(run, gpt_rows(run), width(run, gpt->local_hidden),
                                        &saved->attention));
    return Z3D_LAUNCH(
        run->device, attention_forward, .qkv = saved->qkv, .out = saved->attention,
        .log_sum_exp = saved->log_sum_exp, .batch = run->batch, .seq = gpt->config.seq_length,
        .heads = gpt->local_heads, .head_dim = gpt->head_dim,
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

/* dx = residual + layernorm's input gradient, of the own rows; dx may be residual. */
static z3d_status layernorm_gradient(const z3d_unit_run *run, int weight, const char *dy,
                                     const void *x, const float *mean, const float *rstd,
                                     const void *residual, void *dx) {
    return Z3D_LAUNCH(
        run->device, layernorm_backward, .dy = dy + z3d_gpt_own_offset(run), .x = x,
        .weight = z3d_unit_parameter(run, 0, weight), .mean = mean, .rstd = rstd,
        .add_to = residual, .dx = dx, .weight_gradient = z3d_unit_gradient(run, 0, weight),
        .bias_gradient = z3d_unit_gradient(run, 0, weight + 1), .rows = z3d_gpt_own_rows(run).count,
        .cols = gpt_of(run)->config.hidden_size, .dtype = run->dtype,
        .gradient_dtype = run->gradient_dtype, .accumulate = run->group[0].accumulate);
}

/* output_gradient -> the gradient of x1, in input_gradient. */
static z3d_status mlp_backward(z3d_unit_run *run, const z3d_tensor_lane *lane, block_saved *saved) {
    const z3d_gpt *gpt = gpt_of(run);
    z3d_linear fc = fc_layer(run), projection = mlp_projection_layer(run);
    int64_t rows = gpt_rows(run), inner = gpt->local_inner;
    const void *dy;
    void *d_inner, *gelu, *d_ln_2;
    Z3D_TRY(z3d_gpt_dropout_gradient(run, run->output_gradient, "mlp", &dy));
    Z3D_TRY(z3d_unit_take_workspace(run, rows, width(run, inner), &d_inner));
    int64_t mark = z3d_unit_workspace_mark(run);
    Z3D_TRY(z3d_unit_take_workspace(run, rows, width(run, inner), &gelu));
    Z3D_TRY(Z3D_LAUNCH(run->device, gelu_forward, .x = saved->fc, .y = gelu, .count = rows * inner,
                       .dtype = run->dtype));
    projection.before_gelu = saved->fc;
    Z3D_TRY(z3d_row_linear_backward(lane, &projection, gelu, dy, d_inner));
    z3d_unit_workspace_release(run, mark);
    Z3D_TRY(z3d_unit_take_workspace(run, rows, width(run, gpt->config.hidden_size), &d_ln_2));
    if (run->lean)
        Z3D_TRY(layernorm(run, lane, GPT_LN_2_WEIGHT, saved->x1, &saved->ln_2, saved->mean_2,
                          saved->rstd_2));
    Z3D_TRY(z3d_column_linear_backward(lane, &fc, saved->ln_2, d_inner, d_ln_2));
    return layernorm_gradient(run, GPT_LN_2_WEIGHT, d_ln_2, saved->x1, saved->mean_2, saved->rstd_2,
                              run->output_gradient, run->input_gradient);
}

/* The gradient of x1 in input_gradient becomes that of the block's input. */
static z3d_status attention_backward(z3d_unit_run *run, const z3d_tensor_lane *lane,
                                     block_saved *saved) {
    const z3d_gpt *gpt = gpt_of(run);
    z3d_linear qkv = qkv_layer(run), projection = projection_layer(run);
    int64_t rows = gpt_rows(run);
    const void *dy;
    void *d_qkv, *d_attention, *d_ln_1;
    Z3D_TRY(z3d_unit_take_workspace(run, rows, width(run, 3 * gpt->local_hidden), &d_qkv));
    int64_t mark = z3d_unit_workspace_mark(run);
    if (run->lean) Z3D_TRY(attend(run, saved));
    Z3D_TRY(z3d_gpt_dropout_gradient(run, run->input_gradient, "projection", &dy));
    Z3D_TRY(z3d_unit_take_workspace(run, rows, width(run, gpt->local_hidden), &d_attention));
    Z3D_TRY(z3d_row_linear_backward(lane, &projection, saved->attention, dy, d_attention));
    Z3D_TRY(Z3D_LAUNCH(
        run->device, attention_backward, .qkv = saved->qkv, .out = saved->attention,
        .dout = d_attention, .log_sum_exp = saved->log_sum_exp, .dqkv = d_qkv, .batch = run->batch,
        .seq = gpt->config.seq_length, .heads = gpt->local_heads, .head_dim = gpt->head_dim,
        .first_head = gpt->local_heads * z3d_group_index(run->tensor), .dtype = run->dtype,
        .dropout = gpt_dropout(run, gpt->config.attention_dropout, "attention")));
    z3d_unit_workspace_release(run, mark);
    Z3D_TRY(z3d_unit_take_workspace(run, rows, width(run, gpt->config.hidden_size), &d_ln_1));
    if (run->lean)
        Z3D_TRY(layernorm(run, lane, GPT_LN_1_WEIGHT, run->input, &saved->ln_1, saved->mean_1,
                          saved->rstd_1));
    Z3D_TRY(z3d_column_linear_backward(lane, &qkv, saved->ln_1, d_qkv, d_ln_1));
    return layernorm_gradient(run, GPT_LN_1_WEIGHT, d_ln_1, run->input, saved->mean_1,
                              saved->rstd_1, run->input_gradient, run->input_gradient);
}

static z3d_status backward(z3d_unit_run *run) {
    z3d_tensor_lane lane = z3d_gpt_lane(run);
    block_saved saved;
    Z3D_TRY(take_saved(run, &saved));
    int64_t mark = z3d_unit_workspace_mark(run);
    Z3D_TRY(mlp_backward(run, &lane, &saved));
    z3d_unit_workspace_release(run, mark);
    return attention_backward(run, &lane, &saved);
}

const struct z3d_unit_ops z3d_gpt_block_ops = {.forward = forward, .backward = backward};
