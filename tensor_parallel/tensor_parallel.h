/* tensor_parallel: Megatron-LM's layers (Shoeybi et al., arXiv 1909.08053): column- and
 * row-parallel linear, vocabulary-parallel embedding and cross entropy. The functions have no
 * state: they call device kernels and collectives of the tensor group; the caller owns the memory.
 * This folder may call parallel/, src/device and src/base.
 *
 * With sequence parallelism (Korthikanti et al., arXiv 2205.05198) the group's ranks divide the
 * rows between the layers. Then each sum over the group gives a rank only its own rows, and the
 * caller gathers all rows before the next layer.
 *
 * Every function is collective over the tensor group, unless stated otherwise. Errors are those of
 * kernels and collectives. T is lane->dtype; buffers are device memory, in row-major order. */
#ifndef ZERO3D_TENSOR_PARALLEL_TENSOR_PARALLEL_H
#define ZERO3D_TENSOR_PARALLEL_TENSOR_PARALLEL_H

#include "parallel/parallel.h"
#include "src/device/device.h"

typedef struct z3d_tensor_lane {
    z3d_device *device;
    z3d_group *group; /* the tensor group */
    z3d_dtype dtype, gradient_dtype;
    bool sequence_parallel; /* between the layers a rank has only its own rows */
} z3d_tensor_lane;

/* ---- rows ---- */

/* This rank's own rows between the layers. A micro-batch has `rows` rows, one for each token,
 * sample after sample. A rank has all of them; with sequence parallelism the rows are cut into
 * group-size equal parts, in rank order. A part is one range; it may end inside a sample. Not
 * collective. */
typedef struct z3d_row_range {
    int64_t first, count;
} z3d_row_range;
z3d_row_range z3d_own_rows(const z3d_tensor_lane *lane, int64_t rows);
/* Returns the collective call that sums buffer T[rows,cols] over the group (g-bar of Korthikanti et
 * al.). With sequence parallelism it sums only this rank's own rows, and leaves the other rows
 * undefined. The caller starts it. Not collective. */
z3d_collective z3d_sum_rows(const z3d_tensor_lane *lane, void *buffer, int64_t rows, int64_t cols);
/* Gathers all rows into buffer T[rows,cols], which holds this rank's own rows before (g of
 * Korthikanti et al.). Without sequence parallelism it does nothing. */
z3d_status z3d_gather_rows(const z3d_tensor_lane *lane, void *buffer, int64_t rows, int64_t cols);

/* ---- layers: all operands have all rows; a sum over the group leaves a rank's own rows ---- */

/* LoRA (Hu et al., arXiv 2106.09685) next to a layer's weight: it adds scale x B (A dropout(x)) to
 * columns first .. first + out - 1 of y. A is T[rank, in] and B T[out, rank], both of the local
 * part. A column-parallel layer splits B and replicates A; a row-parallel layer splits A (its `in`)
 * and replicates B. The gradient of the replicated matrix is this rank's addend: the caller sums it
 * over the group later. */
typedef struct z3d_adapter {
    int64_t rank, first, out;
    float scale;
    const void *a, *b;
    void *a_gradient, *b_gradient;
    bool accumulate;          /* add to the gradients */
    z3d_dropout dropout;      /* of x */
    int64_t tokens;           /* rows of a sample, for the dropout */
    void *low, *low_gradient; /* the caller's memory, T[rows, rank]; low_gradient: for backward */
    void *dropped;            /* the caller's memory, T[rows, in]; only with dropout */
} z3d_adapter;

enum { Z3D_LAYER_ADAPTERS = 3 }; /* of one layer: queries, keys and values */

/* A linear layer y = x W^T + b with x T[rows, in], y T[rows, out] and W T[out, in], all of the
 * local part: a column-parallel layer splits `out`, a row-parallel layer splits `in`. */
typedef struct z3d_linear {
    int64_t rows, in, out;
    const void *weight, *bias;             /* bias NULL: none */
    void *weight_gradient, *bias_gradient; /* NULL: not computed */
    bool accumulate;                       /* add to the gradients */
    bool inference;                        /* forward: see z3d_gemm */
    bool input_only; /* backward computes dx only; another call computes the parameter gradients */
    /* Fused GELU and residual; NULL: none. */
    void *gelu;              /* column-parallel forward: also writes T[rows,out] = gelu(y) */
    const void *residual;    /* row-parallel forward in a group of one: T[rows,out] is added to y,
                                and so is the bias */
    const void *before_gelu; /* row-parallel backward: T[rows,in] with x = gelu(before_gelu); dx
                                becomes the gradient of before_gelu */
    int adapters;
    z3d_adapter adapter[Z3D_LAYER_ADAPTERS];
} z3d_linear;

/* Computes y T[rows,out] = x W^T + b. No communication: x is replicated, y is this rank's columns.
 */
z3d_status z3d_column_linear_forward(const z3d_tensor_lane *lane, const z3d_linear *linear,
                                     const void *x, void *y);
/* Computes dx = sum over the group of dy W, dW and db. The sum runs while dW is computed. dx NULL:
 * dx is not computed, and no data is sent. x is read for dW and adapters only. */
z3d_status z3d_column_linear_backward(const z3d_tensor_lane *lane, const z3d_linear *linear,
                                      const void *x, const void *dy, void *dx);
/* The same for `count` layers with one input x: dx = sum over the group of all dy[i] W[i]. */
z3d_status z3d_column_linears_backward(const z3d_tensor_lane *lane, const z3d_linear *linear,
                                       int count, const void *x, const void *const *dy, void *dx);
/* Computes y = sum over the group of x W^T. It adds the bias only with a residual; else the caller
 * fuses the bias into the next kernel. */
z3d_status z3d_row_linear_forward(const z3d_tensor_lane *lane, const z3d_linear *linear,
                                  const void *x, void *y);
/* Computes dx = dy W (this rank's columns), dW and db. db is the sum of this rank's own rows of dy:
 * without sequence parallelism it has equal bits on all ranks; with it, a later sum over the group
 * completes db (sum_replicated). dx NULL and x: as above. No communication. */
z3d_status z3d_row_linear_backward(const z3d_tensor_lane *lane, const z3d_linear *linear,
                                   const void *x, const void *dy, void *dx);

/* A rank's part of the vocabulary: rows first .. first + local - 1 of the table; the first `valid`
 * of them are real tokens, the others are padding. */
typedef struct z3d_vocab_range {
    int64_t first, local, valid;
} z3d_vocab_range;
/* The range of tensor rank `index` of `size`. padded_vocab is a multiple of size. Not collective.
 */
z3d_vocab_range z3d_vocab_range_of(int64_t vocab, int64_t padded_vocab, int size, int index);

/* Computes out T[rows,hidden] = table[token], summed over the group. tokens int32[rows]; table
 * T[range.local, hidden]. */
z3d_status z3d_vocab_embedding_forward(const z3d_tensor_lane *lane, z3d_vocab_range range,
                                       const int32_t *tokens, const void *table, int64_t rows,
                                       int64_t hidden, void *out);

/* Softmax cross entropy of split logits T[rows, range.local] and targets int32[rows]. statistics:
 * the caller's fp32[3*rows] (maximum, sum, target's logit), which backward needs. Adds to
 * state->loss_sum and valid_targets, equally on all tensor ranks. Communication: two all-reduces,
 * of rows floats (maximum) and of 2*rows floats (sum). */
z3d_status z3d_vocab_cross_entropy_forward(const z3d_tensor_lane *lane, z3d_vocab_range range,
                                           const void *logits, const int32_t *targets, int64_t rows,
                                           float *statistics, z3d_step_state *state);
/* Replaces the logits by their gradient, in place. No communication. */
z3d_status z3d_vocab_cross_entropy_backward(const z3d_tensor_lane *lane, z3d_vocab_range range,
                                            void *logits, const int32_t *targets, int64_t rows,
                                            const float *statistics, const z3d_step_state *state);

#endif
