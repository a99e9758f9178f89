/* Private to zero/: the engine's fields. */
#ifndef ZERO3D_ZERO_ENGINE_H
#define ZERO3D_ZERO_ENGINE_H

#include "zero/execute/executor.h"
#include "zero/program/set.h"

struct z3d_engine {
    z3d_engine_config config;
    z3d_program_set set;
    z3d_executor executor[Z3D_MODE_COUNT];
    z3d_executor again_executor[Z3D_MODE_COUNT]; /* of set.again */
    bool gathered[Z3D_MODE_COUNT];
    const z3d_executor *last; /* the executor that ran last */
    char *arena[Z3D_SPACE_COUNT];
    z3d_disk *disk; /* NULL: nothing is on the disk, or there are no values */
    int64_t arena_bytes[Z3D_SPACE_COUNT];
    z3d_ledger planned[Z3D_SPACE_COUNT];
    int64_t group_bytes; /* of the collectives' own buffers */
    char *mailbox;       /* NULL: the host reads device memory */
    int64_t mailbox_bytes;
    z3d_engine_state state; /* without `pending`, which the executor keeps (now) */
    int64_t first_step;     /* the step before this engine's first one */
    FILE *digest, *trace;
};

/* The executor whose program has all persistent buffers. */
static inline z3d_executor *z3d_engine_main(const z3d_engine *engine) {
    return (z3d_executor *)&engine->executor[z3d_program_set_main(&engine->set)];
}

/* tensors.c. A parameter's shape on this rank: [outer, local, inner] of the global [outer, global,
 * inner]. This rank's slice begins at `offset`; `valid` of its `local` rows exist, the rest is
 * padding. */
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
/* Sets the initial values of all that this rank keeps; parameters follow from the master copy. */
z3d_status z3d_engine_init_parameters(z3d_engine *engine);
/* loss_scale.c. After a step: halves or doubles a dynamic loss scale (DeepSpeed's rules). */
void z3d_loss_scale_update(const z3d_loss_scaler *scaler, z3d_engine_state *now, bool overflow);

#endif
