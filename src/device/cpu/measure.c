/* The method of matrix products: from a table, or measured as the fastest on this CPU. */
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>

#include "src/device/cpu/cpu.h"
#include "src/device/interface/shared.h"

/* oneDNN's bf16 products are fast only if the CPU has instructions for them; else converting the
 * operands to fp32 is faster. Its fp32 products are made for x86 only. docs/results/products.md
 * compares this table with measured choices. */
z3d_gemm_method z3d_gemm_from_table(z3d_dtype dtype) {
    const dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    if (isa < dnnl_cpu_isa_sse41) return Z3D_GEMM_PORTABLE;
    return dtype == Z3D_BF16 && isa >= dnnl_cpu_isa_avx512_core_bf16 ? Z3D_GEMM_MATMUL
                                                                     : Z3D_GEMM_SGEMM;
}

enum { REPETITIONS = 4 };
#define ENOUGH_SECONDS 0.05 /* for one method: a slow one is repeated less often */

/* A method that is this many times slower than the best so far is not measured on the whole
 * product. */
#define HOPELESS 2.0
#define PROBE 96
/* A later method must be this much faster to win, so that noise does not decide between equal
 * ones. */
#define MARGIN 0.95

typedef struct buffers {
    void *a, *b;
    float *c;
    char *scratch;
    int64_t scratch_bytes;
} buffers;

static z3d_kernel product_of(const buffers *with, z3d_dtype dtype, int64_t m, int64_t n,
                             int64_t k) {
    return z3d_measured_product(with->a, with->b, with->c, m, n, k, dtype, Z3D_F32);
}

/* Fastest of a few runs, seconds; the first one, which makes primitives and touches memory, does
 * not count. A method that the library lacks counts as infinitely slow. */
static z3d_status time_method(z3d_cpu *cpu, const z3d_kernel *kernel, z3d_gemm_method method,
                              double *seconds) {
    *seconds = 1e30;
    cpu->gemm[kernel->as.gemm.dtype] = method;
    z3d_status status = z3d_cpu_gemm(cpu, kernel);
    if (status == Z3D_ERR_UNSUPPORTED) return Z3D_OK;
    double total = 0;
    for (int i = 0; i < REPETITIONS && total < ENOUGH_SECONDS && status == Z3D_OK; i++) {
        double start = z3d_now();
        status = z3d_cpu_gemm(cpu, kernel);
        double taken = z3d_now() - start;
        if (taken < *seconds) *seconds = taken;
        total += taken;
    }
    return status;
}

static z3d_status make_buffers(z3d_dtype dtype, int64_t m, int64_t n, int64_t k, int threads,
                               buffers *out) {
    const size_t size = z3d_dtype_size(dtype);
    int64_t mk, nk, mn;
    if (!z3d_mul_i64(m, k, &mk) || !z3d_mul_i64(n, k, &nk) || !z3d_mul_i64(m, n, &mn))
        return Z3D_ERROR(Z3D_ERR_INTERNAL, "measuring a product of %lld x %lld x %lld",
                         (long long)m, (long long)n, (long long)k);
    const size_t a = (size_t)max_int64(mk, PROBE * PROBE), b = (size_t)max_int64(nk, PROBE * PROBE);
    const z3d_kernel kernel = product_of(out, dtype, m, n, k);
    const z3d_kernel probe = product_of(out, dtype, PROBE, PROBE, PROBE);
    out->scratch_bytes =
        max_int64(z3d_kernel_scratch(&kernel, threads), z3d_kernel_scratch(&probe, threads));
    Z3D_TRY(z3d_new(a, size, "A", &out->a));
    Z3D_TRY(z3d_new(b, size, "B", &out->b));
    Z3D_TRY(z3d_new((size_t)max_int64(mn, PROBE * PROBE), sizeof(float), "C", &out->c));
    /* These bytes are a small number in every type. Untouched memory would be one page, mapped many
     * times, and too fast. */
    memset(out->a, 0x3c, a * size);
    memset(out->b, 0x3c, b * size);
    size_t scratch_size = (size_t)z3d_round_up(out->scratch_bytes + 1, 4096);
    out->scratch = aligned_alloc(4096, scratch_size);
    if (!out->scratch)
        return Z3D_ERROR(Z3D_ERR_MEMORY, "%zu bytes of scratch to measure products", scratch_size);
    return Z3D_OK;
}

static z3d_status compare(z3d_cpu *cpu, const buffers *with, z3d_dtype dtype, int64_t m, int64_t n,
                          int64_t k, z3d_gemm_method *best, double *gflops) {
    static const z3d_gemm_method methods[] = {Z3D_GEMM_SGEMM, Z3D_GEMM_MATMUL, Z3D_GEMM_PORTABLE};
    double least = 1e30, least_probe = 1e30;
    z3d_kernel kernel = product_of(with, dtype, m, n, k);
    z3d_kernel probe = product_of(with, dtype, PROBE, PROBE, PROBE);
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        if (!z3d_cpu_gemm_has_method(dtype, methods[i])) continue;
        double seconds;
        Z3D_TRY(time_method(cpu, &probe, methods[i], &seconds));
        if (seconds > HOPELESS * least_probe) continue;
        if (seconds < least_probe) least_probe = seconds;
        Z3D_TRY(time_method(cpu, &kernel, methods[i], &seconds));
        if (seconds < MARGIN * least) {
            least = seconds;
            *best = methods[i];
        }
    }
    *gflops = 2e-9 * (double)m * (double)n * (double)k / least;
    return Z3D_OK;
}

z3d_status z3d_cpu_measure_gemm(z3d_cpu *cpu, z3d_dtype dtype, int64_t m, int64_t n, int64_t k,
                                z3d_gemm_method *best, double *gflops) {
    Z3D_REQUIRE(dtype <= Z3D_F16, "products of %s", z3d_dtype_name(dtype));
    const z3d_cpu before = *cpu;
    buffers with = {0};
    z3d_status status;
    Z3D_TRY_GOTO(status, make_buffers(dtype, m, n, k, cpu->threads, &with), done);
    cpu->scratch = with.scratch;
    cpu->scratch_bytes = with.scratch_bytes;
    cpu->poll = NULL;
    status = compare(cpu, &with, dtype, m, n, k, best, gflops);
    *cpu = before;
done:
    free(with.scratch);
    free(with.c);
    free(with.b);
    free(with.a);
    return status;
}
