/* Queries, keys and values of a block's attention: their products, norms and rotary embedding. In
 * GPT-2 one parameter has all three, and there is neither norm nor rotary embedding.
 *
 * A tensor rank has the queries of its own heads, and the keys and values that these read. If there
 * are at least as many key/value heads as tensor ranks, keys and values are split too, and the
 * three products are one. If there are fewer, several ranks share a head: every rank has all
 * parameters of keys and values and multiplies only with the rows of its head; the gradients of the
 * ranks are summed later (z3d_parameter.partial_gradient). */
#include "src/model/heads.h"

enum { PARTS = Z3D_HEADS_PARTS };

static const z3d_block_place weight_of[PARTS] = {Z3D_PLACE_Q, Z3D_PLACE_K, Z3D_PLACE_V},
                             bias_of[PARTS] = {Z3D_PLACE_Q_BIAS, Z3D_PLACE_K_BIAS,
                                               Z3D_PLACE_V_BIAS},
                             norm_of[] = {Z3D_PLACE_Q_NORM, Z3D_PLACE_K_NORM};

/* ---- layout ---- */

static int64_t heads_in(const z3d_transformer *shape, int part) {
    return part == 0 ? shape->local_heads : shape->local_kv_heads;
}

static int64_t part_columns(const z3d_transformer *shape, int part) {
    return heads_in(shape, part) * shape->head_dim;
}

/* The number of weights that have the three parts. */
static int num_weights(const z3d_transformer *shape) {
    return shape->place[Z3D_PLACE_K] < 0 ? 1 : PARTS;
}

int64_t z3d_heads_columns(const z3d_transformer *shape) {
    return part_columns(shape, 0) + 2 * part_columns(shape, 1);
}

/* One product gives rows with all three parts; three products give three matrices. */
z3d_heads z3d_heads_of(const z3d_unit_run *run, void *qkv) {
    const z3d_transformer *shape = z3d_transformer_of(run);
    z3d_heads heads;
    char *at = qkv;
    for (int i = 0; i < PARTS; i++) {
        int64_t columns = part_columns(shape, i);
        heads.part[i] = at;
        heads.stride[i] = shape->shares_kv ? columns : z3d_heads_columns(shape);
        at += (shape->shares_kv ? z3d_unit_rows(run) : 1) * z3d_row_bytes(run, columns);
    }
    return heads;
}

/* ---- products ---- */

/* The rows of the parameters of keys and values that this rank multiplies with, where ranks share
 * heads. */
static z3d_row_range kv_rows(const z3d_unit_run *run) {
    const z3d_transformer *shape = z3d_transformer_of(run);
    const int64_t columns = part_columns(shape, 1);
    int64_t sharers = shape->tensor_size / shape->kv_heads;
    return (z3d_row_range){z3d_group_index(run->process_group[0]) / sharers * columns, columns};
}

static const void *move(const void *pointer, int64_t elements, z3d_dtype dtype) {
    return pointer ? (const char *)pointer + z3d_bytes_of(dtype, elements) : NULL;
}

static z3d_linear shared_layer(const z3d_unit_run *run, int part) {
    const z3d_transformer *shape = z3d_transformer_of(run);
    const int64_t hidden = shape->hidden_size, first = part ? kv_rows(run).first : 0;
    z3d_linear layer =
        z3d_unit_linear(run, 0, shape->place[weight_of[part]], shape->place[bias_of[part]],
                        z3d_unit_rows(run), hidden, part_columns(shape, part));
    layer.weight = move(layer.weight, first * hidden, run->dtype);
    layer.bias = move(layer.bias, first, run->dtype);
    layer.weight_gradient =
        (void *)move(layer.weight_gradient, first * hidden, run->gradient_dtype);
    layer.bias_gradient = (void *)move(layer.bias_gradient, first, run->gradient_dtype);
    z3d_unit_add_adapter(run, &layer, shape->place[weight_of[part]], 0, layer.out);
    if (layer.adapters > 0) {
        z3d_adapter *adapter = &layer.adapter[0];
        adapter->b = move(adapter->b, first * adapter->rank, run->dtype);
        adapter->b_gradient =
            (void *)move(adapter->b_gradient, first * adapter->rank, run->gradient_dtype);
    }
    return layer;
}

bool z3d_trains_heads(const z3d_unit_run *run) {
    const z3d_transformer *shape = z3d_transformer_of(run);
    bool trained = false;
    for (int i = 0; i < num_weights(shape); i++)
        trained = trained ||
                  z3d_unit_trains_layer(run, shape->place[weight_of[i]], shape->place[bias_of[i]]);
    return trained;
}

/* Sets the products, one or three; returns their number. */
static int layers_of(const z3d_unit_run *run, z3d_linear layer[PARTS]) {
    const z3d_transformer *shape = z3d_transformer_of(run);
    if (shape->shares_kv) {
        for (int i = 0; i < PARTS; i++) layer[i] = shared_layer(run, i);
        return PARTS;
    }
    layer[0] = z3d_unit_linear(run, 0, shape->place[weight_of[0]], shape->place[bias_of[0]],
                               z3d_unit_rows(run), shape->hidden_size, z3d_heads_columns(shape));
    for (int i = 0, first = 0; i < num_weights(shape); i++) {
        const int64_t columns = num_weights(shape) == 1 ? layer[0].out : part_columns(shape, i);
        z3d_unit_add_adapter(run, &layer[0], shape->place[weight_of[i]], first, columns);
        first += (int)columns;
    }
    return 1;
}

/* Sets the gradients of heads that other ranks compute to 0. */
static z3d_status clear_others(const z3d_unit_run *run, int index, int64_t columns) {
    const z3d_transformer *shape = z3d_transformer_of(run);
    const z3d_row_range own = kv_rows(run);
    const int64_t all = shape->kv_heads * shape->head_dim;
    const int64_t first[] = {0, own.first + own.count},
                  count[] = {own.first, all - own.first - own.count};
    const void *gradient = index >= 0 ? z3d_unit_gradient(run, 0, index) : NULL;
    for (int i = 0; i < 2 && gradient; i++)
        if (count[i] > 0)
            Z3D_TRY(Z3D_LAUNCH(run->device, fill,
                               .x = (void *)move(gradient, first[i] * columns, run->gradient_dtype),
                               .count = count[i] * columns, .dtype = run->gradient_dtype));
    return Z3D_OK;
}

static z3d_status clear_gradients(const z3d_unit_run *run) {
    const z3d_transformer *shape = z3d_transformer_of(run);
    if (!shape->shares_kv || run->group[0].accumulate) return Z3D_OK;
    for (int i = 1; i < PARTS; i++) {
        const int weight = shape->place[weight_of[i]],
                  adapter = z3d_unit_adapter_place(run, weight);
        Z3D_TRY(clear_others(run, weight, shape->hidden_size));
        Z3D_TRY(clear_others(run, shape->place[bias_of[i]], 1));
        if (adapter) Z3D_TRY(clear_others(run, adapter + 1, shape->lora.rank));
    }
    return Z3D_OK;
}

/* ---- norms and rotary embedding ---- */

/* Applies the rotary embedding to queries and keys, if the model has one. */
static z3d_status turn(const z3d_unit_run *run, const z3d_heads *heads, bool inverse) {
    const z3d_transformer *shape = z3d_transformer_of(run);
    for (int i = 0; i < 2 && shape->rotary; i++)
        Z3D_TRY(Z3D_LAUNCH(run->device, rotary, .x = heads->part[i], .rows = z3d_unit_rows(run),
                           .starts = z3d_unit_starts(run),
                           .row_position = z3d_unit_row_position(run), .seq = run->tokens,
                           .heads = heads_in(shape, i), .head_dim = shape->head_dim,
                           .stride = heads->stride[i], .inverse = inverse, .rope = shape->rope,
                           .dtype = run->dtype));
    return Z3D_OK;
}

/* *heads: their norms of queries and keys, and the same values. */
static z3d_status normalise(z3d_unit_run *run, float *const rstd[2], z3d_heads *heads) {
    const z3d_heads from = *heads;
    const z3d_transformer *shape = z3d_transformer_of(run);
    const int64_t rows = z3d_unit_rows(run), values = part_columns(shape, 2);
    /* As in the layout, but without the values at the end, which are not used. */
    const int64_t elements =
        rows * z3d_heads_columns(shape) - (shape->shares_kv ? rows : 1) * values;
    void *qkv;
    Z3D_TRY(z3d_unit_take_workspace(run, 1, z3d_row_bytes(run, elements), &qkv));
    *heads = z3d_heads_of(run, qkv);
    heads->part[2] = from.part[2];
    for (int i = 0; i < 2; i++)
        Z3D_TRY(Z3D_LAUNCH(run->device, rmsnorm_forward, .x = from.part[i],
                           .weight = z3d_unit_parameter(run, 0, shape->place[norm_of[i]]),
                           .y = heads->part[i], .rstd = rstd[i], .rows = rows,
                           .heads = heads_in(shape, i), .cols = shape->head_dim,
                           .x_stride = from.stride[i], .y_stride = heads->stride[i],
                           .epsilon = shape->epsilon, .dtype = run->dtype));
    return Z3D_OK;
}

static z3d_status normalise_backward(z3d_unit_run *run, z3d_halves halves,
                                     const z3d_heads_saved *saved, const z3d_heads *d) {
    const z3d_transformer *shape = z3d_transformer_of(run);
    const z3d_heads x = z3d_heads_of(run, saved->qkv);
    for (int i = 0; i < 2; i++)
        Z3D_TRY(z3d_rmsnorm_backward_halves(run, halves, 0, shape->place[norm_of[i]],
                                            (z3d_rmsnorm_backward){.dy = d->part[i],
                                                                   .x = x.part[i],
                                                                   .rstd = saved->rstd[i],
                                                                   .dx = d->part[i],
                                                                   .rows = z3d_unit_rows(run),
                                                                   .heads = heads_in(shape, i),
                                                                   .cols = shape->head_dim,
                                                                   .x_stride = x.stride[i],
                                                                   .y_stride = d->stride[i],
                                                                   .dx_stride = d->stride[i]}));
    return Z3D_OK;
}

/* ---- all of it ---- */

z3d_status z3d_heads_take_saved(z3d_unit_run *run, z3d_heads_saved *saved) {
    const z3d_transformer *shape = z3d_transformer_of(run);
    const int64_t rows = z3d_unit_rows(run), width = (int64_t)sizeof(float);
    *saved = (z3d_heads_saved){0};
    Z3D_TRY(
        z3d_unit_take_saved(run, rows, z3d_row_bytes(run, z3d_heads_columns(shape)), &saved->qkv));
    Z3D_TRY(z3d_unit_take_saved(run, rows, shape->local_heads * width, &saved->log_sum_exp));
    if (!shape->qk_norm) return Z3D_OK;
    Z3D_TRY(z3d_unit_take_saved(run, rows, shape->local_heads * width, &saved->rstd[0]));
    return z3d_unit_take_saved(run, rows, shape->local_kv_heads * width, &saved->rstd[1]);
}

z3d_status z3d_heads_forward(z3d_unit_run *run, const z3d_heads_saved *saved, const void *x,
                             z3d_heads *heads) {
    z3d_linear layer[PARTS];
    int layers = layers_of(run, layer);
    *heads = z3d_heads_of(run, saved->qkv);
    for (int i = 0; i < layers; i++)
        Z3D_TRY(z3d_unit_column_forward(run, &layer[i], x, heads->part[i]));
    if (z3d_transformer_of(run)->qk_norm) Z3D_TRY(normalise(run, saved->rstd, heads));
    return turn(run, heads, false);
}

z3d_status z3d_heads_again(z3d_unit_run *run, const z3d_heads_saved *saved, z3d_heads *heads) {
    *heads = z3d_heads_of(run, saved->qkv);
    if (!z3d_transformer_of(run)->qk_norm) return Z3D_OK;
    Z3D_TRY(normalise(run, (float *const[]){NULL, NULL}, heads));
    return turn(run, heads, false);
}

z3d_status z3d_heads_backward(z3d_unit_run *run, z3d_halves halves, const z3d_heads_saved *saved,
                              void *d_qkv, const void *x, void *dx) {
    z3d_linear layer[PARTS];
    int layers = layers_of(run, layer);
    z3d_heads d = {0};
    if (d_qkv) d = z3d_heads_of(run, d_qkv);
    if (halves & Z3D_INPUT_HALF) Z3D_TRY(turn(run, &d, true));
    if (z3d_transformer_of(run)->qk_norm) Z3D_TRY(normalise_backward(run, halves, saved, &d));
    if (halves & Z3D_WEIGHT_HALF) Z3D_TRY(clear_gradients(run));
    for (int i = 0; i < layers; i++) layer[i].input_only = halves == Z3D_INPUT_HALF;
    return z3d_unit_columns_backward(run, layer, layers, x, (const void *const *)d.part, dx);
}

/* ---- generation: the cache of a block ---- */

z3d_status z3d_keys_find(const z3d_unit_run *run, int64_t columns, z3d_keys *keys) {
    const int64_t capacity = run->positions;
    const int64_t sample = capacity * z3d_row_bytes(run, columns);
    const void *part[] = {keys->k, keys->v};
    keys->capacity = run->tokens;
    if (!run->cache) return Z3D_OK;
    char *first = (char *)run->cache + run->cache_first * sample;
    void *cache[] = {first, first + run->cache_samples * sample};
    for (int i = 0; i < 2; i++)
        Z3D_TRY(Z3D_LAUNCH(run->device, cache_store, .x = part[i], .cache = cache[i],
                           .starts = z3d_unit_starts(run), .batch = run->batch, .seq = run->tokens,
                           .capacity = capacity, .cols = columns, .stride = keys->stride,
                           .dtype = run->dtype));
    *keys = (z3d_keys){cache[0], cache[1], columns, capacity};
    return Z3D_OK;
}
