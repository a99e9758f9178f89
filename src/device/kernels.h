/* All kernels: one struct each, in one tagged union. Matrices are row-major. "rows" are tokens
 * (batch x seq) unless stated otherwise. T marks memory in the kernel's `dtype` (fp32, bf16 or
 * fp16). Statistics, losses and accumulators are fp32 or fp64; arithmetic is in fp32. Pointers are
 * device pointers. Buffers of one kernel do not overlap except "in place". Results do not depend on
 * the number of CPU threads or on polling: work is cut into fixed tiles, and partial sums are added
 * in a fixed order. A kernel with `first` and `seq` works on the rows first .. first + rows - 1 of
 * the micro-batch's batch x seq. A row's position is in row_position, or, where that is NULL, its
 * row within the sample, plus starts[sample] unless starts is NULL. */
#ifndef ZERO3D_DEVICE_KERNELS_H
#define ZERO3D_DEVICE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/dtype.h"
#include "src/base/optimizers.h"

/* What varies from step to step. The executor keeps one of these in device memory, and kernels read
 * it. */
typedef struct z3d_step_state {
    int64_t step;           /* number of this step, from 1 */
    int64_t optimizer_step; /* steps that were not skipped, this one included: AdamW's bias
                               correction */
    int64_t sample_base;    /* global index of the step's first sample: the data position */
    uint64_t seed;          /* dropout's seed */
    float learning_rate;
    float loss_scale;
    double targets;        /* the global batch's places for targets; 0: not known */
    float gradient_seed;   /* loss_scale / targets: what the loss is multiplied by, once */
    float gradient_factor; /* clip factor / loss_scale: what optimizers multiply gradients by */
    float skip;            /* 1: an overflow, leave parameters and optimizer states as they are */
    float stop_requested;  /* 1: this rank was asked to stop */
    double loss_sum;       /* sum over this rank's valid targets so far in this step, unscaled */
    double valid_targets;  /* their number */
} z3d_step_state;

/* From a mean over a step's places for targets to one over those that are trained: 0 if none is, 1
 * if all are or the places are not known. */
static inline double z3d_step_mean(double targets, double trained) {
    return targets > 0 ? (trained > 0 ? targets / trained : 0) : 1;
}

/* Dropout of one site: an element is dropped when philox(key(state->seed, data position,
 * site))[global element] < p. Counter: (global sample in the step, head, row, column), equal on
 * every topology. p = 0: no dropout, state not read. */
typedef struct z3d_dropout {
    float p;
    uint64_t site;  /* key of (unit, site within it) */
    int64_t sample; /* index in the global batch of the first sample of this micro-batch */
    const z3d_step_state *state;
} z3d_dropout;

/* C[m,n] = (accumulate ? C : 0) + op(A) op(B) (+ bias[n]). op(A) is m x k: stored [m,k] or,
 * transposed, [k,m] (lda is the stored row's length). A and B have `dtype`, C has `c_dtype`, bias
 * has `dtype`. residual, gelu, before_gelu and bias_gradient are the epilogue. Devices that can do
 * it in the same launch may round once less; others, and the cpu device, run separate kernels after
 * the product. The first three need C in `dtype` without gaps (ldc = n), the last needs A
 * transposed and without gaps (lda = m). */
typedef struct z3d_gemm {
    int64_t m, n, k;
    bool transpose_a, transpose_b, accumulate;
    bool inference; /* in generation: with few rows the cpu device adds in another order, as fast as
                       it can read B. Others ignore it */
    const void *a, *b;
    void *c;
    int64_t lda, ldb, ldc;
    z3d_dtype dtype, c_dtype;
    const void *bias;     /* T[n] or NULL */
    const void *residual; /* T[m,n], added to C with the bias, as dropout_forward does; or NULL */
    void *gelu;           /* T[m,n] = gelu(C), beside C itself; or NULL */
    const void *before_gelu; /* T[m,n], gelu's input: C, the gradient of gelu's output, becomes that
                                of its input; or NULL */
    void *bias_gradient; /* c_dtype[m] = (accumulate ? itself : 0) + sum over k of op(A), that is of
                            dy's rows if op(A) is dy^T; or NULL */
} z3d_gemm;

/* x[count] = value */
typedef struct z3d_fill {
    void *x;
    int64_t count;
    z3d_dtype dtype;
    float value;
} z3d_fill;

/* destination[count] = source[count], converting; equal types copy bytes. Of more than one row,
 * only these: destination[rows,count] = source[rows,count], with rows so many elements apart. */
typedef struct z3d_cast {
    void *destination;
    const void *source;
    int64_t count;
    z3d_dtype destination_dtype, source_dtype;
    int64_t rows, destination_stride, source_stride; /* rows 0: 1 */
} z3d_cast;

/* y[count] = y + x, in fp32, rounded to y's type. */
typedef struct z3d_accumulate {
    void *y;
    const void *x;
    int64_t count;
    z3d_dtype y_dtype, x_dtype;
} z3d_accumulate;

/* x[count] = factor x, in fp32, rounded to T. */
typedef struct z3d_scale {
    void *x; /* T */
    int64_t count;
    z3d_dtype dtype;
    float factor;
} z3d_scale;

/* gradient[cols] = (accumulate ? gradient : 0) + sum over rows of dy[rows,cols]. */
typedef struct z3d_bias_backward {
    const void *dy; /* T */
    void *gradient; /* gradient_dtype */
    int64_t rows, cols;
    z3d_dtype dtype, gradient_dtype;
    bool accumulate;
} z3d_bias_backward;

/* y = (x - mean) * rstd * weight + bias, rstd = 1 / sqrt(variance + epsilon), each row of cols.
 * mean, rstd fp32[rows] are stored for backward. */
typedef struct z3d_layernorm_forward {
    const void *x, *weight, *bias; /* T */
    void *y;                       /* T */
    float *mean, *rstd;
    int64_t rows, cols;
    float epsilon;
    z3d_dtype dtype;
} z3d_layernorm_forward;

/* dx = (add_to ? add_to : 0) + layernorm's input gradient (add_to T[rows,cols] may be NULL or dx
 * itself, in place); weight_gradient, bias_gradient like bias_backward. */
typedef struct z3d_layernorm_backward {
    const void *dy, *x, *weight; /* T */
    const float *mean, *rstd;
    const void *add_to; /* T or NULL */
    void *dx;           /* T */
    void *weight_gradient, *bias_gradient;
    int64_t rows, cols;
    z3d_dtype dtype, gradient_dtype;
    bool accumulate;
} z3d_layernorm_backward;

/* y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + epsilon), over each vector of `cols` elements.
 * A row has `heads` vectors, one after the other; rows are x_stride elements apart in x, y_stride
 * in y. heads 1 and strides cols: plain matrices. rstd fp32[rows,heads] is stored for backward
 * (NULL: not wanted). y may be x (in place, with x's stride). */
typedef struct z3d_rmsnorm_forward {
    const void *x, *weight; /* T, T[cols] */
    void *y;                /* T */
    float *rstd;
    int64_t rows, heads, cols, x_stride, y_stride;
    float epsilon;
    z3d_dtype dtype;
} z3d_rmsnorm_forward;

/* dx = (add_to ? add_to : 0) + rmsnorm's input gradient; weight_gradient[cols] like bias_backward,
 * summed over rows and heads. Rows of dy are y_stride elements apart, of dx and add_to dx_stride.
 * dx may be dy or add_to (in place, with the same stride). */
typedef struct z3d_rmsnorm_backward {
    const void *dy, *x, *weight; /* T */
    const float *rstd;           /* fp32[rows,heads] */
    const void *add_to;          /* T or NULL */
    void *dx;                    /* T */
    void *weight_gradient;       /* gradient_dtype */
    int64_t rows, heads, cols, x_stride, y_stride, dx_stride;
    z3d_dtype dtype, gradient_dtype;
    bool accumulate;
} z3d_rmsnorm_backward;

/* How positions become angles, as in Hugging Face's rope_scaling; 0 where a type does not read a
 * number. */
typedef enum z3d_rope_type {
    Z3D_ROPE_DEFAULT,
    Z3D_ROPE_LINEAR,
    Z3D_ROPE_LLAMA3,
    Z3D_ROPE_YARN
} z3d_rope_type;

typedef struct z3d_rope {
    z3d_rope_type type;
    double theta;
    double factor;                            /* linear, llama3, yarn */
    double low_freq_factor, high_freq_factor; /* llama3 */
    double original_positions;                /* llama3, yarn */
    double beta_fast, beta_slow;              /* yarn; 0: 32 and 1 */
    double mscale, mscale_all_dim;            /* yarn; 0: not given */
    double attention_factor;                  /* cos and sin times this; 0: as the type says */
} z3d_rope;

/* Rotary position embedding, in place (Su et al., 2104.09864), halves as in Hugging Face's Llama:
 * element i of a head pairs with element i + head_dim / 2. x: rows of heads x head_dim elements,
 * `stride` elements apart. inverse: the transposed rotation, for gradients. */
typedef struct z3d_rotary {
    void *x;                     /* T */
    const int32_t *starts;       /* int32[batch] or NULL: 0 */
    const int32_t *row_position; /* int32[batch, seq] or NULL */
    int64_t rows, first, seq, heads, head_dim, stride;
    bool inverse;
    z3d_rope rope;
    z3d_dtype dtype;
} z3d_rotary;

/* y = gelu(x), tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */
typedef struct z3d_gelu_forward {
    const void *x;
    void *y;
    int64_t count;
    z3d_dtype dtype;
} z3d_gelu_forward;

/* dx = dy * gelu'(x); dx may be dy (in place). */
typedef struct z3d_gelu_backward {
    const void *x, *dy;
    void *dx;
    int64_t count;
    z3d_dtype dtype;
} z3d_gelu_backward;

/* y[rows,cols] = silu(gate) * up, x T[rows, 2 cols]: a row's first half is gate, its second up.
 * silu(x) = x / (1 + e^-x). */
typedef struct z3d_swiglu_forward {
    const void *x;
    void *y;
    int64_t rows, cols;
    z3d_dtype dtype;
} z3d_swiglu_forward;

/* dx T[rows, 2 cols] from x and dy T[rows, cols]; dx may be x (in place). */
typedef struct z3d_swiglu_backward {
    const void *x, *dy;
    void *dx;
    int64_t rows, cols;
    z3d_dtype dtype;
} z3d_swiglu_backward;

/* y[rows,cols] = residual + dropout(x + bias). residual T or NULL (0), bias T[cols] or NULL; y may
 * be x. Dropout's counter is (sample, head 0, row within the sample, column), so the result does
 * not depend on which rank has which rows. */
typedef struct z3d_dropout_forward {
    const void *x, *bias, *residual;
    void *y;
    int64_t rows, first, seq, cols;
    z3d_dtype dtype;
    z3d_dropout dropout;
} z3d_dropout_forward;

/* dx = dropout mask * dy / (1-p); dx may be dy. */
typedef struct z3d_dropout_backward {
    const void *dy;
    void *dx;
    int64_t rows, first, seq, cols;
    z3d_dtype dtype;
    z3d_dropout dropout;
} z3d_dropout_backward;

/* Causal attention with grouped key/value heads. q: batch x seq rows of heads x head_dim elements,
 * q_stride elements apart. k, v: batch x capacity rows of kv_heads x head_dim, kv_stride apart
 * (training: capacity = seq; generation: a cache). Query head h reads key/value head h / (heads /
 * kv_heads). Query row i of a sample has position p = i, plus starts[sample] unless starts is NULL,
 * and sees keys 0 .. p, or the last `window` of these if window > 0; none beyond capacity. Keys
 * that it does not see may have any finite value up to the call's last position, and any value
 * after that. With row_position (then without starts) a sample has documents one after the other: a
 * row sees keys of its own document only, which begins row_position[row] rows before it. out
 * T[batch,seq,heads,head_dim]; log_sum_exp fp32[batch,heads,seq] for backward, or NULL. Scores
 * scaled by 1/sqrt(head_dim). Never holds batch x heads x seq x seq: a tile of query rows at a
 * time. Dropout on the probabilities: counter (sample, first_head + head, position, key). */
typedef struct z3d_attention {
    const void *q, *k, *v; /* T; may be parts of one matrix */
    void *out;
    const void *dout; /* backward: T */
    float *log_sum_exp;
    void *dq, *dk, *dv;          /* backward: T; may be parts of one matrix */
    const int32_t *starts;       /* int32[batch] or NULL: 0 */
    const int32_t *row_position; /* int32[batch, seq] or NULL: one document a sample */
    int64_t batch, seq, capacity, heads, kv_heads, head_dim, first_head;
    int64_t q_stride, kv_stride, window;
    z3d_dtype dtype;
    z3d_dropout dropout;
} z3d_attention;
typedef z3d_attention z3d_attention_forward;

/* dq, dk, dv (with the strides of q, k, v) from dout; the probabilities are recomputed. out and
 * log_sum_exp are read. starts must be NULL; capacity is not read: it is seq. */
typedef z3d_attention z3d_attention_backward;

/* Into a cache of keys or values: cache[sample, starts[sample] + i, :] = x[sample, i, :]. x: batch
 * x seq rows of `cols` elements, `stride` elements apart; cache T[batch,capacity,cols]. Rows beyond
 * capacity are dropped. */
typedef struct z3d_cache_store {
    const void *x;
    void *cache;
    const int32_t *starts; /* int32[batch] */
    int64_t batch, seq, capacity, cols, stride;
    z3d_dtype dtype;
} z3d_cache_store;

/* Vocab-parallel lookup: out[row,:] = table[token - first] where first <= token < first +
 * table_rows, else 0. */
typedef struct z3d_embedding_forward {
    const int32_t *tokens;
    const void *table; /* T[table_rows,cols] */
    void *out;         /* T[rows,cols] */
    int64_t rows, cols, first, table_rows;
    z3d_dtype dtype;
} z3d_embedding_forward;

/* table_gradient[token - first] (+)= dy[row]; without accumulate, rows of no token become 0. Sums
 * in row order. */
typedef struct z3d_embedding_backward {
    const int32_t *tokens;
    const void *dy; /* T */
    void *table_gradient;
    int64_t rows, cols, first, table_rows;
    z3d_dtype dtype, gradient_dtype;
    bool accumulate;
} z3d_embedding_backward;

/* x[rows,cols] += positions[position,cols] of each row, in place. With starts, positions
 * beyond the table's `capacity` rows add its last one (rows that nobody reads); without, capacity
 * is not read: the table has seq rows. */
typedef struct z3d_position_forward {
    void *x;
    const void *positions;       /* T[seq,cols]; with starts T[capacity,cols] */
    const int32_t *starts;       /* int32[batch] or NULL: 0 */
    const int32_t *row_position; /* int32[batch, seq] or NULL */
    int64_t rows, first, seq, capacity, cols;
    z3d_dtype dtype;
} z3d_position_forward;

/* gradient[seq,cols] (+)= sum over the samples of dy[rows,cols], with rows as above; without
 * accumulate, positions of no row become 0. With row_position it is an embedding_backward of these
 * "tokens". */
typedef struct z3d_position_backward {
    const void *dy;
    void *gradient;
    int64_t rows, first, seq, cols;
    z3d_dtype dtype, gradient_dtype;
    bool accumulate;
} z3d_position_backward;

/* Vocab-parallel softmax cross entropy in four parts, with all-reduces by the caller between them
 * (Megatron-LM's scheme). logits T[rows,cols] are this rank's columns first .. first+valid-1 of the
 * vocabulary; columns at and after `valid` are padding and count as minus infinity. A target < 0 is
 * ignored.
 * 1. max_out[row] = largest valid logit (minus infinity where valid = 0). alone: no other rank has
 * columns; a device may leave max_out to part 2, which it then reads the logits for only once. */
typedef struct z3d_cross_entropy_max {
    const void *logits;
    float *max_out;
    int64_t rows, cols, valid;
    z3d_dtype dtype;
    bool alone;
} z3d_cross_entropy_max;

/* 2. sums[row] = sum of exp(logit - max[row]); sums[rows + row] = logit[target] - max[row] if this
 * rank has it, else 0. alone: as in part 1, of the same logits. */
typedef struct z3d_cross_entropy_sum {
    const void *logits;
    float *max;
    const int32_t *targets;
    float *sums; /* fp32[2, rows] */
    int64_t rows, cols, valid, first;
    z3d_dtype dtype;
    bool alone;
} z3d_cross_entropy_sum;

/* 3. state->loss_sum += sum over valid rows of log(sums[row]) - sums[rows + row]; valid_targets +=
 * their number. */
typedef struct z3d_cross_entropy_loss {
    const float *sums;
    const int32_t *targets;
    int64_t rows;
    z3d_step_state *state;
} z3d_cross_entropy_loss;

/* 4. In place: logits become their gradient, (softmax - onehot) * state->gradient_seed; 0 in
 * ignored rows and padding. */
typedef struct z3d_cross_entropy_backward {
    void *logits;
    const float *max, *sums;
    const int32_t *targets;
    int64_t rows, cols, valid, first;
    z3d_dtype dtype;
    const z3d_step_state *state;
} z3d_cross_entropy_backward;

/* y[batch,cols] = x[batch, row[sample], cols] of x[batch,seq,cols]. */
typedef struct z3d_select_row {
    const void *x;
    void *y;
    const int32_t *row; /* int32[batch] */
    int64_t batch, seq, cols;
    z3d_dtype dtype;
} z3d_select_row;

/* What is the same in every step of elements; each optimizer reads its own. */
typedef struct z3d_optimizer_constants {
    float beta1, beta2, epsilon; /* adamw */
    float momentum;              /* sgd */
    float weight_decay;          /* of the first elements of a shard */
    float lr_scale;              /* of the learning rate */
    float ema_decay;             /* of the average, where there is one */
} z3d_optimizer_constants;

/* Where a logical parameter's elements lie here: from element `first` of this rank's slice [outer,
 * local, inner] of [outer, global, inner] on. The slice begins at `offset` of the middle
 * dimension. */
typedef struct z3d_parameter_place {
    uint64_t key; /* of its name */
    int64_t first, local, global, inner, offset;
} z3d_parameter_place;

/* The optimizers' kernels (src/base/optimizers.h) step `count` elements of a shard: parameters and
 * the optimizer's own tensors. g = gradient * state->gradient_factor. Weight decay is for the first
 * `decayed` elements (0 or less: none). What master and those tensors become is said in
 * src/device/cpu/isa/<id>.c. Then, if ema is not NULL, ema = ema_decay ema + (1-ema_decay) master,
 * in step 1 master; and parameter = master in `dtype` (NULL, or master itself in fp32 runs).
 * Nothing changes when state->skip is 1. */
typedef struct z3d_optimizer_update {
    float *master;
#define X(NAME, name) float *name;
    Z3D_OPTIMIZER_STATES(X) /* NULL: not this optimizer's */
#undef X
    const void *gradient; /* gradient_dtype */
    void *parameter;      /* dtype, or NULL */
    int64_t count, decayed;
    z3d_dtype dtype, gradient_dtype;
    z3d_parameter_place place; /* *_bf16: of the parameter that all elements are of; they mix its
                                  key with state->seed */
    z3d_optimizer_constants constants;
    const z3d_step_state *state;
} z3d_optimizer_update;

#define X(_, id, name, reads, states, flops) typedef z3d_optimizer_update z3d_##id;
Z3D_OPTIMIZER_KERNELS(X, )
#undef X

/* *out += sum of squares of x[count], in fp64, in a fixed order. Not finite if and only if x has an
 * infinity or NaN. */
typedef struct z3d_sum_squares {
    const void *x;
    int64_t count;
    z3d_dtype dtype;
    double *out;
} z3d_sum_squares;

/* The control vector, which is then summed over all ranks: control[0] = state->loss_sum and
 * control[1] = state->valid_targets, or zeros unless `counts`; control[2] = state->stop_requested;
 * zeros in the rest of control[count]. */
typedef struct z3d_control_begin {
    const z3d_step_state *state;
    double *control; /* at least 4 */
    int64_t count;
    bool counts;
} z3d_control_begin;

/* Decides about the step from the sums over all ranks. control[4] .. control[count - 1] are the
 * squared gradients (of loss_scale times the loss) by group; squares is their sum, in this order.
 * The gradients are of a mean over state->targets; m = z3d_step_mean makes it one over control[1].
 * state->skip = control[3] = 1 if squares is not finite or nothing was trained, else 0;
 * state->gradient_factor = min(1, clipping / (norm + 1e-6)) m / state->loss_scale, norm =
 * sqrt(squares) m / state->loss_scale. clipping 0: none. In fp64, the same bits on every device. */
typedef struct z3d_control_end {
    double *control;
    z3d_step_state *state;
    int64_t count;
    double clipping;
} z3d_control_end;

/* Initial values x[count] of the elements at `place`, drawn from normal(0, standard_deviation) by
 * key and global index, fp32. */
typedef struct z3d_init_normal {
    float *x;
    int64_t count;
    z3d_parameter_place place;
    float standard_deviation;
} z3d_init_normal;

/* The column of that table that the next one is made of. */
#define Z3D_OPTIMIZER_KERNEL(X, id, name, reads, states, flops) X(id, dtype)

/* X(name, type): a kernel's struct is z3d_<name>, its kind Z3D_KERNEL_<name>, its member in the
 * union <name>. type: the field with the type of most of its operands, or fp32. */
#define Z3D_KERNEL_MAP(X)                                                                          \
    X(gemm, dtype)                                                                                 \
    X(fill, dtype)                                                                                 \
    X(cast, destination_dtype)                                                                     \
    X(accumulate, x_dtype)                                                                         \
    X(scale, dtype)                                                                                \
    X(bias_backward, dtype)                                                                        \
    X(layernorm_forward, dtype)                                                                    \
    X(layernorm_backward, dtype)                                                                   \
    X(rmsnorm_forward, dtype)                                                                      \
    X(rmsnorm_backward, dtype)                                                                     \
    X(rotary, dtype)                                                                               \
    X(gelu_forward, dtype)                                                                         \
    X(gelu_backward, dtype)                                                                        \
    X(swiglu_forward, dtype)                                                                       \
    X(swiglu_backward, dtype)                                                                      \
    X(dropout_forward, dtype)                                                                      \
    X(dropout_backward, dtype)                                                                     \
    X(attention_forward, dtype)                                                                    \
    X(attention_backward, dtype)                                                                   \
    X(cache_store, dtype)                                                                          \
    X(embedding_forward, dtype)                                                                    \
    X(embedding_backward, dtype)                                                                   \
    X(position_forward, dtype)                                                                     \
    X(position_backward, dtype)                                                                    \
    X(cross_entropy_max, dtype)                                                                    \
    X(cross_entropy_sum, dtype)                                                                    \
    X(cross_entropy_loss, fp32)                                                                    \
    X(cross_entropy_backward, dtype)                                                               \
    X(select_row, dtype)                                                                           \
    Z3D_OPTIMIZER_KERNELS(Z3D_OPTIMIZER_KERNEL, X)                                                 \
    X(sum_squares, dtype)                                                                          \
    X(control_begin, fp32)                                                                         \
    X(control_end, fp32)                                                                           \
    X(init_normal, fp32)

typedef enum z3d_kernel_kind {
#define X(name, type) Z3D_KERNEL_##name,
    Z3D_KERNEL_MAP(X)
#undef X
        Z3D_KERNEL_COUNT
} z3d_kernel_kind;

typedef struct z3d_kernel {
    z3d_kernel_kind kind;
    union {
#define X(name, type) z3d_##name name;
        Z3D_KERNEL_MAP(X)
#undef X
        z3d_attention attention;     /* forward or backward */
        z3d_optimizer_update update; /* any optimizer's */
    } as;
} z3d_kernel;

/* Z3D_LAUNCH(device, gemm, .m = 3, .n = 4, ...) -> z3d_status */
#define Z3D_LAUNCH(device, name, ...)                                                              \
    z3d_launch((device),                                                                           \
               &(z3d_kernel){.kind = Z3D_KERNEL_##name, .as.name = (z3d_##name){__VA_ARGS__}})

#endif
