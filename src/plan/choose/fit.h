/* Private to plan --fit: what all rows share, and a row's memory. */
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
    z3d_sim_node node;
    z3d_mesh mesh;
    z3d_model *model;
    int64_t samples, divisor[Z3D_FIT_DIVISORS]; /* of samples, ascending */
    int divisors;
} z3d_fit_frame;

/* Zero-initialise with config and hardware set; close also after a failure. */
z3d_status z3d_fit_open(z3d_fit_frame *w, int ranks);
void z3d_fit_close(z3d_fit_frame *w);

/* Micro-batches after which a step goes on as before: one, or as many as there are pipeline stages.
 */
int64_t z3d_fit_period(const z3d_fit_frame *w);
/* So many micro-batches say what a step of `accumulation` is like: a first, a middle and a last
 * period, for the middle ones are alike. All, if the schedule keeps all of them at once. */
int64_t z3d_fit_few(const z3d_fit_frame *w, int64_t accumulation);
/* Makes config the row's, with `accumulation` micro-batches a step. */
void z3d_fit_apply(const z3d_fit_frame *w, const z3d_fit_row *row, int64_t accumulation);
/* The row's ledger and memory, from programs of `accumulation` micro-batches; the others add only
 * their batch. */
z3d_status z3d_fit_memory(const z3d_fit_frame *w, z3d_fit_row *row, int64_t accumulation);
/* The same with another micro-batch, from a few micro-batches. */
z3d_status z3d_fit_try(const z3d_fit_frame *w, z3d_fit_row *row, int64_t micro_batch);
z3d_category z3d_fit_largest(const z3d_ledger *ledger);

#endif
