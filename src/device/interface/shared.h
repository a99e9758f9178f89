/* Functions that device.c and the program's own backends share; the plugin does not have them.
 * Private to src/device. */
#ifndef ZERO3D_DEVICE_INTERFACE_SHARED_H
#define ZERO3D_DEVICE_INTERFACE_SHARED_H

#include "src/device/device.h"

/* host_memory.c: maps `bytes` zeroed bytes, 4096-aligned, touched by `threads` threads (0: as many
 * as help), if possible on memory node `node` (-1: the node where the threads run). ERR_MEMORY,
 * also if the machine has less memory available. */
z3d_status z3d_host_map(int64_t bytes, int threads, int node, void **out);
/* bytes: as in z3d_host_map. NULL does nothing. */
void z3d_host_unmap(void *block, int64_t bytes);

/* The product that is measured, a linear layer's forward: C[m,n] = A[m,k] B[n,k]^T. */
static inline z3d_kernel z3d_measured_product(const void *a, const void *b, void *c, int64_t m,
                                              int64_t n, int64_t k, z3d_dtype dtype,
                                              z3d_dtype c_dtype) {
    const z3d_gemm gemm = {.m = m,
                           .n = n,
                           .k = k,
                           .transpose_b = true,
                           .a = a,
                           .b = b,
                           .c = c,
                           .lda = k,
                           .ldb = k,
                           .ldc = n,
                           .dtype = dtype,
                           .c_dtype = c_dtype};
    return (z3d_kernel){.kind = Z3D_KERNEL_gemm, .as.gemm = gemm};
}

/* measure.c: z3d_device_measure_gemm for devices with one method: times the device's own kernels
 * with the host's clock. */
z3d_status z3d_measure_products(z3d_device *device, z3d_dtype dtype, int64_t m, int64_t n,
                                int64_t k, double *gflops);

#endif
