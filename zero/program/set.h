/* All programs of a configuration on one rank. */
#ifndef ZERO3D_ZERO_SET_H
#define ZERO3D_ZERO_SET_H

#include "zero/program.h"

typedef struct z3d_program_set {
    const z3d_model *model;
    z3d_mesh mesh;
    z3d_program_config config;
    z3d_layout *layout;
    z3d_traces *traces;
    z3d_program *program[Z3D_MODE_COUNT]; /* NULL: the model does not have the mode, or the
                                             configuration excludes it */
    /* For later runs of the mode, until a parameter changes (config.gathered); NULL: the program is
     * the same. */
    z3d_program *again[Z3D_MODE_COUNT];
    struct z3d_timetables *timetables; /* NULL: the configuration has them */
    bool classes; /* a large world: one program stands for all of its pipeline stage */
} z3d_program_set;

/* Makes layout, traces, programs of all modes and their memory plan; verify: also verifies each,
 * alone and with all ranks' programs. threads: of the device (scratch depends on it). Release it
 * after a failure, too. The model must outlive it. Not collective, no device memory. Errors:
 * ERR_CONFIG, ERR_PROGRAM, ERR_MEMORY, ERR_USAGE (no program). */
z3d_status z3d_program_set_create(const z3d_model *model, const z3d_mesh *mesh,
                                  const z3d_program_config *config, int threads, bool verify,
                                  z3d_program_set *set);
void z3d_program_set_release(z3d_program_set *set);
/* Its programs; returns their number. */
int z3d_program_set_list(const z3d_program_set *set, z3d_program *all[2 * Z3D_MODE_COUNT]);
/* The mode whose program has all persistent buffers. */
static inline z3d_mode z3d_program_set_main(const z3d_program_set *set) {
    if (!set->config.inference) return Z3D_MODE_TRAIN;
    return set->config.evaluates ? Z3D_MODE_EVALUATE : Z3D_MODE_PREFILL;
}

#endif
