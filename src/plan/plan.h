/* src/plan: what a configuration needs, without running it. It turns the configuration into the
 * step-program builder's input (the trainer uses the same function), and finds the memory,
 * communication and work of the programs for any rank of any world. price/ adds time and memory on
 * described hardware (estimate.h), choose/ decides what a configuration leaves open (choose.h,
 * advice.h), paper/ has the rows of the ZeRO paper (paper.h); submit/ makes Slurm jobs (submit.h);
 * prove/ compares two configurations to the bit (prove.h); timeline_picture.h draws a step. It may
 * call every floor below src/train. Start reading here, then plan.c. */
#ifndef ZERO3D_PLAN_PLAN_H
#define ZERO3D_PLAN_PLAN_H

#include <stdbool.h>

#include "src/base/base.h"
#include "src/base/config.h"
#include "src/model/model.h"
#include "zero/program/set.h"

/* Where offload_optimizer.device or offload_param.device (z3d_offload_device) puts what it moves.
 */
z3d_space z3d_plan_space(int offload_device);
/* Whether gradients are reduced once a step, at this ZeRO stage. */
bool z3d_plan_reduces_per_step(const z3d_config *config, int stage);

/* checkpoint.async, unless optimizer states are on the disk: they are too large for a copy in host
 * memory, so training waits while they are written from there. */
bool z3d_plan_saves_beside(const z3d_config *config);
/* The run begins with a checkpoint's weights: that is the base of what it saves, so what is frozen
 * is not saved again. Not true of more token ids than there, which only loading finds out. */
bool z3d_plan_begins(const z3d_config *config);
/* Bytes of a rank's host memory outside of the arenas: the copy of an asynchronous save; 0 without.
 */
z3d_status z3d_plan_snapshot(const z3d_config *config, const z3d_program_config *program,
                             const z3d_model *model, const z3d_mesh *mesh, int64_t *bytes);

/* What a rank on the cpu device has outside of its plan and cannot give back: heap, stacks, data of
 * MPI and of libraries. Measured: 4 to 22 MiB; most with MPI, bf16, measured products and a save.
 * (Pages of the program's and the libraries' files, 20 MiB more in what the system calls resident,
 * go when memory is short.) */
enum { Z3D_OUTSIDE_BYTES = 24 << 20 };
/* The same with the communication buffers of its groups. */
int64_t z3d_plan_outside(const z3d_mesh *mesh);

/* The builder's input, with the model's units divided among pipeline stages. The configuration must
 * be resolved (z3d_config_resolve). cpu_checkpointing `auto` counts as off: call z3d_choose_offload
 * first. So does granularity `auto` as full, pipeline_gather `auto` as per_microbatch,
 * offload_optimizer.ratio `auto` as 1, recompute_activation `auto` as true: call
 * z3d_choose_granularity, z3d_choose_gather, z3d_choose_ratio and z3d_choose_activation.
 * device_speeds `measured` counts as equal. It has a schedule file and the data ranks' shares:
 * release it once nothing uses it or a program that is made of it; after a failure there is nothing
 * to release. Errors: ERR_CONFIG, ERR_IO, ERR_MEMORY, ERR_PROGRAM. */
z3d_status z3d_plan_program_config(const z3d_config *config, const z3d_model *model,
                                   z3d_program_config *out);
void z3d_plan_program_config_release(z3d_program_config *config);

/* How fast the pipeline stages and the data ranks are, from parallel.device_speeds; all zero: they
 * are equal. A stage is as fast as its slowest rank. So is a data rank; but where slow stages have
 * fewer units, each speed counts as a multiple of its stage's. */
typedef struct z3d_plan_speeds {
    double *stage, *data;
    int stages, data_size;
} z3d_plan_speeds;

/* speeds.c. Errors: ERR_TOPOLOGY, ERR_MEMORY. */
z3d_status z3d_plan_speeds_find(const z3d_config *config, z3d_plan_speeds *out);
void z3d_plan_speeds_release(z3d_plan_speeds *speeds);
/* Sets first_sample. ERR_CONFIG: a data rank gets no sample. */
z3d_status z3d_plan_shares(const z3d_config *config, const z3d_plan_speeds *speeds,
                           z3d_program_config *out);
/* The first rank of those with most samples. */
int z3d_plan_largest_share(const z3d_program_config *program, const z3d_mesh *mesh);
/* pipeline.c: sets all about pipelines. */
z3d_status z3d_plan_pipeline(const z3d_config *config, const z3d_model *model,
                             const z3d_plan_speeds *speeds, z3d_program_config *out);

/* The axes' sizes, as `rank` of `ranks` sees them: the one place that reads them. The configuration
 * must have been resolved for so many ranks. Errors: ERR_TOPOLOGY. */
/* The type of parameters and activations. */
z3d_dtype z3d_plan_dtype(const z3d_config *config);
z3d_status z3d_plan_mesh(const z3d_config *config, int ranks, int rank, z3d_mesh *out);
/* Checks and resolves `config` for a world of `ranks` ranks (0: as z3d_plan_create finds them) and
 * returns the position of `rank` in it. Errors: ERR_CONFIG, ERR_TOPOLOGY. */
z3d_status z3d_plan_place(z3d_config *config, int64_t ranks, int rank, z3d_mesh *out);

/* Threads of each of `ranks` ranks on this machine: training.threads, or its cores / ranks. */
int z3d_plan_threads(const z3d_config *config, int ranks);

/* Hardware FLOPs per token (for HFU) by the papers' formula: the model FLOPs and what this training
 * step recomputes. Recomputing whole blocks gives Narayanan et al.'s 4/3; a minimal recompute saves
 * 8 h^2 per block; selective recompute repeats the attention, 4 s h per block; without any it is
 * the model FLOPs. */
double z3d_plan_hardware_flops(const z3d_program *program);

/* FLOPs of a training step's units on its rank, recompute included, kernels counted as cost.c does.
 */
double z3d_plan_flops(const z3d_program *program);

/* What a rank of a pipeline stage has and needs. */
typedef struct z3d_plan_stage {
    int64_t padded_total;           /* parameters, before ZeRO */
    int64_t arena[Z3D_SPACE_COUNT]; /* bytes */
    int64_t sent;                   /* elements to other stages, in a training step */
    double flops;                   /* z3d_plan_flops */
} z3d_plan_stage;

/* "embedding - block.3, block.8": the units of a stage's chunks. */
void z3d_stage_units(const z3d_model *model, const z3d_layout *layout, int stage, z3d_string *out);

/* Everything that is known about one rank before a run. */
typedef struct z3d_plan {
    z3d_mesh mesh;
    z3d_program_config program_config;
    int threads; /* per rank; scratch depends on it */
    z3d_model *model;
    z3d_program_set set; /* as this rank's engine would have it */
    z3d_ledger ledger[Z3D_MODE_COUNT][Z3D_SPACE_COUNT];
    int64_t snapshot;      /* z3d_plan_snapshot */
    double flops;          /* of one training step on this rank: z3d_plan_flops */
    z3d_plan_stage *stage; /* of each pipeline stage, the rank that differs from this one along the
                              pipeline only */
} z3d_plan;

/* Plans rank `rank` of a world of `ranks` ranks (0: parallel.world_size, or else the smallest world
 * that the configuration fits: tensor x pipeline x the data size that the batch keys imply, 1
 * without). Resolves `config`; records, builds, lays out and verifies the programs as the engine
 * does. Not collective, allocates no device memory. Errors: ERR_CONFIG, ERR_TOPOLOGY, ERR_PROGRAM.
 */
z3d_status z3d_plan_create(z3d_config *config, int ranks, int rank, z3d_plan **out);
void z3d_plan_destroy(z3d_plan *plan);

/* A line, after `before`, where a step has fewer micro-batches than pipeline stages; else nothing.
 */
void z3d_plan_few_micro_batches(const z3d_program_config *program, int stages, const char *before,
                                z3d_string *out);

/* Fills plan->stage; a table of it, where there are several stages. For z3d_plan_create and _print.
 */
z3d_status z3d_plan_stages(z3d_plan *plan);
void z3d_plan_print_stages(const z3d_plan *plan, z3d_string *out);

/* Text for people: memory by category, arena and lower bound, communication by axis, work; with
 * print_program also the training step's program. */
void z3d_plan_print(const z3d_plan *plan, bool print_program, z3d_string *out);

#endif
