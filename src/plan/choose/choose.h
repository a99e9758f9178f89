/* Chooses values that a configuration leaves open, from the cost model. The step-program builder
 * below takes concrete values only. */
#ifndef ZERO3D_PLAN_CHOOSE_H
#define ZERO3D_PLAN_CHOOSE_H

#include "src/plan/choose/advice.h"
#include "src/plan/price/bill.h"
#include "src/plan/price/estimate.h"

/* Settles parallel.ranks_per_node auto if collectives depend on it. node: ranks of every node; 0:
 * not known, or not equal. Errors: ERR_CONFIG if hierarchical ones have no such nodes. */
z3d_status z3d_choose_nodes(z3d_config *config, int64_t node);
/* Decides activation_checkpointing.granularity if it is `auto`, for a world of `ranks` (0: as
 * z3d_plan_place finds them): the first of none, selective and full, from `first` on, that leaves a
 * tenth of a rank's memory free, of the room of each rank with so many threads, or on the described
 * hardware if room is NULL; full if none does, with neither, and where
 * z3d_config_wants_checkpoints. Resolves `config`. Call it before the others, which see what it
 * leaves. why: gets a phrase if it decides. Not collective; rank 0 decides for all. Errors:
 * z3d_case_create's, z3d_estimate_make's and z3d_plan_need's. */
z3d_status z3d_choose_granularity(z3d_config *config, int ranks, int threads,
                                  const z3d_hardware *hardware, const z3d_room *room, int first,
                                  z3d_string *why);

/* Decides activation_checkpointing.cpu_checkpointing if it is `auto`, for a world of `ranks` (0: as
 * z3d_plan_place finds them). On if compute hides the step's copies (they lengthen it by at most 1
 * %), or if the run does not fit into the device's memory otherwise; else off. Resolves `config`
 * and clears training.hardware, which is no longer needed. hardware NULL: unknown, then off. why:
 * gets a phrase ("on: ..."), or nothing if the configuration is not `auto`. Not collective; rank 0
 * decides for all. Errors: z3d_case_create's and z3d_estimate_make's. */
z3d_status z3d_choose_offload(z3d_config *config, int ranks, const z3d_hardware *hardware,
                              z3d_string *why);

/* Sets training.device to that of a described machine, where the configuration does not set it
 * (*chosen). ERR_CONFIG if it sets another. */
z3d_status z3d_choose_device(z3d_config *config, const z3d_hardware *hardware, bool *chosen);

/* Whether zero_optimization.offload_optimizer.ratio is `auto` for an optimizer that is offloaded.
 */
bool z3d_ratio_is_open(const z3d_config *config);

/* Decides it, among 0, 1/8 .. 1, for a world of `ranks` (0: as z3d_plan_place finds them). With
 * hardware: the fastest share that fits it. Else with room (of each rank, with so many threads):
 * the smallest that leaves a tenth of the room free. With neither, and if none fits: 1. Resolves
 * `config` and clears training.hardware. Call z3d_choose_offload first, z3d_choose_gather after.
 * why: gets a phrase with the other shares. Not collective; rank 0 decides for all. Errors:
 * z3d_case_create's, z3d_estimate_make's and z3d_plan_need's. */
z3d_status z3d_choose_ratio(z3d_config *config, int ranks, int threads,
                            const z3d_hardware *hardware, const z3d_room *room, z3d_string *why);

/* Whether it makes a difference when parameters are gathered: ranks keep only their own rows, there
 * are several data ranks and pipeline stages, and no stage3_max_reuse_distance says what stays. The
 * pipeline size must be known. */
bool z3d_gather_matters(const z3d_config *config, int ranks);

/* Decides zero_optimization.pipeline_gather if it is `auto` and matters, for a world of `ranks` (0:
 * as z3d_plan_place finds them). With hardware: the faster way that fits it; prices gets both
 * (also if nothing is `auto`). Else with room (of each rank, with so many threads): per_step, which
 * sends less, if it leaves a tenth of the room free. With neither: per_microbatch, which needs
 * less. Resolves `config`, and clears training.hardware of what was `auto`. Call z3d_choose_offload
 * first. prices: seconds are 0 where nothing is priced. why: gets a phrase if it decides. Not
 * collective; rank 0 decides for all. Errors: z3d_case_create's, z3d_estimate_make's and
 * z3d_plan_need's. */
z3d_status z3d_choose_gather(z3d_config *config, int ranks, int threads,
                             const z3d_hardware *hardware, const z3d_room *room,
                             z3d_gather_price prices[2], z3d_string *why);

/* Decides activation_checkpointing.recompute_activation if it is `auto`, for a world of `ranks` (0:
 * as z3d_plan_place finds them): false if it leaves a tenth of a rank's memory free, of the room of
 * each rank with so many threads, or on the described hardware if room is NULL; also if a rank
 * needs no more with it. With neither: true. Resolves `config`. Call the other z3d_choose_...
 * first: it takes what they leave. why: gets a phrase if it decides by memory. Not collective; rank
 * 0 decides for all. Errors: z3d_case_create's, z3d_estimate_make's and z3d_plan_need's. */
z3d_status z3d_choose_activation(z3d_config *config, int ranks, int threads,
                                 const z3d_hardware *hardware, const z3d_room *room,
                                 z3d_string *why);

/* How the ranks of a run are arranged. */
typedef struct z3d_fit_layout {
    int tensor, pipeline, data;
    int chunks;                           /* of units, on each pipeline stage */
    int schedule;                         /* z3d_pipeline_schedule, as the configuration says it */
    bool sequence_parallel, across_nodes; /* the latter: tensor groups may leave a node */
    z3d_data_cut cut;                     /* of the data axis */
    int inner;                            /* data ranks of a part of it */
    bool cut_open;                        /* the search decides about it */
} z3d_fit_layout;

/* Where offload_optimizer and offload_param put optimizer states and kept parameters:
 * z3d_offload_device, each; the farther, the greater. */
typedef struct z3d_fit_tiers {
    int optimizer, parameters;
} z3d_fit_tiers;

/* What lengthens a step: kernels that repeat work, and seconds without kernels. */
typedef enum z3d_fit_loss {
    Z3D_LOSS_BUBBLE,      /* waiting for other pipeline stages */
    Z3D_LOSS_TENSOR,      /* exposed communication of the tensor groups, */
    Z3D_LOSS_DATA,        /* of the data groups, */
    Z3D_LOSS_PIPELINE,    /* of sends and receives */
    Z3D_LOSS_RECOMPUTE,   /* FLOPs beyond the model's own, at the speed of all kernels */
    Z3D_LOSS_TRANSFER,    /* exposed copies to host memory and back, */
    Z3D_LOSS_HOST,        /* optimizer steps of the host's cores, */
    Z3D_LOSS_DISK,        /* reads and writes of the disk */
    Z3D_LOSS_FULL_DEVICE, /* what the allocator of a nearly full device adds */
    Z3D_LOSS_LAUNCH,      /* waiting for the host to launch kernels */
    Z3D_LOSS_COUNT
} z3d_fit_loss;

/* One way of training a configuration's model on its global batch. */
typedef struct z3d_fit_row {
    z3d_fit_layout layout;
    int stage, granularity; /* z3d_granularity */
    int gather;             /* z3d_pipeline_gather; AUTO: it makes no difference */
    z3d_fit_tiers tiers;
    bool partition, offload; /* offload: activation checkpoints in host memory */
    int64_t micro_batch, accumulation;
    z3d_ledger ledger; /* peak bytes by category */
    z3d_memory_need memory;
    bool fits;
    double seconds;              /* of a step; this and the next fields only if it fits */
    double bytes_sent;           /* by a rank in a step */
    double recompute;            /* FLOPs beyond the model's own, as a share of them */
    double loss[Z3D_LOSS_COUNT]; /* seconds of a step, on average over the pipeline stages */
} z3d_fit_row;

/* A machine of round numbers, if the user names none; its nodes have 8 devices, or a tensor group.
 * Its memory holds what training.device needs. */
z3d_status z3d_nominal_machine(const z3d_config *config, int ranks, z3d_hardware *out);
bool z3d_is_nominal(const z3d_hardware *hardware);

/* Ways that do not fit: how many, and those that lack least (accumulation 0: none was planned). */
typedef struct z3d_misses {
    int device, elsewhere; /* device memory is short; only host memory or the disk is */
    z3d_fit_row nearest, nearest_elsewhere;
} z3d_misses;

/* What a whole training is to be: tokens, in so many days. 0: not asked. */
typedef struct z3d_goal {
    double tokens, days;
} z3d_goal;

/* Rows that are told; and that are kept until they are in order. */
enum { Z3D_RECOMMENDED = 10, Z3D_CANDIDATES = 40 };
typedef struct z3d_recommendation {
    z3d_hardware hardware;
    int ranks;
    int64_t samples;      /* of a step */
    double tokens, flops; /* of a step; flops: the model's own */
    double parameters;    /* of the model */
    double peak;          /* FLOP/s of a device in the model's type */
    int layouts, ways;    /* that the rules of configuration and model allow */
    int priced; /* of the ways; those that are neither, nor too large, cannot be among the best */
    z3d_misses misses;
    int largest_tensor; /* that was tried because it must stay in a node, though the model allows
                           larger ones; 0: none was left out */
    char folder[512];   /* nvme_path of the first row */
    z3d_goal goal;
    int count; /* rows, in the order of z3d_rows_order; all fit */
    z3d_fit_row row[Z3D_CANDIDATES];
} z3d_recommendation;

/* Searches tensor size x pipeline size x chunks x schedule x how data ranks communicate over nodes
 * (where no key of it is set) x ZeRO stage x when parameters are gathered x micro-batch x recompute
 * x P_a x host memory x where optimizer states and parameters lie for the fastest ways that fit a
 * machine (recommend.c says what is left out). Model, number of ranks and train_batch_size stay.
 * ranks 0: as z3d_plan_place finds them. keep: so do the parallel sizes, chunks, schedule,
 * partition and pipeline_gather that the configuration sets, and train_batch_size may be `auto`: it
 * is that of the configuration's own sizes. Else units are split by time, and ranks are equal.
 * Tensor groups stay in a node, unless parallel.allow_tensor_across_nodes is true. Sequence
 * parallelism is searched, too, unless the configuration sets parallel.sequence_parallel. States
 * and parameters lie where the configuration says; where it says nothing, tiers.c has what is
 * tried; nvme_path is then z3d_tiers_folder. On success `config` is resolved and is that of the
 * first row. Not collective, allocates no device memory. Errors: ERR_CONFIG: no train_batch_size,
 * or no sizes are possible; ERR_MEMORY: nothing fits (says how much is missing); z3d_case_create's
 * and z3d_estimate_make's.
 */
z3d_status z3d_recommend(z3d_config *config, int ranks, const z3d_hardware *hardware, bool keep,
                         z3d_recommendation *out);
/* The ranks of --fit and --recommend: `ranks`, or if it is 0 those of parallel.world_size, or else
 * (auto) a node's devices, or the next multiple of the parallel sizes that are set. */
int z3d_default_ranks(const z3d_config *config, int ranks, const z3d_hardware *hardware);

/* z3d_recommend on as few nodes as train on the goal's tokens in its days. Their number is a power
 * of two times what divides the batch and the layers, or shares the batch with few stages. *config
 * becomes another one, of the first row. Errors: ERR_CONFIG, ERR_MEMORY: no number of nodes does.
 */
z3d_status z3d_recommend_nodes(z3d_config **config, const z3d_hardware *hardware, bool keep,
                               const z3d_goal *goal, z3d_recommendation *out);

/* prefer.c: puts rows in order. The fastest comes first; but of those within 2 % of the fastest
 * that is left, one that leaves a tenth of the device free comes before one that does not, then one
 * of fewer mechanisms, then one that leaves more memory free. */
void z3d_rows_order(z3d_fit_row *row, int count);
/* Less than a tenth of the device stays free: a run may need more than its plan. */
bool z3d_row_is_tight(const z3d_fit_row *row);
/* How much there is to understand and to go wrong: tensor, sequence and pipeline parallelism,
 * chunks, each ZeRO stage, recompute, P_a, offload, a data axis in two parts. */
int z3d_row_mechanisms(const z3d_fit_row *row);

/* The answer for people: the first row's keys as YAML, what they come to, and a table; verbose: all
 * tables. And one JSON object. */
void z3d_recommend_print(const z3d_recommendation *recommendation, bool verbose, z3d_string *out);
void z3d_recommend_json(const z3d_recommendation *recommendation, z3d_string *out);

#endif
