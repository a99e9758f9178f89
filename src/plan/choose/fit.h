/* Private to plan --fit and --recommend: what the rows of a layout share; a row's memory and time.
 */
#ifndef ZERO3D_PLAN_FIT_H
#define ZERO3D_PLAN_FIT_H

#include "src/plan/choose/choose.h"

enum { Z3D_FIT_DIVISORS = 2048 };

/* What all rows share. */
typedef struct z3d_fit_frame {
    z3d_config *config;
    const z3d_hardware *hardware;
    int replay; /* as given; rows without activation checkpoints have neither */
    int64_t checkpoints;
    int64_t micros; /* of a step; 0: any number */
    bool rough; /* memory is a lower bound, not placed; and z3d_fit_memory looks at the first two
                   pipeline stages and the last only, z3d_fit_time at all */
    z3d_fit_layout layout;
    bool whole; /* the schedule keeps all micro-batches at once */
    z3d_sim_node node;
    z3d_mesh mesh;
    z3d_model *model;
    z3d_links links;                            /* of the data groups */
    double *share;                              /* of all parameters, of each unit */
    double largest_unit;                        /* bytes of its parameters on a rank */
    double trained;                             /* share of the parameters */
    int64_t samples, divisor[Z3D_FIT_DIVISORS]; /* of samples, ascending */
    int divisors;
} z3d_fit_frame;

/* Zero-initialise with config .. rough and layout.cut_open set; close also after a failure. */
z3d_status z3d_fit_open(z3d_fit_frame *w, int ranks);
void z3d_fit_close(z3d_fit_frame *w);

/* Micro-batches after which a step goes on as before: one, or as many as there are pipeline stages.
 */
int64_t z3d_fit_period(const z3d_fit_frame *w);
/* So many micro-batches say what a step of `accumulation` is like: a first, a middle and a last
 * period, for the middle ones are alike. All, if the schedule keeps all of them at once. */
int64_t z3d_fit_few(const z3d_fit_frame *w, int64_t accumulation);
/* Sets the configuration's sizes. */
void z3d_fit_apply_layout(z3d_config *config, const z3d_fit_layout *layout);
/* Makes config the row's, with `accumulation` micro-batches a step. Errors: ERR_MEMORY. */
z3d_status z3d_fit_apply(const z3d_fit_frame *w, const z3d_fit_row *row, int64_t accumulation);
/* The row's ledger and memory, from programs of `accumulation` micro-batches; the others add only
 * their batch. */
z3d_status z3d_fit_memory(const z3d_fit_frame *w, z3d_fit_row *row, int64_t accumulation);
/* Adds the batch of the micro-batches beyond `accumulation`, each with `samples` of a rank, and
 * says whether the row fits. */
void z3d_fit_add_batch(const z3d_fit_frame *w, z3d_fit_row *row, int64_t samples,
                       int64_t accumulation);
/* z3d_fit_memory with another micro-batch, from so few micro-batches that each pipeline stage has
 * as many at once as ever. */
z3d_status z3d_fit_try(const z3d_fit_frame *w, z3d_fit_row *row, int64_t micro_batch);
z3d_category z3d_fit_largest(const z3d_ledger *ledger);

/* A step of a few micro-batches on the sim device. */
typedef struct z3d_fit_price {
    double seconds, bytes, recompute, loss[Z3D_LOSS_COUNT]; /* as z3d_fit_row's */
    double compute;                                         /* seconds of rank 0's kernels */
    double busiest; /* seconds in which the busiest stage waits for no other, nor for launches */
    z3d_memory_need fullest; /* of all stages */
    z3d_ledger ledger;       /* of rank 0, if `unit` is wanted */
} z3d_fit_price;
/* unit: NULL, or by unit, to which rank 0's seconds are added. */
z3d_status z3d_fit_price_few(const z3d_fit_frame *w, const z3d_fit_row *row, int64_t accumulation,
                             double *unit, z3d_fit_price *out);
/* The row's time, from two short steps. micro: seconds that each micro-batch adds at least. If the
 * first step says that the row takes `limit` seconds or more, only this bound and the memory are
 * set. *nearly_full: the device's allocator slows it down. */
z3d_status z3d_fit_time(const z3d_fit_frame *w, double micro, double limit, z3d_fit_row *row,
                        bool *nearly_full);

/* Sets the keys of the tiers; nvme_path, where it is needed and not set, to z3d_tiers_folder. */
z3d_status z3d_tiers_apply(z3d_config *config, z3d_fit_tiers tiers);

extern const char *const z3d_fit_granularities[]; /* by z3d_granularity */

#endif
