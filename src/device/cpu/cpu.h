/* Inside the cpu backend only. Kernels are in isa/: every file in it is compiled once per
 * instruction set, with Z3D_ISA set, and names its functions by Z3D_CPU_NAME; cpu.c picks one table
 * of them at run time. gemm.c and the other files of this folder are compiled once. */
#ifndef ZERO3D_DEVICE_CPU_CPU_H
#define ZERO3D_DEVICE_CPU_CPU_H

#include "src/device/device.h"

typedef struct z3d_cpu {
    int threads;
    z3d_gemm_method gemm[Z3D_DTYPE_COUNT];
    char *scratch;
    int64_t scratch_bytes;
    void (*poll)(void *context);
    void *poll_context;
    const struct z3d_cpu_isa *isa;
    char description[256];
    struct z3d_cpu_transfer *transfer; /* NULL until the first copy between spaces */
    struct z3d_gemm_state *gemm_state; /* gemm.c's own: cached primitives */
} z3d_cpu;

/* One instruction set: its kernels by kind (except gemm, which is in gemm.c) and the helpers that
 * gemm.c and attention use. */
typedef struct z3d_cpu_isa {
    const char *name;
    z3d_status (*kernel[Z3D_KERNEL_COUNT])(z3d_cpu *cpu, const z3d_kernel *kernel);
    /* n elements between fp32 and a 16-bit type, single-threaded. */
    void (*widen)(float *to, const void *from, z3d_dtype from_dtype, int64_t n);
    void (*narrow)(void *to, z3d_dtype to_dtype, const float *from, int64_t n);
    /* C = (accumulate ? C : 0) + op(A) op(B), fp32, single-threaded own loops: GEMM_PORTABLE. */
    void (*portable_gemm)(int64_t m, int64_t n, int64_t k, bool ta, bool tb, const float *a,
                          int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc,
                          bool accumulate);
    /* Launches a product for which z3d_gemm_has_few_rows is true. */
    z3d_status (*few_rows_gemm)(z3d_cpu *cpu, const z3d_gemm *gemm);
} z3d_cpu_isa;

extern const z3d_cpu_isa z3d_cpu_isa_generic, z3d_cpu_isa_avx2, z3d_cpu_isa_avx512;

/* isa/: z3d_status Z3D_CPU_NAME(gelu_forward)(z3d_cpu *cpu, const z3d_kernel *kernel) */
#define Z3D_CPU_PASTE_(a, b, c) a##b##_##c
#define Z3D_CPU_PASTE(a, b, c) Z3D_CPU_PASTE_(a, b, c)
#define Z3D_CPU_NAME(name) Z3D_CPU_PASTE(z3d_cpu_, name, Z3D_ISA)

/* The launching thread calls it between tiles. */
static inline void z3d_cpu_poll(const z3d_cpu *cpu) {
    if (cpu->poll) cpu->poll(cpu->poll_context);
}

/* gemm.c: z3d_cpu_gemm launches a gemm kernel. z3d_cpu_sgemm_serial computes C[m,n] = beta C +
 * alpha op(A) op(B), row-major, in fp32 on the calling thread, for use inside parallel regions
 * (attention). */
z3d_status z3d_cpu_gemm(z3d_cpu *cpu, const z3d_kernel *kernel);
void z3d_cpu_sgemm_serial(const z3d_cpu *cpu, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                          float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                          float beta, float *c, int64_t ldc);

#endif
