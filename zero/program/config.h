/* The input of the builder's decisions: one configuration of the step program. No `auto` here. */
#ifndef ZERO3D_ZERO_CONFIG_H
#define ZERO3D_ZERO_CONFIG_H

#include "parallel/parallel.h"
#include "parallel/schedule/schedule.h"
#include "src/base/base.h"
#include "src/model/unit.h"

/* How units are divided among pipeline stages, and the order in which stages run them. All zero:
 * one chunk, with all units. */
typedef struct z3d_pipeline_config {
    z3d_schedule_kind schedule;
    int chunks_per_stage;               /* 0: 1 */
    int first_unit[Z3D_MAX_CHUNKS + 1]; /* of each chunk, then num_units; all zero: an even cut */
    const z3d_schedule *file;           /* of schedule FILE; must outlive all programs */
    /* Made once for the programs of several ranks; must outlive their building. NULL: each program
     * makes its own. */
    const struct z3d_timetables *timetables;
    bool gather_per_step; /* gathered parameters stay until the step's last use; else until the end
                             of the pass */
} z3d_pipeline_config;

static inline int z3d_chunks_of_stage(const z3d_pipeline_config *pipeline) {
    return pipeline->chunks_per_stage ? pipeline->chunks_per_stage : 1;
}

/* Offload: the memory spaces of states, and the host's steps. All zero: everything is on the
 * device. */
typedef struct z3d_offload_plan {
    z3d_space optimizer; /* of optimizer states and the master copy; also of reduced gradients, if a
                            rank keeps only its own row of them */
    z3d_space parameters; /* only in stage 3; in training only with the optimizer */
    int64_t sub_group;    /* elements of a group that are stepped at a time; 0: all */
    int pieces;           /* such pieces that are under way at once; 0: 3 */
    double resident;      /* share of the states that stays on the device (Twin-Flow: 1 - ratio), in
                             whole parameter groups */
    bool delayed; /* a step's gradients are kept, and stepped beside the next step's forward and
                     backward, which use the old parameters (ZeRO-Offload's one-step delayed
                     parameter update); no group is resident */
} z3d_offload_plan;

/* What it means for parameter groups that the data axis is cut into the ranks of a node and the
 * nodes, in the order of z3d_data_cut. Without a cut all are as FLAT. */
typedef enum z3d_sharding {
    Z3D_SHARDING_FLAT,         /* collectives are over the whole data axis */
    Z3D_SHARDING_HIERARCHICAL, /* over its two parts, one after the other */
    Z3D_SHARDING_HPZ,   /* likewise; stage 3 keeps a second value, sharded over a node's ranks
                           (ZeRO++, Wang et al. 2306.10209) */
    Z3D_SHARDING_HYBRID /* states are sharded over a node's ranks, and each node has all of them
                           (MiCS, Zhang et al. 2205.00119; FSDP's HSDP) */
} z3d_sharding;

typedef struct z3d_program_config {
    int stage;           /* ZeRO stage 0-3 */
    int64_t persistence; /* stage 3: parameter groups of at most so many elements are whole on every
                            rank */
    z3d_sharding sharding;
    z3d_dtype dtype;      /* of parameters, activations: fp32, bf16, fp16 */
    z3d_dtype grad_dtype; /* for sums and reductions of gradients: dtype or fp32 */
    z3d_dtype wire;       /* of fp32 gradients on the wire (z3d_collective) */
    z3d_optimizer optimizer;
    /* Classes of states besides those of zero/ (states.h); not owned. */
    const struct z3d_state_class *added_state;
    int num_added_states;
    bool ema;            /* an average of the parameters is an optimizer state */
    int64_t micro_batch; /* samples per rank and micro-batch */
    /* Unequal shares of a micro-batch: the samples before each data rank, then all samples (data
     * size + 1 numbers; not owned). A program's own micro_batch is its share. NULL: each has
     * micro_batch. */
    const int64_t *first_sample;
    int64_t generate_batch;     /* samples that generation works on together; 0: 1 */
    int64_t generate_positions; /* of each sample in the caches; 0: all of the model's */
    int accumulation;           /* micro-batches per step */
    bool reduce_per_step; /* whole gradients accumulate, and are reduced once a step; else every
                             micro-batch */
    bool recompute;       /* activation_checkpointing.granularity full */
    bool selective; /* units keep less and repeat cheap kernels (granularity selective); no unit is
                       recomputed */
    bool keep_activation; /* units keep the result of an activation function (recompute_activation
                             false) */
    bool replay_full; /* recompute repeats all of forward (activation_checkpointing.replay full) */
    int checkpoint_every; /* units from one activation checkpoint to the next (number_checkpoints);
                             0 means 1 */
    bool partition_activations; /* P_a: activation checkpoints are split over the tensor group.
                                   Programs of sequence-parallel models say false: their checkpoints
                                   are parts anyway */
    z3d_space checkpoint_space; /* of activation checkpoints; P_a+cpu: host */
    bool overlap;               /* collectives run beside compute */
    int64_t reduce_bucket, gather_bucket; /* elements of all rows in one collective */
    int64_t gather_ahead;   /* elements of parameters that may be gathered ahead of their use, at
                               least the next unit's; elements of gradients that may be under way, at
                               least one unit's */
    int64_t reuse_distance; /* gathered parameters stay for a later use if fewer elements of other
                               groups come before it; always for the next unit's */
    int64_t max_live; /* elements of parameters that are gathered at a time, at least those of the
                         unit that runs; 0: any number */
    int64_t prefetch; /* elements of offloaded parameters, after the next unit's, that may be on
                         their way to the device, and after these from a disk to the host; at least
                         one unit's */
    bool inference;   /* only generation, or with `evaluates` only evaluation: no training step, no
                         gradients, no optimizer states */
    bool evaluates;
    bool without_generation; /* no program of generation, no caches */
    bool gathered; /* evaluate, generation: no parameter changed since this mode's gathers ran, so
                      their results are still there */
    bool rough_memory; /* for prices of programs that do not run: buffers share no addresses; only
                          the arena's lower bound is useful */
    z3d_pipeline_config pipeline;
    z3d_offload_plan offload;
} z3d_program_config;

/* Whether a program of this mode is needed, if the model has the mode. */
static inline bool z3d_needs_mode(const z3d_program_config *config, z3d_mode mode) {
    if (config->inference)
        return z3d_mode_generates(mode) != config->evaluates && mode != Z3D_MODE_TRAIN;
    return !z3d_mode_generates(mode) || !config->without_generation;
}

/* Samples of a micro-batch: this rank's; those of the data ranks before it; all. */
int64_t z3d_samples_of(const z3d_program_config *config, const z3d_mesh *mesh);
int64_t z3d_samples_before(const z3d_program_config *config, const z3d_mesh *mesh);
int64_t z3d_samples_in_all(const z3d_program_config *config, const z3d_mesh *mesh);

/* Shares out `samples` among `count` data ranks in proportion to their speeds, so that the slowest
 * takes as little time as possible. first: count + 1 numbers, as first_sample. Pure. False: a rank
 * gets none. */
bool z3d_share_samples(int64_t samples, const double *speed, int count, int64_t *first);

/* Samples that a rank's caches of generation hold; samples of one call in this mode. */
int64_t z3d_samples_in_caches(const z3d_program_config *config);
int64_t z3d_samples_in_mode(const z3d_program_config *config, z3d_mode mode);
/* Positions of a sample in the caches, at least those of one PREFILL. */
int64_t z3d_cache_positions(const z3d_program_config *config, const z3d_model *model);

#endif
