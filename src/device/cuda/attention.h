/* Private to the CUDA plugin: attention's plans, apart from a device, so that a test can make them
 * for one that is only described. */
#ifndef ZERO3D_DEVICE_CUDA_ATTENTION_H
#define ZERO3D_DEVICE_CUDA_ATTENTION_H

#include "src/device/cuda/cudnn_graph.h"

/* What decides about a plan; compared as bytes. It is about all heads of a sample, or some. */
typedef struct z3d_attention_shape {
    int64_t batch, seq, heads, head_dim, dtype;
    int64_t row_heads;               /* that lie beside each other in a row */
    int64_t backward, deterministic; /* booleans */
} z3d_attention_shape;

/* The part of it that backward does at a time, so that a deterministic one keeps the scores of no
 * more than 1 GiB (or of one head). */
z3d_attention_shape z3d_attention_piece(const z3d_attention_shape *shape);
/* ERR_UNSUPPORTED where cuDNN has no engine for it. */
z3d_status z3d_attention_make_plan(const z3d_cudnn *cudnn, const z3d_attention_shape *shape,
                                   z3d_cudnn_plan *out);

#endif
