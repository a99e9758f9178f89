/* A step on the sim device: the engine itself runs the program at full size, without memory behind
 * it. The recorded step is then priced on described hardware, any number of times. */
#ifndef ZERO3D_PLAN_SIMULATE_H
#define ZERO3D_PLAN_SIMULATE_H

#include <stdio.h>

#include "parallel/sim/links.h"
#include "zero/zero.h"

/* One training step of one rank, as the executor ran it. Every rank of a world without pipeline
 * stages has the same program, so this one stands for all: collectives are priced by the slowest
 * group of their axis on the full map of ranks and nodes. */
typedef struct z3d_simulation {
    z3d_mesh mesh;
    z3d_tape *tape;
    z3d_engine *engine; /* program, layout and ledgers can be looked at */
    z3d_device *device;
    z3d_group *group[Z3D_AXES_COUNT];
} z3d_simulation;

/* What scratch and groups' buffers of the ranks of a cpu machine depend on; all 0: gpus. */
typedef struct z3d_sim_node {
    int threads; /* of a rank */
    int ranks;   /* of a node */
} z3d_sim_node;

/* Runs one step on the sim device. model must outlive it. Not collective, allocates no device
 * memory. Errors: as z3d_engine_create. */
z3d_status z3d_simulation_create(const z3d_model *model, const z3d_mesh *mesh,
                                 const z3d_program_config *program, double gradient_clipping,
                                 z3d_sim_node node, z3d_simulation **out);
void z3d_simulation_destroy(z3d_simulation *simulation);

/* The parts of a step's time on this rank, and the bytes it sends. */
typedef struct z3d_step_time {
    double seconds, compute, transfer; /* in all; kernels; exposed copies from and to the host */
    double exposed[Z3D_AXES_COUNT];    /* waits for collectives, by group */
    double control;                    /* waits for the world's one small collective a step */
    double allocator;                  /* what a nearly full device adds */
    double kernel_flops;               /* as the kernels count */
    double bytes[Z3D_AXES_COUNT];      /* sent by this rank, of them between nodes: */
    double bytes_between_nodes[Z3D_AXES_COUNT];
    double busy[Z3D_AXES_COUNT]; /* seconds of collectives if each were alone */
} z3d_step_time;

/* Plays the tape on a clock: a compute lane, one lane a group's collectives, one lane for copies;
 * a start waits for compute's position and its lane, a wait makes compute wait. memory_used: share
 * of the device's memory in use (for the allocator). timeline: NULL, or a file that gets Chrome
 * trace events. Errors: ERR_MEMORY, ERR_IO. */
z3d_status z3d_simulation_play(const z3d_simulation *simulation, const z3d_hardware *hardware,
                               double memory_used, FILE *timeline, z3d_step_time *out);

/* Bytes of device memory that a rank needs on this machine: the arena, and what is outside of it.
 */
typedef struct z3d_memory_need {
    int64_t arena, host_arena; /* bytes; host_arena: of this rank */
    int64_t snapshot;          /* in host memory too: z3d_plan_snapshot */
    double overhead, extra;    /* bytes outside the arena; a caller's named line */
    double capacity, free;     /* free < 0: so many bytes are missing */
    double host_capacity;      /* a rank's share of the node's host memory */
    bool fits;
} z3d_memory_need;

/* arena: bytes by space. */
void z3d_memory_find(const int64_t arena[Z3D_SPACE_COUNT], int64_t snapshot,
                     const z3d_hardware *hardware, double extra, z3d_memory_need *out);
void z3d_simulation_memory(const z3d_simulation *simulation, int64_t snapshot,
                           const z3d_hardware *hardware, double extra, z3d_memory_need *out);
/* Free bytes of a rank's host memory; < 0: so many are missing. */
double z3d_memory_host_free(const z3d_memory_need *need);

#endif
