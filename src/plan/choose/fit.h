/* Private to plan --fit and --recommend: the data that all rows of a layout share; a row's memory
 * and time. */
#ifndef ZERO3D_PLAN_FIT_H
#define ZERO3D_PLAN_FIT_H

#include "src/plan/choose/choose.h"

enum { Z3D_FIT_DIVISORS = 2048 };

/* Shared by all rows of a layout. */
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

#endif
