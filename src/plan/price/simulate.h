/* A step on the sim device: the engine runs the program at full size, but without memory. The
 * recorded step is then priced on described hardware, any number of times. */
#ifndef ZERO3D_PLAN_SIMULATE_H
#define ZERO3D_PLAN_SIMULATE_H

#include <stdio.h>

#include "parallel/sim/links.h"
#include "zero/program.h"
#include "zero/program/pipeline.h"
#include "zero/zero.h"

/* The parts of a step's time on one rank, and the bytes that it sends. Each second belongs to one
 * of compute, launch, transfer, disk, host, exposed, bubble and allocator. */
typedef struct z3d_step_time {
    double seconds, compute, transfer; /* all; kernels; exposed copies from and to the host */
    double disk, host; /* the device waits for the disk; for the host's optimizer step */
    double exposed[Z3D_AXES_COUNT]; /* waits for collectives, sends and receives, by group */
    double bubble;                  /* waits for other pipeline stages, also at the step's end */
    double launch;                  /* the device waits for the host's next launch */
    double control;                 /* waits for the world's one small collective a step */
    double allocator;               /* the cost of allocations on a nearly full device */
    double bytes[Z3D_AXES_COUNT];   /* sent by this rank; next: the part of them between nodes */
    double bytes_between_nodes[Z3D_AXES_COUNT];
    double busy[Z3D_AXES_COUNT]; /* seconds of collectives without any overlap */
} z3d_step_time;

/* An instruction of the training step; unit, micro: -1: none. */
typedef struct z3d_sim_entry {
    z3d_opcode opcode;
    int unit, micro;
    int64_t recomputed; /* for a gather whose parameters a recomputation reads first: the number of
                           parameters of this unit; else 0 */
} z3d_sim_entry;

/* Whether it is a forward, a recomputation, a backward or a half of one. */
bool z3d_sim_is_pass(z3d_opcode opcode);

/* A pipeline stage, by one of its ranks: our rank, or the rank at our place in another stage. */
typedef struct z3d_sim_stage {
    z3d_mesh mesh;
    z3d_tape *tape; /* its training step, as the executor ran it */
    int num_entries;
    z3d_sim_entry *entry;           /* of each instruction */
    int64_t arena[Z3D_SPACE_COUNT]; /* bytes */
    int64_t snapshot;               /* z3d_plan_snapshot; set by the caller */
    double replayed;                /* recomputed FLOPs per token (z3d_plan_hardware_flops) */
    z3d_step_time time;             /* of the latest z3d_simulation_play */
} z3d_sim_stage;

/* One training step. Ranks of one pipeline stage have the same program, so one rank stands for all.
 * A collective is priced for the slowest group of its axis, on the full map of ranks and nodes. */
typedef struct z3d_simulation {
    z3d_mesh mesh;
    int stages, own; /* own: this rank's */
    z3d_sim_stage *stage;
    z3d_engine *engine; /* of this rank, with its program, layout and ledgers */
    z3d_device *device;
    z3d_timetables *timetables; /* of all stages' programs */
    z3d_group *group[Z3D_AXES_COUNT];
} z3d_simulation;

/* The numbers that decide scratch and groups' buffers on a cpu machine; 0 for gpus. */
typedef struct z3d_sim_node {
    int threads; /* of a rank */
    int ranks;   /* of a node */
    bool rough;  /* arenas are lower bounds, for speed (z3d_program_config.rough_memory) */
} z3d_sim_node;

/* Runs one step of each stage on the sim device, without device memory. model must outlive the
 * simulation. Not collective. Errors: as z3d_engine_create. */
z3d_status z3d_simulation_create(const z3d_model *model, const z3d_mesh *mesh,
                                 const z3d_program_config *program, double gradient_clipping,
                                 z3d_sim_node node, z3d_simulation **out);
void z3d_simulation_destroy(z3d_simulation *simulation);
/* Runs this rank's step again and calls `observe` for every kernel; its failure ends the run. */
z3d_status z3d_simulation_observe(const z3d_simulation *simulation,
                                  z3d_status (*observe)(void *, const z3d_kernel *), void *context);

/* A stretch of time on a lane of a stage. A wait or bubble is a part of its instruction. */
typedef enum z3d_span_kind {
    Z3D_SPAN_INSTRUCTION, /* on the compute lane */
    Z3D_SPAN_WAIT,        /* compute stands still for a collective, a copy or a transfer */
    Z3D_SPAN_BUBBLE,      /* compute stands still for another stage */
    Z3D_SPAN_BESIDE       /* a collective, copy, send or receive on its own lane */
} z3d_span_kind;

/* Side lanes, each of which works in order. The first ones are the groups', by axes. */
enum {
    Z3D_LANE_COPY = Z3D_AXES_COUNT, /* between device and host */
    Z3D_LANE_DISK,                  /* reads, and writes if they share it */
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

/* Takes all spans; those of a stage in the order of their ends. */
typedef struct z3d_spans {
    void (*take)(void *context, const z3d_span *span);
    void *context;
} z3d_spans;

/* Plays the tapes of all stages, each on its own clock. A stage has a compute lane, a lane for each
 * group's collectives, one for copies between device and host, one or two for the disk. A start
 * waits until compute reaches it and its lane is free; a wait makes compute wait. Kernels on host
 * memory run on the host's lane when the host's thread reaches them; this thread enqueues the
 * device's kernels without waiting for them, but stands still at waits and at the exchange of the
 * step's control. A stage's sends and receives share a lane, first in, first out; a transfer begins
 * when both ends have started it and both lanes are free. The world's collective begins when all
 * stages have started it; the step ends with the last stage. memory_used: share of the device's
 * memory in use (for the allocator). spans: may be NULL. Sets the times of all stages. Errors:
 * ERR_MEMORY; ERR_PROGRAM: stages wait for each other for ever. */
z3d_status z3d_simulation_play(const z3d_simulation *simulation, const z3d_hardware *hardware,
                               double memory_used, const z3d_spans *spans, z3d_step_time *out);

/* After a play: the stage that waits least for other stages and transfers; the shares of all
 * stages' time that are bubble (waits for others) and (*sends) exposed sends and receives. */
int z3d_simulation_slowest(const z3d_simulation *simulation);
double z3d_simulation_bubble(const z3d_simulation *simulation, double *sends);

/* Writes the spans of this rank as Chrome trace events: begin, take for each span, end. Write
 * errors stay with the file. */
typedef struct z3d_timeline {
    FILE *file;
    const z3d_simulation *simulation;
} z3d_timeline;
void z3d_timeline_begin(const z3d_timeline *timeline);
void z3d_timeline_take(void *timeline, const z3d_span *span);
void z3d_timeline_end(const z3d_timeline *timeline);

/* The memory that a rank needs on this machine. */
typedef struct z3d_memory_need {
    int64_t arena, host_arena; /* bytes; host_arena: of this rank */
    int64_t snapshot;          /* z3d_plan_snapshot, also in host memory */
    double overhead;           /* bytes outside the arena */
    double capacity, free;     /* of the device; free < 0: so many bytes are missing */
    double host_capacity;      /* a rank's share of the node's host memory */
    int64_t disk_arena;        /* bytes of the rank's file */
    double disk_capacity;      /* a rank's share of the node's disks; INFINITY: not known */
    bool fits;
} z3d_memory_need;

/* arena: bytes by space. ranks: of the world. extra: more bytes of device memory. */
void z3d_memory_find(const int64_t arena[Z3D_SPACE_COUNT], int64_t snapshot,
                     const z3d_hardware *hardware, int ranks, double extra, z3d_memory_need *out);
/* Free bytes of a rank's host memory; < 0: so many are missing. */
double z3d_memory_host_free(const z3d_memory_need *need);
/* The same for its share of the disks. */
double z3d_memory_disk_free(const z3d_memory_need *need);
/* Free bytes of a rank: on the device, or (< 0) of host or disks if these are short. */
double z3d_memory_room(const z3d_memory_need *need);

#endif
