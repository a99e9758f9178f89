/* Private to tensor_parallel/: the addends of a layer's adapters. A layer without adapters has
 * none. No communication. */
#ifndef ZERO3D_TENSOR_PARALLEL_ADAPTER_H
#define ZERO3D_TENSOR_PARALLEL_ADAPTER_H

#include "tensor_parallel/tensor_parallel.h"

/* y += scale x B (A dropout(x)), of this rank's part. gelu, if not NULL: also T[rows,out] =
 * gelu(y); then the layer has at most one adapter, of all columns. */
z3d_status z3d_adapters_forward(const z3d_tensor_lane *lane, const z3d_linear *linear,
                                const void *x, void *y, void *gelu);
/* dx = (*accumulate ? dx : 0) + the adapters' gradient of x; sets *accumulate if there are
 * adapters. Leaves low_gradient for the next function. */
z3d_status z3d_adapters_input_gradient(const z3d_tensor_lane *lane, const z3d_linear *linear,
                                       const void *dy, void *dx, bool *accumulate);
/* Gradients of A and B. has_low_gradient: the function above has computed low_gradient. */
z3d_status z3d_adapters_parameter_gradients(const z3d_tensor_lane *lane, const z3d_linear *linear,
                                            const void *x, const void *dy, bool has_low_gradient);

#endif
