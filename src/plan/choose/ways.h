/* Private to plan --fit and --recommend: all ways of training a configuration's model on so many
 * ranks, and what each takes at least. */
#ifndef ZERO3D_PLAN_WAYS_H
#define ZERO3D_PLAN_WAYS_H

#include "src/plan/choose/fit.h"

/* What one micro-batch takes on a tensor group that has the whole model: no data ranks, no
 * pipeline. Every way with this tensor size, micro-batch and granularity does the same work. */
typedef struct z3d_alone {
    z3d_fit_layout layout;
    int granularity;
    int64_t micro_batch;
    double pass, compute; /* seconds of the micro-batch; of its kernels */
    double *unit, *saved; /* of each unit: seconds; bytes that backward wants */
    double rest;          /* of kernels that are not of micro-batches: the optimizer's */
    int64_t peak[Z3D_CATEGORY_COUNT]; /* bytes */
} z3d_alone;

/* What all ways with the same layout, granularity and micro-batch work. */
typedef struct z3d_fit_work {
    int frame, alone;
    bool known;            /* the next ones are; all are at least */
    double micro, seconds; /* of a micro-batch on the pipeline stage that has most to do; of all of
                              a step on the stage that takes longest, */
    double share;          /* which has so many times the average parameters */
    double kept;           /* bytes of activations */
} z3d_fit_work;

typedef struct z3d_way {
    int frame, work, stage, granularity;
    int gather; /* z3d_pipeline_gather; AUTO: it makes no difference */
    z3d_fit_tiers tiers;
    bool partition, offload;
    int64_t micro_batch;
    double seconds, bytes[Z3D_SPACE_COUNT]; /* at least; bytes of a rank, */
    double kept;                            /* of them activations */
    bool tight;                             /* z3d_way_tighten was there */
} z3d_way;

/* None; the optimizer in host memory, on the disk; the parameters, too, no farther than it. */
enum { Z3D_TIERS = 6 };

/* What stays as the user sets it. 0: open. */
typedef struct z3d_fixed {
    int tensor, pipeline, chunks;
    int schedule;          /* z3d_pipeline_schedule */
    int gather;            /* z3d_pipeline_gather */
    int sequence_parallel; /* of several tensor ranks; -1: open */
    int least_pipeline;
    bool across_nodes; /* tensor groups may leave a node */
    bool cut;          /* how data ranks communicate over nodes */
    int64_t micros;    /* in a step */
} z3d_fixed;

typedef struct z3d_ways {
    z3d_config *config;
    z3d_config *flat, *alone; /* copies: for one pipeline stage; for a tensor group alone */
    const z3d_hardware *hardware;
    int ranks;
    int64_t batch; /* samples of a step */
    z3d_fixed fixed;
    z3d_fit_tiers tiers[Z3D_TIERS]; /* that are tried, the nearest first */
    int num_tiers;
    bool tiers_written; /* the configuration says where one or both lie */
    bool all;           /* what is offloaded is so as a whole: offload_optimizer.ratio is 1 */
    int replay;         /* as given */
    int64_t checkpoints;
    int frames; /* one for each layout, by tensor size */
    int uncut;  /* of them, those with one ring over all data ranks */
    z3d_fit_frame *frame;
    z3d_status refusal; /* the last, of a layout or of all its ways; its message is the last one */
    int num_alone, works;
    z3d_alone *alone_group;
    z3d_fit_work *work;
    int largest_tensor; /* 0, or of one node's devices, where the model allows larger ones */
    int count;          /* by seconds */
    z3d_way *way;
} z3d_ways;

/* fixed.c: finds what is open (keep: what the configuration sets stays), ranks (0: as
 * z3d_plan_place finds them) and batch. Zero-initialise the struct with config and hardware set;
 * close also after a failure. Errors: ERR_CONFIG, ERR_TOPOLOGY, ERR_MEMORY. */
z3d_status z3d_ways_begin(z3d_ways *w, int ranks, bool keep);
/* All keys of pipelines as for one stage. */
z3d_status z3d_ways_leave_pipeline(z3d_config *config);
/* Finds all that are open: tensor sizes that the model allows, in a
 * node; sequence parallelism; pipeline sizes with a
 * unit in each chunk; data sizes that divide the batch; each schedule and number of chunks; ZeRO
 * stages (one where there is one data rank); granularities; P_a and host memory where blocks are
 * recomputed; tiers; when parameters are gathered; micro-batches up to the first that is too large
 * for every stage (with many layouts each is at least twice the one before). Errors: ERR_CONFIG if
 * there is no layout. */
z3d_status z3d_ways_open(z3d_ways *w);
void z3d_ways_close(z3d_ways *w);
/* Tensor size and sequence parallelism. */
bool z3d_same_tensor_groups(const z3d_fit_layout *a, const z3d_fit_layout *b);
/* The order of ways: by seconds, those that are equally long always in the same order. */
int z3d_way_compare(const z3d_way *a, const z3d_way *b);
/* Room for one more in an array that is moved at each power of two. Errors: ERR_MEMORY. */
z3d_status z3d_ways_grow(void **array, int count, size_t size);

/* bounds.c: what a micro-batch takes alone, in w->alone_group; frame: of such a tensor group. */
z3d_status z3d_ways_alone(z3d_ways *w, z3d_fit_frame *frame, int granularity, int64_t micro_batch,
                          int *index);
/* The way's seconds and bytes, quickly. */
void z3d_way_bound(const z3d_ways *w, z3d_way *way);
/* Seconds in which gradients are reduced and parameters gathered once a step, twice what they are
 * on the average stage: more than a way can lose by doing so at the ends of the step. */
double z3d_way_once(const z3d_ways *w, const z3d_way *way);
void z3d_alone_release(z3d_alone *alone);
/* Its seconds and bytes with the units that each pipeline stage has, which may be more. */
z3d_status z3d_way_tighten(z3d_ways *w, z3d_way *way);
/* Whether ranks keep their own rows only of this part of the states, at this ZeRO stage. */
bool z3d_way_shards(int stage, z3d_state_role role);
/* Bytes of a rank in a space; of a device without what is outside of arenas. INFINITY: not known.
 */
double z3d_ways_capacity(const z3d_ways *w, int space);

/* By the bounds. */
bool z3d_way_may_fit(const z3d_ways *w, const z3d_way *way);

/* Times within this factor count as equal: z3d_rows_order. */
#define Z3D_EQUALLY_FAST 1.02

/* misses.c: remembers the row if it lacks least so far; and says which these are. */
void z3d_misses_add(z3d_misses *misses, const z3d_fit_row *row);
void z3d_misses_say(const z3d_misses *misses, z3d_string *out);

/* tiers.c: fills w->tiers and all. Those that are written stay. Where none is: host memory and the
 * disk of gpus whose machine has the rates described; on cpu machines, whose device is host memory,
 * only the disk. Errors: ERR_CONFIG. */
z3d_status z3d_tiers_find(z3d_ways *w);
/* Of ways that are otherwise equal, and fit: a's is no slower than b's. */
bool z3d_tiers_no_slower(z3d_fit_tiers a, z3d_fit_tiers b);
/* Seconds, at least, in which the host steps so many bytes of a rank's optimizer states. */
double z3d_tiers_step(const z3d_ways *w, z3d_fit_tiers tiers, double bytes);
/* Bytes that a rank copies between device and host, from and to the disk; and their seconds at
 * least. */
typedef struct z3d_fit_copies {
    double link, read, write;
} z3d_fit_copies;
double z3d_tiers_copies(const z3d_ways *w, z3d_fit_copies bytes);

#endif
