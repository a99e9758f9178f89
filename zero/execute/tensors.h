/* Private to zero/: where a logical parameter's elements lie on this rank. */
#ifndef ZERO3D_ZERO_TENSORS_H
#define ZERO3D_ZERO_TENSORS_H

#include "zero/execute/engine.h"

/* A parameter's shape on this rank: [outer, local, inner] of the global [outer, global, inner], the
 * slice beginning at `offset`; `valid` of the `local` rows exist, the rest is padding. */
struct z3d_slice {
    int64_t outer, local, global, inner, offset, valid;
};

struct z3d_slice z3d_slice_of(const z3d_parameter *p, const z3d_layout *layout);
/* `count` values of a state between the device and fp32 on the host, wherever they are kept. What
 * is written of parameters goes to both copies. */
z3d_status z3d_read_values(const z3d_engine *engine, z3d_tensor_kind kind, int g, int64_t flat,
                           float *out, int64_t count);
z3d_status z3d_write_values(z3d_engine *engine, z3d_tensor_kind kind, int g, int64_t flat,
                            const float *values, int64_t count);
#endif
