/* src/plan: the needs of a configuration, without a run. It turns the configuration into the
 * step-program builder's input (the trainer uses the same function), and finds memory,
 * communication and work of the programs for any rank of any world. No function here is collective:
 * every rank that calls it gets the same answer. price/ adds time and memory on described hardware
 * (estimate.h); choose/ decides the keys that a configuration leaves open (choose.h, advice.h);
 * calibrate/ fits a software description to measured steps (calibrate.h); paper/ has published runs
 * (paper.h); submit/ makes Slurm jobs (submit.h); prove/ compares the bits of two configurations
 * (prove.h); timeline_picture.h draws a step. This folder may call every floor below src/train.
 * Start reading here, then plan.c. */
#ifndef ZERO3D_PLAN_PLAN_H
#define ZERO3D_PLAN_PLAN_H

#include <stdbool.h>

#include "src/base/base.h"
#include "src/base/config.h"
#include "src/model/model.h"
#include "zero/program/set.h"

/* The memory space of a value of offload_optimizer.device or offload_param.device
 * (z3d_offload_device). */
z3d_space z3d_plan_space(int offload_device);
/* Whether gradients are reduced once a step, at this ZeRO stage. */
bool z3d_plan_reduces_per_step(const z3d_config *config, int stage);

/* Whether a save runs beside training: checkpoint.async, unless optimizer states are on the disk.
 * Those are too large for a copy in host memory, so training waits while they are saved. */
bool z3d_plan_saves_beside(const z3d_config *config);
/* Whether the run begins with a checkpoint's weights. Then that checkpoint is the base of its own
 * checkpoints, which leave out frozen parameters. Not so if the model has more token ids than the
 * checkpoint; only loading finds that out. */
bool z3d_plan_begins(const z3d_config *config);
/* *out: bytes of a rank's host memory for the copy of an asynchronous save, outside of the arenas;
 * 0 if saves are synchronous. */
z3d_status z3d_plan_snapshot(const z3d_config *config, const z3d_program_config *program,
                             const z3d_model *model, const z3d_mesh *mesh, int64_t *bytes);

/* Bytes of a rank on the cpu device outside of its plan: heap, stacks, data of MPI and of
 * libraries. Measured: 4 to 22 MiB; most with MPI, bf16, measured products and a save. Pages of the
 * program's and the libraries' files do not count, though the system calls them resident (20 MiB):
 * it drops them if memory is short. */
enum { Z3D_OUTSIDE_BYTES = 24 << 20 };
/* Z3D_OUTSIDE_BYTES plus the communication buffers of the rank's groups. */
int64_t z3d_plan_outside(const z3d_mesh *mesh);

/* The builder's input, with the model's units divided among pipeline stages. The configuration must
 * be resolved (z3d_config_resolve). cpu_checkpointing `auto` counts as off: call z3d_choose_offload
 * first. Likewise granularity `auto` counts as full, pipeline_gather `auto` as per_microbatch,
 * offload_optimizer.ratio `auto` as 1, recompute_activation `auto` as true: call
 * z3d_choose_granularity, z3d_choose_gather, z3d_choose_ratio and z3d_choose_activation first.
 * device_speeds `measured` counts as equal. The result owns the schedule file's content and the
 * data ranks' shares: release it when neither it nor a program made from it is in use; after a
 * failure there is nothing to release. Errors: ERR_CONFIG, ERR_IO, ERR_MEMORY, ERR_PROGRAM. */
z3d_status z3d_plan_program_config(const z3d_config *config, const z3d_model *model,
                                   z3d_program_config *out);
void z3d_plan_program_config_release(z3d_program_config *config);

/* Speeds of the pipeline stages and the data ranks, from parallel.device_speeds; all zero: they are
 * equal. A stage is as fast as its slowest rank, and so is a data rank. But if slow stages have
 * fewer units, a rank's speed counts relative to the speed of its stage. */
typedef struct z3d_plan_speeds {
    double *stage, *data;
    int data_size; /* of `data` */
} z3d_plan_speeds;

/* speeds.c: finds the speeds. Errors: ERR_TOPOLOGY, ERR_MEMORY. */
z3d_status z3d_plan_speeds_find(const z3d_config *config, z3d_plan_speeds *out);
void z3d_plan_speeds_release(z3d_plan_speeds *speeds);
/* Sets first_sample, the data ranks' shares of a micro-batch. ERR_CONFIG: a data rank gets no
 * sample. */
z3d_status z3d_plan_shares(const z3d_config *config, const z3d_plan_speeds *speeds,
                           z3d_program_config *out);
/* The first of the ranks with the most samples. */
int z3d_plan_largest_share(const z3d_program_config *program, const z3d_mesh *mesh);

/* The type of parameters and activations. */
z3d_dtype z3d_plan_dtype(const z3d_config *config);
/* The mesh as rank `rank` of `ranks` sees it: the one place that reads the axes' sizes. The
 * configuration must have been resolved for so many ranks. Errors: ERR_TOPOLOGY. */
z3d_status z3d_plan_mesh(const z3d_config *config, int ranks, int rank, z3d_mesh *out);
/* Checks and resolves `config` for a world of `ranks` ranks (0: as z3d_plan_create finds them) and
 * returns the position of `rank` in it. Errors: ERR_CONFIG, ERR_TOPOLOGY. */
z3d_status z3d_plan_place(z3d_config *config, int64_t ranks, int rank, z3d_mesh *out);

/* Threads of each of `ranks` ranks on this machine: training.threads, or its cores / ranks. */
int z3d_plan_threads(const z3d_config *config, int ranks);

/* Hardware FLOPs per token (for HFU) by the papers' formula: the model FLOPs plus the FLOPs that
 * this training step recomputes. Recompute of whole blocks gives 4/3 of the model FLOPs (Narayanan
 * et al., 2021); a minimal recompute saves 8 h^2 per block; selective recompute repeats the
 * attention, 4 s h per block; without recompute it is the model FLOPs. */
double z3d_plan_hardware_flops(const z3d_program *program);

/* One rank of a pipeline stage: its parameters, memory and work. */
typedef struct z3d_plan_stage {
    int64_t padded_total;           /* parameters, before ZeRO */
    int64_t arena[Z3D_SPACE_COUNT]; /* bytes */
    int64_t sent;                   /* elements to other stages, in a training step */
    double flops;                   /* of a training step's units, recompute included */
} z3d_plan_stage;

/* Appends the units of a stage's chunks: "embedding - block.3, block.8". */
void z3d_stage_units(const z3d_model *model, const z3d_layout *layout, int stage, z3d_string *out);

/* All facts about one rank that are known before a run. */
typedef struct z3d_plan {
    z3d_mesh mesh;
    z3d_program_config program_config;
    int threads; /* per rank; scratch depends on it */
    z3d_model *model;
    z3d_program_set set; /* the same programs as this rank's engine has */
    z3d_ledger ledger[Z3D_MODE_COUNT][Z3D_SPACE_COUNT];
    int64_t snapshot;      /* z3d_plan_snapshot */
    z3d_plan_stage *stage; /* one for each pipeline stage: the rank that differs from this one only
                              along the pipeline */
} z3d_plan;

/* Plans rank `rank` of a world of `ranks` ranks. ranks 0: parallel.world_size; if that is not set,
 * tensor x pipeline x the data size that the batch keys imply (1 if they imply none). Resolves
 * `config`; records, builds, lays out and verifies the programs as the engine does. Not collective,
 * allocates no device memory. Errors: ERR_CONFIG, ERR_TOPOLOGY, ERR_PROGRAM. */
z3d_status z3d_plan_create(z3d_config *config, int ranks, int rank, z3d_plan **out);
void z3d_plan_destroy(z3d_plan *plan);

/* If a step has fewer micro-batches than pipeline stages, appends `before` and a line that says
 * so. */
void z3d_plan_few_micro_batches(const z3d_program_config *program, int stages, const char *before,
                                z3d_string *out);

/* For z3d_plan_create: fills plan->stage. For z3d_plan_print: prints it as a table if the pipeline
 * has several stages. */
z3d_status z3d_plan_stages(z3d_plan *plan);
void z3d_plan_print_stages(const z3d_plan *plan, z3d_string *out);

/* Prints the plan for people: memory by category, arena and lower bound, communication by axis,
 * work; with print_program also the training step's program. */
void z3d_plan_print(const z3d_plan *plan, bool print_program, z3d_string *out);

#endif
