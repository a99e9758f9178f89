/* The step program: what a training step does on one rank, as a list made once by a pure function
 * of (model, configuration, rank). Everything reads it: the verifier, the memory planner, the
 * executor, print, plan, sim. */
#ifndef ZERO3D_ZERO_PROGRAM_H
#define ZERO3D_ZERO_PROGRAM_H

#include "zero/program/buffers.h"
#include "zero/program/config.h"
#include "zero/program/instruction.h"

const char *z3d_mode_name(z3d_mode mode); /* "train" */

typedef struct z3d_program {
    z3d_mode mode;
    z3d_program_config config;
    z3d_mesh mesh;
    const z3d_model *model;
    const z3d_layout *layout;
    const z3d_traces *traces;
    int num_instructions, num_slots, num_buffers, num_tickets;
    z3d_instruction *instruction;
    int *slot; /* of all instructions, in their order */
    z3d_buffer *buffer;
    int64_t arena[Z3D_SPACE_COUNT]; /* bytes, set by the planner */
    int64_t bound[Z3D_SPACE_COUNT]; /* lower bound: the largest sum of live bytes */
} z3d_program;

/* For each set of axes: raised to the bytes of the largest bucket that a collective of it cuts out
 * of a wider matrix. */
void z3d_program_buckets(const z3d_program *program, int64_t bucket[Z3D_AXES_COUNT]);

/* Pure: no communication, no device, no clock. model, layout and traces must outlive the program.
 */
z3d_status z3d_program_build(const z3d_model *model, const z3d_layout *layout,
                             const z3d_traces *traces, const z3d_mesh *mesh,
                             const z3d_program_config *config, z3d_mode mode, z3d_program **out);
void z3d_program_destroy(z3d_program *program);

/* Packs the lifetimes of several programs' buffers into one arena: persistent buffers (the same
 * list in each) get the same offsets, the rest is packed per program behind them; the arena is the
 * maximum. */
z3d_status z3d_program_plan(z3d_program **programs, int count);
/* Peak bytes by category and in total in one memory space, from lifetimes. */
void z3d_program_ledger(const z3d_program *program, z3d_space space, z3d_ledger *out);

/* Dataflow of one program against what a step must compute (symbolically), lifetimes, overlaps.
 * ERR_PROGRAM with the first entry that is wrong and why. */
z3d_status z3d_program_verify(const z3d_program *program);
/* Plays the programs of all ranks of a world against each other, children included: same
 * collectives in the same order per group, no circular wait. programs[rank]; world size = count. */
z3d_status z3d_program_verify_world(z3d_program *const *programs, int count);
/* The same for a large world, with one program for each pipeline stage: ranks of one stage have the
 * same program but for their rank, so one stands for its class. */
z3d_status z3d_program_verify_classes(z3d_program *const *programs, int stages);

/* Elements x (N-1)/N that this rank's program moves over `axes` with data of parameters and
 * gradients (children: with_children). */
int64_t z3d_program_volume(const z3d_program *program, z3d_axes axes, bool children);

/* The list as text, one instruction a line, with bytes and children. */
void z3d_program_print(const z3d_program *program, z3d_string *out);

#endif
