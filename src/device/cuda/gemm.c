/* Matrix products by cuBLASLt. It has only column-major matrices. Our row-major C = op(A) op(B) is
 * its C^T = op(B)^T op(A)^T, with every stored matrix read as its own transpose. So A and B are
 * swapped and the flags stay. A bias of C's columns becomes one of its rows, as its epilogue
 * expects.
 *
 * The heuristic's choice depends on alignment, and another algorithm gives other bits. A buffer's
 * address must not decide. So we state an alignment of at most 16 bytes; it depends on offsets
 * within a parameter group, which are equal in every ZeRO stage.
 *
 * An operation after a product (a residual, gelu, its gradient) is an epilogue of the same launch
 * if the library has one for the shape; otherwise separate kernels follow (interface/epilogue.h). A
 * bias gradient is always a separate kernel: with the library's epilogue three of four products
 * took longer (docs/results/gpu-h100.md).
 *
 * The heuristic's first answer that runs is taken, unless the run chooses another
 * (z3d_device_choose_gemm). */
#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/device/cuda/cuda.h"
#include "src/device/interface/epilogue.h"

enum { WORKSPACE_BYTES = 32 << 20, MOST_ALIGNED = 16, MOST_ALGORITHMS = 8 };

/* The properties that decide a plan: compared as bytes, and the numbers of a z3d_gemm_choice. */
typedef struct shape {
    int64_t m, n, k, lda, ldb, ldc, transpose_a, transpose_b, accumulate, epilogue, dtype, c_dtype;
    int64_t align_a, align_b, align_c, align_d, align_bias, align_aux; /* 0: no such operand */
} shape;
_Static_assert(sizeof(shape) == Z3D_GEMM_NUMBERS * sizeof(int64_t), "a choice has its numbers");

/* The library's D (the result), bias, and auxiliary matrix (gelu's input). */
typedef struct results {
    void *d;
    const void *bias, *aux;
} results;

typedef struct plan {
    shape shape;
    cublasLtMatmulDesc_t operation; /* NULL: only `chosen` is known so far */
    cublasLtMatrixLayout_t first, second, result;
    /* The heuristic's answers, the best first. If `chosen` refuses to run, the next one is chosen.
     * chosen == algorithms: there is no such product (`code` says why), or separate kernels were
     * chosen. */
    cublasLtMatmulAlgo_t algorithm[MOST_ALGORITHMS];
    int algorithms, chosen;
    cublasStatus_t code;
    struct plan *next;
} plan;

struct z3d_cuda_gemms {
    cublasLtHandle_t handle;
    void *workspace;
    bool tf32;
    plan *plans;
};

static z3d_status check(cublasStatus_t code, const char *call) {
    if (code == CUBLAS_STATUS_SUCCESS) return Z3D_OK;
    return Z3D_ERROR(code == CUBLAS_STATUS_ALLOC_FAILED ? Z3D_ERR_MEMORY : Z3D_ERR_DEVICE,
                     "cuda device: %.*s: %s", (int)strcspn(call, "("), call,
                     cublasLtGetStatusName(code));
}
#define LT_TRY(call) Z3D_TRY(check((call), #call))
/* Sets an attribute of a MatmulDesc or MatmulPreference. */
#define SET(of, type, name, value)                                                                 \
    LT_TRY(cublasLt##type##SetAttribute(of, CUBLASLT_MATMUL_##name, &(value), sizeof(value)))

static cudaDataType_t type_of(int64_t dtype) {
    return dtype == Z3D_F32 ? CUDA_R_32F : dtype == Z3D_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

/* ---- plans ---- */

static void drop_plan(plan *p) {
    if (p->operation) cublasLtMatmulDescDestroy(p->operation);
    if (p->first) cublasLtMatrixLayoutDestroy(p->first);
    if (p->second) cublasLtMatrixLayoutDestroy(p->second);
    if (p->result) cublasLtMatrixLayoutDestroy(p->result);
    *p = (plan){.shape = p->shape, .chosen = p->chosen, .next = p->next};
}

/* A matrix stored as `rows` rows of `cols` elements, `ld` apart. */
static z3d_status describe_matrix(cublasLtMatrixLayout_t *out, int64_t dtype, int64_t rows,
                                  int64_t cols, int64_t ld) {
    LT_TRY(cublasLtMatrixLayoutCreate(out, type_of(dtype), (uint64_t)cols, (uint64_t)rows, ld));
    return Z3D_OK;
}

static z3d_status describe_product(const struct z3d_cuda_gemms *gemms, plan *p) {
    const shape *s = &p->shape;
    bool fast = gemms->tf32 && s->dtype == Z3D_F32;
    LT_TRY(cublasLtMatmulDescCreate(
        &p->operation, fast ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const int32_t transpose_first = s->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t transpose_second = s->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t epilogue = (int32_t)s->epilogue;
    const int32_t bias = (int32_t)type_of(s->dtype);
    SET(p->operation, MatmulDesc, DESC_TRANSA, transpose_first);
    SET(p->operation, MatmulDesc, DESC_TRANSB, transpose_second);
    SET(p->operation, MatmulDesc, DESC_EPILOGUE, epilogue);
    if (s->align_bias) SET(p->operation, MatmulDesc, DESC_BIAS_DATA_TYPE, bias);
    if (s->align_aux) SET(p->operation, MatmulDesc, DESC_EPILOGUE_AUX_LD, s->ldc);
    Z3D_TRY(describe_matrix(&p->first, s->dtype, s->transpose_b ? s->n : s->k,
                            s->transpose_b ? s->k : s->n, s->ldb));
    Z3D_TRY(describe_matrix(&p->second, s->dtype, s->transpose_a ? s->k : s->m,
                            s->transpose_a ? s->m : s->k, s->lda));
    return describe_matrix(&p->result, s->c_dtype, s->m, s->n, s->ldc);
}

/* Pointers are part of the description; the choice of an algorithm uses only their alignment. */
static z3d_status set_pointers(const plan *p, const void *bias, const void *aux) {
    if (bias) SET(p->operation, MatmulDesc, DESC_BIAS_POINTER, bias);
    if (aux) SET(p->operation, MatmulDesc, DESC_EPILOGUE_AUX_POINTER, aux);
    return Z3D_OK;
}

static z3d_status set_preference(cublasLtMatmulPreference_t preference, const shape *s) {
    /* Sums of parts in C's type would round twice; the in-place scheme may add in any order. */
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    size_t workspace = WORKSPACE_BYTES;
    uint32_t first = (uint32_t)s->align_b, second = (uint32_t)s->align_a;
    uint32_t added = (uint32_t)s->align_c, result = (uint32_t)s->align_d;
    SET(preference, MatmulPreference, PREF_MAX_WORKSPACE_BYTES, workspace);
    SET(preference, MatmulPreference, PREF_REDUCTION_SCHEME_MASK, reduction);
    SET(preference, MatmulPreference, PREF_MIN_ALIGNMENT_A_BYTES, first);
    SET(preference, MatmulPreference, PREF_MIN_ALIGNMENT_B_BYTES, second);
    SET(preference, MatmulPreference, PREF_MIN_ALIGNMENT_C_BYTES, added);
    SET(preference, MatmulPreference, PREF_MIN_ALIGNMENT_D_BYTES, result);
    return Z3D_OK;
}

static z3d_status choose_algorithm(const struct z3d_cuda_gemms *gemms, plan *p) {
    const shape *s = &p->shape;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t answer[MOST_ALGORITHMS] = {0};
    int answers = 0;
    LT_TRY(cublasLtMatmulPreferenceCreate(&preference));
    z3d_status status = set_preference(preference, s);
    if (status == Z3D_OK)
        status = set_pointers(p, (const void *)(uintptr_t)s->align_bias,
                              (const void *)(uintptr_t)s->align_aux);
    if (status == Z3D_OK)
        p->code = cublasLtMatmulAlgoGetHeuristic(gemms->handle, p->operation, p->first, p->second,
                                                 p->result, p->result, preference, MOST_ALGORITHMS,
                                                 answer, &answers);
    if (p->code == CUBLAS_STATUS_SUCCESS) p->code = CUBLAS_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < answers; i++)
        if (answer[i].state == CUBLAS_STATUS_SUCCESS)
            p->algorithm[p->algorithms++] = answer[i].algo;
    cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

/* A model has a few dozen shapes; a search through all of them costs less than a launch. */
static z3d_status find_plan(struct z3d_cuda_gemms *gemms, const shape *s, plan **out) {
    for (*out = gemms->plans; *out; *out = (*out)->next)
        if (memcmp(&(*out)->shape, s, sizeof *s) == 0) return Z3D_OK;
    Z3D_TRY(z3d_new(1, sizeof **out, "a product's plan", out));
    **out = (plan){.shape = *s, .next = gemms->plans};
    gemms->plans = *out;
    return Z3D_OK;
}

static z3d_status check_choice(const plan *p) {
    if (p->chosen <= p->algorithms) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_CONFIG,
                     "algorithm %d is chosen for a product of %lld x %lld x %lld, for which "
                     "cuBLASLt has %d",
                     p->chosen, (long long)p->shape.m, (long long)p->shape.n, (long long)p->shape.k,
                     p->algorithms);
}

static z3d_status get_plan(struct z3d_cuda_gemms *gemms, const shape *s, plan **out) {
    Z3D_TRY(find_plan(gemms, s, out));
    if ((*out)->operation) return Z3D_OK;
    z3d_status status = describe_product(gemms, *out);
    if (status == Z3D_OK) status = choose_algorithm(gemms, *out);
    if (status == Z3D_OK) status = check_choice(*out);
    if (status != Z3D_OK) drop_plan(*out);
    return status;
}

/* ---- the kernel ---- */

static int64_t alignment(const void *pointer) {
    uintptr_t bits = (uintptr_t)pointer | MOST_ALIGNED;
    return (int64_t)(bits & (~bits + 1));
}

static int64_t alignment_if_any(const void *pointer) {
    return pointer ? alignment(pointer) : 0;
}

static int64_t epilogue_of(const z3d_gemm *g) {
    if (g->gelu) return g->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    if (g->before_gelu) return CUBLASLT_EPILOGUE_DGELU;
    return g->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

/* With gelu, C is the library's auxiliary matrix. */
static results results_of(const z3d_gemm *g) {
    return (results){
        .d = g->gelu ? g->gelu : g->c, .bias = g->bias, .aux = g->gelu ? g->c : g->before_gelu};
}

/* Whether one epilogue can do the rest: it does one operation on the sums, and cannot accumulate.
 * It moves the auxiliary matrix 16 bytes at a time. The library does not document its gelu's
 * precision; the GPU's fast tanh has 2^-11, enough for 16-bit results but not for fp32, the
 * reference. */
static bool can_fuse(const z3d_gemm *g) {
    int things = (g->gelu != NULL) + (g->before_gelu != NULL) + (g->residual != NULL);
    const void *aux = results_of(g).aux;
    bool exact = g->dtype == Z3D_F32 && (g->gelu || g->before_gelu);
    return g->m > 0 && g->n > 0 && g->k > 0 && things == 1 && !g->bias_gradient && !g->accumulate &&
           !exact && (g->gelu || g->residual || !g->bias) &&
           (!aux || (g->ldc % 8 == 0 && alignment(aux) == MOST_ALIGNED));
}

static shape shape_of(const z3d_gemm *g, const results *r) {
    shape s;
    s.m = g->m, s.n = g->n, s.k = g->k;
    s.lda = g->lda, s.ldb = g->ldb, s.ldc = g->ldc;
    s.transpose_a = g->transpose_a, s.transpose_b = g->transpose_b;
    s.accumulate = g->accumulate, s.epilogue = epilogue_of(g);
    s.dtype = (int64_t)g->dtype, s.c_dtype = (int64_t)g->c_dtype;
    s.align_a = alignment(g->a), s.align_b = alignment(g->b), s.align_d = alignment(r->d);
    s.align_c = g->residual ? alignment(g->residual) : s.align_d;
    s.align_bias = alignment_if_any(r->bias), s.align_aux = alignment_if_any(r->aux);
    return s;
}

/* An empty sum: sets C's rows to 0. */
static z3d_status clear(z3d_cuda *cuda, const z3d_gemm *g) {
    size_t size = z3d_dtype_size(g->c_dtype);
    Z3D_CUDA_TRY(cudaMemset2DAsync(g->c, (size_t)g->ldc * size, 0, (size_t)g->n * size,
                                   (size_t)g->m, cuda->compute));
    return Z3D_OK;
}

/* Codes of an algorithm that does not support the product, before it does anything. The heuristic
 * does not exclude such algorithms. */
static bool refuses(cublasStatus_t code) {
    return code == CUBLAS_STATUS_NOT_SUPPORTED || code == CUBLAS_STATUS_INVALID_VALUE ||
           code == CUBLAS_STATUS_ARCH_MISMATCH;
}

/* *code: not SUCCESS if the library has no such product. */
static z3d_status multiply(z3d_cuda *cuda, const z3d_gemm *g, cublasStatus_t *code) {
    struct z3d_cuda_gemms *gemms = cuda->gemms;
    const results r = results_of(g);
    const shape s = shape_of(g, &r);
    const float one = 1, beta = g->accumulate || g->residual ? 1 : 0;
    const void *added = g->residual ? g->residual : r.d;
    plan *p = NULL;
    Z3D_TRY(get_plan(gemms, &s, &p));
    Z3D_TRY(set_pointers(p, r.bias, r.aux));
    for (; p->chosen < p->algorithms; p->chosen++) {
        *code = cublasLtMatmul(gemms->handle, p->operation, &one, g->b, p->first, g->a, p->second,
                               &beta, added, p->result, r.d, p->result, &p->algorithm[p->chosen],
                               gemms->workspace, WORKSPACE_BYTES, cuda->compute);
        if (!refuses(*code)) return check(*code, "cublasLtMatmul");
        p->code = *code;
    }
    *code = p->code;
    return Z3D_OK;
}

static z3d_status multiply_plain(z3d_cuda *cuda, const z3d_gemm *g) {
    cublasStatus_t code;
    if (g->m == 0 || g->n == 0) return Z3D_OK;
    if (g->k == 0 && !g->bias) return g->accumulate ? Z3D_OK : clear(cuda, g);
    Z3D_REQUIRE(g->k > 0, "kernel gemm: a bias and a sum over nothing");
    Z3D_TRY(multiply(cuda, g, &code));
    if (code == CUBLAS_STATUS_SUCCESS) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                     "cuda device: cuBLASLt has no product of %lld x %lld x %lld, %s to %s (%s)",
                     (long long)g->m, (long long)g->n, (long long)g->k, z3d_dtype_name(g->dtype),
                     z3d_dtype_name(g->c_dtype), cublasLtGetStatusName(code));
}

z3d_status z3d_cuda_gemm(const z3d_cuda_lane *lane, const z3d_gemm *g) {
    z3d_cuda *cuda = (z3d_cuda *)lane; /* the lane is its first member */
    z3d_kernel part[Z3D_GEMM_PARTS];
    cublasStatus_t code = CUBLAS_STATUS_NOT_SUPPORTED;
    if (z3d_gemm_is_plain(g)) return multiply_plain(cuda, g);
    if (can_fuse(g)) Z3D_TRY(multiply(cuda, g, &code));
    if (code == CUBLAS_STATUS_SUCCESS) return Z3D_OK;
    for (int i = 0, parts = z3d_gemm_parts(g, part); i < parts; i++)
        Z3D_TRY(z3d_cuda_launch(cuda, &part[i]));
    return Z3D_OK;
}

/* ---- choices other than the heuristic's ---- */

z3d_status z3d_cuda_gemm_machine(void *self, char *out, size_t size) {
    const z3d_cuda *cuda = self;
    struct cudaDeviceProp properties;
    Z3D_CUDA_TRY(cudaGetDeviceProperties(&properties, cuda->gpu));
    snprintf(out, size, "%.100s, cuBLASLt %zu%s", properties.name, cublasLtGetVersion(),
             cuda->gemms->tf32 ? ", TF32" : "");
    return Z3D_OK;
}

z3d_status z3d_cuda_gemm_choice(void *self, const z3d_gemm *g, z3d_gemm_choice *out) {
    z3d_cuda *cuda = self;
    plan *p;
    *out = (z3d_gemm_choice){.algorithms = 0};
    if (g->m == 0 || g->n == 0 || g->k == 0 || !(z3d_gemm_is_plain(g) || can_fuse(g)))
        return Z3D_OK;
    const results r = results_of(g);
    const shape s = shape_of(g, &r);
    Z3D_TRY(get_plan(cuda->gemms, &s, &p));
    memcpy(out->number, &s, sizeof s);
    out->algorithms = p->algorithms;
    out->chosen = p->chosen;
    return Z3D_OK;
}

z3d_status z3d_cuda_gemm_choose(void *self, const z3d_gemm_choice *choice) {
    z3d_cuda *cuda = self;
    shape s;
    plan *p;
    memcpy(&s, choice->number, sizeof s);
    Z3D_TRY(find_plan(cuda->gemms, &s, &p));
    p->chosen = choice->chosen;
    return p->operation ? check_choice(p) : Z3D_OK;
}

/* ---- making ---- */

void z3d_cuda_gemms_destroy(struct z3d_cuda_gemms *gemms) {
    if (!gemms) return;
    for (plan *p = gemms->plans, *next; p; p = next) {
        next = p->next;
        drop_plan(p);
        free(p);
    }
    if (gemms->workspace) cudaFree(gemms->workspace);
    if (gemms->handle) cublasLtDestroy(gemms->handle);
    free(gemms);
}

z3d_status z3d_cuda_gemms_create(bool tf32, struct z3d_cuda_gemms **out) {
    struct z3d_cuda_gemms *gemms;
    *out = NULL;
    Z3D_TRY(z3d_new(1, sizeof *gemms, "matrix products", &gemms));
    gemms->tf32 = tf32;
    z3d_status status = check(cublasLtCreate(&gemms->handle), "cublasLtCreate");
    if (status == Z3D_OK)
        status = z3d_cuda_check(cudaMalloc(&gemms->workspace, WORKSPACE_BYTES), "cudaMalloc");
    if (status != Z3D_OK) {
        z3d_cuda_gemms_destroy(gemms);
        return status;
    }
    *out = gemms;
    return Z3D_OK;
}
