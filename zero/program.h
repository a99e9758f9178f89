/* The step program: the work of a step on one rank, as a list made once by a pure function of
 * (model, configuration, rank). Verifier, memory planner, executor, print, plan and sim read it. */
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
    int *slot; /* of all instructions, in list order */
    z3d_buffer *buffer;
    int64_t arena[Z3D_SPACE_COUNT]; /* bytes, set by the planner */
    int64_t bound[Z3D_SPACE_COUNT]; /* lower bound: the largest sum of live bytes */
} z3d_program;

/* Raises bucket[axes] to the bytes of the largest bucket that a collective over these axes cuts out
 * of a wider matrix. */
void z3d_program_buckets(const z3d_program *program, int64_t bucket[Z3D_AXES_COUNT]);

/* Pure: no communication, no device, no clock. model, layout and traces must outlive the program.
 * Errors: ERR_CONFIG, ERR_MEMORY, ERR_PROGRAM (the model breaks its contract). */
z3d_status z3d_program_build(const z3d_model *model, const z3d_layout *layout,
                             const z3d_traces *traces, const z3d_mesh *mesh,
                             const z3d_program_config *config, z3d_mode mode, z3d_program **out);
void z3d_program_destroy(z3d_program *program);

/* Packs the buffers of several programs into one arena: persistent buffers (the same list in each)
 * get equal offsets, the others follow, packed for each program; the arena is the maximum. Errors:
 * ERR_PROGRAM, ERR_MEMORY. */
z3d_status z3d_program_plan(z3d_program **programs, int count);
/* Peak bytes in one memory space, by category and in total, from lifetimes. */
void z3d_program_ledger(const z3d_program *program, z3d_space space, z3d_ledger *out);

/* Checks one program: its dataflow against what a step must compute (symbolically), lifetimes,
 * addresses. ERR_PROGRAM names the first wrong entry and says why. */
z3d_status z3d_program_verify(const z3d_program *program);
/* Plays the programs of all ranks against each other, inner collectives included: each group has
 * the same collectives in the same order, and no wait is circular. programs[rank]; count: the
 * world's size. ERR_PROGRAM. Not collective. */
z3d_status z3d_program_verify_world(z3d_program *const *programs, int count);
/* The same for a large world, with one program for each pipeline stage: the programs of a stage
 * differ only in the rank. */
z3d_status z3d_program_verify_classes(z3d_program *const *programs, int stages);

/* Elements x (N-1)/N of parameters and gradients that this rank moves over `axes`; children: with
 * inner collectives. */
int64_t z3d_program_volume(const z3d_program *program, z3d_axes axes, bool children);

/* The list as text, a line for each instruction, with bytes and inner collectives. */
void z3d_program_print(const z3d_program *program, z3d_string *out);

#endif
