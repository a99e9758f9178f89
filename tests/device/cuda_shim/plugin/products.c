/* The shim's cuBLASLt: D = epilogue(alpha op(A) op(B) + beta C (+ bias)), summed in double, rounded
 * once. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cublasLt.h"
#include "shim.h"

struct cuda_shim_blas {
    int alive;
};

struct cuda_shim_product {
    int32_t transpose_a, transpose_b, epilogue, bias_type;
    void *bias, *aux;
    int64_t aux_ld;
};

struct cuda_shim_matrix {
    cudaDataType_t type;
    int64_t rows, cols, ld;
};

/* The alignments that pointers were promised to have, by A, B, C, D. */
struct cuda_shim_preference {
    uint32_t alignment[4];
};

/* ZERO3D_SHIM_GEMM in the environment: "slow N" or "refuse N": algorithm N; "slow 0": all with more
 * than a bias behind the product; "newer 1": the library is of another version. */
static bool is_told(const char *what, uint64_t number) {
    const char *told = getenv("ZERO3D_SHIM_GEMM");
    const size_t length = strlen(what);
    return told && strncmp(told, what, length) == 0 && strtoul(told + length, NULL, 10) == number;
}

size_t cublasLtGetVersion(void) {
    return is_told("newer", 1) ? 130001 : 130000;
}

const char *cublasLtGetStatusName(cublasStatus_t status) {
    return status == CUBLAS_STATUS_NOT_SUPPORTED      ? "CUBLAS_STATUS_NOT_SUPPORTED"
           : status == CUBLAS_STATUS_EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED"
                                                      : "CUBLAS_STATUS_INVALID_VALUE";
}

static cublasStatus_t make(void *out, size_t bytes) {
    void *made = calloc(1, bytes);
    memcpy(out, &made, sizeof made);
    return made ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

static cublasStatus_t drop(void *self) {
    free(self);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out) {
    return make(out, sizeof **out);
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    return drop(handle);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    if (scale != CUDA_R_32F ||
        (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_FAST_TF32))
        return CUBLAS_STATUS_INVALID_VALUE;
    return make(out, sizeof **out);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
    return drop(product);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, int attribute,
                                              const void *value, size_t bytes) {
    void *to = attribute == CUBLASLT_MATMUL_DESC_TRANSA           ? (void *)&product->transpose_a
               : attribute == CUBLASLT_MATMUL_DESC_TRANSB         ? (void *)&product->transpose_b
               : attribute == CUBLASLT_MATMUL_DESC_EPILOGUE       ? (void *)&product->epilogue
               : attribute == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE ? (void *)&product->bias_type
               : attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER   ? (void *)&product->bias
               : attribute == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER ? (void *)&product->aux
               : attribute == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD      ? (void *)&product->aux_ld
                                                                        : NULL;
    bool narrow = attribute != CUBLASLT_MATMUL_DESC_BIAS_POINTER &&
                  attribute != CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER &&
                  attribute != CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD;
    size_t wanted = narrow ? 4 : 8;
    if (!to || bytes != wanted) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
    if (ld < (int64_t)rows || rows == 0 || cols == 0) return CUBLAS_STATUS_INVALID_VALUE;
    cublasStatus_t status = make(out, sizeof **out);
    if (status == CUBLAS_STATUS_SUCCESS)
        **out = (struct cuda_shim_matrix){type, (int64_t)rows, (int64_t)cols, ld};
    return status;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matrix) {
    return drop(matrix);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
    cublasStatus_t status = make(out, sizeof **out);
    for (int i = 0; i < 4 && status == CUBLAS_STATUS_SUCCESS; i++) (*out)->alignment[i] = 256;
    return status;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    return drop(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    int attribute, const void *value,
                                                    size_t bytes) {
    int matrix = attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        return bytes == sizeof(size_t) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
    if (bytes != 4) return CUBLAS_STATUS_INVALID_VALUE;
    if (matrix >= 0 && matrix < 4) memcpy(&preference->alignment[matrix], value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

static void inner_sizes(const struct cuda_shim_product *p, const struct cuda_shim_matrix *a,
                        const struct cuda_shim_matrix *b, int64_t *m, int64_t *n, int64_t *ka,
                        int64_t *kb) {
    *m = p->transpose_a ? a->cols : a->rows;
    *ka = p->transpose_a ? a->rows : a->cols;
    *kb = p->transpose_b ? b->cols : b->rows;
    *n = p->transpose_b ? b->rows : b->cols;
}

static bool has_aux(const struct cuda_shim_product *p) {
    return p->epilogue == CUBLASLT_EPILOGUE_GELU_AUX ||
           p->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || p->epilogue == CUBLASLT_EPILOGUE_DGELU;
}

static bool has_bias(const struct cuda_shim_product *p) {
    return p->epilogue == CUBLASLT_EPILOGUE_BIAS || p->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

/* Auxiliary matrices are in blocks of 16 bytes. */
static bool is_there(const struct cuda_shim_product *p) {
    return !has_aux(p) || (uintptr_t)p->aux % 16 == 0;
}

/* ZERO3D_SHIM_TRACE in the environment: which epilogues it was asked for. */
static void trace(const struct cuda_shim_product *p, cublasStatus_t state, int64_t m, int64_t n) {
    if (p->epilogue != CUBLASLT_EPILOGUE_DEFAULT && getenv("ZERO3D_SHIM_TRACE"))
        fprintf(stderr, "cuda shim: epilogue %d of %lld x %lld: %s\n", p->epilogue, (long long)m,
                (long long)n, state == CUBLAS_STATUS_SUCCESS ? "there" : "not there");
}

/* Where an algorithm has its number; 0: it is none. The first one refuses to run, and the last
 * where nothing but a bias is fused; the third adds in another order. */
enum { NUMBER = 6, ALGORITHMS = 4 };

/* The algorithm carries what was promised. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *answers,
                                              int *count) {
    int64_t m, n, ka, kb;
    inner_sizes(product, a, b, &m, &n, &ka, &kb);
    *count = 0;
    if (!handle || wanted < 1 || ka != kb || c->rows != m || c->cols != n || d->rows != m ||
        d->cols != n || c->type != d->type)
        return CUBLAS_STATUS_INVALID_VALUE;
    if ((has_bias(product) && !product->bias) ||
        (has_aux(product) && (!product->aux || product->aux_ld % 8 != 0 || product->aux_ld < m)))
        return CUBLAS_STATUS_INVALID_VALUE;
    /* It answers by a number of algorithms, and each by a state of its own. */
    *count = wanted < ALGORITHMS ? wanted : ALGORITHMS;
    for (int at = 0; at < *count; at++) {
        uint64_t *data = answers[at].algo.data;
        answers[at].state = is_there(product) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
        data[NUMBER] = answers[at].state == CUBLAS_STATUS_SUCCESS ? at + 1 : 0;
        for (int i = 0; i < 4; i++) data[i] = preference->alignment[i];
        data[4] = (uintptr_t)product->bias & -(uintptr_t)product->bias;
        data[5] = (uintptr_t)product->aux & -(uintptr_t)product->aux;
    }
    trace(product, answers[0].state, m, n);
    return CUBLAS_STATUS_SUCCESS;
}

static z3d_dtype type_of(cudaDataType_t type) {
    return type == CUDA_R_32F ? Z3D_F32 : type == CUDA_R_16BF ? Z3D_BF16 : Z3D_F16;
}

static double get(const void *from, cudaDataType_t type, int64_t at) {
    return cuda_shim_get(from, type_of(type), at);
}

static void put(void *to, cudaDataType_t type, int64_t at, double value) {
    cuda_shim_put(to, type_of(type), at, value);
}

/* Element (row, col) of op(X), stored by columns. */
static double element(const void *x, const struct cuda_shim_matrix *layout, int32_t transposed,
                      int64_t row, int64_t col) {
    return get(x, layout->type, transposed ? row * layout->ld + col : col * layout->ld + row);
}

static bool aligned(const cublasLtMatmulAlgo_t *algorithm, const void *const *pointers) {
    if (algorithm->data[NUMBER] == 0) return false;
    for (int i = 0; i < 6; i++)
        if (pointers[i] && (uintptr_t)pointers[i] % (uintptr_t)algorithm->data[i] != 0)
            return false;
    return true;
}

/* Off by 2^-11 of itself, up or down, as the PTX manual allows tanh.approx to be. */
static double rough_tanh(double x) {
    double t = tanh(x) * (1 + ((int64_t)(x * 0x1p20) % 2 ? 0x1p-11 : -0x1p-11));
    return fmin(fmax(t, -1), 1);
}

static double gelu(double x) {
    return 0.5 * x * (1 + rough_tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x) {
    double t = rough_tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

/* What becomes of the sum at (row, col). */
static double finish(const struct cuda_shim_product *p, cudaDataType_t type, int64_t row,
                     int64_t col, double sum) {
    int64_t at = col * p->aux_ld + row;
    if (has_bias(p)) sum += get(p->bias, (cudaDataType_t)p->bias_type, row);
    if (!has_aux(p)) return sum;
    if (p->epilogue == CUBLASLT_EPILOGUE_DGELU) return sum * gelu_slope(get(p->aux, type, at));
    put(p->aux, type, at, sum);
    return gelu(sum);
}

/* A product as it was when it was enqueued: descriptions and factors may change behind the call. */
typedef struct task {
    struct cuda_shim_product product;
    struct cuda_shim_matrix a_layout, b_layout, c_layout, d_layout;
    const void *a, *b, *c;
    void *d;
    double alpha, beta;
    int64_t m, n, k;
    bool slow, backwards; /* of other bits: the third, or where over 256 bytes were promised */
    double number[];      /* room for a's rows and for one column of b */
} task;

static double sum_of(const task *t, int64_t row, int64_t col) {
    const double *a = t->number + row * t->k, *b = t->number + t->m * t->k;
    double sum = 0;
    for (int64_t n = 0; n < t->k; n++) {
        int64_t i = t->backwards ? t->k - 1 - n : n;
        sum += a[i] * b[i];
        if (t->backwards) sum = (double)(float)sum;
    }
    sum *= t->alpha;
    if (t->beta == 0) return sum;
    return sum + t->beta * get(t->c, t->c_layout.type, col * t->c_layout.ld + row);
}

static void run_task(void *argument) {
    task *t = argument;
    double *column = t->number + t->m * t->k;
    if (t->slow) cuda_shim_now += 1e-3;
    for (int64_t row = 0; row < t->m; row++)
        for (int64_t i = 0; i < t->k; i++)
            t->number[row * t->k + i] = element(t->a, &t->a_layout, t->product.transpose_a, row, i);
    for (int64_t col = 0; col < t->n; col++) {
        for (int64_t i = 0; i < t->k; i++)
            column[i] = element(t->b, &t->b_layout, t->product.transpose_b, i, col);
        for (int64_t row = 0; row < t->m; row++)
            put(t->d, t->d_layout.type, col * t->d_layout.ld + row,
                finish(&t->product, t->d_layout.type, row, col, sum_of(t, row, col)));
    }
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
    const void *pointers[] = {a, b, c, d, product->bias, product->aux};
    const uint64_t number = algorithm->data[NUMBER];
    const bool fused = has_aux(product);
    if (!handle || !stream || !workspace || workspace_bytes == 0 || !aligned(algorithm, pointers))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (cuda_shim_has_failed())
        return CUBLAS_STATUS_EXECUTION_FAILED; /* it takes that for its own */
    /* Of small products with gelu's gradient, all refuse. */
    if (number == 1 || (number == ALGORITHMS && !fused) || is_told("refuse", number) ||
        (product->epilogue == CUBLASLT_EPILOGUE_DGELU && d_layout->rows <= 64))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    int64_t m, n, k, unused;
    inner_sizes(product, a_layout, b_layout, &m, &n, &k, &unused);
    task *t = malloc(sizeof *t + (size_t)(m * k + k) * sizeof *t->number);
    if (!t) return CUBLAS_STATUS_ALLOC_FAILED;
    *t = (task){.product = *product,
                .a_layout = *a_layout,
                .b_layout = *b_layout,
                .c_layout = *c_layout,
                .d_layout = *d_layout,
                .a = a,
                .b = b,
                .c = c,
                .d = d,
                .alpha = (double)*(const float *)alpha,
                .beta = (double)*(const float *)beta,
                .m = m,
                .n = n,
                .k = k,
                .backwards = number == 3,
                .slow = is_told("slow", number) || (is_told("slow", 0) && fused)};
    for (int i = 0; i < 4; i++) t->backwards |= algorithm->data[i] > 256;
    return cuda_shim_enqueue(stream, (cuda_shim_work){run_task, free, t}) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_INVALID_VALUE;
}
