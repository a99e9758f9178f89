/* Shared by models of embedding, blocks and head: their units, and, between the tensor-parallel
 * layers, the rows, the norms, the MLP and the residual stream. A unit's data begins with a
 * z3d_transformer. */
#ifndef ZERO3D_MODEL_TRANSFORMER_H
#define ZERO3D_MODEL_TRANSFORMER_H

#include "src/model/layers.h"
#include "src/model/lora.h"

typedef enum z3d_norm_kind {
    Z3D_NORM_LAYER, /* layernorm: a weight; its bias is the next parameter */
    Z3D_NORM_RMS    /* RMSNorm: a weight */
} z3d_norm_kind;

/* The parameters of z3d_block_ops. Neighbours in Q, K, V are contiguous in a group's flat buffer,
 * so they are used as one matrix, unless tensor ranks share key/value heads. Without K and V, Q has
 * all three. */
typedef enum z3d_block_place {
    Z3D_PLACE_NORM_1,
    Z3D_PLACE_Q,
    Z3D_PLACE_K,
    Z3D_PLACE_V,
    Z3D_PLACE_PROJECTION,
    Z3D_PLACE_NORM_2,
    Z3D_PLACE_MLP, /* the first one of z3d_mlp_of */
    Z3D_PLACE_Q_BIAS,
    Z3D_PLACE_K_BIAS,
    Z3D_PLACE_V_BIAS,
    Z3D_PLACE_PROJECTION_BIAS,
    Z3D_PLACE_Q_NORM,
    Z3D_PLACE_K_NORM,
    Z3D_PLACES
} z3d_block_place;

typedef struct z3d_transformer {
    int64_t num_layers, hidden_size, seq_length, vocab_size, padded_vocab;
    double hidden_dropout, init_std;
    int tensor_size;
    bool sequence_parallel; /* norms, dropout and residuals on 1/tensor_size of the tokens */
    bool learned_positions; /* the embedding has a table of positions, its second group */
    bool gated_mlp;         /* silu(gate) * up without biases; else gelu, with biases */
    int tiling; /* tiles of an MLP, each a unit of its own; 1: the MLP belongs to the block's unit
                 */
    int64_t mlp_inner; /* inner width of an MLP or a tile, on one tensor rank */
    z3d_norm_kind norm;
    float epsilon; /* of all norms */
    z3d_lora lora;
    int adapter[Z3D_LORA_PLACES]; /* for each of a block's own parameters: the index of its
                                     adapter's A in the group (B is the next); 0: no adapter */
    /* Only for z3d_block_ops: */
    int place[Z3D_PLACES]; /* index of each parameter in a block's group; -1: the model lacks it */
    int64_t head_dim, kv_heads;          /* kv_heads: on all tensor ranks */
    int64_t local_heads, local_kv_heads; /* on one tensor rank */
    bool shares_kv; /* more tensor ranks than key/value heads: every rank has all parameters of keys
                       and values, and computes only the head that its queries read */
    bool rotary, qk_norm;
    bool workspace_heads; /* the input of attention may be in workspace */
    z3d_rope rope;
    int64_t sliding_window; /* tokens that a token attends to, itself included; 0: all */
    double attention_dropout;
} z3d_transformer;

/* Units of one kind make the same launches. */
enum { Z3D_KIND_EMBEDDING, Z3D_KIND_BLOCK, Z3D_KIND_HEAD, Z3D_KIND_TILE, Z3D_KIND_LAST_TILE };

/* The head's groups are the table and the final norm. */
extern const struct z3d_unit_ops z3d_embedding_ops, z3d_block_ops, z3d_tile_ops, z3d_head_ops;

static inline const z3d_transformer *z3d_transformer_of(const z3d_unit_run *run) {
    return run->unit->data;
}

static inline int64_t z3d_unit_rows(const z3d_unit_run *run) {
    return run->batch * run->tokens;
}

static inline int64_t z3d_row_bytes(const z3d_unit_run *run, int64_t columns) {
    return z3d_bytes_of(run->dtype, columns);
}

/* The vocabulary, rounded up so that it can be divided among the tensor ranks. */
static inline int64_t z3d_padded_vocab(int64_t size, int64_t multiple, int tensor_size) {
    return z3d_round_up(size, multiple * tensor_size);
}
/* This rank's part of the vocabulary. */
static inline z3d_vocab_range z3d_unit_vocab_range(const z3d_unit_run *run) {
    const z3d_transformer *shape = z3d_transformer_of(run);
    return z3d_vocab_range_of(shape->vocab_size, shape->padded_vocab, shape->tensor_size,
                              z3d_group_index(run->process_group[0]));
}

/* Dropout at one site of this unit; only in training. */
static inline z3d_dropout z3d_unit_dropout(const z3d_unit_run *run, double p, const char *site) {
    return (z3d_dropout){.p = run->mode == Z3D_MODE_TRAIN ? (float)p : 0.0f,
                         .site = z3d_key((uint64_t)run->unit->index, site),
                         .sample = run->sample,
                         .state = run->state};
}

/* ---- describe.c ---- */

/* Appends a parameter whose shape is set by the caller. A matrix has weight decay. */
z3d_parameter *z3d_add_parameter(z3d_parameter_group *group, const char *name, int split_dim,
                                 z3d_init init, double std);
z3d_parameter *z3d_add_vector(z3d_parameter_group *group, const char *name, int split_dim,
                              z3d_init init, int64_t size);
z3d_parameter *z3d_add_matrix(z3d_parameter_group *group, const char *name, int split_dim,
                              double std, int64_t out, int64_t in);
/* The standard deviation of the matrices whose output is added to the residual stream: smaller by
 * sqrt(2 x layers), so that the stream's variance does not grow with depth (GPT-2, section 2.3). */
double z3d_residual_std(const z3d_transformer *shape);
/* The group of a table of tokens, [vocab, hidden]: one parameter, "weight". */
void z3d_add_token_table(z3d_parameter_group *group, const char *name,
                         const z3d_transformer *shape);

/* Units of a block, and as many parameter groups: attention and tiles, or one. */
static inline int64_t z3d_tiled_units(int64_t tiling) {
    return tiling > 1 ? tiling + 1 : 1;
}
static inline int z3d_block_units(const z3d_transformer *shape) {
    return (int)z3d_tiled_units(shape->tiling);
}
/* Turns a group with the whole parameters of an MLP into tile `tile` of block `home`: a part of
 * each parameter's split dimension. */
void z3d_cut_tile(z3d_parameter_group *group, const char *home, const z3d_transformer *shape,
                  int tile);

/* A model's units, besides its shape. */
typedef struct z3d_transformer_units {
    const char *block; /* the blocks' names are "<block>.0" ... */
    const struct z3d_unit_ops *block_ops;
    int64_t cache_columns; /* elements per position in a block's cache */
    int first_block; /* index of the first block's parameter group; those of the other blocks follow
                      */
    int embedding[2], table, norm; /* indices of the groups of the embedding (the second one for
                                      learned positions) and of the head */
    bool packed;                   /* z3d_model_take_tokens */
    const char *type;              /* facts of the model; NULL: none */
    z3d_model_flops flops;
} z3d_transformer_units;
/* Creates a model whose data is a copy of the shape: *own. It has the units, but they and the
 * groups are not yet described. */
z3d_status z3d_transformer_create(const z3d_transformer *shape, int groups, int room,
                                  z3d_transformer **own, z3d_model **out);
/* Fills in the units (embedding, blocks, head), the shape's tensor size and sequence_parallel, a
 * sample's fields and tokens unless the model has fields, and, if units->type is set, the facts
 * without facts.shape. The units' data is *shape, which must live as long as the model. */
void z3d_describe_units(z3d_model *model, const z3d_transformer *shape,
                        const z3d_transformer_units *units);

/* ---- adapter.c: adapters beside a block's products ---- */

/* The index, in the unit's first group, of the A of parameter `weight`'s adapter; 0: it has no
 * adapter. */
static inline int z3d_unit_adapter_place(const z3d_unit_run *run, int weight) {
    return weight < Z3D_LORA_PLACES ? z3d_transformer_of(run)->adapter[weight] : 0;
}

/* Whether a layer in the unit's first group has a trained parameter: `weight`, `bias` (negative:
 * none) or an adapter. */
bool z3d_unit_trains_layer(const z3d_unit_run *run, int weight, int bias);
/* Adds the adapter of parameter `weight`, if it has one, to a layer. The parameter gives columns
 * first .. first + out - 1 of the layer's output. */
void z3d_unit_add_adapter(const z3d_unit_run *run, z3d_linear *linear, int weight, int64_t first,
                          int64_t out);
/* The tensor-parallel layers, with workspace for the adapters. */
z3d_status z3d_unit_column_forward(z3d_unit_run *run, const z3d_linear *linear, const void *x,
                                   void *y);
z3d_status z3d_unit_row_forward(z3d_unit_run *run, const z3d_linear *linear, const void *x,
                                void *y);
z3d_status z3d_unit_columns_backward(z3d_unit_run *run, const z3d_linear *linear, int count,
                                     const void *x, const void *const *dy, void *dx);
z3d_status z3d_unit_row_backward(z3d_unit_run *run, const z3d_linear *linear, const void *x,
                                 const void *dy, void *dx);

/* ---- rows.c: the rows between the tensor-parallel layers ---- */

z3d_tensor_lane z3d_transformer_lane(const z3d_unit_run *run);
/* This rank's own rows of T[rows, hidden] between the layers. z3d_unit_own_offset: their byte
 * offset in a buffer of all rows. */
z3d_row_range z3d_unit_own_rows(const z3d_unit_run *run);
int64_t z3d_unit_own_offset(const z3d_unit_run *run);
/* The own rows in the buffer `all`; NULL if `all` is NULL. */
const void *z3d_unit_own_part(const z3d_unit_run *run, const void *all);
/* *all = workspace for all rows. take_all_rows: or `own`, memory for the own rows, if this rank
 * owns all rows. */
z3d_status z3d_unit_take_all(z3d_unit_run *run, void **all);
z3d_status z3d_unit_take_all_rows(z3d_unit_run *run, void *own, void **all);
/* *all = the rows of all tensor ranks, gathered into workspace; or `own` itself, if this rank owns
 * all rows. Collective over the tensor group. */
z3d_status z3d_unit_all_rows(z3d_unit_run *run, const void *own, const void **all);
/* to = from, own rows only. */
z3d_status z3d_unit_copy_rows(const z3d_unit_run *run, void *to, const void *from);

/* ---- norm.c ---- */

/* A norm: its weight is parameter `weight` of group `slot`. x: its input. */
typedef struct z3d_norm {
    int slot, weight;
    const void *x;
    /* Statistics of each row, from forward for backward; mean only for layernorm. */
    float *mean, *rstd;
} z3d_norm;

/* Takes memory for the statistics of `rows` rows: saved memory, or workspace. */
z3d_status z3d_norm_take_saved(z3d_unit_run *run, int64_t rows, z3d_norm *norm);
z3d_status z3d_norm_take_workspace(z3d_unit_run *run, int64_t rows, z3d_norm *norm);
/* y T[rows, hidden] = norm(x). */
z3d_status z3d_norm_forward(const z3d_unit_run *run, const z3d_norm *norm, int64_t rows, void *y);
/* y = norm(x) of the own rows, then gathers all rows. Collective over the tensor group. */
z3d_status z3d_norm_forward_all(const z3d_unit_run *run, const z3d_norm *norm, void *y);
/* For a norm of the unit's input: whether the gradient of the input, of its weight or of its bias
 * is needed. */
bool z3d_norm_needs_gradient(const z3d_unit_run *run, const z3d_norm *norm);
/* Backward of a norm, or a half of it. dx = residual (NULL: 0; may be dx itself) + the gradient of
 * x; dx, residual and dy have the own rows. dx may be run->input_gradient, also if that is NULL; if
 * no gradient is needed, dy is not read. The weight half reads neither dy nor dx: the input half
 * leaves its sums in deferred memory. */
z3d_status z3d_norm_backward(z3d_unit_run *run, z3d_halves halves, const z3d_norm *norm,
                             const void *dy, const void *residual, void *dx);
/* The same for an RMSNorm of parts of rows: `kernel` has its arguments, except the weight, its
 * gradient and the types. */
z3d_status z3d_rmsnorm_backward_halves(z3d_unit_run *run, z3d_halves halves, int slot, int weight,
                                       z3d_rmsnorm_backward kernel);

/* ---- heads.c: generation ---- */

/* The keys and values that a block's heads read: `capacity` rows of each sample, `stride` elements
 * apart. */
typedef struct z3d_keys {
    const void *k, *v;
    int64_t stride, capacity;
} z3d_keys;

/* *keys: k and v of this call's rows, `columns` elements each, keys->stride apart. In generation
 * they are copied to the cache, after the earlier ones, and *keys becomes the cache: T[2, batch,
 * seq, columns], keys, then values. */
z3d_status z3d_keys_find(const z3d_unit_run *run, int64_t columns, z3d_keys *keys);

/* ---- residual.c: the residual stream of a block ---- */

/* y = residual + dropout(projection of x + its bias), own rows. */
z3d_status z3d_residual_forward(z3d_unit_run *run, const z3d_linear *projection, const void *x,
                                const void *residual, const char *site, void *y);
/* Whether the gradient of all rows before a dropout equals that of the own rows after it: the
 * dropout does nothing and this rank owns all rows. Otherwise z3d_residual_dropout_gradient
 * computes it into `all`, T[rows, hidden]. */
bool z3d_residual_dropout_is_identity(const z3d_unit_run *run);
z3d_status z3d_residual_dropout_gradient(const z3d_unit_run *run, const void *dy, const char *site,
                                         void *all);
/* *dy = the gradient of all rows before the dropout at `site`, from `after`, the gradient of the
 * own rows after it. trained: the layer before the dropout is trained, so the weight half reads *dy
 * too. */
z3d_status z3d_residual_backward(z3d_unit_run *run, z3d_halves halves, bool trained,
                                 const void *after, const char *site, const void **dy);
/* *d_x1 = memory for the gradient of the stream between a block's two branches. It is
 * input_gradient if the gradient of the block's input may replace it at the end. It is other memory
 * if input_gradient is NULL, or if the first branch's weight half reads d_x1: that branch's last
 * layer is trained and its dropout does nothing. */
z3d_status z3d_residual_take_gradient(z3d_unit_run *run, z3d_halves halves, bool trained,
                                      void **d_x1);

/* ---- mlp.c ---- */

typedef struct z3d_mlp {
    z3d_linear up, down;         /* gated: up is gate and up as one matrix */
    bool trains_up, trains_down; /* z3d_unit_trains_layer */
    const z3d_norm *norm;        /* its output is the input of `up` */
    void *x; /* where forward saves the input of `up`, all rows; NULL: backward computes it again */
    const void *own; /* without a norm: the input of `up`, own rows */
    void *before;    /* T[rows, up.out], saved: the output of `up` */
    void *activated; /* T[rows, down.in], saved: the input of `down`; NULL: backward computes it
                        again */
} z3d_mlp;

/* Elements of a row of `before`. */
static inline int64_t z3d_mlp_columns(const z3d_transformer *shape) {
    return shape->gated_mlp ? 2 * shape->mlp_inner : shape->mlp_inner;
}
/* Sets the layers; the caller sets the rest. The parameters begin at index `first` of the unit's
 * first group: up's weight and bias, down's weight and bias (of the tiles only the last has down's
 * bias); gated: the weights of gate, up and down. */
z3d_mlp z3d_mlp_of(const z3d_unit_run *run, int first);
/* Takes saved memory for `before` and `activated`. */
z3d_status z3d_mlp_take_saved(z3d_unit_run *run, z3d_mlp *mlp);
/* y = residual + dropout(down(activation(up(x)))), own rows. If run->need_output is false, it
 * computes only the saved values. */
z3d_status z3d_mlp_forward(z3d_unit_run *run, const z3d_mlp *mlp, const void *residual, void *y);
/* Backward, or a half of it. after: the gradient of y. *dx: workspace with the gradient of the
 * input of `up`; only its own rows are valid; NULL without the input half. */
z3d_status z3d_mlp_backward(z3d_unit_run *run, z3d_halves halves, const z3d_mlp *mlp,
                            const void *after, void **dx);

/* ---- tile.c: from a tiled block's attention to its tiles ---- */

/* Writes the unit's output, T[2, own rows, hidden]: norm(x1), then x1, the stream to which the
 * tiles add. If run->need_output is false, it computes only what the norm's backward reads. */
z3d_status z3d_tiles_begin(z3d_unit_run *run, const z3d_norm *norm);
/* Its backward, or a half of it: d_x1 from the gradient of the output. */
z3d_status z3d_tiles_begin_backward(z3d_unit_run *run, z3d_halves halves, const z3d_norm *norm,
                                    void *d_x1);

#endif
