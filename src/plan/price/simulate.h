/* A step on the sim device: the engine itself runs the program at full size, without memory behind
 * it. The recorded step is then priced on described hardware, any number of times. */
#ifndef ZERO3D_PLAN_SIMULATE_H
#define ZERO3D_PLAN_SIMULATE_H

#include <stdio.h>

#include "parallel/sim/links.h"
#include "zero/program.h"
#include "zero/program/pipeline.h"
#include "zero/zero.h"

/* The parts of a step's time on one rank, and the bytes it sends. Each second is in one of compute,
 * launch, transfer, disk, host, exposed, bubble and allocator. */
typedef struct z3d_step_time {
    double seconds, compute, transfer; /* in all; kernels; exposed copies from and to the host */
    double disk, host; /* the device stands still for reads and writes of the disk; for the host's
                          optimizer step */
    double exposed[Z3D_AXES_COUNT]; /* waits for collectives, sends and receives, by group */
    double bubble;                  /* waits for other pipeline stages: before what is received
                                       or sent begins, and at the end of the step */
    double launch;                  /* the device waits for the host to launch what comes next */
    double control;                 /* waits for the world's one small collective a step */
    double allocator;               /* what a nearly full device adds */
    double kernel_flops;            /* as the kernels count */
    double bytes[Z3D_AXES_COUNT];   /* sent by this rank, of them between nodes: */
    double bytes_between_nodes[Z3D_AXES_COUNT];
    double busy[Z3D_AXES_COUNT]; /* seconds of collectives if each were alone */
} z3d_step_time;

/* What an instruction of the training step is about; -1: not about one. */
typedef struct z3d_sim_entry {
    z3d_opcode opcode;
    int unit, micro;
    int64_t recomputed; /* it gathers parameters that a recomputation reads first: how many
                           parameters that unit has; 0: it does not */
} z3d_sim_entry;

/* Forward, recomputation, or backward or a half of it. */
bool z3d_sim_is_pass(z3d_opcode opcode);

/* A pipeline stage, as one of its ranks shows it: ours, or the one that differs from ours along the
 * pipeline only. */
typedef struct z3d_sim_stage {
    z3d_mesh mesh;
    z3d_tape *tape; /* its training step, as the executor ran it */
    int num_entries;
    z3d_sim_entry *entry;           /* by instruction */
    int64_t arena[Z3D_SPACE_COUNT]; /* bytes */
    int64_t snapshot;               /* z3d_plan_snapshot; the caller's */
    int64_t padded_total;           /* parameters, before ZeRO */
    double replayed;    /* FLOPs per token that it recomputes (z3d_plan_hardware_flops) */
    z3d_step_time time; /* of the latest z3d_simulation_play */
} z3d_sim_stage;

/* One training step. Ranks of one pipeline stage have the same program, so one of each stage stands
 * for all: their collectives are priced by the slowest group of their axis on the full map of ranks
 * and nodes. */
typedef struct z3d_simulation {
    z3d_mesh mesh;
    int stages, own; /* own: this rank's */
    z3d_sim_stage *stage;
    z3d_engine *engine; /* of this rank; program, layout and ledgers can be looked at */
    z3d_device *device;
    z3d_timetables *timetables; /* of all stages' programs */
    z3d_group *group[Z3D_AXES_COUNT];
} z3d_simulation;

/* What scratch and groups' buffers of the ranks of a cpu machine depend on: 0: gpus. */
typedef struct z3d_sim_node {
    int threads; /* of a rank */
    int ranks;   /* of a node */
    bool rough;  /* arenas are lower bounds: quicker (z3d_program_config.rough_memory) */
} z3d_sim_node;

/* Runs one step of each stage on the sim device. model must outlive it. Not collective, allocates
 * no device memory. Errors: as z3d_engine_create. */
z3d_status z3d_simulation_create(const z3d_model *model, const z3d_mesh *mesh,
                                 const z3d_program_config *program, double gradient_clipping,
                                 z3d_sim_node node, z3d_simulation **out);
void z3d_simulation_destroy(z3d_simulation *simulation);
/* This rank's step once more: every kernel is shown to `observe`, whose failure ends it. */
z3d_status z3d_simulation_observe(const z3d_simulation *simulation,
                                  z3d_status (*observe)(void *, const z3d_kernel *), void *context);

/* A stretch of time on a lane of a stage. Waits and bubbles lie within the instruction that waits.
 */
typedef enum z3d_span_kind {
    Z3D_SPAN_INSTRUCTION, /* on the compute lane */
    Z3D_SPAN_WAIT,        /* compute stands still for a collective, a copy or a transfer */
    Z3D_SPAN_BUBBLE,      /* and for another stage */
    Z3D_SPAN_BESIDE       /* a collective, copy, send or receive on its own lane */
} z3d_span_kind;

/* What runs beside compute, in order. Before these: by group. */
enum {
    Z3D_LANE_COPY = Z3D_AXES_COUNT, /* between device and host */
    Z3D_LANE_DISK,                  /* reads; writes, too, where they share it */
    Z3D_LANE_DISK_WRITE,
    Z3D_LANE_HOST, /* kernels on host memory */
    Z3D_LANES
};

typedef struct z3d_span {
    z3d_span_kind kind;
    int stage, lane; /* lane: of BESIDE and WAIT */
    int instruction; /* -1: none yet */
    double begin, end;
} z3d_span;

/* Who is told of all spans, of each stage in the order in which they end. */
typedef struct z3d_spans {
    void (*take)(void *context, const z3d_span *span);
    void *context;
} z3d_spans;

/* Plays the tapes of all stages on one clock each: a compute lane, one lane a group's collectives,
 * one lane for copies between device and host, one or two for the disk; a start waits for compute's
 * position and its lane, a wait makes compute wait. Kernels on host memory run on the host's lane:
 * they begin when the host's thread comes to them, which enqueues the device's kernels without
 * waiting for them, and stands still at waits and where all ranks exchange the step's control.
 * Sends and receives have one lane a stage, first in, first out; one begins when both ends have
 * started it and both lanes are free. The world's collective begins when all stages have started
 * it, and the step ends with the last stage. memory_used: share of the device's memory in use (for
 * the allocator). spans: NULL: nobody wants them. Sets the times of all stages. Errors: ERR_MEMORY;
 * ERR_PROGRAM where stages wait for each other for ever. */
z3d_status z3d_simulation_play(const z3d_simulation *simulation, const z3d_hardware *hardware,
                               double memory_used, const z3d_spans *spans, z3d_step_time *out);

/* Of all stages, after a play: the one that waits least for others and their transfers; the shares
 * of all stages' time that are the bubble (waiting for others) and exposed sends and receives. */
int z3d_simulation_slowest(const z3d_simulation *simulation);
double z3d_simulation_bubble(const z3d_simulation *simulation, double *sends);

/* Chrome trace events of this rank from the spans of a play: a line for people's tools. Write
 * errors stay with the file. */
typedef struct z3d_timeline {
    FILE *file;
    const z3d_simulation *simulation;
} z3d_timeline;
void z3d_timeline_begin(const z3d_timeline *timeline);
void z3d_timeline_take(void *timeline, const z3d_span *span);
void z3d_timeline_end(const z3d_timeline *timeline);

/* Bytes of device memory that a rank needs on this machine: the arena, and what is outside of it.
 */
typedef struct z3d_memory_need {
    int64_t arena, host_arena; /* bytes; host_arena: of this rank */
    int64_t snapshot;          /* in host memory too: z3d_plan_snapshot */
    double overhead, extra;    /* bytes outside the arena; a caller's named line */
    double capacity, free;     /* free < 0: so many bytes are missing */
    double host_capacity;      /* a rank's share of the node's host memory */
    int64_t disk_arena;        /* bytes of its file */
    double disk_capacity;      /* its share of the node's disks; INFINITY: not known */
    bool fits;
} z3d_memory_need;

/* arena: bytes by space. ranks: of the world. */
void z3d_memory_find(const int64_t arena[Z3D_SPACE_COUNT], int64_t snapshot,
                     const z3d_hardware *hardware, int ranks, double extra, z3d_memory_need *out);
void z3d_simulation_memory(const z3d_simulation *simulation, int stage,
                           const z3d_hardware *hardware, double extra, z3d_memory_need *out);
/* Free bytes of a rank's host memory; < 0: so many are missing. */
double z3d_memory_host_free(const z3d_memory_need *need);
/* The same of its share of the disks. */
double z3d_memory_disk_free(const z3d_memory_need *need);
/* What is free on a rank: on the device, or of its share of host or disks if that is short. */
double z3d_memory_room(const z3d_memory_need *need);

#endif
