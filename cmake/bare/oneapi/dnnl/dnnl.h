/* oneDNN where there is none: its fp32 product as plain loops, for the bare build (ZERO3D_BARE),
 * whose cpu device is only the reference of small shapes. */
#ifndef ZERO3D_BARE_DNNL_H
#define ZERO3D_BARE_DNNL_H

#include <stdint.h>

typedef enum { dnnl_success } dnnl_status_t;
typedef enum {
    dnnl_cpu_isa_default,
    dnnl_cpu_isa_sse41,
    dnnl_cpu_isa_avx,
    dnnl_cpu_isa_avx2,
    dnnl_cpu_isa_avx2_vnni,
    dnnl_cpu_isa_avx512_core,
    dnnl_cpu_isa_avx512_core_vnni,
    dnnl_cpu_isa_avx512_core_bf16,
    dnnl_cpu_isa_avx512_core_amx
} dnnl_cpu_isa_t;
typedef struct {
    int major, minor, patch;
} dnnl_version_t;

static inline const dnnl_version_t *dnnl_version(void) {
    static const dnnl_version_t none = {0, 0, 0};
    return &none;
}

static inline dnnl_cpu_isa_t dnnl_get_effective_cpu_isa(void) {
    return dnnl_cpu_isa_default;
}

/* Row-major C = beta C + alpha op(A) op(B). */
static inline dnnl_status_t dnnl_sgemm(char ta, char tb, int64_t m, int64_t n, int64_t k,
                                       float alpha, const float *a, int64_t lda, const float *b,
                                       int64_t ldb, float beta, float *c, int64_t ldc) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float sum = 0;
            for (int64_t e = 0; e < k; e++)
                sum += (ta == 'T' ? a[e * lda + i] : a[i * lda + e]) *
                       (tb == 'T' ? b[j * ldb + e] : b[e * ldb + j]);
            c[i * ldc + j] = alpha * sum + (beta != 0 ? beta * c[i * ldc + j] : 0);
        }
    return dnnl_success;
}

#endif
