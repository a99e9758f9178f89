/* What the bare build (ZERO3D_BARE) leaves out, in place of src/device/cpu/matmul.c (oneDNN's
 * primitives) and zero/execute/observe.c (digests by xxHash). */
#include "src/device/cpu/matmul.h"
#include "zero/execute/executor.h"

z3d_status z3d_cpu_gemm_state_create(int threads, struct z3d_gemm_state **out) {
    (void)threads;
    *out = NULL;
    return Z3D_OK;
}

void z3d_cpu_gemm_state_destroy(struct z3d_gemm_state *state) {
    (void)state;
}

z3d_status z3d_cpu_matmul_get(z3d_cpu *cpu, const z3d_matmul_shape *shape, z3d_matmul **out) {
    (void)cpu, (void)shape;
    *out = NULL;
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "a bare build has no oneDNN");
}

bool z3d_cpu_matmul_run(z3d_cpu *cpu, z3d_matmul *matmul, int thread, const void *a, const void *b,
                        float *c) {
    (void)cpu, (void)matmul, (void)thread, (void)a, (void)b, (void)c;
    return false;
}

z3d_status z3d_executor_digest(z3d_executor *executor, int index, int64_t step) {
    (void)executor, (void)index, (void)step;
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "a bare build has no digests");
}
