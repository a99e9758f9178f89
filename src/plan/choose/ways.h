/* Private to plan --fit and --recommend: a row's memory and time; the list of all candidates, with
 * lower bounds of their time and memory; the words of a row. A candidate (z3d_way) is one way of
 * training a configuration's model on the given ranks. */
#ifndef ZERO3D_PLAN_WAYS_H
#define ZERO3D_PLAN_WAYS_H

#include "src/plan/choose/choose.h"

/* ---- a row's memory and time (fit_memory.c, fit_time.c) ---- */

enum { Z3D_FIT_DIVISORS = 2048 };
/* The data that all rows of a layout share. */
typedef struct z3d_fit_frame {
    z3d_config *config;
    const z3d_hardware *hardware;
    int replay; /* replay and checkpoints as given; rows without activation checkpoints use
                   neither */
    int64_t checkpoints;
    int64_t micros; /* of a step; 0: any number */
    bool rough;     /* memory is a lower bound, not placed; z3d_fit_memory plans only the first two
                       pipeline stages and the last, z3d_fit_time all */
    z3d_fit_layout layout;
    bool whole; /* the schedule keeps all micro-batches at once */
    z3d_sim_node node;
    z3d_mesh mesh;
    z3d_model *model;
    z3d_links links;                            /* of the data groups */
    double *share;                              /* each unit's share of all parameters */
    double largest_unit;                        /* bytes of its parameters on a rank */
    double trained;                             /* share of the parameters */
    int64_t samples, divisor[Z3D_FIT_DIVISORS]; /* of samples, ascending */
    int divisors;
} z3d_fit_frame;

/* Set config .. rough and layout.cut_open before, all else to zero; close also after a failure. */
z3d_status z3d_fit_open(z3d_fit_frame *w, int ranks);
void z3d_fit_close(z3d_fit_frame *w);

/* The number of micro-batches that stand for a step of `accumulation`: a first, a middle and a last
 * period, because all middle periods are equal; a period has a micro-batch for each pipeline stage.
 * It is `accumulation` if the schedule keeps all micro-batches at once. */
int64_t z3d_fit_few(const z3d_fit_frame *w, int64_t accumulation);
/* Sets the configuration's parallel sizes. */
void z3d_fit_apply_layout(z3d_config *config, const z3d_fit_layout *layout);
/* Sets w->config to the row's configuration, with `accumulation` micro-batches a step. Errors:
 * ERR_MEMORY. */
z3d_status z3d_fit_apply(const z3d_fit_frame *w, const z3d_fit_row *row, int64_t accumulation);
/* Finds the row's ledger and memory from programs of `accumulation` micro-batches; further
 * micro-batches add only their batch. */
z3d_status z3d_fit_memory(const z3d_fit_frame *w, z3d_fit_row *row, int64_t accumulation);
/* Adds the batch of the micro-batches beyond `accumulation`, each with `samples` of a rank, and
 * says whether the row fits. */
void z3d_fit_add_batch(const z3d_fit_frame *w, z3d_fit_row *row, int64_t samples,
                       int64_t accumulation);
/* z3d_fit_memory with another micro-batch size, from the fewest micro-batches that fill every
 * pipeline stage. */
z3d_status z3d_fit_try(const z3d_fit_frame *w, z3d_fit_row *row, int64_t micro_batch);
z3d_category z3d_fit_largest(const z3d_ledger *ledger);

/* The price of a step of a few micro-batches on the sim device. */
typedef struct z3d_fit_price {
    double seconds, bytes, recompute, loss[Z3D_LOSS_COUNT]; /* as z3d_fit_row's */
    double compute;                                         /* seconds of rank 0's kernels */
    double busiest; /* seconds in which the busiest stage waits neither for another stage nor for
                       launches */
    z3d_memory_need fullest; /* of all stages */
    z3d_ledger ledger;       /* of rank 0, if `unit` is wanted */
} z3d_fit_price;
/* unit: NULL, or an array by unit; rank 0's seconds are added to it. */
z3d_status z3d_fit_price_few(const z3d_fit_frame *w, const z3d_fit_row *row, int64_t accumulation,
                             double *unit, z3d_fit_price *out);
/* Finds the row's time from two short steps. micro: the least seconds that a micro-batch adds. If
 * the first step shows that the row takes `limit` seconds or more, only this bound and the memory
 * are set. *nearly_full: the device's allocator slows the step down. */
z3d_status z3d_fit_time(const z3d_fit_frame *w, double micro, double limit, z3d_fit_row *row,
                        bool *nearly_full);

/* Sets the keys of the tiers; nvme_path becomes z3d_tiers_folder if it is needed and not set. */
z3d_status z3d_tiers_apply(z3d_config *config, z3d_fit_tiers tiers);

extern const char *const z3d_fit_granularities[]; /* by z3d_granularity */

/* ---- candidates ---- */

/* Time and memory of one micro-batch on a tensor group that has the whole model, without data ranks
 * and pipeline. All candidates with this tensor size, micro-batch and granularity do this work. */
typedef struct z3d_alone {
    z3d_fit_layout layout;
    int granularity;
    int64_t micro_batch;
    double pass, compute;             /* seconds of the micro-batch; of its kernels */
    double *unit, *saved;             /* of each unit: seconds; bytes that backward needs */
    double rest;                      /* seconds of the optimizer's kernels */
    int64_t peak[Z3D_CATEGORY_COUNT]; /* bytes */
} z3d_alone;

/* The work of all candidates with the same layout, granularity and micro-batch. */
typedef struct z3d_fit_work {
    int frame, alone;
    bool known;            /* the fields below are set; they are lower bounds */
    double micro, seconds; /* micro: of a micro-batch on the pipeline stage with the most work;
                              seconds: of a step on the stage that takes longest */
    double share;          /* that stage's parameters relative to the average */
    double kept;           /* bytes of activations */
} z3d_fit_work;

typedef struct z3d_way {
    int frame, work, stage, granularity;
    int gather; /* z3d_pipeline_gather; AUTO: it has no effect */
    z3d_fit_tiers tiers;
    bool partition, offload;
    int64_t micro_batch;
    double seconds, bytes[Z3D_SPACE_COUNT]; /* lower bounds; bytes: of a rank */
    double kept;                            /* activations among the device bytes */
    bool tight;                             /* z3d_way_tighten has raised the bounds */
} z3d_way;

/* No offload; the optimizer in host memory or on the disk; each also with parameters that are no
 * farther than the optimizer. */
enum { Z3D_TIERS = 6 };

/* Values that stay as the user sets them. 0: open. */
typedef struct z3d_fixed {
    int tensor, pipeline, chunks;
    int schedule;          /* z3d_pipeline_schedule */
    int gather;            /* z3d_pipeline_gather */
    int sequence_parallel; /* if there are several tensor ranks; -1: open */
    int least_pipeline;
    bool across_nodes; /* tensor groups may span nodes */
    bool cut;          /* the user sets how data ranks communicate over nodes */
    int64_t micros;    /* in a step */
} z3d_fixed;

typedef struct z3d_ways {
    z3d_config *config;
    z3d_config *flat, *alone; /* copies: for one pipeline stage; for a tensor group alone */
    const z3d_hardware *hardware;
    int ranks;
    int64_t batch; /* samples of a step */
    z3d_fixed fixed;
    z3d_fit_tiers tiers[Z3D_TIERS]; /* places to try, the nearest first */
    int num_tiers;
    bool tiers_written; /* the configuration sets one place or both */
    bool all;           /* offloaded states are offloaded as a whole: offload_optimizer.ratio is
                           1 */
    int replay;         /* as given */
    int64_t checkpoints;
    int frames; /* one for each layout, by tensor size */
    int uncut;  /* frames with one ring over all data ranks */
    z3d_fit_frame *frame;
    z3d_status refusal; /* the last refusal, of a layout or of all its candidates; its message is
                           the thread's last one */
    int num_alone, works;
    z3d_alone *alone_group;
    z3d_fit_work *work;
    int largest_tensor; /* the largest tensor size in a node, if the model allows larger ones; else
                           0 */
    int count;          /* ways, in the order of z3d_way_compare */
    z3d_way *way;
    int64_t frame_capacity, alone_capacity, work_capacity, way_capacity;
} z3d_ways;

/* fixed.c: finds the open values (keep: values that the configuration sets stay), the ranks (0: as
 * z3d_plan_place finds them) and the batch. Set config and hardware before, all else to zero; close
 * also after a failure. Errors: ERR_CONFIG, ERR_TOPOLOGY, ERR_MEMORY. */
z3d_status z3d_ways_begin(z3d_ways *w, int ranks, bool keep);
/* Sets all keys of pipelines to those of one stage. */
z3d_status z3d_ways_leave_pipeline(z3d_config *config);
/* Lists all candidates of the open values: tensor sizes in a node that the model allows; sequence
 * parallelism; pipeline sizes with a unit in each chunk; data sizes that divide the batch; each
 * schedule and number of chunks; ZeRO stages (one if there is one data rank); granularities; P_a
 * and host memory if blocks are recomputed; tiers; pipeline_gather; micro-batches up to the first
 * that is too large for every stage (with many layouts each is at least twice the one before).
 * Errors: ERR_CONFIG if there is no layout. */
z3d_status z3d_ways_open(z3d_ways *w);
void z3d_ways_close(z3d_ways *w);
/* Whether two layouts have equal tensor size and sequence parallelism. */
bool z3d_same_tensor_groups(const z3d_fit_layout *a, const z3d_fit_layout *b);
/* The order of candidates (z3d_way): by seconds; those with equal seconds always have the same
 * order. */
int z3d_way_compare(const void *a, const void *b);

/* bounds.c: finds time and memory of a micro-batch on a tensor group alone, in w->alone_group;
 * frame: the frame of such a group. */
z3d_status z3d_ways_alone(z3d_ways *w, z3d_fit_frame *frame, int granularity, int64_t micro_batch,
                          int *index);
/* Sets the candidate's seconds and bytes to quick lower bounds. */
void z3d_way_bound(const z3d_ways *w, z3d_way *way);
/* Twice the seconds in which the average stage reduces gradients and gathers parameters once. A
 * candidate cannot lose more than this by doing both once a step, at the step's ends. */
double z3d_way_once(const z3d_ways *w, const z3d_way *way);
void z3d_alone_release(z3d_alone *alone);
/* Raises the candidate's bounds by the units that each pipeline stage really has. */
z3d_status z3d_way_tighten(z3d_ways *w, z3d_way *way);
/* Whether ranks keep only their own rows of this state, at this ZeRO stage. */
bool z3d_way_shards(int stage, z3d_state_role role);
/* Bytes that a rank has in a space; of device memory only the part for arenas. INFINITY: not
 * known. */
double z3d_ways_capacity(const z3d_ways *w, int space);

/* Whether the bounds allow the candidate to fit. */
bool z3d_way_may_fit(const z3d_ways *w, const z3d_way *way);

/* Times within this factor count as equal: z3d_rows_order. */
#define Z3D_EQUALLY_FAST 1.02

/* misses.c: z3d_misses_add keeps the row if it lacks least so far; the other function prints the
 * rows kept. */
void z3d_misses_add(z3d_misses *misses, const z3d_fit_row *row);
void z3d_misses_say(const z3d_misses *misses, z3d_string *out);

/* tiers.c: fills w->tiers and w->all. Places that the configuration sets stay. Else GPUs may use
 * host memory and the disk if the machine's description has their rates; cpu machines, whose device
 * is host memory, only the disk. Errors: ERR_CONFIG. */
z3d_status z3d_tiers_find(z3d_ways *w);
/* Whether a candidate with tiers a is no slower than one with tiers b, if both fit and are
 * otherwise equal. */
bool z3d_tiers_no_slower(z3d_fit_tiers a, z3d_fit_tiers b);
/* The least seconds in which the host steps `bytes` bytes of a rank's optimizer states. */
double z3d_tiers_step(const z3d_ways *w, z3d_fit_tiers tiers, double bytes);
/* Bytes that a rank copies: link: between device and host; read, write: from and to the disk.
 * z3d_tiers_copies gives their least seconds. */
typedef struct z3d_fit_copies {
    double link, read, write;
} z3d_fit_copies;
double z3d_tiers_copies(const z3d_ways *w, z3d_fit_copies bytes);

/* ---- the words of a row (recommend_text.c) ---- */

extern const char *const z3d_offload_names[]; /* by z3d_offload_device */
extern const char *const z3d_gather_names[];  /* by z3d_pipeline_gather */
extern const char *const z3d_cut_names[];     /* by z3d_data_cut, short */

/* "-" with one pipeline stage. */
const char *z3d_row_schedule(const z3d_fit_layout *layout);
/* "-", "cpu", "nvme, cpu": optimizer states, and parameters. */
typedef struct z3d_row_text {
    char text[32];
} z3d_row_text;
z3d_row_text z3d_row_tiers(const z3d_fit_row *row);
double z3d_row_mfu(const z3d_recommendation *r, const z3d_fit_row *row);
/* Bytes of device memory that the row uses. */
double z3d_row_used(const z3d_fit_row *row);
/* Bytes that a rank sends in a step, of the row that sends least. */
double z3d_least_sent(const z3d_recommendation *r);
z3d_bill z3d_row_bill(const z3d_recommendation *r, const z3d_fit_row *row);

/* recommend_details.c: the tables of --verbose. */
void z3d_recommend_details(const z3d_recommendation *r, z3d_string *out);

#endif
