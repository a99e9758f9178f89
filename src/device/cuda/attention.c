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

enum {
    Q = 1,
    K,
    V,
    O,
    STATISTICS,
    SCALE,
    MINUS_INFINITY,
    ONE,
    D_O,
    D_Q,
    D_K,
    D_V,
    ROW_SUMS,
    D_Q_SUM
};

typedef cudnnBackendDescriptor_t tensor;

/* ---- graphs ---- */

/* What both directions are made of. */
typedef struct builder {
    z3d_cudnn_graph *graph;
    cudnnDataType_t type;
    z3d_cudnn_shape packed, packed_transposed; /* of Q, K, V in qkv: [b,h,s,d] and [b,h,d,s] */
    z3d_cudnn_shape plain;                     /* of O */
    z3d_cudnn_shape scores, scores_transposed; /* [b,h,s,s] */
    z3d_cudnn_shape rows;                      /* [b,h,s,1] */
    z3d_cudnn_shape scalar;
    tensor scale, minus_infinity;
} builder;

static z3d_cudnn_shape swap_last(z3d_cudnn_shape s) {
    int64_t size = s.size[2], stride = s.stride[2];
    s.size[2] = s.size[3], s.stride[2] = s.stride[3];
    s.size[3] = size, s.stride[3] = stride;
    return s;
}

static builder begin(z3d_cudnn_graph *graph, const z3d_attention_shape *s) {
    int64_t b = s->batch, h = s->heads, all = s->row_heads, t = s->seq, d = s->head_dim;
    builder m = {.graph = graph,
                 .type = s->dtype == Z3D_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF,
                 .packed = {{b, h, t, d}, {t * 3 * all * d, d, 3 * all * d, 1}},
                 .plain = {{b, h, t, d}, {t * all * d, d, all * d, 1}},
                 .scores = {{b, h, t, t}, {h * t * t, t * t, t, 1}},
                 .rows = {{b, h, t, 1}, {all * t, t, 1, 1}},
                 .scalar = {{1, 1, 1, 1}, {1, 1, 1, 1}}};
    m.packed_transposed = swap_last(m.packed);
    m.scores_transposed = swap_last(m.scores);
    m.scale = z3d_cudnn_tensor(graph, SCALE, CUDNN_DATA_FLOAT, &m.scalar, true);
    m.minus_infinity = z3d_cudnn_tensor(graph, MINUS_INFINITY, CUDNN_DATA_FLOAT, &m.scalar, true);
    return m;
}

static tensor inside(builder *m, const z3d_cudnn_shape *shape) {
    return z3d_cudnn_virtual(m->graph, CUDNN_DATA_FLOAT, shape);
}

/* A new tensor = mode(x, b), in fp32. */
static tensor apply(builder *m, cudnnPointwiseMode_t mode, tensor x, tensor b,
                    const z3d_cudnn_shape *shape) {
    tensor y = inside(m, shape);
    z3d_cudnn_pointwise(m->graph, mode, CUDNN_DATA_FLOAT, -1, x, b, NULL, y);
    return y;
}

static tensor multiply(builder *m, tensor a, tensor b, const z3d_cudnn_shape *shape) {
    tensor c = inside(m, shape);
    z3d_cudnn_matmul(m->graph, a, b, c);
    return c;
}

/* What lies above the diagonal becomes minus infinity. */
static tensor mask(builder *m, tensor scores) {
    tensor row = z3d_cudnn_virtual(m->graph, CUDNN_DATA_INT32, &m->scores);
    tensor column = z3d_cudnn_virtual(m->graph, CUDNN_DATA_INT32, &m->scores);
    tensor seen = z3d_cudnn_virtual(m->graph, CUDNN_DATA_BOOLEAN, &m->scores);
    tensor masked = inside(m, &m->scores);
    z3d_cudnn_pointwise(m->graph, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, 2, scores, NULL,
                        NULL, row);
    z3d_cudnn_pointwise(m->graph, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, 3, scores, NULL,
                        NULL, column);
    z3d_cudnn_pointwise(m->graph, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, -1, row, column, NULL,
                        seen);
    z3d_cudnn_pointwise(m->graph, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1, scores,
                        m->minus_infinity, seen, masked);
    return masked;
}

static tensor reduce(builder *m, cudnnReduceTensorOp_t op, tensor x) {
    tensor y = inside(m, &m->rows);
    z3d_cudnn_reduce(m->graph, op, x, y);
    return y;
}

static void build_forward(z3d_cudnn_graph *graph, const z3d_attention_shape *s) {
    builder m = begin(graph, s);
    tensor q = z3d_cudnn_tensor(graph, Q, m.type, &m.packed, false);
    tensor kt = z3d_cudnn_tensor(graph, K, m.type, &m.packed_transposed, false);
    tensor v = z3d_cudnn_tensor(graph, V, m.type, &m.packed, false);
    tensor o = z3d_cudnn_tensor(graph, O, m.type, &m.plain, false);
    tensor statistics = z3d_cudnn_tensor(graph, STATISTICS, CUDNN_DATA_FLOAT, &m.rows, false);
    tensor scores = multiply(&m, q, kt, &m.scores);
    scores = apply(&m, CUDNN_POINTWISE_MUL, scores, m.scale, &m.scores);
    scores = mask(&m, scores);
    tensor most = reduce(&m, CUDNN_REDUCE_TENSOR_MAX, scores);
    tensor e = apply(&m, CUDNN_POINTWISE_SUB, scores, most, &m.scores);
    e = apply(&m, CUDNN_POINTWISE_EXP, e, NULL, &m.scores);
    tensor sum = reduce(&m, CUDNN_REDUCE_TENSOR_ADD, e);
    tensor log_sum = apply(&m, CUDNN_POINTWISE_LOG, sum, NULL, &m.rows);
    z3d_cudnn_pointwise(graph, CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, -1, most, log_sum, NULL,
                        statistics);
    tensor p = z3d_cudnn_virtual(graph, m.type, &m.scores);
    z3d_cudnn_pointwise(graph, CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT, -1, e, sum, NULL, p);
    z3d_cudnn_matmul(graph, p, v, o);
}

/* x's transpose, narrowed to the model's type: an operand of a product. */
static tensor transpose(builder *m, tensor x) {
    tensor y = z3d_cudnn_virtual(m->graph, m->type, &m->scores_transposed);
    z3d_cudnn_reshape(m->graph, x, y);
    return y;
}

/* P from the kept statistics. */
static tensor probabilities(builder *m, tensor q, tensor kt) {
    tensor statistics = z3d_cudnn_tensor(m->graph, STATISTICS, CUDNN_DATA_FLOAT, &m->rows, false);
    tensor scores = multiply(m, q, kt, &m->scores);
    scores = apply(m, CUDNN_POINTWISE_MUL, scores, m->scale, &m->scores);
    scores = apply(m, CUDNN_POINTWISE_SUB, scores, statistics, &m->scores);
    scores = mask(m, scores);
    return apply(m, CUDNN_POINTWISE_EXP, scores, NULL, &m->scores);
}

/* rowsum(dO O), which the engines want to keep in memory. */
static tensor row_sums(builder *m, tensor d_o) {
    tensor o = z3d_cudnn_tensor(m->graph, O, m->type, &m->plain, false);
    tensor one = z3d_cudnn_tensor(m->graph, ONE, CUDNN_DATA_FLOAT, &m->scalar, true);
    tensor sums = z3d_cudnn_tensor(m->graph, ROW_SUMS, CUDNN_DATA_FLOAT, &m->rows, false);
    tensor products = apply(m, CUDNN_POINTWISE_MUL, d_o, o, &m->plain);
    tensor sum = reduce(m, CUDNN_REDUCE_TENSOR_ADD, products);
    z3d_cudnn_pointwise(m->graph, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, -1, sum, one, NULL, sums);
    return sums;
}

static void build_backward(z3d_cudnn_graph *graph, const z3d_attention_shape *s) {
    builder m = begin(graph, s);
    tensor q = z3d_cudnn_tensor(graph, Q, m.type, &m.packed, false);
    tensor kt = z3d_cudnn_tensor(graph, K, m.type, &m.packed_transposed, false);
    tensor vt = z3d_cudnn_tensor(graph, V, m.type, &m.packed_transposed, false);
    tensor d_o = z3d_cudnn_tensor(graph, D_O, m.type, &m.plain, false);
    tensor dq = z3d_cudnn_tensor(graph, D_Q, m.type, &m.packed, false);
    tensor dk = z3d_cudnn_tensor(graph, D_K, m.type, &m.packed, false);
    tensor dv = z3d_cudnn_tensor(graph, D_V, m.type, &m.packed, false);
    tensor sums = row_sums(&m, d_o);
    tensor p = probabilities(&m, q, kt);
    z3d_cudnn_matmul(graph, transpose(&m, p), d_o, dv);
    tensor ds = multiply(&m, d_o, vt, &m.scores);
    ds = apply(&m, CUDNN_POINTWISE_SUB, ds, sums, &m.scores);
    ds = apply(&m, CUDNN_POINTWISE_MUL, ds, p, &m.scores);
    ds = apply(&m, CUDNN_POINTWISE_MUL, ds, m.scale, &m.scores);
    z3d_cudnn_matmul(graph, transpose(&m, ds), q, dk);
    tensor k = z3d_cudnn_virtual(graph, m.type, &m.packed);
    z3d_cudnn_reshape(graph, kt, k);
    if (s->deterministic) {
        z3d_cudnn_matmul(graph, ds, k, dq);
        return;
    }
    tensor sum = z3d_cudnn_tensor(
        graph, D_Q_SUM, CUDNN_DATA_FLOAT,
        &(z3d_cudnn_shape){{s->batch, s->heads, s->seq, s->head_dim},
                           {s->heads * s->seq * s->head_dim, s->seq * s->head_dim, s->head_dim, 1}},
        false);
    z3d_cudnn_matmul(graph, ds, k, sum);
    z3d_cudnn_pointwise(graph, CUDNN_POINTWISE_IDENTITY, CUDNN_DATA_FLOAT, -1, sum, NULL, NULL, dq);
}

z3d_status z3d_attention_make_plan(const z3d_cudnn *cudnn, const z3d_attention_shape *shape,
                                   z3d_cudnn_plan *out) {
    *out = (z3d_cudnn_plan){.graph = {.cudnn = cudnn}};
    if (shape->backward)
        build_backward(&out->graph, shape);
    else
        build_forward(&out->graph, shape);
    z3d_status status = z3d_cudnn_make_plan(out, shape->deterministic);
    if (status == Z3D_OK) return Z3D_OK;
    z3d_cudnn_drop_plan(out);
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
    if (!shape->deterministic || shape->seq % 4 != 0) return piece; /* rows of fp32 are aligned */
    piece.batch = divisor(shape->batch, heads / shape->heads);
    piece.heads = divisor(shape->heads, heads);
    return piece;
}

/* ---- plans ---- */

/* Both directions of one shape, or neither. */
typedef struct kept_plans {
    z3d_attention_shape shape, piece; /* forward's, backward's */
    bool usable;
    z3d_cudnn_plan forward, backward;
    struct kept_plans *next;
} kept_plans;

struct z3d_cuda_attention {
    z3d_cudnn cudnn;
    kept_plans *plans;
    bool required, deterministic;
    size_t version; /* 91900: 9.19.0 */
};

static z3d_status make_both(const struct z3d_cuda_attention *a, kept_plans *plans) {
    plans->piece = z3d_attention_piece(&plans->shape);
    plans->piece.backward = true;
    Z3D_TRY(z3d_attention_make_plan(&a->cudnn, &plans->shape, &plans->forward));
    z3d_status status = z3d_attention_make_plan(&a->cudnn, &plans->piece, &plans->backward);
    if (status != Z3D_OK) z3d_cudnn_drop_plan(&plans->forward);
    plans->usable = status == Z3D_OK;
    return status;
}

/* A model has one or two shapes. What cuDNN has no engines for is remembered too. */
static z3d_status get_plans(struct z3d_cuda_attention *a, const z3d_attention_shape *shape,
                            kept_plans **out) {
    for (*out = a->plans; *out; *out = (*out)->next)
        if (memcmp(&(*out)->shape, shape, sizeof *shape) == 0) return Z3D_OK;
    kept_plans *made;
    Z3D_TRY(z3d_new(1, sizeof *made, "plans of attention", &made));
    made->shape = *shape;
    z3d_status status = make_both(a, made);
    if (status != Z3D_OK && (status != Z3D_ERR_UNSUPPORTED || a->required)) {
        free(made);
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
    z3d_attention_shape shape;
    *out = NULL;
    if (!a || k->starts) return Z3D_OK;
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
    memset(&shape, 0, sizeof shape);
    shape.batch = k->batch, shape.seq = k->seq, shape.heads = shape.row_heads = k->heads;
    shape.head_dim = k->head_dim, shape.dtype = (int64_t)k->dtype;
    shape.deterministic = a->deterministic;
    Z3D_TRY(get_plans(a, &shape, out));
    if (!(*out)->usable) *out = NULL;
    return Z3D_OK;
}

/* ---- running ---- */

typedef struct arguments {
    int count;
    int64_t id[16];
    void *pointer[16];
} arguments;

static void give(arguments *to, int64_t id, const void *pointer) {
    to->id[to->count] = id;
    to->pointer[to->count++] = (void *)(uintptr_t)pointer;
}

/* Whether all are, as the graphs say: cuDNN's operands, at 16 bytes. */
static bool are_aligned(const arguments *given) {
    uintptr_t bits = 0;
    for (int i = 0; i < given->count; i++)
        if (given->id[i] != SCALE && given->id[i] != MINUS_INFINITY && given->id[i] != ONE)
            bits |= (uintptr_t)given->pointer[i];
    return bits % 16 == 0;
}

/* What lies above the diagonal; older engines want a number. */
static float least(const struct z3d_cuda_attention *a) {
    return a->version < 91000 ? -FLT_MAX : -INFINITY;
}

z3d_status z3d_cuda_attention_forward_cudnn(z3d_cuda *cuda, const z3d_attention_forward *k,
                                            bool *done) {
    kept_plans *plans = NULL;
    *done = false;
    Z3D_TRY(find_plans(cuda->attention, k, &plans));
    if (!plans) return Z3D_OK;
    float scale = 1 / sqrtf((float)k->head_dim), masked = least(cuda->attention);
    arguments given = {0};
    give(&given, Q, k->q);
    give(&given, K, k->k);
    give(&given, V, k->v);
    give(&given, O, k->out);
    give(&given, STATISTICS, k->log_sum_exp);
    give(&given, SCALE, &scale);
    give(&given, MINUS_INFINITY, &masked);
    if (!are_aligned(&given)) return Z3D_OK;
    *done = true;
    Z3D_TRY(z3d_cuda_reserve(cuda, plans->forward.workspace_bytes));
    return z3d_cudnn_run(&plans->forward, given.count, given.id, given.pointer, cuda->lane.scratch);
}

static const void *behind(const void *pointer, int64_t elements, int64_t size) {
    return (const char *)pointer + elements * size;
}

/* The piece that begins at (sample, head). */
static arguments piece_of(const z3d_attention_backward *k, int64_t sample, int64_t head) {
    const int64_t size = (int64_t)z3d_dtype_size(k->dtype), row = sample * k->seq;
    const int64_t packed = row * k->q_stride + head * k->head_dim;
    const int64_t plain = row * k->heads * k->head_dim + head * k->head_dim;
    arguments given = {0};
    give(&given, Q, behind(k->q, packed, size));
    give(&given, K, behind(k->k, packed, size));
    give(&given, V, behind(k->v, packed, size));
    give(&given, D_Q, behind(k->dq, packed, size));
    give(&given, D_K, behind(k->dk, packed, size));
    give(&given, D_V, behind(k->dv, packed, size));
    give(&given, O, behind(k->out, plain, size));
    give(&given, D_O, behind(k->dout, plain, size));
    give(&given, STATISTICS,
         behind(k->log_sum_exp, (sample * k->heads + head) * k->seq, (int64_t)sizeof(float)));
    return given;
}

static z3d_status run_piece(z3d_cuda *cuda, kept_plans *plans, arguments given) {
    const z3d_attention_shape *s = &plans->piece;
    const int64_t rows = s->batch * s->row_heads * s->seq, size = (int64_t)sizeof(float);
    const int64_t sums = z3d_round_up(rows * size, 256);
    const int64_t dq = s->deterministic ? 0 : z3d_round_up(rows * s->head_dim * size, 256);
    float scale = 1 / sqrtf((float)s->head_dim), masked = least(cuda->attention), one = 1;
    Z3D_TRY(z3d_cuda_reserve(cuda, sums + dq + plans->backward.workspace_bytes));
    char *scratch = cuda->lane.scratch;
    if (dq > 0) Z3D_CUDA_TRY(cudaMemsetAsync(scratch + sums, 0, (size_t)dq, cuda->compute));
    give(&given, SCALE, &scale);
    give(&given, MINUS_INFINITY, &masked);
    give(&given, ONE, &one);
    give(&given, ROW_SUMS, scratch);
    if (dq > 0) give(&given, D_Q_SUM, scratch + sums);
    return z3d_cudnn_run(&plans->backward, given.count, given.id, given.pointer,
                         scratch + sums + dq);
}

z3d_status z3d_cuda_attention_backward_cudnn(z3d_cuda *cuda, const z3d_attention_backward *k,
                                             bool *done) {
    const z3d_attention_forward forward = {.log_sum_exp = (float *)(uintptr_t)k->log_sum_exp,
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
    const arguments whole = piece_of(k, 0, 0);
    kept_plans *plans = NULL;
    Z3D_TRY(find_plans(cuda->attention, &forward, &plans));
    *done = plans && are_aligned(&whole);
    for (int64_t sample = 0; *done && sample < k->batch; sample += plans->piece.batch)
        for (int64_t head = 0; head < k->heads; head += plans->piece.heads)
            Z3D_TRY(run_piece(cuda, plans, piece_of(k, sample, head)));
    return Z3D_OK;
}

/* ---- making ---- */

void z3d_cuda_attention_destroy(struct z3d_cuda_attention *a) {
    if (!a) return;
    while (a->plans) {
        kept_plans *next = a->plans->next;
        if (a->plans->usable) z3d_cudnn_drop_plan(&a->plans->forward);
        if (a->plans->usable) z3d_cudnn_drop_plan(&a->plans->backward);
        free(a->plans);
        a->plans = next;
    }
    if (a->cudnn.handle) a->cudnn.cudnnDestroy(a->cudnn.handle);
    free(a);
}

z3d_status z3d_cuda_attention_create(z3d_cuda *cuda, bool required, bool deterministic,
                                     struct z3d_cuda_attention **out) {
    struct z3d_cuda_attention *a;
    *out = NULL;
    Z3D_TRY(z3d_new(1, sizeof *a, "attention by cuDNN", &a));
    a->required = required;
    a->deterministic = deterministic;
    z3d_status status = z3d_cudnn_load(&a->cudnn);
    if (status != Z3D_OK) {
        free(a);
        return required ? status : Z3D_OK;
    }
    status = z3d_cudnn_check(&a->cudnn, a->cudnn.cudnnCreate(&a->cudnn.handle), "cudnnCreate");
    if (status == Z3D_OK)
        status = z3d_cudnn_check(&a->cudnn, a->cudnn.cudnnSetStream(a->cudnn.handle, cuda->compute),
                                 "cudnnSetStream");
    if (status != Z3D_OK) {
        z3d_cuda_attention_destroy(a);
        return required ? status : Z3D_OK;
    }
    a->version = a->cudnn.cudnnGetVersion();
    snprintf(cuda->attention_by, sizeof cuda->attention_by, "cuDNN %zu.%zu.%zu", a->version / 10000,
             a->version / 100 % 100, a->version % 100);
    *out = a;
    return Z3D_OK;
}

#else /* a toolkit without cuDNN: own kernels only */

z3d_status z3d_cuda_attention_create(z3d_cuda *cuda, bool required, bool deterministic,
                                     struct z3d_cuda_attention **out) {
    (void)cuda, (void)deterministic;
    *out = NULL;
    if (!required) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                     "training.attention cudnn: the plugin was built without cuDNN (no cudnn.h); "
                     "leave training.attention at auto");
}

void z3d_cuda_attention_destroy(struct z3d_cuda_attention *attention) {
    (void)attention;
}

z3d_status z3d_cuda_attention_forward_cudnn(z3d_cuda *cuda, const z3d_attention_forward *kernel,
                                            bool *done) {
    (void)cuda, (void)kernel;
    *done = false;
    return Z3D_OK;
}

z3d_status z3d_cuda_attention_backward_cudnn(z3d_cuda *cuda, const z3d_attention_backward *kernel,
                                             bool *done) {
    (void)cuda, (void)kernel;
    *done = false;
    return Z3D_OK;
}

#endif
