/* The scratch of each kernel of the cpu device. */
#include "src/device/cpu/isa/scratch.h"
#include "src/device/cpu/gemm.h"
#include "src/device/cpu/isa/attention.h"
#include "src/device/interface/epilogue.h"

/* The most over all methods and CPUs, because the method may be chosen after the scratch is
 * allocated, and a plan for another machine counts it. */
static int64_t gemm_scratch(const z3d_gemm *gemm, int threads) {
    static const z3d_gemm_method methods[] = {Z3D_GEMM_SGEMM, Z3D_GEMM_MATMUL};
    int64_t most = 0;
    if (z3d_gemm_has_few_rows(gemm)) return z3d_scratch_few_rows(gemm);
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        z3d_gemm_plan plan = z3d_cpu_gemm_plan(gemm, methods[i], true);
        most = max_int64(most, z3d_cpu_gemm_scratch(&plan, threads));
    }
    return most;
}

/* A product with an epilogue is launched as its parts. */
static int64_t scratch_of_parts(const z3d_gemm *gemm, int threads) {
    z3d_kernel part[Z3D_GEMM_PARTS];
    int64_t most = 0;
    for (int i = 0, parts = z3d_gemm_parts(gemm, part); i < parts; i++)
        most = max_int64(most, z3d_kernel_scratch(&part[i], threads));
    return most;
}

static int64_t partial_sums(int64_t rows, int64_t cols) {
    return z3d_row_chunks(rows) * z3d_partial_stride(cols) * (int64_t)sizeof(float);
}

int64_t z3d_kernel_scratch(const z3d_kernel *kernel, int threads) {
    if (threads < 1) return 0; /* sim of a GPU: its libraries have their own scratch */
    switch (kernel->kind) {
    case Z3D_KERNEL_gemm:
        return z3d_gemm_is_plain(&kernel->as.gemm) ? gemm_scratch(&kernel->as.gemm, threads)
                                                   : scratch_of_parts(&kernel->as.gemm, threads);
    case Z3D_KERNEL_attention_forward:
        return z3d_scratch_attention_forward(&kernel->as.attention_forward, threads);
    case Z3D_KERNEL_attention_backward:
        return z3d_scratch_attention_backward(&kernel->as.attention_backward, threads);
    case Z3D_KERNEL_bias_backward:
        return partial_sums(kernel->as.bias_backward.rows, kernel->as.bias_backward.cols);
    case Z3D_KERNEL_layernorm_backward: /* for the gradients of weight and bias */
        return 2 *
               partial_sums(kernel->as.layernorm_backward.rows, kernel->as.layernorm_backward.cols);
    case Z3D_KERNEL_rmsnorm_backward:
        return partial_sums(kernel->as.rmsnorm_backward.rows * kernel->as.rmsnorm_backward.heads,
                            kernel->as.rmsnorm_backward.cols);
    case Z3D_KERNEL_rotary: /* each pair's angle per position */
        return kernel->as.rotary.head_dim / 2 * (int64_t)sizeof(float);
    case Z3D_KERNEL_embedding_backward: /* two arrays of keys, to sort the rows by token */
        return 2 * kernel->as.embedding_backward.rows * (int64_t)sizeof(uint64_t);
    default:
        return 0;
    }
}
