/* Measures the methods of matrix products. Inside cpu/ only. */
#ifndef ZERO3D_DEVICE_CPU_MEASURE_H
#define ZERO3D_DEVICE_CPU_MEASURE_H

#include "src/device/cpu/cpu.h"

/* z3d_device_measure_gemm of the cpu device. */
z3d_status z3d_cpu_measure_gemm(z3d_cpu *cpu, z3d_dtype dtype, int64_t m, int64_t n, int64_t k,
                                z3d_gemm_method *best, double *gflops);

/* fp16 has no matmul: oneDNN has no fp16 products on any CPU. */
static inline bool z3d_cpu_gemm_has_method(z3d_dtype dtype, z3d_gemm_method method) {
    return method != Z3D_GEMM_MATMUL || dtype == Z3D_F32 || dtype == Z3D_BF16;
}

#endif
