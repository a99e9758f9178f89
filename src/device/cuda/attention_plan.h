/* Private to the CUDA plugin: cuDNN, loaded when it is needed, and its plans of attention, apart
 * from a device, so that a test can make them for one that is only described. */
#ifndef ZERO3D_DEVICE_CUDA_ATTENTION_PLAN_H
#define ZERO3D_DEVICE_CUDA_ATTENTION_PLAN_H

#include <cudnn.h>
#include <stdbool.h>

#include "src/base/dtype.h"
#include "src/base/status.h"

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

/* What decides about a plan; compared as bytes. It is about all heads of a sample, or some. */
typedef struct z3d_attention_shape {
    int64_t batch, seq, heads, kv_heads, head_dim, dtype;
    int64_t row_heads;               /* that lie beside each other in a row of out */
    int64_t q_stride, kv_stride;     /* elements from row to row of q, of k and v */
    int64_t window;                  /* 0: all keys up to the query's own */
    int64_t backward, deterministic; /* booleans */
} z3d_attention_shape;

/* The part of it that is done at a time, so that a deterministic backward keeps the scores of no
 * more than 1 GiB (or of one group of heads: those with the same keys). */
z3d_attention_shape z3d_attention_piece(const z3d_attention_shape *shape);

enum { Z3D_CUDNN_TENSORS = 48, Z3D_CUDNN_DESCRIPTORS = 160 };

/* It keeps its first failure and does nothing after it. */
typedef struct z3d_attention_plan {
    const z3d_cudnn *cudnn;
    z3d_attention_shape shape;
    z3d_status status;
    int count, operations;
    cudnnBackendDescriptor_t all[Z3D_CUDNN_DESCRIPTORS]; /* to be destroyed in reverse */
    cudnnBackendDescriptor_t operation[Z3D_CUDNN_DESCRIPTORS], tensor[Z3D_CUDNN_TENSORS];
    cudnnBackendDescriptor_t plan; /* NULL: not made */
    int64_t workspace_bytes;
} z3d_attention_plan;

/* Of a piece. ERR_UNSUPPORTED where cuDNN has no engine for it; nothing is left of it then. */
z3d_status z3d_attention_make_plan(const z3d_cudnn *cudnn, const z3d_attention_shape *shape,
                                   z3d_attention_plan *out);
void z3d_attention_drop_plan(z3d_attention_plan *plan);

/* The second line: backward's only; row_sums: fp32 for each row of all heads; dq_sum: fp32 zeros
 * for each element of dq of all heads, unless deterministic. */
typedef struct z3d_attention_operands {
    const void *q, *k, *v, *out, *log_sum_exp;
    const void *dout, *dq, *dk, *dv, *row_sums, *dq_sum;
} z3d_attention_operands;
z3d_status z3d_attention_run(z3d_attention_plan *plan, const z3d_attention_operands *operands,
                             void *workspace);

#endif
