/* Pinned host memory, on the GPU's NUMA node. */
#include <stdlib.h>
#include <string.h>

#include "src/base/strings.h"
#include "src/device/cuda/cuda.h"

int z3d_cuda_host_node(const void *self) {
    int node = -1;
#if CUDART_VERSION >= 12020
    if (cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, ((const z3d_cuda *)self)->gpu) !=
        cudaSuccess)
        cudaGetLastError();
#else
    (void)self;
#endif
    return node;
}

static z3d_status pin(z3d_cuda *cuda, bool allocate, void **block, int64_t bytes) {
    z3d_cuda_block *made;
    char wanted[32];
    Z3D_TRY(z3d_new(1, sizeof *made, "pinned memory", &made));
    *made = (z3d_cuda_block){.bytes = bytes > 0 ? bytes : 1, .allocated = allocate};
    cudaError_t error =
        allocate ? cudaHostAlloc(block, (size_t)made->bytes, cudaHostAllocDefault)
                 : cudaHostRegister(*block, (size_t)made->bytes, cudaHostRegisterDefault);
    if (error == cudaSuccess) {
        if (allocate) memset(*block, 0, (size_t)made->bytes);
        made->memory = *block;
        made->next = cuda->pinned;
        cuda->pinned = made;
        return Z3D_OK;
    }
    cudaGetLastError();
    free(made);
    return Z3D_ERROR(Z3D_ERR_MEMORY, "cuda device: cannot pin %s of host memory: %s",
                     z3d_format_bytes(bytes, wanted, sizeof wanted), cudaGetErrorString(error));
}

z3d_status z3d_cuda_pin(void *self, void *block, int64_t bytes) {
    return pin(self, false, &block, bytes);
}

z3d_status z3d_cuda_alloc_host(z3d_cuda *cuda, int64_t bytes, void **out) {
    return pin(cuda, true, out, bytes);
}

bool z3d_cuda_unpin(void *self, void *block) {
    z3d_cuda_block **link = &((z3d_cuda *)self)->pinned;
    while (*link && (*link)->memory != block) link = &(*link)->next;
    z3d_cuda_block *found = *link;
    if (!found) return true;
    const bool allocated = found->allocated;
    *link = found->next;
    cudaDeviceSynchronize(); /* no copy may use the block */
    if (allocated)
        cudaFreeHost(block);
    else
        cudaHostUnregister(block);
    free(found);
    return !allocated;
}

bool z3d_cuda_is_pinned(const z3d_cuda *cuda, const void *address) {
    for (const z3d_cuda_block *block = cuda->pinned; block; block = block->next) {
        const char *begin = block->memory, *at = address;
        if (at >= begin && at < begin + block->bytes) return true;
    }
    return false;
}
