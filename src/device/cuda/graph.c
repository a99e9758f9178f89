/* Captured work is a CUDA graph. A side stream joins compute's capture when it waits for an event
 * of compute, and leaves it when compute waits for its event. Between begin and end nothing may
 * wait on the host, allocate or free. The capture mode affects only this thread. */
#include "src/device/cuda/cuda.h"

/* First waits for all work, and collects its times. */
z3d_status z3d_cuda_capture_begin(void *self) {
    z3d_cuda *cuda = self;
    Z3D_REQUIRE(!cuda->capturing, "a capture within a capture");
    Z3D_TRY(z3d_cuda_synchronize(cuda));
    if (cuda->nccl) z3d_cuda_nccl_begin(cuda->nccl);
    Z3D_CUDA_TRY(cudaStreamBeginCapture(cuda->compute, cudaStreamCaptureModeThreadLocal));
    cuda->capturing = true;
    return Z3D_OK;
}

static z3d_status instantiate(z3d_cuda *cuda, cudaGraph_t graph, void **region, int64_t *launches) {
    cudaGraphExec_t made;
    size_t nodes = 0;
    Z3D_CUDA_TRY(cudaGraphGetNodes(graph, NULL, &nodes));
    /* Without the flag all nodes would have the priority of the launching stream. */
    Z3D_CUDA_TRY(
        cudaGraphInstantiateWithFlags(&made, graph, cudaGraphInstantiateFlagUseNodePriority));
    *region = made;
    *launches = (int64_t)nodes;
    cuda->keeps_graph = true;
    return Z3D_OK;
}

z3d_status z3d_cuda_capture_end(void *self, void **region, int64_t *launches) {
    z3d_cuda *cuda = self;
    cudaGraph_t graph = NULL;
    if (!cuda->capturing) return Z3D_OK; /* the capture never began */
    cuda->capturing = false;
    z3d_status status =
        z3d_cuda_check(cudaStreamEndCapture(cuda->compute, &graph), "cudaStreamEndCapture");
    if (status == Z3D_OK && region) status = instantiate(cuda, graph, region, launches);
    if (graph) cudaGraphDestroy(graph);
    if (cuda->nccl) z3d_cuda_nccl_begin(cuda->nccl);
    return region ? status : Z3D_OK;
}

z3d_status z3d_cuda_region_launch(void *self, const void *region) {
    z3d_cuda *cuda = self;
    Z3D_CUDA_TRY(cudaGraphLaunch((cudaGraphExec_t)(uintptr_t)region, cuda->compute));
    return Z3D_OK;
}

void z3d_cuda_region_destroy(void *self, void *region) {
    (void)self;
    cudaDeviceSynchronize(); /* the graph may still run */
    cudaGraphExecDestroy(region);
}
