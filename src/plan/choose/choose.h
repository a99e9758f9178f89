/* Chooses values that a configuration leaves open, from the cost model, because the step-program
 * builder takes only concrete values. No function here is collective: in a run, rank 0 decides for
 * all. */
#ifndef ZERO3D_PLAN_CHOOSE_H
#define ZERO3D_PLAN_CHOOSE_H

#include "src/plan/choose/advice.h"
#include "src/plan/price/bill.h"

/* Decides parallel.ranks_per_node if it is `auto` and collectives depend on it. node: ranks of
 * every node; 0: not known, or not equal. Errors: ERR_CONFIG if hierarchical collectives need a
 * number and `node` is 0. */
z3d_status z3d_choose_nodes(z3d_config *config, int64_t node);
/* Sets training.device to the device of a described machine if the configuration does not set it;
 * *chosen: it did. ERR_CONFIG if the configuration sets another device. */
z3d_status z3d_choose_device(z3d_config *config, const z3d_hardware *hardware, bool *chosen);

/* Each z3d_choose_... below decides its key if it is `auto`, resolves `config` and appends a phrase
 * to `why` ("on: ..."). Call them in this order: each uses what the ones before it have decided.
 * Errors: z3d_case_create's, z3d_estimate_make's and z3d_plan_need's. */

/* activation_checkpointing.granularity: the first of none, selective and full, from `first` on,
 * that leaves a tenth of a rank's memory budget free: that of `room`, else the described
 * hardware's. It is full if none does, if both are NULL, and if z3d_config_wants_checkpoints. */
z3d_status z3d_choose_granularity(z3d_config *config, const z3d_choice *at, int first,
                                  z3d_string *why);

/* activation_checkpointing.cpu_checkpointing: on if compute hides the step's copies (they lengthen
 * it by at most 1 %), or if the run fits into the device's memory only with it; else, and without
 * hardware, off. Clears training.hardware, which is no longer needed. */
z3d_status z3d_choose_offload(z3d_config *config, const z3d_choice *at, z3d_string *why);

/* Whether zero_optimization.offload_optimizer.ratio is `auto` for an optimizer that is offloaded.
 */
bool z3d_ratio_is_open(const z3d_config *config);

/* This ratio, among 0, 1/8 .. 1. With hardware: the fastest share that fits. Else with room: the
 * smallest share that leaves a tenth of it free. With neither, and if no share fits: 1. Clears
 * training.hardware. */
z3d_status z3d_choose_ratio(z3d_config *config, const z3d_choice *at, z3d_string *why);

/* Whether zero_optimization.pipeline_gather has an effect: ranks keep only their own rows, the run
 * has several data ranks and several pipeline stages, and stage3_max_reuse_distance does not decide
 * which parameters stay. The pipeline size must be known. */
bool z3d_gather_matters(const z3d_config *config, int ranks);

/* zero_optimization.pipeline_gather, if it matters. With hardware: the faster value that fits;
 * prices has both (also if the key is not `auto`); seconds are 0 if nothing is priced. Else with
 * room: per_step, which sends less, if it leaves a tenth of the budget free. With neither:
 * per_microbatch, which needs less memory. Clears training.hardware if the key was `auto`. */
z3d_status z3d_choose_gather(z3d_config *config, const z3d_choice *at, z3d_gather_price prices[2],
                             z3d_string *why);

/* activation_checkpointing.recompute_activation: false if that leaves a tenth of a rank's memory
 * budget free (as for granularity), or if a rank then needs no more memory than with true. If room
 * and hardware are NULL: true. The phrase is appended only if it decides by memory. */
z3d_status z3d_choose_activation(z3d_config *config, const z3d_choice *at, z3d_string *why);

/* How the ranks of a run are arranged. */
typedef struct z3d_fit_layout {
    int tensor, pipeline, data;
    int chunks;                           /* of units, on each pipeline stage */
    int schedule;                         /* z3d_pipeline_schedule: the configuration's value */
    bool sequence_parallel, across_nodes; /* across_nodes: tensor groups may span nodes */
    z3d_data_cut cut;                     /* how the data axis is cut */
    int inner;                            /* data ranks of one part */
    bool cut_open;                        /* the search decides the cut */
} z3d_fit_layout;

/* The devices of offload_optimizer and offload_param, for optimizer states and resident parameters.
 * Each is a z3d_offload_device; a greater value is farther from the device. */
typedef struct z3d_fit_tiers {
    int optimizer, parameters;
} z3d_fit_tiers;

/* Causes that lengthen a step: kernels that repeat work, and seconds without kernels. */
typedef enum z3d_fit_loss {
    Z3D_LOSS_BUBBLE,      /* waiting for other pipeline stages */
    Z3D_LOSS_TENSOR,      /* exposed communication of the tensor groups, */
    Z3D_LOSS_DATA,        /* of the data groups, */
    Z3D_LOSS_PIPELINE,    /* of sends and receives */
    Z3D_LOSS_RECOMPUTE,   /* FLOPs beyond the model's own, at the speed of all kernels */
    Z3D_LOSS_TRANSFER,    /* exposed copies to host memory and back, */
    Z3D_LOSS_HOST,        /* optimizer steps of the host's cores, */
    Z3D_LOSS_DISK,        /* reads and writes of the disk */
    Z3D_LOSS_FULL_DEVICE, /* time of the allocator of a nearly full device */
    Z3D_LOSS_LAUNCH,      /* waiting for the host to launch kernels */
    Z3D_LOSS_COUNT
} z3d_fit_loss;

/* One candidate: a way of training a configuration's model on its global batch. */
typedef struct z3d_fit_row {
    z3d_fit_layout layout;
    int stage, granularity; /* z3d_granularity */
    int gather;             /* z3d_pipeline_gather; AUTO: it has no effect */
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

/* A machine of round numbers for users who name none; a node has 8 devices, or as many as a tensor
 * group. Its memory is that of training.device. */
z3d_status z3d_nominal_machine(const z3d_config *config, int ranks, z3d_hardware *out);
bool z3d_is_nominal(const z3d_hardware *hardware);

/* Candidates that do not fit: their number, and those that lack least (accumulation 0: none was
 * planned). */
typedef struct z3d_misses {
    int device, elsewhere; /* device: device memory is short; elsewhere: only host memory or the
                              disk is short */
    z3d_fit_row nearest, nearest_elsewhere;
} z3d_misses;

/* The goal of a whole training: tokens in a number of days. 0: no goal. */
typedef struct z3d_goal {
    double tokens, days;
} z3d_goal;

/* RECOMMENDED: rows that are printed. CANDIDATES: the best rows that are kept until they are in
 * order. */
enum { Z3D_RECOMMENDED = 10, Z3D_CANDIDATES = 40 };
typedef struct z3d_recommendation {
    z3d_hardware hardware;
    int ranks;
    int64_t samples;      /* of a step */
    double tokens, flops; /* of a step; flops: the model's own */
    double parameters;    /* of the model */
    double peak;          /* FLOP/s of a device in the model's type */
    int layouts, ways;    /* number that the rules of configuration and model allow; ways: the
                             candidates */
    int priced; /* candidates that were priced. The others are too large or cannot be among the
                   best */
    z3d_misses misses;
    int largest_tensor; /* the largest tensor size that fits in a node, if the model allows larger
                           ones; 0: all were tried */
    char folder[512];   /* nvme_path of the first row */
    z3d_goal goal;
    int count; /* rows, in the order of z3d_rows_order; all fit */
    z3d_fit_row row[Z3D_CANDIDATES];
} z3d_recommendation;

/* Searches the fastest candidates that fit a machine, over tensor size x pipeline size x chunks x
 * schedule x communication over nodes (if no key of it is set) x ZeRO stage x pipeline_gather x
 * micro-batch x recompute x P_a x host memory x places of optimizer states and parameters.
 * recommend.c says which candidates are not priced. Model, number of ranks and train_batch_size
 * stay. ranks 0: as z3d_plan_place finds them. keep: the parallel sizes, chunks, schedule,
 * partition and pipeline_gather that the configuration sets stay, too, and train_batch_size may be
 * `auto`: it follows from the configuration's own sizes. Without keep, units are split by time, and
 * ranks are equal. Tensor groups stay in a node, unless parallel.allow_tensor_across_nodes is true.
 * Sequence parallelism is searched, too, unless the configuration sets parallel.sequence_parallel.
 * Optimizer states and parameters stay on the devices that the configuration sets; if it sets none,
 * tiers.c has the list of places; nvme_path is then z3d_tiers_folder. On success `config` is
 * resolved and is that of the first row. goal: the training, for out->goal; NULL: not known.
 * Allocates no device memory. Errors: ERR_USAGE: the goal has fewer tokens than a step;
 * ERR_CONFIG: no train_batch_size, or no sizes are possible; ERR_MEMORY: nothing fits (the message
 * says how many bytes are missing); z3d_case_create's and z3d_estimate_make's. */
z3d_status z3d_recommend(z3d_config *config, int ranks, const z3d_hardware *hardware, bool keep,
                         const z3d_goal *goal, z3d_recommendation *out);
/* The number of ranks of --fit and --recommend: `ranks`; if it is 0, parallel.world_size; if that
 * is auto, a node's devices, or the next multiple of the parallel sizes that are set. */
int z3d_default_ranks(const z3d_config *config, int ranks, const z3d_hardware *hardware);

/* z3d_recommend on the fewest nodes that reach the goal. Their number is a power of two times
 * divisors of the batch or the layers, or the ranks share the batch with few pipeline stages.
 * *config is replaced by the first row's configuration. Errors: ERR_CONFIG, ERR_MEMORY: no number
 * of nodes reaches the goal. */
z3d_status z3d_recommend_nodes(z3d_config **config, const z3d_hardware *hardware, bool keep,
                               const z3d_goal *goal, z3d_recommendation *out);

/* prefer.c: puts rows in order. The fastest row comes first. But rows within 2 % of the fastest
 * remaining row count as equally fast: among them, a row that leaves a tenth of the device free
 * comes first, then a row with fewer mechanisms, then one that leaves more memory free. */
void z3d_rows_order(z3d_fit_row *row, int count);
/* Whether less than a tenth of the device stays free: a run may need more than its plan. */
bool z3d_row_is_tight(const z3d_fit_row *row);
/* Number of mechanisms that a user must understand and that may fail: tensor, sequence and pipeline
 * parallelism, chunks, each ZeRO stage, recompute, P_a, offload, a data axis in two parts. */
int z3d_row_mechanisms(const z3d_fit_row *row);

/* Print the answer: for people, the first row's keys as YAML, its predictions, and a table
 * (verbose: all tables); or one JSON object. */
void z3d_recommend_print(const z3d_recommendation *recommendation, bool verbose, z3d_string *out);
void z3d_recommend_json(const z3d_recommendation *recommendation, z3d_string *out);

#endif
