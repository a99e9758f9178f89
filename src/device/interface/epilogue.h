/* The epilogue of a product as separate kernels. Devices without fused products launch these
 * kernels; other devices do so if their library lacks the epilogue. Inline, because the CUDA plugin
 * uses it, too. Private to src/device. */
#ifndef ZERO3D_DEVICE_INTERFACE_EPILOGUE_H
#define ZERO3D_DEVICE_INTERFACE_EPILOGUE_H

#include "src/device/kernels.h"

static inline bool z3d_gemm_is_plain(const z3d_gemm *gemm) {
    return !gemm->gelu && !gemm->before_gelu && !gemm->bias_gradient && !gemm->residual;
}

enum { Z3D_GEMM_PARTS = 5 };

/* part: the product alone, then the kernels of its epilogue in order. Returns the number of
 * parts. */
static inline int z3d_gemm_parts(const z3d_gemm *gemm, z3d_kernel part[Z3D_GEMM_PARTS]) {
    const int64_t count = gemm->m * gemm->n;
    int parts = 1;
    part[0] = (z3d_kernel){.kind = Z3D_KERNEL_gemm, .as.gemm = *gemm};
    part[0].as.gemm.gelu = part[0].as.gemm.bias_gradient = NULL;
    part[0].as.gemm.before_gelu = part[0].as.gemm.residual = NULL;
    if (gemm->residual) part[0].as.gemm.bias = NULL;
    if (gemm->residual)
        part[parts++] = (z3d_kernel){.kind = Z3D_KERNEL_dropout_forward,
                                     .as.dropout_forward = {.x = gemm->c,
                                                            .bias = gemm->bias,
                                                            .residual = gemm->residual,
                                                            .y = gemm->c,
                                                            .rows = gemm->m,
                                                            .seq = gemm->m,
                                                            .cols = gemm->n,
                                                            .dtype = gemm->dtype}};
    if (gemm->before_gelu)
        part[parts++] = (z3d_kernel){.kind = Z3D_KERNEL_gelu_backward,
                                     .as.gelu_backward = {.x = gemm->before_gelu,
                                                          .dy = gemm->c,
                                                          .dx = gemm->c,
                                                          .count = count,
                                                          .dtype = gemm->dtype}};
    if (gemm->gelu)
        part[parts++] =
            (z3d_kernel){.kind = Z3D_KERNEL_gelu_forward,
                         .as.gelu_forward = {
                             .x = gemm->c, .y = gemm->gelu, .count = count, .dtype = gemm->dtype}};
    if (gemm->bias_gradient)
        part[parts++] = (z3d_kernel){.kind = Z3D_KERNEL_bias_backward,
                                     .as.bias_backward = {.dy = gemm->a,
                                                          .gradient = gemm->bias_gradient,
                                                          .rows = gemm->k,
                                                          .cols = gemm->m,
                                                          .dtype = gemm->dtype,
                                                          .gradient_dtype = gemm->c_dtype,
                                                          .accumulate = gemm->accumulate}};
    return parts;
}

#endif
