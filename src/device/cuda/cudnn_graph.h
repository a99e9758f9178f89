/* Private to the CUDA plugin: cuDNN, loaded when it is needed, and graphs of its operations built
 * step by step. A graph keeps its first failure and does nothing after it, so that only
 * z3d_cudnn_plan has to be checked. */
#ifndef ZERO3D_DEVICE_CUDA_CUDNN_GRAPH_H
#define ZERO3D_DEVICE_CUDA_CUDNN_GRAPH_H

#include <cudnn.h>

#include "src/device/cuda/cuda.h"

#define Z3D_CUDNN_FUNCTIONS(X)                                                                     \
    X(cudnnCreate)                                                                                 \
    X(cudnnDestroy)                                                                                \
    X(cudnnSetStream)                                                                              \
    X(cudnnGetVersion)                                                                             \
    X(cudnnGetErrorString)                                                                         \
    X(cudnnGetLastErrorString)                                                                     \
    X(cudnnBackendCreateDescriptor)                                                                \
    X(cudnnBackendDestroyDescriptor)                                                               \
    X(cudnnBackendSetAttribute)                                                                    \
    X(cudnnBackendGetAttribute)                                                                    \
    X(cudnnBackendFinalize)                                                                        \
    X(cudnnBackendExecute)

typedef struct z3d_cudnn {
    void *library;
#define X(name) __typeof__(&name) name;
    Z3D_CUDNN_FUNCTIONS(X)
#undef X
    cudnnHandle_t handle; /* NULL: plans are made for `device`, and cannot run */
    cudnnBackendDescriptor_t device;
} z3d_cudnn;

/* ERR_UNSUPPORTED with why it cannot be loaded. The handle is the caller's to make. */
z3d_status z3d_cudnn_load(z3d_cudnn *out);
z3d_status z3d_cudnn_check(const z3d_cudnn *cudnn, cudnnStatus_t code, const char *what);
/* A device that is described in cuDNN's own JSON, instead of one that is there. */
z3d_status z3d_cudnn_describe_device(z3d_cudnn *cudnn, const char *json);

enum { Z3D_CUDNN_OPERATIONS = 32, Z3D_CUDNN_DESCRIPTORS = 160 };

typedef struct z3d_cudnn_graph {
    const z3d_cudnn *cudnn;
    z3d_status status;
    int64_t next_virtual;
    int count, operations;
    cudnnBackendDescriptor_t all[Z3D_CUDNN_DESCRIPTORS]; /* to be destroyed in reverse */
    cudnnBackendDescriptor_t operation[Z3D_CUDNN_OPERATIONS];
} z3d_cudnn_graph;

/* Four dimensions and strides, in elements. */
typedef struct z3d_cudnn_shape {
    int64_t size[4], stride[4];
} z3d_cudnn_shape;

/* A tensor given when the plan runs: `id` names it (below 100); by_value: one number on the host.
 */
cudnnBackendDescriptor_t z3d_cudnn_tensor(z3d_cudnn_graph *graph, int64_t id, cudnnDataType_t type,
                                          const z3d_cudnn_shape *shape, bool by_value);
/* One that exists only inside the graph. */
cudnnBackendDescriptor_t z3d_cudnn_virtual(z3d_cudnn_graph *graph, cudnnDataType_t type,
                                           const z3d_cudnn_shape *shape);

/* y = mode(x, b); b, and the mask of a selection, may be NULL. axis: of an index, else -1. */
void z3d_cudnn_pointwise(z3d_cudnn_graph *graph, cudnnPointwiseMode_t mode, cudnnDataType_t compute,
                         int64_t axis, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                         cudnnBackendDescriptor_t mask, cudnnBackendDescriptor_t y);
void z3d_cudnn_matmul(z3d_cudnn_graph *graph, cudnnBackendDescriptor_t a,
                      cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t c);
/* Over the dimensions in which y has size 1. */
void z3d_cudnn_reduce(z3d_cudnn_graph *graph, cudnnReduceTensorOp_t op, cudnnBackendDescriptor_t x,
                      cudnnBackendDescriptor_t y);
void z3d_cudnn_reshape(z3d_cudnn_graph *graph, cudnnBackendDescriptor_t x,
                       cudnnBackendDescriptor_t y);

typedef struct z3d_cudnn_plan {
    z3d_cudnn_graph graph;
    cudnnBackendDescriptor_t plan;
    int64_t workspace_bytes;
} z3d_cudnn_plan;

/* The first engine that takes the graph built in plan->graph; deterministic: whose results repeat.
 * ERR_UNSUPPORTED if there is none. */
z3d_status z3d_cudnn_make_plan(z3d_cudnn_plan *plan, bool deterministic);
void z3d_cudnn_drop_plan(z3d_cudnn_plan *plan);
z3d_status z3d_cudnn_run(z3d_cudnn_plan *plan, int count, const int64_t *ids, void *const *pointers,
                         void *workspace);

#endif
