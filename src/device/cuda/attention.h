/* Private to the CUDA plugin: attention's plans, apart from a device, so that a test can make them
 * for one that is only described. */
#ifndef ZERO3D_DEVICE_CUDA_ATTENTION_H
#define ZERO3D_DEVICE_CUDA_ATTENTION_H

#include "src/device/cuda/cudnn_graph.h"

/* What decides about a plan; compared as bytes. */
typedef struct z3d_attention_shape {
    int64_t batch, seq, heads, head_dim, dtype;
    int64_t backward, deterministic; /* booleans */
} z3d_attention_shape;

/* ERR_UNSUPPORTED where cuDNN has no engine for it. */
z3d_status z3d_attention_make_plan(const z3d_cudnn *cudnn, const z3d_attention_shape *shape,
                                   z3d_cudnn_plan *out);

#endif
