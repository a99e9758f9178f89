/* Queries, keys and values of Llama's attention: their products, norms and rotary embedding.
 *
 * A tensor rank has the queries of its own heads, and the keys and values that these read. If there
 * are at least as many key/value heads as tensor ranks, keys and values are split too, and the
 * three products are one. If there are fewer, several ranks share a head: every rank has all
 * parameters of keys and values and multiplies only with the rows of its head; the gradients of the
 * ranks are summed later (z3d_parameter.partial_gradient). */
#include "src/model/llama/units.h"

static const llama_parameter weight_of[LLAMA_PARTS] = {LLAMA_Q, LLAMA_K, LLAMA_V},
                             bias_of[LLAMA_PARTS] = {LLAMA_Q_BIAS, LLAMA_K_BIAS, LLAMA_V_BIAS};

/* ---- layout ---- */

static int64_t part_columns(const z3d_llama *llama, int part) {
    return (part == 0 ? llama->local_heads : llama->local_kv_heads) * llama->config.head_dim;
}

int64_t z3d_llama_qkv_columns(const z3d_llama *llama) {
    return part_columns(llama, 0) + 2 * part_columns(llama, 1);
}

/* One product gives rows with all three parts; three products give three matrices. */
llama_heads z3d_llama_heads_of(const z3d_unit_run *run, void *qkv) {
    const z3d_llama *llama = llama_of(run);
    llama_heads heads;
    char *at = qkv;
    for (int i = 0; i < LLAMA_PARTS; i++) {
        int64_t columns = part_columns(llama, i);
        heads.part[i] = at;
        heads.stride[i] = llama->shares_kv ? columns : z3d_llama_qkv_columns(llama);
        at += (llama->shares_kv ? z3d_unit_rows(run) : 1) * z3d_row_bytes(run, columns);
    }
    return heads;
}

/* ---- products ---- */

/* The rows of the parameters of keys and values that this rank multiplies with; all of its rows, if
 * these parameters are split. */
static z3d_row_range kv_rows(const z3d_unit_run *run) {
    const z3d_llama *llama = llama_of(run);
    const int64_t columns = part_columns(llama, 1);
    if (!llama->shares_kv) return (z3d_row_range){0, columns};
    int64_t sharers = llama->config.tensor_size / llama->config.num_key_value_heads;
    return (z3d_row_range){z3d_group_index(run->process_group[0]) / sharers * columns, columns};
}

static int place_of_bias(const z3d_llama *llama, int part) {
    return llama->place[bias_of[part]];
}

static const void *move(const void *pointer, int64_t elements, z3d_dtype dtype) {
    return pointer ? (const char *)pointer + z3d_bytes_of(dtype, elements) : NULL;
}

static z3d_linear shared_layer(const z3d_unit_run *run, int part) {
    const z3d_llama *llama = llama_of(run);
    const int64_t hidden = llama->shape.hidden_size, first = part ? kv_rows(run).first : 0;
    z3d_linear layer =
        z3d_unit_linear(run, 0, llama->place[weight_of[part]], place_of_bias(llama, part),
                        z3d_unit_rows(run), hidden, part_columns(llama, part));
    layer.weight = move(layer.weight, first * hidden, run->dtype);
    layer.bias = move(layer.bias, first, run->dtype);
    layer.weight_gradient =
        (void *)move(layer.weight_gradient, first * hidden, run->gradient_dtype);
    layer.bias_gradient = (void *)move(layer.bias_gradient, first, run->gradient_dtype);
    z3d_unit_add_adapter(run, &layer, llama->place[weight_of[part]], 0, layer.out);
    if (layer.adapters > 0) {
        z3d_adapter *adapter = &layer.adapter[0];
        adapter->b = move(adapter->b, first * adapter->rank, run->dtype);
        adapter->b_gradient =
            (void *)move(adapter->b_gradient, first * adapter->rank, run->gradient_dtype);
    }
    return layer;
}

bool z3d_llama_trains_heads(const z3d_unit_run *run) {
    const z3d_llama *llama = llama_of(run);
    bool trained = false;
    for (int i = 0; i < LLAMA_PARTS; i++)
        trained = trained ||
                  z3d_unit_trains_layer(run, llama->place[weight_of[i]], place_of_bias(llama, i));
    return trained;
}

/* Sets the products, one or three; returns their number. */
static int layers_of(const z3d_unit_run *run, z3d_linear layer[LLAMA_PARTS]) {
    const z3d_llama *llama = llama_of(run);
    if (llama->shares_kv) {
        for (int i = 0; i < LLAMA_PARTS; i++) layer[i] = shared_layer(run, i);
        return LLAMA_PARTS;
    }
    layer[0] =
        z3d_unit_linear(run, 0, llama->place[LLAMA_Q], place_of_bias(llama, 0), z3d_unit_rows(run),
                        llama->shape.hidden_size, z3d_llama_qkv_columns(llama));
    for (int i = 0, first = 0; i < LLAMA_PARTS; i++) {
        const int64_t columns = part_columns(llama, i);
        z3d_unit_add_adapter(run, &layer[0], llama->place[weight_of[i]], first, columns);
        first += (int)columns;
    }
    return 1;
}

/* Sets the gradients of heads that other ranks compute to 0. */
static z3d_status clear_others(const z3d_unit_run *run, int index, int64_t columns) {
    const z3d_llama *llama = llama_of(run);
    const z3d_row_range own = kv_rows(run);
    const int64_t all = llama->config.num_key_value_heads * llama->config.head_dim;
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
    const z3d_llama *llama = llama_of(run);
    if (!llama->shares_kv || run->group[0].accumulate) return Z3D_OK;
    for (int i = 1; i < LLAMA_PARTS; i++) {
        const int weight = llama->place[weight_of[i]],
                  adapter = z3d_unit_adapter_place(run, weight);
        Z3D_TRY(clear_others(run, weight, llama->shape.hidden_size));
        Z3D_TRY(clear_others(run, place_of_bias(llama, i), 1));
        if (adapter) Z3D_TRY(clear_others(run, adapter + 1, llama->shape.lora.rank));
    }
    return Z3D_OK;
}

/* ---- norms and rotary embedding ---- */

/* Applies the rotary embedding to queries and keys. */
static z3d_status turn(const z3d_unit_run *run, const llama_heads *heads, bool inverse) {
    const z3d_llama *llama = llama_of(run);
    const int64_t count[] = {llama->local_heads, llama->local_kv_heads};
    for (int i = 0; i < 2; i++)
        Z3D_TRY(Z3D_LAUNCH(run->device, rotary, .x = heads->part[i], .rows = z3d_unit_rows(run),
                           .starts = z3d_unit_starts(run),
                           .row_position = z3d_unit_row_position(run), .seq = run->tokens,
                           .heads = count[i], .head_dim = llama->config.head_dim,
                           .stride = heads->stride[i], .inverse = inverse,
                           .rope = llama->config.rope, .dtype = run->dtype));
    return Z3D_OK;
}

/* *to = norms of the queries and keys of `from`; its values are those of `from`. */
static z3d_status normalise(z3d_unit_run *run, const llama_heads *from, float *const rstd[2],
                            llama_heads *to) {
    const z3d_llama *llama = llama_of(run);
    const int64_t count[] = {llama->local_heads, llama->local_kv_heads};
    const llama_parameter weight[] = {LLAMA_Q_NORM, LLAMA_K_NORM};
    const int64_t rows = z3d_unit_rows(run), values = part_columns(llama, 2);
    /* As in the layout, but without the values at the end, which are not used. */
    const int64_t elements =
        rows * z3d_llama_qkv_columns(llama) - (llama->shares_kv ? rows : 1) * values;
    void *qkv;
    Z3D_TRY(z3d_unit_take_workspace(run, 1, z3d_row_bytes(run, elements), &qkv));
    *to = z3d_llama_heads_of(run, qkv);
    to->part[2] = from->part[2];
    for (int i = 0; i < 2; i++)
        Z3D_TRY(Z3D_LAUNCH(run->device, rmsnorm_forward, .x = from->part[i],
                           .weight = z3d_unit_parameter(run, 0, llama->place[weight[i]]),
                           .y = to->part[i], .rstd = rstd[i], .rows = rows, .heads = count[i],
                           .cols = llama->config.head_dim, .x_stride = from->stride[i],
                           .y_stride = to->stride[i], .epsilon = llama->shape.epsilon,
                           .dtype = run->dtype));
    return Z3D_OK;
}

static z3d_status normalise_backward(z3d_unit_run *run, z3d_halves halves,
                                     const llama_heads_saved *saved, const llama_heads *d) {
    const z3d_llama *llama = llama_of(run);
    const llama_heads x = z3d_llama_heads_of(run, saved->qkv);
    const int64_t count[] = {llama->local_heads, llama->local_kv_heads};
    const llama_parameter weight[] = {LLAMA_Q_NORM, LLAMA_K_NORM};
    const float *const rstd[] = {saved->q_rstd, saved->k_rstd};
    for (int i = 0; i < 2; i++)
        Z3D_TRY(z3d_rmsnorm_backward_halves(run, halves, 0, llama->place[weight[i]],
                                            (z3d_rmsnorm_backward){.dy = d->part[i],
                                                                   .x = x.part[i],
                                                                   .rstd = rstd[i],
                                                                   .dx = d->part[i],
                                                                   .rows = z3d_unit_rows(run),
                                                                   .heads = count[i],
                                                                   .cols = llama->config.head_dim,
                                                                   .x_stride = x.stride[i],
                                                                   .y_stride = d->stride[i],
                                                                   .dx_stride = d->stride[i]}));
    return Z3D_OK;
}

/* ---- all of it ---- */

z3d_status z3d_llama_heads_take_saved(z3d_unit_run *run, llama_heads_saved *saved) {
    const z3d_llama *llama = llama_of(run);
    const int64_t rows = z3d_unit_rows(run), width = (int64_t)sizeof(float);
    *saved = (llama_heads_saved){0};
    Z3D_TRY(z3d_unit_take_saved(run, rows, z3d_row_bytes(run, z3d_llama_qkv_columns(llama)),
                                &saved->qkv));
    Z3D_TRY(z3d_unit_take_saved(run, rows, llama->local_heads * width, &saved->log_sum_exp));
    if (!llama->config.qk_norm) return Z3D_OK;
    Z3D_TRY(z3d_unit_take_saved(run, rows, llama->local_heads * width, &saved->q_rstd));
    return z3d_unit_take_saved(run, rows, llama->local_kv_heads * width, &saved->k_rstd);
}

z3d_status z3d_llama_heads_forward(z3d_unit_run *run, const llama_heads_saved *saved, const void *x,
                                   llama_heads *heads) {
    z3d_linear layer[LLAMA_PARTS];
    int layers = layers_of(run, layer);
    *heads = z3d_llama_heads_of(run, saved->qkv);
    for (int i = 0; i < layers; i++)
        Z3D_TRY(z3d_unit_column_forward(run, &layer[i], x, heads->part[i]));
    if (!llama_of(run)->config.qk_norm) return turn(run, heads, false);
    llama_heads raw = *heads;
    Z3D_TRY(normalise(run, &raw, (float *const[]){saved->q_rstd, saved->k_rstd}, heads));
    return turn(run, heads, false);
}

z3d_status z3d_llama_heads_again(z3d_unit_run *run, const llama_heads_saved *saved,
                                 llama_heads *heads) {
    *heads = z3d_llama_heads_of(run, saved->qkv);
    if (!llama_of(run)->config.qk_norm) return Z3D_OK;
    llama_heads raw = *heads;
    Z3D_TRY(normalise(run, &raw, (float *const[]){NULL, NULL}, heads));
    return turn(run, heads, false);
}

z3d_status z3d_llama_heads_backward(z3d_unit_run *run, z3d_halves halves,
                                    const llama_heads_saved *saved, void *d_qkv, const void *x,
                                    void *dx) {
    z3d_linear layer[LLAMA_PARTS];
    int layers = layers_of(run, layer);
    llama_heads d = {0};
    if (d_qkv) d = z3d_llama_heads_of(run, d_qkv);
    if (halves & Z3D_INPUT_HALF) Z3D_TRY(turn(run, &d, true));
    if (llama_of(run)->config.qk_norm) Z3D_TRY(normalise_backward(run, halves, saved, &d));
    if (halves & Z3D_WEIGHT_HALF) Z3D_TRY(clear_gradients(run));
    for (int i = 0; i < layers; i++) layer[i].input_only = halves == Z3D_INPUT_HALF;
    return z3d_unit_columns_backward(run, layer, layers, x, (const void *const *)d.part, dx);
}
