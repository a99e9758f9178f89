/* Private to the CUDA plugin: cuDNN, loaded when it is needed, and plans for graphs of its
 * operations. A graph is two tables: tensors, named by their index, and operations on them. */
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

/* Where a tensor is: in the graph only; in memory; one number on the host. */
typedef enum z3d_cudnn_place {
    Z3D_CUDNN_INSIDE,
    Z3D_CUDNN_GIVEN,
    Z3D_CUDNN_NUMBER
} z3d_cudnn_place;

/* Four dimensions and strides, in elements. */
typedef struct z3d_cudnn_tensor {
    int64_t size[4], stride[4];
    cudnnDataType_t type;
    z3d_cudnn_place place;
} z3d_cudnn_tensor;

typedef enum z3d_cudnn_kind {
    Z3D_CUDNN_POINTWISE, /* y = mode(x, b) */
    Z3D_CUDNN_MATMUL,    /* y = x b */
    Z3D_CUDNN_REDUCTION, /* y = mode of x, over the dimensions in which y has size 1 */
    Z3D_CUDNN_RESHAPE    /* y = x */
} z3d_cudnn_kind;

/* Computed in fp32, an index or a truth in y's type. */
typedef struct z3d_cudnn_operation {
    z3d_cudnn_kind kind;
    int mode; /* cudnnPointwiseMode_t, cudnnReduceTensorOp_t */
    int x, b, y;
    int mask;     /* where x is selected, not b */
    int64_t axis; /* of an index */
} z3d_cudnn_operation;

/* Tensor 0 is none. */
enum { Z3D_CUDNN_TENSORS = 48, Z3D_CUDNN_DESCRIPTORS = 160 };

/* Zeros but for cudnn, in the beginning. It keeps its first failure and does nothing after it. */
typedef struct z3d_cudnn_plan {
    const z3d_cudnn *cudnn;
    z3d_status status;
    int count, operations;
    cudnnBackendDescriptor_t all[Z3D_CUDNN_DESCRIPTORS]; /* to be destroyed in reverse */
    cudnnBackendDescriptor_t operation[Z3D_CUDNN_DESCRIPTORS], tensor[Z3D_CUDNN_TENSORS];
    bool given[Z3D_CUDNN_TENSORS]; /* when it runs */
    cudnnBackendDescriptor_t plan; /* NULL: not made */
    int64_t workspace_bytes;
} z3d_cudnn_plan;

/* Adds operations to the graph, in an order in which they could run. */
void z3d_cudnn_add(z3d_cudnn_plan *plan, const z3d_cudnn_tensor *tensors,
                   const z3d_cudnn_operation *operations, size_t count);
/* The first engine that takes the graph; deterministic: whose results repeat. ERR_UNSUPPORTED if
 * there is none. After an error nothing is left of the plan. */
z3d_status z3d_cudnn_make_plan(z3d_cudnn_plan *plan, bool deterministic);
void z3d_cudnn_drop_plan(z3d_cudnn_plan *plan);
/* at: the tensors that are given, by their names. */
z3d_status z3d_cudnn_run(z3d_cudnn_plan *plan, const void *const *at, void *workspace);

#endif
