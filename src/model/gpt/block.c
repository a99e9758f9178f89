/* GPT-2's transformer block, pre-norm:
 *
 *   x1  = x  + dropout(projection(attention(qkv(ln_1 x))))
 *   out = x1 + dropout(projection(gelu(fc(ln_2 x1))))
 *
 * Attention and MLP are each one column-parallel and one row-parallel product: two sums over the
 * tensor group forward, two backward. Saved for backward besides the input: at most 15 batch x seq
 * x hidden, and the statistics. 4 of the 15 are gelu's output, which backward computes again unless
 * run->keep_activation. A lean run saves 3 less: it computes the layernorms' outputs and the
 * attention again. A recompute without output stops before the last product, and so before the
 * second sum. Between the halves of backward at most 10 batch x seq x hidden are deferred: the
 * gradients of fc's output (4), of qkv (3) and of the two residual branches (2), and the attention
 * of a lean run (1).
 *
 * With sequence parallelism layernorms, dropout and residuals work on a rank's own rows, and the
 * products' inputs are gathered first: two all-gathers and two reduce-scatters each way. The
 * layernorms' outputs are saved with all rows; a lean run gathers them again in backward.
 *
 * With tiling this unit ends after ln_2; the tiles are the units that follow (src/model/tile.c). */
#include "src/model/gpt/units.h"

/* The memory that forward saves for backward, in the order of allocation. */
typedef struct block_saved {
    void *ln_1, *qkv, *attention, *x1, *ln_2;
    z3d_norm norm_1, norm_2; /* their outputs are ln_1 and ln_2 */
    float *log_sum_exp;
    z3d_mlp mlp; /* reads ln_2; not used with tiling */
} block_saved;

static z3d_status take_saved(z3d_unit_run *run, block_saved *saved) {
    const z3d_gpt *gpt = gpt_of(run);
    int64_t rows = z3d_unit_rows(run), own = z3d_unit_own_rows(run).count;
    int64_t hidden = gpt->config.hidden_size;
    int64_t heads = gpt->local_heads * (int64_t)sizeof(float);
    const bool tiled = gpt->shape.tiling > 1;
    saved->ln_1 = saved->ln_2 = saved->attention = NULL;
    if (!run->lean) {
        Z3D_TRY(z3d_unit_take_saved(run, rows, z3d_row_bytes(run, hidden), &saved->ln_1));
        if (!tiled)
            Z3D_TRY(z3d_unit_take_saved(run, rows, z3d_row_bytes(run, hidden), &saved->ln_2));
        Z3D_TRY(z3d_unit_take_saved(run, rows, z3d_row_bytes(run, gpt->local_hidden),
                                    &saved->attention));
    }
    saved->norm_1 = (z3d_norm){.weight = GPT_LN_1_WEIGHT, .x = run->input};
    Z3D_TRY(z3d_norm_take_saved(run, own, &saved->norm_1));
    Z3D_TRY(z3d_unit_take_saved(run, rows, z3d_row_bytes(run, 3 * gpt->local_hidden), &saved->qkv));
    Z3D_TRY(z3d_unit_take_saved(run, rows, heads, &saved->log_sum_exp));
    Z3D_TRY(z3d_unit_take_saved(run, own, z3d_row_bytes(run, hidden), &saved->x1));
    saved->norm_2 = (z3d_norm){.weight = GPT_LN_2_WEIGHT, .x = saved->x1};
    Z3D_TRY(z3d_norm_take_saved(run, own, &saved->norm_2));
    if (tiled) return Z3D_OK;
    saved->mlp = z3d_mlp_of(run, GPT_FC_WEIGHT);
    saved->mlp.norm = &saved->norm_2;
    saved->mlp.x = saved->ln_2;
    return z3d_mlp_take_saved(run, &saved->mlp);
}

/* A linear layer of this block: the weight is parameter `index` of the group, its bias is the next
 * one. */
static z3d_linear linear_at(const z3d_unit_run *run, int index, int64_t in, int64_t out) {
    z3d_linear layer = z3d_unit_linear(run, 0, index, index + 1, z3d_unit_rows(run), in, out);
    z3d_unit_add_adapter(run, &layer, index, 0, out);
    return layer;
}

static z3d_linear qkv_layer(const z3d_unit_run *run) {
    const z3d_gpt *gpt = gpt_of(run);
    return linear_at(run, GPT_ATTN_WEIGHT, gpt->config.hidden_size, 3 * gpt->local_hidden);
}

static bool trains_projection(const z3d_unit_run *run) {
    return z3d_unit_trains_layer(run, GPT_ATTN_PROJ_WEIGHT, GPT_ATTN_PROJ_BIAS);
}

static z3d_linear projection_layer(const z3d_unit_run *run) {
    const z3d_gpt *gpt = gpt_of(run);
    return linear_at(run, GPT_ATTN_PROJ_WEIGHT, gpt->local_hidden, gpt->config.hidden_size);
}

/* Each row of qkv has queries, then keys, then values: the address of part 0, 1 or 2. */
static void *qkv_part(const z3d_unit_run *run, void *qkv, int64_t part) {
    return (char *)qkv + part * z3d_row_bytes(run, gpt_of(run)->local_hidden);
}

/* saved->attention = the local heads' attention. */
static z3d_status attend(const z3d_unit_run *run, const block_saved *saved) {
    const z3d_gpt *gpt = gpt_of(run);
    z3d_keys keys = {.k = qkv_part(run, saved->qkv, 1),
                     .v = qkv_part(run, saved->qkv, 2),
                     .stride = 3 * gpt->local_hidden};
    Z3D_TRY(z3d_keys_find(run, gpt->local_hidden, &keys));
    return Z3D_LAUNCH(
        run->device, attention_forward, .q = saved->qkv, .k = keys.k, .v = keys.v,
        .out = saved->attention, .log_sum_exp = saved->log_sum_exp, .starts = z3d_unit_starts(run),
        .row_position = z3d_unit_row_position(run), .batch = run->batch, .seq = run->tokens,
        .capacity = keys.capacity, .heads = gpt->local_heads, .kv_heads = gpt->local_heads,
        .head_dim = gpt->head_dim, .q_stride = 3 * gpt->local_hidden, .kv_stride = keys.stride,
        .first_head = gpt->local_heads * z3d_group_index(run->process_group[0]),
        .dtype = run->dtype,
        .dropout = z3d_unit_dropout(run, gpt->config.attention_dropout, "attention"));
}

static z3d_status attention_half(z3d_unit_run *run, block_saved *saved) {
    z3d_linear qkv = qkv_layer(run), projection = projection_layer(run);
    int64_t mark = z3d_unit_workspace_mark(run);
    Z3D_TRY(z3d_norm_forward_lean(run, &saved->norm_1, &saved->ln_1));
    Z3D_TRY(z3d_unit_column_forward(run, &qkv, saved->ln_1, saved->qkv));
    z3d_unit_workspace_release(run, mark);
    if (run->lean)
        Z3D_TRY(z3d_unit_take_workspace(run, projection.rows, z3d_row_bytes(run, projection.in),
                                        &saved->attention));
    Z3D_TRY(attend(run, saved));
    Z3D_TRY(z3d_residual_forward(run, &projection, saved->attention, run->input, "projection",
                                 saved->x1));
    z3d_unit_workspace_release(run, mark);
    return Z3D_OK;
}

static z3d_status forward(z3d_unit_run *run) {
    block_saved saved;
    Z3D_TRY(take_saved(run, &saved));
    Z3D_TRY(attention_half(run, &saved));
    if (gpt_of(run)->shape.tiling > 1) return z3d_tiles_begin(run, &saved.norm_2);
    return z3d_mlp_forward(run, &saved.mlp, saved.x1, run->output);
}

/* ---- backward: each function does a half or both; memory that both halves use is deferred ---- */

/* d_x1 -> d_qkv: backward of the projection and of the heads. */
static z3d_status heads_backward(z3d_unit_run *run, z3d_halves halves, block_saved *saved,
                                 const void *d_x1, void *d_qkv) {
    const z3d_gpt *gpt = gpt_of(run);
    z3d_linear projection = projection_layer(run);
    const bool input = halves & Z3D_INPUT_HALF;
    const int64_t bytes = z3d_row_bytes(run, projection.in);
    const void *dy;
    void *d_attention = NULL;
    projection.input_only = halves == Z3D_INPUT_HALF;
    const bool trained = trains_projection(run);
    if (run->lean)
        Z3D_TRY(
            z3d_unit_take_between(run, halves, trained, projection.rows, bytes, &saved->attention));
    if (run->lean && input) Z3D_TRY(attend(run, saved));
    Z3D_TRY(z3d_residual_backward(run, halves, trained, d_x1, "projection", &dy));
    if (input) Z3D_TRY(z3d_unit_take_workspace(run, projection.rows, bytes, &d_attention));
    Z3D_TRY(z3d_unit_row_backward(run, &projection, saved->attention, dy, d_attention));
    if (!input) return Z3D_OK;
    return Z3D_LAUNCH(run->device, attention_backward, .row_position = z3d_unit_row_position(run),
                      .q = saved->qkv, .k = qkv_part(run, saved->qkv, 1),
                      .v = qkv_part(run, saved->qkv, 2), .out = saved->attention,
                      .dout = d_attention, .log_sum_exp = saved->log_sum_exp, .dq = d_qkv,
                      .dk = qkv_part(run, d_qkv, 1), .dv = qkv_part(run, d_qkv, 2),
                      .batch = run->batch, .seq = run->tokens, .heads = gpt->local_heads,
                      .kv_heads = gpt->local_heads, .head_dim = gpt->head_dim,
                      .q_stride = 3 * gpt->local_hidden, .kv_stride = 3 * gpt->local_hidden,
                      .first_head = gpt->local_heads * z3d_group_index(run->process_group[0]),
                      .dtype = run->dtype,
                      .dropout = z3d_unit_dropout(run, gpt->config.attention_dropout, "attention"));
}

/* d_x1 -> input_gradient, which may be d_x1. */
static z3d_status attention_backward(z3d_unit_run *run, z3d_halves halves, block_saved *saved,
                                     const void *d_x1) {
    z3d_linear qkv = qkv_layer(run);
    void *d_qkv, *d_ln_1 = NULL;
    qkv.input_only = halves == Z3D_INPUT_HALF;
    Z3D_TRY(z3d_unit_take_between(run, halves,
                                  z3d_unit_trains_layer(run, GPT_ATTN_WEIGHT, GPT_ATTN_BIAS),
                                  qkv.rows, z3d_row_bytes(run, qkv.out), &d_qkv));
    int64_t mark = z3d_unit_workspace_mark(run);
    Z3D_TRY(heads_backward(run, halves, saved, d_x1, d_qkv));
    z3d_unit_workspace_release(run, mark);
    if (halves & Z3D_INPUT_HALF && z3d_norm_needs_gradient(run, &saved->norm_1))
        Z3D_TRY(z3d_unit_take_all(run, &d_ln_1));
    if (!qkv.input_only && run->lean)
        Z3D_TRY(z3d_norm_forward_lean(run, &saved->norm_1, &saved->ln_1));
    Z3D_TRY(
        z3d_unit_columns_backward(run, &qkv, 1, saved->ln_1, (const void *const *)&d_qkv, d_ln_1));
    return z3d_norm_backward(run, halves, &saved->norm_1, z3d_unit_own_part(run, d_ln_1), d_x1,
                             run->input_gradient);
}

static z3d_status backward_halves(z3d_unit_run *run, z3d_halves halves) {
    block_saved saved;
    void *d_x1;
    Z3D_TRY(take_saved(run, &saved));
    Z3D_TRY(z3d_residual_take_gradient(run, halves, trains_projection(run), &d_x1));
    int64_t mark = z3d_unit_workspace_mark(run);
    Z3D_TRY(z3d_branch_backward(run, halves, &saved.mlp, &saved.norm_2, d_x1));
    z3d_unit_workspace_release(run, mark);
    return attention_backward(run, halves, &saved, d_x1);
}

const struct z3d_unit_ops z3d_gpt_block_ops = {.forward = forward,
                                               .backward_halves = backward_halves};
