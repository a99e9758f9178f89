/* tensor_parallel: Megatron-LM's layers (Shoeybi et al., 1909.08053): column- and row-parallel
 * linear, vocab-parallel embedding and cross entropy. Stateless functions over device kernels and
 * the tensor group's collectives; the caller owns the memory. May call parallel/, src/device,
 * src/base. With sequence parallelism (Korthikanti et al., 2205.05198) the rows are split over the
 * group between the layers. Then each sum over the group gives a rank only its own rows, and the
 * caller gathers all rows before the next layer. Every function is collective over the tensor
 * group, unless stated otherwise; errors are those of kernels and collectives. T = lane->dtype. */
#ifndef ZERO3D_TENSOR_PARALLEL_TENSOR_PARALLEL_H
#define ZERO3D_TENSOR_PARALLEL_TENSOR_PARALLEL_H

#include "parallel/parallel.h"
#include "src/device/device.h"

typedef struct z3d_tensor_lane {
    z3d_device *device;
    z3d_group *group; /* the tensor group */
    z3d_dtype dtype, gradient_dtype;
    bool sequence_parallel; /* between the layers every rank has its own rows only */
} z3d_tensor_lane;

/* ---- rows ---- */

/* This rank's rows between the layers, of a micro-batch's `rows` tokens, sample by sample: all of
 * them, or with sequence parallelism one of group size equal parts, in rank order. A part is one
 * range; it may end inside a sample. Not collective. */
typedef struct z3d_row_range {
    int64_t first, count;
} z3d_row_range;
z3d_row_range z3d_own_rows(const z3d_tensor_lane *lane, int64_t rows);
/* The call that sums buffer T[rows,cols] over the group: all of it; with sequence parallelism only
 * this rank's own rows, and the others' are undefined after it. The caller starts it. Not
 * collective. */
z3d_collective z3d_sum_rows(const z3d_tensor_lane *lane, void *buffer, int64_t rows, int64_t cols);
/* buffer T[rows,cols] holds this rank's own rows; after the call it holds all rows. Does nothing
 * without sequence parallelism. */
z3d_status z3d_gather_rows(const z3d_tensor_lane *lane, void *buffer, int64_t rows, int64_t cols);

/* ---- layers: all operands have all rows; after a sum over the group a rank has its own rows ----
 */

/* LoRA (Hu et al., 2106.09685) beside a layer's weight: columns first .. first + out - 1 of y get
 * scale x B (A dropout(x)) more. A is T[rank, in], B T[out, rank] of the local part. Of a
 * column-parallel layer B is split and A replicated, of a row-parallel layer A is split (its `in`)
 * and B replicated. A rank's gradient of the replicated one is its part of a sum over the group,
 * which the caller leaves for later. */
typedef struct z3d_adapter {
    int64_t rank, first, out;
    float scale;
    const void *a, *b;
    void *a_gradient, *b_gradient;
    bool accumulate;     /* into the gradients */
    z3d_dropout dropout; /* of x, of `tokens` rows a sample */
    int64_t tokens;
    void *low, *low_gradient; /* the caller's memory, T[rows, rank]; low_gradient: in backward */
    void *dropped;            /* T[rows, in], with dropout */
} z3d_adapter;

enum { Z3D_LAYER_ADAPTERS = 3 }; /* beside one product: queries, keys and values */

/* A linear layer y = x W^T + b on rows x in -> rows x out. W is T[out, in] of the local part:
 * column-parallel splits `out`, row-parallel splits `in`; these are the local sizes. */
typedef struct z3d_linear {
    int64_t rows, in, out;
    const void *weight, *bias;             /* bias NULL: none */
    void *weight_gradient, *bias_gradient; /* NULL: not wanted */
    bool accumulate;                       /* into the gradients */
    bool inference;                        /* forward: z3d_gemm's */
    bool input_only; /* backward: only dx is wanted, of a pair of calls that compute a half each */
    /* GELU beside the layer: */
    void *gelu;              /* column-parallel forward: also T[rows,out] = gelu(y); or NULL */
    const void *residual;    /* row-parallel forward of a group of one: T[rows,out], added to y with
                                the    bias; or NULL */
    const void *before_gelu; /* row-parallel backward: T[rows,in] with x = gelu(it); dx becomes its
                                gradient; or NULL */
    int adapters;
    z3d_adapter adapter[Z3D_LAYER_ADAPTERS];
} z3d_linear;

/* y T[rows,out] = x W^T + b. No communication: x is replicated, y is this rank's columns. */
z3d_status z3d_column_linear_forward(const z3d_tensor_lane *lane, const z3d_linear *linear,
                                     const void *x, void *y);
/* Computes dx = sum over the group of dy W (started before the weight gradient is computed), dW and
 * db. dx NULL: not needed, and nothing is communicated. x is read for dW and adapters only. */
z3d_status z3d_column_linear_backward(const z3d_tensor_lane *lane, const z3d_linear *linear,
                                      const void *x, const void *dy, void *dx);
/* The same for `count` layers of one input: dx = sum over the group of all dy[i] W[i]. */
z3d_status z3d_column_linears_backward(const z3d_tensor_lane *lane, const z3d_linear *linear,
                                       int count, const void *x, const void *const *dy, void *dx);
/* y = sum over the group of x W^T. It does not add the bias, unless there is a residual: the caller
 * fuses it into the next kernel. */
z3d_status z3d_row_linear_forward(const z3d_tensor_lane *lane, const z3d_linear *linear,
                                  const void *x, void *y);
/* dx = dy W (local), dW, db. db is the sum over the own rows of dy. Without sequence parallelism it
 * has equal bits on all ranks; with it, a later sum over the group completes db (sum_replicated).
 * dx NULL, x: as above. */
z3d_status z3d_row_linear_backward(const z3d_tensor_lane *lane, const z3d_linear *linear,
                                   const void *x, const void *dy, void *dx);

/* Vocabulary split by rows: this rank holds rows first .. first+rows_local-1, of which `valid` are
 * real tokens. */
typedef struct z3d_vocab_range {
    int64_t first, local, valid;
} z3d_vocab_range;
/* The range of tensor rank `index` of `size` for a padded vocabulary. */
z3d_vocab_range z3d_vocab_range_of(int64_t vocab, int64_t padded_vocab, int size, int index);

/* out T[rows,hidden] = table[token], summed over the group. */
z3d_status z3d_vocab_embedding_forward(const z3d_tensor_lane *lane, z3d_vocab_range range,
                                       const int32_t *tokens, const void *table, int64_t rows,
                                       int64_t hidden, void *out);

/* Softmax cross entropy over split logits T[rows, range.local]. statistics: the caller's
 * fp32[3*rows] (max, sum, target), kept for backward. Adds to state->loss_sum and valid_targets
 * (equal on all tensor ranks). Two all-reduces: rows floats (max) and 2*rows floats (sum). */
z3d_status z3d_vocab_cross_entropy_forward(const z3d_tensor_lane *lane, z3d_vocab_range range,
                                           const void *logits, const int32_t *targets, int64_t rows,
                                           float *statistics, z3d_step_state *state);
/* In place: logits become their gradient. No communication. */
z3d_status z3d_vocab_cross_entropy_backward(const z3d_tensor_lane *lane, z3d_vocab_range range,
                                            void *logits, const int32_t *targets, int64_t rows,
                                            const float *statistics, const z3d_step_state *state);

#endif
