/* Private to zero/: the places of a logical parameter's elements on this rank. */
#ifndef ZERO3D_ZERO_TENSORS_H
#define ZERO3D_ZERO_TENSORS_H

#include "zero/execute/engine.h"

/* A parameter's shape on this rank: [outer, local, inner] of the global [outer, global, inner]. The
 * slice begins at `offset`; `valid` of its `local` rows exist, the rest is padding. */
struct z3d_slice {
    int64_t outer, local, global, inner, offset, valid;
};

struct z3d_slice z3d_slice_of(const z3d_parameter *p, const z3d_layout *layout);
/* Copies `count` values of a state to or from fp32 on the host, from any memory space. Writing
 * parameters also sets the copy in the model's type. Errors: the device's and the disk's. */
z3d_status z3d_read_values(const z3d_engine *engine, z3d_tensor_kind kind, int g, int64_t flat,
                           float *out, int64_t count);
z3d_status z3d_write_values(z3d_engine *engine, z3d_tensor_kind kind, int g, int64_t flat,
                            const float *values, int64_t count);
#endif
