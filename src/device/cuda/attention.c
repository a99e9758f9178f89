/* Causal attention by cuDNN. Plans are kept by shape, and run in pieces. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/strings.h"
#include "src/device/cuda/cuda.h"

#if __has_include(<cudnn.h>) && !defined(Z3D_CUDA_SHIM)
#include "src/device/cuda/attention_plan.h"

/* ---- plans ---- */

/* Plans of one shape, for both directions or for none. */
typedef struct kept_plans {
    z3d_attention_shape shape;
    z3d_attention_plan plan[2]; /* forward, backward */
    struct kept_plans *next;
} kept_plans;

struct z3d_cuda_attention {
    z3d_cudnn cudnn;
    kept_plans *plans;
    bool required, deterministic;
    size_t version; /* 91900: 9.19.0 */
};

static void drop(kept_plans *plans) {
    z3d_attention_drop_plan(&plans->plan[0]);
    z3d_attention_drop_plan(&plans->plan[1]);
    free(plans);
}

/* Finds or makes the plans of a shape; a model has one or two shapes. A shape without engines is
 * kept, too: plan[1].plan is NULL. */
static z3d_status get_plans(struct z3d_cuda_attention *a, z3d_attention_shape shape,
                            kept_plans **out) {
    z3d_status status = Z3D_OK;
    for (*out = a->plans; *out; *out = (*out)->next)
        if (memcmp(&(*out)->shape, &shape, sizeof shape) == 0) return Z3D_OK;
    kept_plans *made;
    Z3D_TRY(z3d_new(1, sizeof *made, "plans of attention", &made));
    made->shape = shape;
    for (int i = 0; i < 2 && status == Z3D_OK; i++) {
        shape.backward = i;
        const z3d_attention_shape piece = z3d_attention_piece(&shape);
        status = z3d_attention_make_plan(&a->cudnn, &piece, &made->plan[i]);
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

/* The graphs need rows that begin at multiples of 16 bytes. */
static bool rows_are_aligned(const z3d_attention *k) {
    const int64_t numbers = 16 / (int64_t)z3d_dtype_size(k->dtype);
    return k->q_stride % numbers == 0 && k->kv_stride % numbers == 0 && k->head_dim % numbers == 0;
}

static z3d_attention_shape shape_of(const struct z3d_cuda_attention *a, const z3d_attention *k) {
    return (z3d_attention_shape){.batch = k->batch,
                                 .seq = k->seq,
                                 .heads = k->heads,
                                 .kv_heads = k->kv_heads,
                                 .head_dim = k->head_dim,
                                 .dtype = k->dtype,
                                 .row_heads = k->heads,
                                 .q_stride = k->q_stride,
                                 .kv_stride = k->kv_stride,
                                 .window = k->window < k->seq ? k->window : 0,
                                 .deterministic = a->deterministic};
}

/* Whether a deterministic backward of a piece keeps at most 4 GiB, outside the memory plan: the
 * scores, and with grouped heads the gradients of all keys and values. */
static bool scores_fit(z3d_attention_shape shape) {
    shape.backward = true;
    const z3d_attention_shape piece = z3d_attention_piece(&shape);
    const double rows = (double)piece.batch * (double)piece.heads * (double)piece.seq;
    const double beside = piece.kv_heads < piece.heads ? 2 * (double)piece.head_dim : 0;
    return !shape.deterministic || 2 * rows * ((double)piece.seq + beside) <= 0x1p32;
}

/* Whether cuDNN has the case. Windows need 9.2; before 9.16 lengths must be multiples of 128; the
 * backward of 9.10.0 and 9.10.1 is wrong, according to cuDNN's own front end. One token is a
 * product of vectors. */
static bool knows(const struct z3d_cuda_attention *a, const z3d_attention *k) {
    const bool window = k->window > 0 && k->window < k->seq;
    return k->log_sum_exp && rows_are_aligned(k) && k->dtype != Z3D_F32 && !(k->dropout.p > 0) &&
           k->batch > 0 && k->seq > 1 && k->heads > 0 && (!window || a->version >= 90200) &&
           (k->seq % 128 == 0 || a->version >= 91600) && a->version != 91000 && a->version != 91001;
}

/* Leaves the case to our kernels; an error if training.attention is cudnn. */
static z3d_status leave(const struct z3d_cuda_attention *a, const z3d_attention *k,
                        const char *why) {
    if (!a->required) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                     "training.attention cudnn: attention of %s over %lld tokens, %lld heads and "
                     "%lld of keys, window %lld, dropout %g, %s; leave training.attention at auto",
                     z3d_dtype_name(k->dtype), (long long)k->seq, (long long)k->heads,
                     (long long)k->kv_heads, (long long)k->window, (double)k->dropout.p, why);
}

/* *out: NULL if our kernels compute it (always in generation). The same for forward and backward.
 */
static z3d_status find_plans(struct z3d_cuda_attention *a, const z3d_attention *k,
                             kept_plans **out) {
    *out = NULL;
    if (k->starts) return Z3D_OK;
    if (k->row_position) return leave(a, k, "in packed documents, is none of its");
    if (!knows(a, k)) return leave(a, k, "is none of its");
    const z3d_attention_shape shape = shape_of(a, k);
    if (!scores_fit(shape))
        return leave(a, k,
                     "would keep more than 4 GiB (with training.deterministic false it would not)");
    Z3D_TRY(get_plans(a, shape, out));
    if (!(*out)->plan[1].plan) *out = NULL;
    return Z3D_OK;
}

/* ---- running ---- */

static void *moved(const void *pointer, int64_t bytes) {
    return (char *)(uintptr_t)pointer + bytes;
}

/* Moves the operands to the piece that begins at (sample, head). */
static z3d_attention piece_of(const z3d_attention *k, bool back, int64_t sample, int64_t head) {
    const int64_t size = (int64_t)z3d_dtype_size(k->dtype), row = sample * k->seq;
    const int64_t of_keys = head / (k->heads / k->kv_heads);
    const int64_t q = (row * k->q_stride + head * k->head_dim) * size;
    const int64_t kv = (row * k->kv_stride + of_keys * k->head_dim) * size;
    const int64_t plain = (row * k->heads + head) * k->head_dim * size;
    z3d_attention piece = *k;
    piece.q = moved(k->q, q);
    piece.k = moved(k->k, kv);
    piece.v = moved(k->v, kv);
    piece.out = moved(k->out, plain);
    piece.log_sum_exp = k->log_sum_exp + (sample * k->heads + head) * k->seq;
    if (!back) return piece;
    piece.dout = moved(k->dout, plain);
    piece.dq = moved(k->dq, q);
    piece.dk = moved(k->dk, kv);
    piece.dv = moved(k->dv, kv);
    return piece;
}

/* The graphs need multiples of 16 bytes. */
static bool are_aligned(const z3d_attention *k, bool back) {
    const void *const all[] = {k->q,    k->k,  k->v,  k->out, k->log_sum_exp,
                               k->dout, k->dq, k->dk, k->dv};
    uintptr_t bits = 0;
    for (size_t i = 0; i < (back ? sizeof all / sizeof *all : 5); i++) bits |= (uintptr_t)all[i];
    return bits % 16 == 0;
}

static z3d_status run_piece(z3d_cuda *cuda, z3d_attention_plan *plan, z3d_attention piece) {
    const z3d_attention_shape *s = &plan->shape;
    const int64_t rows = s->batch * s->row_heads * s->seq * (int64_t)sizeof(float);
    const int64_t sums = s->backward ? z3d_round_up(rows, 256) : 0;
    const int64_t dq = s->backward && !s->deterministic ? z3d_round_up(rows * s->head_dim, 256) : 0;
    Z3D_TRY(z3d_cuda_reserve(cuda, sums + dq + plan->workspace_bytes));
    char *scratch = cuda->lane.scratch;
    if (dq > 0) Z3D_CUDA_TRY(cudaMemsetAsync(scratch + sums, 0, (size_t)dq, cuda->compute));
    return z3d_attention_run(plan, &piece, scratch, scratch + sums, scratch + sums + dq);
}

z3d_status z3d_cuda_attention_launch(z3d_cuda *cuda, const z3d_kernel *kernel, bool *done) {
    const bool back = kernel->kind == Z3D_KERNEL_attention_backward;
    *done = false;
    if (!cuda->attention || (!back && kernel->kind != Z3D_KERNEL_attention_forward)) return Z3D_OK;
    const z3d_attention *k = &kernel->as.attention;
    kept_plans *plans = NULL;
    Z3D_TRY(find_plans(cuda->attention, k, &plans));
    if (!plans) return Z3D_OK;
    z3d_attention_plan *plan = &plans->plan[back];
    *done = are_aligned(k, back);
    for (int64_t sample = 0; *done && sample < k->batch; sample += plan->shape.batch)
        for (int64_t head = 0; head < k->heads; head += plan->shape.heads)
            Z3D_TRY(run_piece(cuda, plan, piece_of(k, back, sample, head)));
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

#else /* a toolkit without cuDNN: only our kernels */

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
