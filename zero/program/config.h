/* What the builder decides from: one configuration of the step program. No `auto` here. */
#ifndef ZERO3D_ZERO_CONFIG_H
#define ZERO3D_ZERO_CONFIG_H

#include "parallel/parallel.h"
#include "parallel/schedule/schedule.h"
#include "src/base/base.h"
#include "src/model/unit.h"

/* How units are divided among pipeline stages, and in which order these run them. All zero: there
 * is one chunk, with all units. */
typedef struct z3d_pipeline_config {
    z3d_schedule_kind schedule;
    int chunks_per_stage;               /* 0: 1 */
    int first_unit[Z3D_MAX_CHUNKS + 1]; /* of each chunk, and the number of units; all zero: as
                                           many units in each chunk as possible */
    const z3d_schedule *file;           /* of schedule FILE; must outlive all that is made of it */
    /* Of this configuration, made once for the programs of several ranks; must outlive their
     * building. NULL: each program makes its own. */
    const struct z3d_timetables *timetables;
    bool gather_per_step; /* parameters that are gathered for use stay until the step's last use;
                             else until the end of the pass that uses them */
} z3d_pipeline_config;

static inline int z3d_chunks_of_stage(const z3d_pipeline_config *pipeline) {
    return pipeline->chunks_per_stage ? pipeline->chunks_per_stage : 1;
}

/* Where what persists lies, and how the host steps it. All zero: on the device. */
typedef struct z3d_offload_plan {
    z3d_space optimizer;  /* states, with a master copy of the parameters; and gradients, as soon as
                             they are reduced, of what a rank keeps only its own row */
    z3d_space parameters; /* of stage 3; in training only with the optimizer */
    int64_t sub_group;    /* elements of a group that are stepped at a time; 0: all */
    int pieces;           /* of these, that are under way at once; 0: 3 */
    double resident;      /* share of the states that stays on the device (Twin-Flow: 1 - ratio), by
                             whole parameter groups; these keep nothing elsewhere */
    bool delayed; /* a step's gradients are kept, and stepped beside the next step's forward and
                     backward, which use the parameters as they were (ZeRO-Offload's one-step
                     delayed parameter update); no group is resident */
} z3d_offload_plan;

/* What a data axis that is cut, into the ranks of a node and the nodes, means for parameter groups:
 * in the order of z3d_data_cut. Where it is not cut, all are as FLAT. */
typedef enum z3d_sharding {
    Z3D_SHARDING_FLAT,         /* collectives are over the whole data axis */
    Z3D_SHARDING_HIERARCHICAL, /* they are over its two parts, one after the other */
    Z3D_SHARDING_HPZ,   /* likewise, and stage 3 keeps a second value, sharded over a node's ranks
                           (ZeRO++, Wang et al. 2306.10209) */
    Z3D_SHARDING_HYBRID /* states are sharded over a node's ranks, and each node has them all (MiCS,
                           Zhang et al. 2205.00119; FSDP's HSDP) */
} z3d_sharding;

typedef struct z3d_program_config {
    int stage;           /* ZeRO stage 0-3 */
    int64_t persistence; /* stage 3: parameter groups of at most so many elements are kept whole */
    z3d_sharding sharding;
    z3d_dtype dtype;      /* of parameters, activations: fp32, bf16, fp16 */
    z3d_dtype grad_dtype; /* what gradients accumulate and are reduced in: dtype or fp32 */
    z3d_dtype wire;       /* in which fp32 gradients travel to be summed: z3d_collective's */
    z3d_optimizer optimizer;
    /* Classes of states besides those of zero/ (states.h); not owned. */
    const struct z3d_state_class *added_state;
    int num_added_states;
    bool ema;            /* an average of the parameters is one of its states */
    int64_t micro_batch; /* samples per rank and micro-batch */
    /* Where data ranks have unequal shares of a micro-batch: its samples before each of them, and
     * all of them (data size + 1 numbers; not owned). A program's own micro_batch is its share.
     * NULL: each has micro_batch. */
    const int64_t *first_sample;
    int64_t generate_batch;     /* samples that generation works on together; 0: 1 */
    int64_t generate_positions; /* of each of them in the caches; 0: all that the model has */
    int accumulation;           /* micro-batches per step */
    bool reduce_per_step; /* full gradients accumulate, one reduction a step; else every micro-batch
                             is reduced */
    bool recompute;       /* activation_checkpointing.granularity full */
    bool selective;       /* units keep less and compute again what is cheap (granularity
                             selective): no unit is recomputed whole */
    bool keep_activation; /* units keep what an activation function gives (recompute_activation
                             false) */
    bool replay_full; /* recompute repeats the whole forward (activation_checkpointing.replay full)
                       */
    int checkpoint_every; /* units from one activation checkpoint to the next (number_checkpoints);
                             0 means 1 */
    bool partition_activations;           /* P_a: a checkpoint is split over the tensor group; of
                                             a sequence-parallel model it is split anyway, and a
                                             program's own configuration says false */
    z3d_space checkpoint_space;           /* where they lie; P_a+cpu: in host memory */
    bool overlap;                         /* collectives run beside compute */
    int64_t reduce_bucket, gather_bucket; /* elements of the full matrix per collective */
    int64_t gather_ahead;   /* elements of parameters that may be gathered before the units that use
                               them, at least the next unit's; and of gradients that may be under way
                               at once, at least one unit's */
    int64_t reuse_distance; /* parameters that are gathered for use stay for a later one if fewer
                               elements of others come before it; those of the next unit always */
    int64_t max_live; /* elements of parameters that are gathered at a time; those of the unit that
                         runs always are. 0: any number */
    int64_t prefetch; /* elements of offloaded parameters, behind the next unit's, that may be on
                         their way to the device, and behind those from a disk to the host; at least
                         one unit's */
    bool inference;   /* only generation, or with `evaluates` only evaluation: there is no training
                         step, and neither gradients nor optimizer states are kept */
    bool evaluates;
    bool without_generation; /* no program of generation, and no room for its caches */
    bool gathered; /* evaluate, generation: no parameter changed since this mode's gathers ran, so
                      that what every rank keeps whole is whole already */
    bool rough_memory; /* for prices of programs that do not run: buffers share no addresses, so the
                          arena is far too large; its lower bound is what counts */
    z3d_pipeline_config pipeline;
    z3d_offload_plan offload;
} z3d_program_config;

/* Whether there is a program of this mode, if the model has the mode. */
static inline bool z3d_needs_mode(const z3d_program_config *config, z3d_mode mode) {
    if (config->inference)
        return z3d_mode_generates(mode) != config->evaluates && mode != Z3D_MODE_TRAIN;
    return !z3d_mode_generates(mode) || !config->without_generation;
}

/* Of a micro-batch: the samples of this place, those of the data ranks before it, all of them. */
int64_t z3d_samples_of(const z3d_program_config *config, const z3d_mesh *mesh);
int64_t z3d_samples_before(const z3d_program_config *config, const z3d_mesh *mesh);
int64_t z3d_samples_in_all(const z3d_program_config *config, const z3d_mesh *mesh);

/* Shares out `samples` among `count` data ranks in proportion to their speeds: the one that takes
 * longest takes as little time as possible. first: count + 1 numbers, as first_sample. Pure. False:
 * a rank gets none. */
bool z3d_share_samples(int64_t samples, const double *speed, int count, int64_t *first);

/* Samples of a rank that generation has caches for; of a call in this mode. */
int64_t z3d_samples_in_caches(const z3d_program_config *config);
int64_t z3d_samples_in_mode(const z3d_program_config *config, z3d_mode mode);
/* Positions of a sample in generation's caches, at least those of one PREFILL. */
int64_t z3d_cache_positions(const z3d_program_config *config, const z3d_model *model);

#endif
