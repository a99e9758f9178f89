// Kernels of Llama that the cuda device does not have yet.
#include "src/device/cuda/kernels/common.cuh"

#define REFUSED(name)                                                                              \
    z3d_status z3d_cuda_##name(const z3d_cuda_lane *lane, const z3d_##name *kernel) {              \
        (void)lane, (void)kernel;                                                                  \
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "kernel " #name " is not on the cuda device yet");   \
    }

REFUSED(rmsnorm_forward)
REFUSED(rmsnorm_backward)
REFUSED(rotary)
REFUSED(swiglu_forward)
REFUSED(swiglu_backward)
REFUSED(cache_store)
