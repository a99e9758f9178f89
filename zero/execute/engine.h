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

/* loss_scale.c. After a step: halves or doubles a dynamic loss scale (DeepSpeed's rules). */
void z3d_loss_scale_update(const z3d_loss_scaler *scaler, z3d_engine_state *now, bool overflow);
/* tensors.c: initial values of all that this rank keeps; parameters follow from the master copy. */
z3d_status z3d_engine_init_parameters(z3d_engine *engine);

#endif
