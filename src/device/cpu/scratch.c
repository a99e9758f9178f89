/* The scratch of each kernel of the cpu device. */
#include "src/device/cpu/isa/scratch.h"
#include "src/device/cpu/gemm_plan.h"
#include "src/device/cpu/isa/attention.h"
#include "src/device/interface/epilogue.h"

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* The most over all methods and CPUs, because the method may be chosen after the scratch is
 * allocated, and a plan for another machine counts it. */
static int64_t gemm_scratch(const z3d_gemm *gemm, int threads) {
    static const z3d_gemm_method methods[] = {Z3D_GEMM_SGEMM, Z3D_GEMM_MATMUL};
    int64_t most = 0;
    if (z3d_gemm_has_few_rows(gemm)) return z3d_scratch_few_rows(gemm);
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        z3d_gemm_plan plan = z3d_cpu_gemm_plan(gemm, methods[i], true);
        z3d_gemm_scratch scratch = z3d_cpu_gemm_scratch(gemm, &plan);
        most = larger(most, z3d_cpu_gemm_scratch_total(&scratch, threads));
    }
    return most;
}

/* A product with an epilogue is launched as its parts. */
static int64_t scratch_of_parts(const z3d_gemm *gemm, int threads) {
    z3d_kernel part[Z3D_GEMM_PARTS];
    int64_t most = 0;
    for (int i = 0, parts = z3d_gemm_parts(gemm, part); i < parts; i++)
        most = larger(most, z3d_kernel_scratch(&part[i], threads));
    return most;
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
        return z3d_scratch_bias_backward(&kernel->as.bias_backward);
    case Z3D_KERNEL_layernorm_backward:
        return z3d_scratch_layernorm_backward(&kernel->as.layernorm_backward);
    case Z3D_KERNEL_rmsnorm_backward:
        return z3d_scratch_rmsnorm_backward(&kernel->as.rmsnorm_backward);
    case Z3D_KERNEL_rotary:
        return z3d_scratch_rotary(&kernel->as.rotary);
    case Z3D_KERNEL_embedding_backward:
        return z3d_scratch_embedding_backward(&kernel->as.embedding_backward);
    default:
        return 0;
    }
}
