/* Private to the CUDA plugin: loads cuDNN and makes its plans of attention. No device is needed, so
 * a test can make plans for a described device. */
#ifndef ZERO3D_DEVICE_CUDA_ATTENTION_PLAN_H
#define ZERO3D_DEVICE_CUDA_ATTENTION_PLAN_H

#include <cudnn.h>
#include <stdbool.h>

#include "src/base/status.h"
#include "src/device/kernels.h"

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
    cudnnHandle_t handle; /* NULL: plans are for `device`, and cannot run */
    cudnnBackendDescriptor_t device;
} z3d_cudnn;

/* Loads cuDNN. ERR_UNSUPPORTED with the reason. The caller makes the handle. */
z3d_status z3d_cudnn_load(z3d_cudnn *out);
z3d_status z3d_cudnn_check(const z3d_cudnn *cudnn, cudnnStatus_t code, const char *what);
/* Uses a device described in cuDNN's JSON instead of a real one. */
z3d_status z3d_cudnn_describe_device(z3d_cudnn *cudnn, const char *json);

/* The properties that decide a plan, compared as bytes. heads: all heads of a sample, or a part. */
typedef struct z3d_attention_shape {
    int64_t batch, seq, heads, kv_heads, head_dim, dtype;
    int64_t row_heads;               /* heads in a row of out */
    int64_t q_stride, kv_stride;     /* elements from row to row of q, of k and v */
    int64_t window;                  /* 0: all keys up to the query's own */
    int64_t backward, deterministic; /* booleans */
} z3d_attention_shape;

/* The piece that runs at a time. A deterministic backward keeps at most 1 GiB of its scores (or
 * those of one group of heads, which share keys). */
z3d_attention_shape z3d_attention_piece(const z3d_attention_shape *shape);

enum { Z3D_CUDNN_TENSORS = 48, Z3D_CUDNN_DESCRIPTORS = 160 };

/* After its first failure, which `status` keeps, nothing more is done. */
typedef struct z3d_attention_plan {
    const z3d_cudnn *cudnn;
    z3d_attention_shape shape;
    z3d_status status;
    int count, operations;
    cudnnBackendDescriptor_t all[Z3D_CUDNN_DESCRIPTORS]; /* destroyed in reverse order */
    cudnnBackendDescriptor_t operation[Z3D_CUDNN_DESCRIPTORS], tensor[Z3D_CUDNN_TENSORS];
    cudnnBackendDescriptor_t plan; /* NULL: not made */
    int64_t workspace_bytes;
} z3d_attention_plan;

/* Makes the plan of a piece. ERR_UNSUPPORTED: cuDNN has no engine for it; *out is empty then. */
z3d_status z3d_attention_make_plan(const z3d_cudnn *cudnn, const z3d_attention_shape *shape,
                                   z3d_attention_plan *out);
void z3d_attention_drop_plan(z3d_attention_plan *plan);

/* piece: its device pointers are read, those of gradients only in backward. row_sums: fp32, one for
 * each row of all heads; dq_sum: fp32 zeros, one for each element of dq, unless deterministic. */
z3d_status z3d_attention_run(z3d_attention_plan *plan, const z3d_attention *piece,
                             const void *row_sums, const void *dq_sum, void *workspace);

#endif
