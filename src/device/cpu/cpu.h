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
    struct z3d_gemm_state *gemm_state; /* matmul.c's own: cached primitives */
} z3d_cpu;

/* C = (accumulate ? C : 0) + op(A) op(B), fp32, single-threaded own loops: GEMM_PORTABLE. */
typedef void z3d_portable_gemm(int64_t m, int64_t n, int64_t k, bool ta, bool tb, const float *a,
                               int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc,
                               bool accumulate);

/* One instruction set: its kernels by kind, and the helpers that gemm.c uses. */
typedef struct z3d_cpu_isa {
    const char *name;
    z3d_status (*kernel[Z3D_KERNEL_COUNT])(z3d_cpu *cpu, const z3d_kernel *kernel);
    /* n elements between fp32 and a 16-bit type, single-threaded. */
    void (*widen)(float *to, const void *from, z3d_dtype from_dtype, int64_t n);
    void (*narrow)(void *to, z3d_dtype to_dtype, const float *from, int64_t n);
    z3d_portable_gemm *portable_gemm;
} z3d_cpu_isa;

extern const z3d_cpu_isa z3d_cpu_isa_generic, z3d_cpu_isa_avx2, z3d_cpu_isa_avx512;

/* isa/: z3d_status Z3D_CPU_NAME(gelu_forward)(z3d_cpu *cpu, const z3d_kernel *kernel) */
#define Z3D_CPU_PASTE_(a, b, c) a##b##_##c
#define Z3D_CPU_PASTE(a, b, c) Z3D_CPU_PASTE_(a, b, c)
#define Z3D_CPU_NAME(name) Z3D_CPU_PASTE(z3d_cpu_, name, Z3D_ISA)

static inline int64_t min_int64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t max_int64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* All threads or one: with a smaller team OpenMP would end the other threads and start them again
 * later. */
static inline int z3d_cpu_team(const z3d_cpu *cpu, int64_t tasks) {
    return tasks > 1 ? cpu->threads : 1;
}

/* The launching thread calls it between tiles. */
static inline void z3d_cpu_poll(const z3d_cpu *cpu) {
    if (cpu->poll) cpu->poll(cpu->poll_context);
}

/* gemm.c: z3d_cpu_gemm launches a product that isa/few_rows.c does not compute.
 * z3d_cpu_sgemm_serial computes C[m,n] = beta C +
 * alpha op(A) op(B), row-major, in fp32 on the calling thread, for use inside parallel regions
 * (attention). */
z3d_status z3d_cpu_gemm(z3d_cpu *cpu, const z3d_kernel *kernel);
void z3d_cpu_sgemm_serial(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha,
                          const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                          float *c, int64_t ldc);

/* transfer.c: copies `bytes` bytes; the two ranges may not overlap. A large copy bypasses the
 * caches: nobody reads it again soon, and the processor then need not read the lines that it
 * overwrites. */
void z3d_cpu_copy(void *to, const void *from, int64_t bytes);
/* A thread that copies between memory spaces, in the order of the starts. destroy waits for the
 * copies that were started; NULL does nothing. */
z3d_status z3d_cpu_transfer_create(struct z3d_cpu_transfer **out);
void z3d_cpu_transfer_destroy(struct z3d_cpu_transfer *transfer);
void z3d_cpu_transfer_start(struct z3d_cpu_transfer *transfer, void *to, const void *from,
                            int64_t bytes, int64_t *id);
z3d_status z3d_cpu_transfer_wait(struct z3d_cpu_transfer *transfer, int64_t id);

/* measure.c: z3d_device_measure_gemm of the cpu device. */
z3d_status z3d_cpu_measure_gemm(z3d_cpu *cpu, z3d_dtype dtype, int64_t m, int64_t n, int64_t k,
                                z3d_gemm_method *best, double *gflops);
/* fp16 has no matmul: oneDNN has no fp16 products on any CPU. */
static inline bool z3d_cpu_gemm_has_method(z3d_dtype dtype, z3d_gemm_method method) {
    return method != Z3D_GEMM_MATMUL || dtype == Z3D_F32 || dtype == Z3D_BF16;
}

#endif
