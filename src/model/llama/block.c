/* Llama's transformer block, pre-norm:
 *
 *   x1  = x  + o_proj(attention(q, k, v of input_layernorm x))
 *   out = x1 + down_proj(silu(gate) * up of post_attention_layernorm x1)
 *
 * Attention and MLP each have column-parallel products and one row-parallel product: two sums over
 * the tensor group forward, two backward. Saved for backward besides the input: the norms' outputs,
 * queries, keys and values, the attention, x1, gate and up, and the statistics; with
 * run->keep_activation also silu(gate) * up, which backward computes again otherwise. A lean run
 * computes the norms' outputs and the attention again. A recompute without output stops before the
 * last product, and so before the second sum. Between the halves of backward these are deferred:
 * the gradients of gate and up, of queries, keys and values, of the two residual branches, and the
 * attention of a lean run.
 *
 * With sequence parallelism norms and residuals work on a rank's own rows, and the products' inputs
 * are gathered first, as in GPT's block. With tiling this unit ends after the second norm; the
 * tiles are the units that follow (src/model/tile.c). */
#include "src/model/llama/units.h"

/* The memory that forward saves for backward, in the order of allocation. */
typedef struct block_saved {
    void *input, *attention, *x1, *post; /* input, post: the norms' outputs */
    z3d_norm input_norm, post_norm;
    llama_heads_saved heads;
    z3d_mlp mlp; /* reads post; not used with tiling */
} block_saved;

static z3d_status take_saved(z3d_unit_run *run, block_saved *saved) {
    const z3d_llama *llama = llama_of(run);
    const int64_t rows = z3d_unit_rows(run), own = z3d_unit_own_rows(run).count;
    const int64_t hidden = z3d_row_bytes(run, llama->shape.hidden_size);
    const int64_t attention = z3d_row_bytes(run, llama->local_heads * llama->config.head_dim);
    const bool tiled = llama->shape.tiling > 1;
    saved->input = saved->post = saved->attention = NULL;
    if (!run->lean) {
        Z3D_TRY(z3d_unit_take_saved(run, rows, hidden, &saved->input));
        if (!tiled) Z3D_TRY(z3d_unit_take_saved(run, rows, hidden, &saved->post));
        Z3D_TRY(z3d_unit_take_saved(run, rows, attention, &saved->attention));
    }
    saved->input_norm = (z3d_norm){.weight = llama->place[LLAMA_INPUT_NORM], .x = run->input};
    Z3D_TRY(z3d_norm_take_saved(run, own, &saved->input_norm));
    Z3D_TRY(z3d_llama_heads_take_saved(run, &saved->heads));
    Z3D_TRY(z3d_unit_take_saved(run, own, hidden, &saved->x1));
    saved->post_norm = (z3d_norm){.weight = llama->place[LLAMA_POST_NORM], .x = saved->x1};
    Z3D_TRY(z3d_norm_take_saved(run, own, &saved->post_norm));
    if (tiled) return Z3D_OK;
    saved->mlp = z3d_mlp_of(run, llama->place[LLAMA_GATE]);
    saved->mlp.norm = &saved->post_norm;
    saved->mlp.x = saved->post;
    return z3d_mlp_take_saved(run, &saved->mlp);
}

static bool trains_o(const z3d_unit_run *run) {
    return z3d_unit_trains_layer(run, llama_of(run)->place[LLAMA_O], -1);
}

static z3d_linear o_layer(const z3d_unit_run *run) {
    const z3d_llama *llama = llama_of(run);
    const int weight = llama->place[LLAMA_O];
    const int64_t in = llama->local_heads * llama->config.head_dim, out = llama->shape.hidden_size;
    z3d_linear layer = z3d_unit_linear(run, 0, weight, -1, z3d_unit_rows(run), in, out);
    z3d_unit_add_adapter(run, &layer, weight, 0, out);
    return layer;
}

/* ---- forward ---- */

/* saved->attention = the local heads' attention. */
static z3d_status attend(const z3d_unit_run *run, const block_saved *saved,
                         const llama_heads *heads) {
    const z3d_llama *llama = llama_of(run);
    const z3d_llama_config *c = &llama->config;
    z3d_keys keys = {.k = heads->part[1], .v = heads->part[2], .stride = heads->stride[1]};
    Z3D_TRY(z3d_keys_find(run, llama->local_kv_heads * c->head_dim, &keys));
    return Z3D_LAUNCH(
        run->device, attention_forward, .q = heads->part[0], .k = keys.k, .v = keys.v,
        .out = saved->attention, .log_sum_exp = saved->heads.log_sum_exp,
        .starts = z3d_unit_starts(run), .row_position = z3d_unit_row_position(run),
        .batch = run->batch, .seq = run->tokens, .capacity = keys.capacity,
        .heads = llama->local_heads, .kv_heads = llama->local_kv_heads, .head_dim = c->head_dim,
        .first_head = llama->local_heads * z3d_group_index(run->process_group[0]),
        .q_stride = heads->stride[0], .kv_stride = keys.stride, .window = c->sliding_window,
        .dtype = run->dtype, .dropout = z3d_unit_dropout(run, c->attention_dropout, "attention"));
}

static z3d_status attention_half(z3d_unit_run *run, block_saved *saved) {
    z3d_linear o = o_layer(run);
    int64_t mark = z3d_unit_workspace_mark(run);
    llama_heads heads;
    if (run->lean)
        Z3D_TRY(z3d_unit_take_workspace(run, o.rows, z3d_row_bytes(run, o.in), &saved->attention));
    int64_t inside = z3d_unit_workspace_mark(run);
    Z3D_TRY(z3d_norm_forward_lean(run, &saved->input_norm, &saved->input));
    Z3D_TRY(z3d_llama_heads_forward(run, &saved->heads, saved->input, &heads));
    Z3D_TRY(attend(run, saved, &heads));
    z3d_unit_workspace_release(run, inside);
    Z3D_TRY(z3d_residual_forward(run, &o, saved->attention, run->input, "projection", saved->x1));
    z3d_unit_workspace_release(run, mark);
    return Z3D_OK;
}

static z3d_status forward(z3d_unit_run *run) {
    block_saved saved;
    Z3D_TRY(take_saved(run, &saved));
    Z3D_TRY(attention_half(run, &saved));
    if (llama_of(run)->shape.tiling > 1) return z3d_tiles_begin(run, &saved.post_norm);
    return z3d_mlp_forward(run, &saved.mlp, saved.x1, run->output);
}

/* ---- backward: each function does a half or both; memory that both halves use is deferred ---- */

/* Backward of the heads' attention; a lean run's attention is computed first. */
static z3d_status heads_backward(z3d_unit_run *run, const block_saved *saved,
                                 const llama_heads *heads, const void *d_attention, void *d_qkv) {
    const z3d_llama *llama = llama_of(run);
    const z3d_llama_config *c = &llama->config;
    const llama_heads d = z3d_llama_heads_of(run, d_qkv);
    return Z3D_LAUNCH(
        run->device, attention_backward, .row_position = z3d_unit_row_position(run),
        .q = heads->part[0], .k = heads->part[1], .v = heads->part[2], .out = saved->attention,
        .dout = d_attention, .log_sum_exp = saved->heads.log_sum_exp, .dq = d.part[0],
        .dk = d.part[1], .dv = d.part[2], .batch = run->batch, .seq = run->tokens,
        .heads = llama->local_heads, .kv_heads = llama->local_kv_heads, .head_dim = c->head_dim,
        .first_head = llama->local_heads * z3d_group_index(run->process_group[0]),
        .q_stride = d.stride[0], .kv_stride = d.stride[1], .window = c->sliding_window,
        .dtype = run->dtype, .dropout = z3d_unit_dropout(run, c->attention_dropout, "attention"));
}

/* d_x1 -> d_qkv: backward of o_proj and of the heads. */
static z3d_status o_backward(z3d_unit_run *run, z3d_halves halves, block_saved *saved,
                             const void *d_x1, void *d_qkv) {
    z3d_linear o = o_layer(run);
    const bool input = halves & Z3D_INPUT_HALF;
    const int64_t bytes = z3d_row_bytes(run, o.in);
    const void *dy;
    void *d_attention = NULL;
    llama_heads heads;
    o.input_only = halves == Z3D_INPUT_HALF;
    const bool trained = trains_o(run);
    if (run->lean)
        Z3D_TRY(z3d_unit_take_between(run, halves, trained, o.rows, bytes, &saved->attention));
    if (input) Z3D_TRY(z3d_llama_heads_again(run, &saved->heads, &heads));
    if (run->lean && input) Z3D_TRY(attend(run, saved, &heads));
    Z3D_TRY(z3d_residual_backward(run, halves, trained, d_x1, "projection", &dy));
    if (input) Z3D_TRY(z3d_unit_take_workspace(run, o.rows, bytes, &d_attention));
    Z3D_TRY(z3d_unit_row_backward(run, &o, saved->attention, dy, d_attention));
    return input ? heads_backward(run, saved, &heads, d_attention, d_qkv) : Z3D_OK;
}

/* d_x1 -> input_gradient, which may be d_x1. */
static z3d_status attention_backward(z3d_unit_run *run, z3d_halves halves, block_saved *saved,
                                     const void *d_x1) {
    const z3d_llama *llama = llama_of(run);
    const bool weight = halves & Z3D_WEIGHT_HALF;
    const int64_t rows = z3d_unit_rows(run);
    void *d_qkv, *d_input = NULL;
    Z3D_TRY(z3d_unit_take_between(run, halves, z3d_llama_trains_heads(run), rows,
                                  z3d_row_bytes(run, z3d_llama_qkv_columns(llama)), &d_qkv));
    int64_t mark = z3d_unit_workspace_mark(run);
    Z3D_TRY(o_backward(run, halves, saved, d_x1, d_qkv));
    z3d_unit_workspace_release(run, mark);
    if (halves & Z3D_INPUT_HALF && z3d_norm_needs_gradient(run, &saved->input_norm))
        Z3D_TRY(z3d_unit_take_all(run, &d_input));
    if (weight && run->lean) Z3D_TRY(z3d_norm_forward_lean(run, &saved->input_norm, &saved->input));
    Z3D_TRY(z3d_llama_heads_backward(run, halves, &saved->heads, d_qkv, saved->input, d_input));
    return z3d_norm_backward(run, halves, &saved->input_norm, z3d_unit_own_part(run, d_input), d_x1,
                             run->input_gradient);
}

static z3d_status backward_halves(z3d_unit_run *run, z3d_halves halves) {
    block_saved saved;
    void *d_x1;
    Z3D_TRY(take_saved(run, &saved));
    Z3D_TRY(z3d_residual_take_gradient(run, halves, trains_o(run), &d_x1));
    int64_t mark = z3d_unit_workspace_mark(run);
    Z3D_TRY(z3d_branch_backward(run, halves, &saved.mlp, &saved.post_norm, d_x1));
    z3d_unit_workspace_release(run, mark);
    return attention_backward(run, halves, &saved, d_x1);
}

const struct z3d_unit_ops z3d_llama_block_ops = {.forward = forward,
                                                 .backward_halves = backward_halves};
