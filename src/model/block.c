/* The transformer block of GPT-2 and Llama, pre-norm:
 *
 *   x1  = x  + dropout(projection(attention(queries, keys, values of norm_1 x)))
 *   out = x1 + dropout(mlp(norm_2 x1))
 *
 * Attention and MLP each have column-parallel products and one row-parallel product: two sums over
 * the tensor group forward, two backward. Saved for backward besides the input: the norms' outputs,
 * queries, keys and values, the attention, x1, the output of the MLP's first product, and the
 * statistics; with run->keep_activation also the input of the MLP's last product, which backward
 * computes again otherwise. For GPT-2 these are at most 15 batch x seq x hidden, 4 of them gelu's
 * output. A lean run saves 3 less: it computes the norms' outputs and the attention again. A
 * recompute without output stops before the last product, and so before the second sum. Between the
 * halves of backward these are deferred: the gradients of the MLP's first product, of queries, keys
 * and values, of the two residual branches, and the attention of a lean run; for GPT-2 at most 10
 * batch x seq x hidden.
 *
 * With sequence parallelism norms, dropout and residuals work on a rank's own rows, and the
 * products' inputs are gathered first: two all-gathers and two reduce-scatters each way. The norms'
 * outputs are saved with all rows; a lean run gathers them again in backward.
 *
 * With tiling this unit ends after norm_2; the tiles are the units that follow (tile.c). */
#include "src/model/heads.h"

/* The memory that forward saves for backward, in the order of allocation. */
typedef struct block_saved {
    void *in_1, *in_2, *attention, *x1; /* in_1, in_2: the norms' outputs */
    z3d_norm norm_1, norm_2;
    z3d_heads_saved heads;
    z3d_mlp mlp; /* reads in_2; not used with tiling */
} block_saved;

static z3d_status take_saved(z3d_unit_run *run, block_saved *saved) {
    const z3d_transformer *shape = z3d_transformer_of(run);
    const int64_t rows = z3d_unit_rows(run), own = z3d_unit_own_rows(run).count;
    const int64_t hidden = z3d_row_bytes(run, shape->hidden_size);
    const int64_t attention = z3d_row_bytes(run, shape->local_heads * shape->head_dim);
    const bool tiled = shape->tiling > 1;
    saved->in_1 = saved->in_2 = saved->attention = NULL;
    if (!run->lean) {
        Z3D_TRY(z3d_unit_take_saved(run, rows, hidden, &saved->in_1));
        if (!tiled) Z3D_TRY(z3d_unit_take_saved(run, rows, hidden, &saved->in_2));
        Z3D_TRY(z3d_unit_take_saved(run, rows, attention, &saved->attention));
    }
    saved->norm_1 = (z3d_norm){.weight = shape->place[Z3D_PLACE_NORM_1], .x = run->input};
    Z3D_TRY(z3d_norm_take_saved(run, own, &saved->norm_1));
    Z3D_TRY(z3d_heads_take_saved(run, &saved->heads));
    Z3D_TRY(z3d_unit_take_saved(run, own, hidden, &saved->x1));
    saved->norm_2 = (z3d_norm){.weight = shape->place[Z3D_PLACE_NORM_2], .x = saved->x1};
    Z3D_TRY(z3d_norm_take_saved(run, own, &saved->norm_2));
    if (tiled) return Z3D_OK;
    saved->mlp = z3d_mlp_of(run, shape->place[Z3D_PLACE_MLP]);
    saved->mlp.norm = &saved->norm_2;
    saved->mlp.x = saved->in_2;
    return z3d_mlp_take_saved(run, &saved->mlp);
}

static bool trains_projection(const z3d_unit_run *run) {
    const int *place = z3d_transformer_of(run)->place;
    return z3d_unit_trains_layer(run, place[Z3D_PLACE_PROJECTION],
                                 place[Z3D_PLACE_PROJECTION_BIAS]);
}

static z3d_linear projection_layer(const z3d_unit_run *run) {
    const z3d_transformer *shape = z3d_transformer_of(run);
    const int weight = shape->place[Z3D_PLACE_PROJECTION];
    z3d_linear layer =
        z3d_unit_linear(run, 0, weight, shape->place[Z3D_PLACE_PROJECTION_BIAS], z3d_unit_rows(run),
                        shape->local_heads * shape->head_dim, shape->hidden_size);
    z3d_unit_add_adapter(run, &layer, weight, 0, layer.out);
    return layer;
}

/* ---- forward ---- */

static int64_t first_head(const z3d_unit_run *run) {
    return z3d_transformer_of(run)->local_heads * z3d_group_index(run->process_group[0]);
}

static z3d_dropout attention_dropout(const z3d_unit_run *run) {
    return z3d_unit_dropout(run, z3d_transformer_of(run)->attention_dropout, "attention");
}

/* saved->attention = the local heads' attention. */
static z3d_status attend(const z3d_unit_run *run, const block_saved *saved,
                         const z3d_heads *heads) {
    const z3d_transformer *shape = z3d_transformer_of(run);
    z3d_keys keys = {.k = heads->part[1], .v = heads->part[2], .stride = heads->stride[1]};
    Z3D_TRY(z3d_keys_find(run, shape->local_kv_heads * shape->head_dim, &keys));
    return Z3D_LAUNCH(
        run->device, attention_forward, .q = heads->part[0], .k = keys.k, .v = keys.v,
        .out = saved->attention, .log_sum_exp = saved->heads.log_sum_exp,
        .starts = z3d_unit_starts(run), .row_position = z3d_unit_row_position(run),
        .batch = run->batch, .seq = run->tokens, .capacity = keys.capacity,
        .heads = shape->local_heads, .kv_heads = shape->local_kv_heads, .head_dim = shape->head_dim,
        .first_head = first_head(run), .q_stride = heads->stride[0], .kv_stride = keys.stride,
        .window = shape->sliding_window, .dtype = run->dtype, .dropout = attention_dropout(run));
}

/* in_1 = norm_1 of the block's input; in a lean run it becomes workspace. */
static z3d_status norm_input(z3d_unit_run *run, block_saved *saved) {
    if (run->lean) Z3D_TRY(z3d_unit_take_all(run, &saved->in_1));
    return z3d_norm_forward_all(run, &saved->norm_1, saved->in_1);
}

static z3d_status take_attention(z3d_unit_run *run, const z3d_linear *projection,
                                 block_saved *saved) {
    return z3d_unit_take_workspace(run, projection->rows, z3d_row_bytes(run, projection->in),
                                   &saved->attention);
}

/* In a lean run the attention is workspace. If the heads are workspace too, they stay until the
 * attention is computed, so its memory is taken before them. */
static z3d_status attention_half(z3d_unit_run *run, block_saved *saved) {
    const bool heads_stay = z3d_transformer_of(run)->workspace_heads;
    const z3d_linear projection = projection_layer(run);
    const int64_t mark = z3d_unit_workspace_mark(run);
    z3d_heads heads;
    if (run->lean && heads_stay) Z3D_TRY(take_attention(run, &projection, saved));
    const int64_t inside = z3d_unit_workspace_mark(run);
    Z3D_TRY(norm_input(run, saved));
    Z3D_TRY(z3d_heads_forward(run, &saved->heads, saved->in_1, &heads));
    if (!heads_stay) z3d_unit_workspace_release(run, inside);
    if (run->lean && !heads_stay) Z3D_TRY(take_attention(run, &projection, saved));
    Z3D_TRY(attend(run, saved, &heads));
    if (heads_stay) z3d_unit_workspace_release(run, inside);
    Z3D_TRY(z3d_residual_forward(run, &projection, saved->attention, run->input, "projection",
                                 saved->x1));
    z3d_unit_workspace_release(run, mark);
    return Z3D_OK;
}

static z3d_status forward(z3d_unit_run *run) {
    block_saved saved;
    Z3D_TRY(take_saved(run, &saved));
    Z3D_TRY(attention_half(run, &saved));
    if (z3d_transformer_of(run)->tiling > 1) return z3d_tiles_begin(run, &saved.norm_2);
    return z3d_mlp_forward(run, &saved.mlp, saved.x1, run->output);
}

/* ---- backward: each function does a half or both; memory that both halves use is deferred ---- */

/* Backward of the local heads' attention. */
static z3d_status attention_backward(const z3d_unit_run *run, const block_saved *saved,
                                     const z3d_heads *heads, const void *d_attention, void *d_qkv) {
    const z3d_transformer *shape = z3d_transformer_of(run);
    const z3d_heads d = z3d_heads_of(run, d_qkv);
    return Z3D_LAUNCH(
        run->device, attention_backward, .row_position = z3d_unit_row_position(run),
        .q = heads->part[0], .k = heads->part[1], .v = heads->part[2], .out = saved->attention,
        .dout = d_attention, .log_sum_exp = saved->heads.log_sum_exp, .dq = d.part[0],
        .dk = d.part[1], .dv = d.part[2], .batch = run->batch, .seq = run->tokens,
        .heads = shape->local_heads, .kv_heads = shape->local_kv_heads, .head_dim = shape->head_dim,
        .first_head = first_head(run), .q_stride = d.stride[0], .kv_stride = d.stride[1],
        .window = shape->sliding_window, .dtype = run->dtype, .dropout = attention_dropout(run));
}

/* d_x1 -> d_qkv: backward of the projection and of the attention, which a lean run computes again
 * first. */
static z3d_status projection_backward(z3d_unit_run *run, z3d_halves halves, block_saved *saved,
                                      const void *d_x1, void *d_qkv) {
    z3d_linear projection = projection_layer(run);
    const bool input = halves & Z3D_INPUT_HALF, trained = trains_projection(run);
    const int64_t bytes = z3d_row_bytes(run, projection.in);
    const void *dy;
    void *d_attention = NULL;
    z3d_heads heads;
    projection.input_only = halves == Z3D_INPUT_HALF;
    if (run->lean)
        Z3D_TRY(
            z3d_unit_take_between(run, halves, trained, projection.rows, bytes, &saved->attention));
    if (input) Z3D_TRY(z3d_heads_again(run, &saved->heads, &heads));
    if (run->lean && input) Z3D_TRY(attend(run, saved, &heads));
    Z3D_TRY(z3d_residual_backward(run, halves, trained, d_x1, "projection", &dy));
    if (input) Z3D_TRY(z3d_unit_take_workspace(run, projection.rows, bytes, &d_attention));
    Z3D_TRY(z3d_unit_row_backward(run, &projection, saved->attention, dy, d_attention));
    return input ? attention_backward(run, saved, &heads, d_attention, d_qkv) : Z3D_OK;
}

/* d_x1 -> input_gradient, which may be d_x1. */
static z3d_status first_branch_backward(z3d_unit_run *run, z3d_halves halves, block_saved *saved,
                                        const void *d_x1) {
    void *d_qkv, *d_in = NULL;
    Z3D_TRY(z3d_unit_take_between(run, halves, z3d_trains_heads(run), z3d_unit_rows(run),
                                  z3d_row_bytes(run, z3d_heads_columns(z3d_transformer_of(run))),
                                  &d_qkv));
    const int64_t mark = z3d_unit_workspace_mark(run);
    Z3D_TRY(projection_backward(run, halves, saved, d_x1, d_qkv));
    z3d_unit_workspace_release(run, mark);
    if (halves & Z3D_INPUT_HALF && z3d_norm_needs_gradient(run, &saved->norm_1))
        Z3D_TRY(z3d_unit_take_all(run, &d_in));
    if (halves & Z3D_WEIGHT_HALF && run->lean) Z3D_TRY(norm_input(run, saved));
    Z3D_TRY(z3d_heads_backward(run, halves, &saved->heads, d_qkv, saved->in_1, d_in));
    return z3d_norm_backward(run, halves, &saved->norm_1, z3d_unit_own_part(run, d_in), d_x1,
                             run->input_gradient);
}

/* output_gradient -> d_x1. */
static z3d_status second_branch_backward(z3d_unit_run *run, z3d_halves halves,
                                         const block_saved *saved, void *d_x1) {
    void *dx;
    if (z3d_transformer_of(run)->tiling > 1)
        return z3d_tiles_begin_backward(run, halves, &saved->norm_2, d_x1);
    Z3D_TRY(z3d_mlp_backward(run, halves, &saved->mlp, run->output_gradient, &dx));
    return z3d_norm_backward(run, halves, &saved->norm_2, z3d_unit_own_part(run, dx),
                             run->output_gradient, d_x1);
}

static z3d_status backward_halves(z3d_unit_run *run, z3d_halves halves) {
    block_saved saved;
    void *d_x1;
    Z3D_TRY(take_saved(run, &saved));
    Z3D_TRY(z3d_residual_take_gradient(run, halves, trains_projection(run), &d_x1));
    const int64_t mark = z3d_unit_workspace_mark(run);
    Z3D_TRY(second_branch_backward(run, halves, &saved, d_x1));
    z3d_unit_workspace_release(run, mark);
    return first_branch_backward(run, halves, &saved, d_x1);
}

const struct z3d_unit_ops z3d_block_ops = {.forward = forward, .backward_halves = backward_halves};
