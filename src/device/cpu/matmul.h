/* oneDNN's matmul primitive for the tiles of a product: made once per shape, kept in
 * z3d_cpu.gemm_state, run by many threads at a time, each with its own memory objects. Inside cpu/
 * only. */
#ifndef ZERO3D_DEVICE_CPU_MATMUL_H
#define ZERO3D_DEVICE_CPU_MATMUL_H

#include "src/device/cpu/cpu.h"

/* C fp32[m,n] (+)= op(A) op(B); leading dimensions as in z3d_gemm. */
typedef struct z3d_matmul_shape {
    int64_t m, n, k, lda, ldb, ldc;
    bool transpose_a, transpose_b, accumulate;
    z3d_dtype dtype;
} z3d_matmul_shape;

typedef struct z3d_matmul z3d_matmul;

/* Finds or makes the primitive and allocates the scratch that it needs (AMX needs some), so that
 * running it allocates nothing. Not thread-safe. Errors: ERR_UNSUPPORTED (oneDNN has none for this
 * type on this CPU), ERR_MEMORY. */
z3d_status z3d_cpu_matmul_get(z3d_cpu *cpu, const z3d_matmul_shape *shape, z3d_matmul **out);
/* Runs it on the calling thread; false on an error of the library. Pointers differ from call to
 * call. */
bool z3d_cpu_matmul_run(z3d_cpu *cpu, z3d_matmul *matmul, int thread, const void *a, const void *b,
                        float *c);
z3d_status z3d_cpu_gemm_state_create(int threads, struct z3d_gemm_state **out);
void z3d_cpu_gemm_state_destroy(struct z3d_gemm_state *state);

#endif
