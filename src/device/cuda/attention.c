/* Causal attention by cuDNN: the graphs that its fused engines support. Scores are scale x Q K^T
 * with minus infinity above the diagonal. Forward keeps log(sum of exp) per row; backward
 * recomputes the probabilities P from it:
 *
 *   dV = P^T dO,  dS = scale x P (dO V^T - rowsum(dO O)),  dK = dS^T Q,  dQ = dS K
 *
 * cuDNN sums dQ in fp32 with atomics, or (deterministic) keeps 16-bit dS of all scores in its
 * workspace: 2 x batch x heads x seq^2 bytes, which is why it gets the work in pieces. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/strings.h"
#include "src/device/cuda/cuda.h"

#if __has_include(<cudnn.h>) && !defined(Z3D_CUDA_SHIM)
#include "src/device/cuda/attention.h"

/* ---- graphs ---- */

/* Tensors: what is given to both directions, to backward only, what is inside. */
enum { Q = 1, K_T, V, O, STATISTICS, SCALE, MINUS_INFINITY };
enum { V_T = MINUS_INFINITY + 1, D_O, D_Q, D_K, D_V, ONE, ROW_SUMS, D_Q_SUM };
enum { Q_K = D_Q_SUM + 1, SCALED, SHIFTED, ROW, COLUMN, SEEN, MASKED, EXP, MOST, SUM, LOG_SUM, P };
enum { K = P + 1, P_T, O_D_O, O_D_O_SUM, D_P, D_P_SHIFTED, D_SCALED, D_S, D_S_T, TENSORS };
_Static_assert((int)TENSORS <= (int)Z3D_CUDNN_TENSORS, "more tensors than a plan has");

/* Their shapes: of scores; of Q within qkv; of O; of dQ alone; a number per row; one number. */
enum { SQUARE, SQUARE_T, PACKED, PACKED_T, PLAIN, DENSE, ROWS, NUMBER };

#define FP32 CUDNN_DATA_FLOAT
#define OWN CUDNN_DATA_HALF /* the model's type, bf16 too */
#define INSIDE Z3D_CUDNN_INSIDE
#define GIVEN Z3D_CUDNN_GIVEN
#define ON_HOST Z3D_CUDNN_NUMBER

/* What is not here is zeros: a square of fp32, inside. */
static const struct description {
    int shape;
    cudnnDataType_t type;
    z3d_cudnn_place place;
} descriptions[TENSORS] = {
    [Q] = {PACKED, OWN, GIVEN},
    [K] = {PACKED, OWN, INSIDE},
    [K_T] = {PACKED_T, OWN, GIVEN},
    [V] = {PACKED, OWN, GIVEN},
    [V_T] = {PACKED_T, OWN, GIVEN},
    [O] = {PLAIN, OWN, GIVEN},
    [D_O] = {PLAIN, OWN, GIVEN},
    [D_Q] = {PACKED, OWN, GIVEN},
    [D_K] = {PACKED, OWN, GIVEN},
    [D_V] = {PACKED, OWN, GIVEN},
    [D_Q_SUM] = {DENSE, FP32, GIVEN},
    [STATISTICS] = {ROWS, FP32, GIVEN},
    [ROW_SUMS] = {ROWS, FP32, GIVEN},
    [SCALE] = {NUMBER, FP32, ON_HOST},
    [MINUS_INFINITY] = {NUMBER, FP32, ON_HOST},
    [ONE] = {NUMBER, FP32, ON_HOST},
    [ROW] = {SQUARE, CUDNN_DATA_INT32, INSIDE},
    [COLUMN] = {SQUARE, CUDNN_DATA_INT32, INSIDE},
    [SEEN] = {SQUARE, CUDNN_DATA_BOOLEAN, INSIDE},
    [MOST] = {ROWS, FP32, INSIDE},
    [SUM] = {ROWS, FP32, INSIDE},
    [LOG_SUM] = {ROWS, FP32, INSIDE},
    [O_D_O] = {PLAIN, FP32, INSIDE},
    [O_D_O_SUM] = {ROWS, FP32, INSIDE},
    [P] = {SQUARE, OWN, INSIDE},
    [P_T] = {SQUARE_T, OWN, INSIDE},
    [D_S_T] = {SQUARE_T, OWN, INSIDE},
};

static void describe(const z3d_attention_shape *s, z3d_cudnn_tensor tensors[TENSORS]) {
    const int64_t b = s->batch, h = s->heads, t = s->seq, d = s->head_dim;
    const int64_t row = s->row_heads * d, numbers = s->row_heads * t;
    const z3d_cudnn_tensor shapes[] = {
        [SQUARE] = {{b, h, t, t}, {h * t * t, t * t, t, 1}},
        [SQUARE_T] = {{b, h, t, t}, {h * t * t, t * t, 1, t}},
        [PACKED] = {{b, h, t, d}, {t * 3 * row, d, 3 * row, 1}},
        [PACKED_T] = {{b, h, d, t}, {t * 3 * row, d, 1, 3 * row}},
        [PLAIN] = {{b, h, t, d}, {t * row, d, row, 1}},
        [DENSE] = {{b, h, t, d}, {h * t * d, t * d, d, 1}},
        [ROWS] = {{b, h, t, 1}, {numbers, t, 1, 1}},
        [NUMBER] = {{1, 1, 1, 1}, {1, 1, 1, 1}},
    };
    for (int i = 0; i < TENSORS; i++) {
        const struct description *from = &descriptions[i];
        const bool bf16 = from->type == OWN && s->dtype == Z3D_BF16;
        tensors[i] = shapes[from->shape];
        tensors[i].type = bf16 ? CUDNN_DATA_BFLOAT16 : from->type;
        tensors[i].place = from->place;
    }
}

#define POINTWISE(mode, x, b, y)                                                                   \
    { Z3D_CUDNN_POINTWISE, CUDNN_POINTWISE_##mode, x, b, y, 0, 0 }
#define INDEX(axis, x, y)                                                                          \
    { Z3D_CUDNN_POINTWISE, CUDNN_POINTWISE_GEN_INDEX, x, 0, y, 0, axis }
#define SELECT(mask, x, b, y)                                                                      \
    { Z3D_CUDNN_POINTWISE, CUDNN_POINTWISE_BINARY_SELECT, x, b, y, mask, 0 }
#define REDUCE(mode, x, y)                                                                         \
    { Z3D_CUDNN_REDUCTION, CUDNN_REDUCE_TENSOR_##mode, x, 0, y, 0, 0 }
#define MATMUL(x, b, y)                                                                            \
    { Z3D_CUDNN_MATMUL, 0, x, b, y, 0, 0 }
#define RESHAPE(x, y)                                                                              \
    { Z3D_CUDNN_RESHAPE, 0, x, 0, y, 0, 0 }

/* Operands, then the result. */
static const z3d_cudnn_operation forward[] = {
    MATMUL(Q, K_T, Q_K),
    POINTWISE(MUL, Q_K, SCALE, SCALED),
    INDEX(2, SCALED, ROW),
    INDEX(3, SCALED, COLUMN),
    POINTWISE(CMP_GE, ROW, COLUMN, SEEN),
    SELECT(SEEN, SCALED, MINUS_INFINITY, MASKED),
    REDUCE(MAX, MASKED, MOST),
    POINTWISE(SUB, MASKED, MOST, SHIFTED),
    POINTWISE(EXP, SHIFTED, 0, EXP),
    REDUCE(ADD, EXP, SUM),
    POINTWISE(LOG, SUM, 0, LOG_SUM),
    POINTWISE(ADD, MOST, LOG_SUM, STATISTICS),
    POINTWISE(DIV, EXP, SUM, P),
    MATMUL(P, V, O),
};

/* A product's operands are of the model's type, which they get where they are transposed. The
 * engines want rowsum(dO O) in memory. */
static const z3d_cudnn_operation backward[] = {
    POINTWISE(MUL, D_O, O, O_D_O),
    REDUCE(ADD, O_D_O, O_D_O_SUM),
    POINTWISE(MUL, O_D_O_SUM, ONE, ROW_SUMS),
    MATMUL(Q, K_T, Q_K),
    POINTWISE(MUL, Q_K, SCALE, SCALED),
    POINTWISE(SUB, SCALED, STATISTICS, SHIFTED),
    INDEX(2, SHIFTED, ROW),
    INDEX(3, SHIFTED, COLUMN),
    POINTWISE(CMP_GE, ROW, COLUMN, SEEN),
    SELECT(SEEN, SHIFTED, MINUS_INFINITY, MASKED),
    POINTWISE(EXP, MASKED, 0, EXP),
    RESHAPE(EXP, P_T),
    MATMUL(P_T, D_O, D_V),
    MATMUL(D_O, V_T, D_P),
    POINTWISE(SUB, D_P, ROW_SUMS, D_P_SHIFTED),
    POINTWISE(MUL, D_P_SHIFTED, EXP, D_SCALED),
    POINTWISE(MUL, D_SCALED, SCALE, D_S),
    RESHAPE(D_S, D_S_T),
    MATMUL(D_S_T, Q, D_K),
    RESHAPE(K_T, K),
};
static const z3d_cudnn_operation deterministic_end[] = {MATMUL(D_S, K, D_Q)};
static const z3d_cudnn_operation atomic_end[] = {MATMUL(D_S, K, D_Q_SUM),
                                                 POINTWISE(IDENTITY, D_Q_SUM, 0, D_Q)};

#define ADD(plan, tensors, operations)                                                             \
    z3d_cudnn_add(plan, tensors, operations, sizeof(operations) / sizeof *(operations))

z3d_status z3d_attention_make_plan(const z3d_cudnn *cudnn, const z3d_attention_shape *shape,
                                   z3d_cudnn_plan *out) {
    z3d_cudnn_tensor tensors[TENSORS];
    describe(shape, tensors);
    *out = (z3d_cudnn_plan){.cudnn = cudnn};
    if (!shape->backward) {
        ADD(out, tensors, forward);
    } else {
        ADD(out, tensors, backward);
        if (shape->deterministic)
            ADD(out, tensors, deterministic_end);
        else
            ADD(out, tensors, atomic_end);
    }
    z3d_status status = z3d_cudnn_make_plan(out, shape->deterministic);
    if (status == Z3D_OK) return Z3D_OK;
    return z3d_error_context(
        status, "attention %s of %s, batch %lld, %lld tokens, %lld heads of %lld",
        shape->backward ? "backward" : "forward", z3d_dtype_name((z3d_dtype)shape->dtype),
        (long long)shape->batch, (long long)shape->seq, (long long)shape->heads,
        (long long)shape->head_dim);
}

/* The largest divisor of n that is at most `most`, or 1. */
static int64_t divisor(int64_t n, int64_t most) {
    int64_t d = most < n ? most : n;
    while (d > 1 && n % d != 0) d--;
    return d > 1 ? d : 1;
}

z3d_attention_shape z3d_attention_piece(const z3d_attention_shape *shape) {
    const int64_t heads = ((int64_t)1 << 30) / (2 * shape->seq * shape->seq); /* that fit */
    z3d_attention_shape piece = *shape;
    if (!shape->backward || !shape->deterministic || shape->seq % 4 != 0)
        return piece; /* rows of fp32 are aligned */
    piece.batch = divisor(shape->batch, heads / shape->heads);
    piece.heads = divisor(shape->heads, heads);
    return piece;
}

/* ---- plans ---- */

/* Both directions of one shape, or neither. */
typedef struct kept_plans {
    z3d_attention_shape shape[2]; /* of a piece; forward, which has one, backward */
    z3d_cudnn_plan plan[2];
    struct kept_plans *next;
} kept_plans;

struct z3d_cuda_attention {
    z3d_cudnn cudnn;
    kept_plans *plans;
    bool required, deterministic;
    size_t version; /* 91900: 9.19.0 */
};

static void drop(kept_plans *plans) {
    z3d_cudnn_drop_plan(&plans->plan[0]);
    z3d_cudnn_drop_plan(&plans->plan[1]);
    free(plans);
}

/* A model has one or two shapes. What cuDNN has no engines for is remembered too: the last plan is
 * not there. */
static z3d_status get_plans(struct z3d_cuda_attention *a, z3d_attention_shape shape,
                            kept_plans **out) {
    z3d_status status = Z3D_OK;
    for (*out = a->plans; *out; *out = (*out)->next)
        if (memcmp(&(*out)->shape[0], &shape, sizeof shape) == 0) return Z3D_OK;
    kept_plans *made;
    Z3D_TRY(z3d_new(1, sizeof *made, "plans of attention", &made));
    for (int i = 0; i < 2 && status == Z3D_OK; i++) {
        shape.backward = i;
        made->shape[i] = z3d_attention_piece(&shape);
        status = z3d_attention_make_plan(&a->cudnn, &made->shape[i], &made->plan[i]);
    }
    if (status != Z3D_OK && (status != Z3D_ERR_UNSUPPORTED || a->required)) {
        drop(made);
        return status;
    }
    made->next = a->plans;
    a->plans = made;
    *out = made;
    return Z3D_OK;
}

/* Before 9.16 lengths are multiples of 128; the backward of 9.10.0 and 9.10.1 is wrong (so says
 * cuDNN's own front end). */
static bool knows(const struct z3d_cuda_attention *a, const z3d_attention_forward *k) {
    const int64_t stride = 3 * k->heads * k->head_dim; /* the graphs know qkv in one matrix only */
    return k->log_sum_exp && !(k->window > 0) && k->kv_heads == k->heads && k->q_stride == stride &&
           k->kv_stride == stride && k->dtype != Z3D_F32 && !(k->dropout.p > 0) &&
           k->batch * k->seq * k->heads > 0 && (k->seq % 128 == 0 || a->version >= 91600) &&
           a->version != 91000 && a->version != 91001;
}

/* *out: NULL where own kernels do it, as all of generation, whatever training.attention says. The
 * same answer forward and backward. */
static z3d_status find_plans(struct z3d_cuda_attention *a, const z3d_attention_forward *k,
                             kept_plans **out) {
    *out = NULL;
    if (k->starts) return Z3D_OK;
    if (!knows(a, k)) {
        if (!a->required) return Z3D_OK;
        return Z3D_ERROR(
            Z3D_ERR_UNSUPPORTED,
            "training.attention cudnn: attention of %s over %lld tokens, %lld heads and "
            "%lld of keys, window %lld, dropout %g, is none of its; leave "
            "training.attention at auto",
            z3d_dtype_name(k->dtype), (long long)k->seq, (long long)k->heads,
            (long long)k->kv_heads, (long long)k->window, (double)k->dropout.p);
    }
    Z3D_TRY(get_plans(a,
                      (z3d_attention_shape){.batch = k->batch,
                                            .seq = k->seq,
                                            .heads = k->heads,
                                            .head_dim = k->head_dim,
                                            .dtype = k->dtype,
                                            .row_heads = k->heads,
                                            .deterministic = a->deterministic},
                      out));
    if (!(*out)->plan[1].plan) *out = NULL;
    return Z3D_OK;
}

/* ---- running ---- */

static const void *behind(const void *pointer, int64_t bytes) {
    return (const char *)pointer + bytes;
}

/* Where the tensors of the piece are that begins at (sample, head); b: NULL, or backward's. */
static void place(const z3d_attention_forward *f, const z3d_attention_backward *b, int64_t sample,
                  int64_t head, const void *at[TENSORS]) {
    const int64_t size = (int64_t)z3d_dtype_size(f->dtype), row = sample * f->seq;
    const int64_t packed = (row * f->q_stride + head * f->head_dim) * size;
    const int64_t plain = (row * f->heads + head) * f->head_dim * size;
    const int64_t rows = (sample * f->heads + head) * f->seq * (int64_t)sizeof(float);
    at[Q] = behind(f->q, packed);
    at[K_T] = behind(f->k, packed);
    at[V] = at[V_T] = behind(f->v, packed);
    at[O] = behind(f->out, plain);
    at[STATISTICS] = behind(f->log_sum_exp, rows);
    if (!b) return;
    at[D_O] = behind(b->dout, plain);
    at[D_Q] = behind(b->dq, packed);
    at[D_K] = behind(b->dk, packed);
    at[D_V] = behind(b->dv, packed);
}

/* As the graphs say: cuDNN's operands, at 16 bytes. */
static bool are_aligned(const void *const at[TENSORS]) {
    uintptr_t bits = 0;
    for (int i = 0; i < TENSORS; i++) bits |= (uintptr_t)at[i];
    return bits % 16 == 0;
}

static z3d_status run_piece(z3d_cuda *cuda, const z3d_attention_shape *s, z3d_cudnn_plan *plan,
                            const void *at[TENSORS]) {
    const int64_t rows = s->batch * s->row_heads * s->seq * (int64_t)sizeof(float);
    const int64_t sums = s->backward ? z3d_round_up(rows, 256) : 0;
    const int64_t dq = s->backward && !s->deterministic ? z3d_round_up(rows * s->head_dim, 256) : 0;
    /* What lies above the diagonal; older engines want a number. */
    const float masked = cuda->attention->version < 91000 ? -FLT_MAX : -INFINITY;
    const float scale = 1 / sqrtf((float)s->head_dim), one = 1;
    Z3D_TRY(z3d_cuda_reserve(cuda, sums + dq + plan->workspace_bytes));
    char *scratch = cuda->lane.scratch;
    if (dq > 0) Z3D_CUDA_TRY(cudaMemsetAsync(scratch + sums, 0, (size_t)dq, cuda->compute));
    at[SCALE] = &scale;
    at[MINUS_INFINITY] = &masked;
    at[ONE] = &one;
    at[ROW_SUMS] = scratch;
    at[D_Q_SUM] = scratch + sums;
    return z3d_cudnn_run(plan, at, scratch + sums + dq);
}

static z3d_attention_forward forward_of(const z3d_attention_backward *k) {
    return (z3d_attention_forward){.q = k->q,
                                   .k = k->k,
                                   .v = k->v,
                                   .out = (void *)(uintptr_t)k->out,
                                   .log_sum_exp = (float *)(uintptr_t)k->log_sum_exp,
                                   .batch = k->batch,
                                   .seq = k->seq,
                                   .heads = k->heads,
                                   .kv_heads = k->kv_heads,
                                   .head_dim = k->head_dim,
                                   .q_stride = k->q_stride,
                                   .kv_stride = k->kv_stride,
                                   .window = k->window,
                                   .dtype = k->dtype,
                                   .dropout = k->dropout};
}

z3d_status z3d_cuda_attention_launch(z3d_cuda *cuda, const z3d_kernel *kernel, bool *done) {
    const bool back = kernel->kind == Z3D_KERNEL_attention_backward;
    *done = false;
    if (!cuda->attention || (!back && kernel->kind != Z3D_KERNEL_attention_forward)) return Z3D_OK;
    const z3d_attention_backward *b = back ? &kernel->as.attention_backward : NULL;
    const z3d_attention_forward f = back ? forward_of(b) : kernel->as.attention_forward;
    kept_plans *plans = NULL;
    const void *at[TENSORS] = {NULL};
    Z3D_TRY(find_plans(cuda->attention, &f, &plans));
    if (!plans) return Z3D_OK;
    place(&f, b, 0, 0, at);
    *done = are_aligned(at);
    for (int64_t sample = 0; *done && sample < f.batch; sample += plans->shape[back].batch)
        for (int64_t head = 0; head < f.heads; head += plans->shape[back].heads) {
            place(&f, b, sample, head, at);
            Z3D_TRY(run_piece(cuda, &plans->shape[back], &plans->plan[back], at));
        }
    return Z3D_OK;
}

/* ---- making ---- */

void z3d_cuda_attention_destroy(struct z3d_cuda_attention *a) {
    if (!a) return;
    while (a->plans) {
        kept_plans *first = a->plans;
        a->plans = first->next;
        drop(first);
    }
    if (a->cudnn.handle) a->cudnn.cudnnDestroy(a->cudnn.handle);
    free(a);
}

static z3d_status begin(struct z3d_cuda_attention *a, cudaStream_t stream) {
    z3d_cudnn *cudnn = &a->cudnn;
    Z3D_TRY(z3d_cudnn_load(cudnn));
    Z3D_TRY(z3d_cudnn_check(cudnn, cudnn->cudnnCreate(&cudnn->handle), "cudnnCreate"));
    return z3d_cudnn_check(cudnn, cudnn->cudnnSetStream(cudnn->handle, stream), "cudnnSetStream");
}

z3d_status z3d_cuda_attention_create(z3d_cuda *cuda, bool required, bool deterministic) {
    struct z3d_cuda_attention *a;
    Z3D_TRY(z3d_new(1, sizeof *a, "attention by cuDNN", &a));
    a->required = required;
    a->deterministic = deterministic;
    z3d_status status = begin(a, cuda->compute);
    if (status != Z3D_OK) {
        z3d_cuda_attention_destroy(a);
        return required ? status : Z3D_OK;
    }
    a->version = a->cudnn.cudnnGetVersion();
    snprintf(cuda->attention_by, sizeof cuda->attention_by, "cuDNN %zu.%zu.%zu", a->version / 10000,
             a->version / 100 % 100, a->version % 100);
    cuda->attention = a;
    return Z3D_OK;
}

#else /* a toolkit without cuDNN: own kernels only */

z3d_status z3d_cuda_attention_create(z3d_cuda *cuda, bool required, bool deterministic) {
    (void)cuda, (void)deterministic;
    if (!required) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                     "training.attention cudnn: the plugin was built without cuDNN (no cudnn.h); "
                     "leave training.attention at auto");
}

void z3d_cuda_attention_destroy(struct z3d_cuda_attention *attention) {
    (void)attention;
}

z3d_status z3d_cuda_attention_launch(z3d_cuda *cuda, const z3d_kernel *kernel, bool *done) {
    (void)cuda, (void)kernel;
    *done = false;
    return Z3D_OK;
}

#endif
