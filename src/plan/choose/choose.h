/* What is chosen for the user from the cost model: values that a configuration leaves open. All of
 * it is settled here, above the step-program builder, which takes concrete values only. */
#ifndef ZERO3D_PLAN_CHOOSE_H
#define ZERO3D_PLAN_CHOOSE_H

#include "src/plan/price/estimate.h"

/* Settles activation_checkpointing.cpu_checkpointing where it is `auto`, for a world of `ranks` (0:
 * as z3d_plan_place finds them): on where a step's copies hide behind its other work (they lengthen
 * it by 1 % at most) or where it fits the device's memory only so; else off. Resolves `config` and
 * clears training.hardware, which has no further use. hardware: NULL: not known, then off. why:
 * gets a phrase ("on: ..."); nothing where the configuration had already said. Not collective; rank
 * 0 stands for all. Errors: z3d_case_create's and z3d_estimate_make's. */
z3d_status z3d_choose_offload(z3d_config *config, int ranks, const z3d_hardware *hardware,
                              z3d_string *why);

/* One way of training a configuration's model on its global batch. */
typedef struct z3d_fit_row {
    int stage, granularity; /* z3d_granularity */
    bool partition, offload;
    int64_t micro_batch, accumulation;
    z3d_ledger ledger; /* peak bytes by category */
    z3d_memory_need memory;
    bool fits;
    double seconds;    /* of a step; this and below only where it fits */
    double bytes_sent; /* by a rank in a step */
    double recompute;  /* FLOPs beyond the model's own, as a share of them */
} z3d_fit_row;

enum { Z3D_FIT_ROWS = 64 };
typedef struct z3d_fit {
    z3d_hardware hardware;
    int ranks, tensor, data;
    int64_t samples; /* of a data rank and step: micro_batch x accumulation */
    int count;       /* rows: those that fit by time, then the others by what they lack */
    z3d_fit_row row[Z3D_FIT_ROWS];
} z3d_fit;

/* A machine of round numbers, for who names none; nodes of 8 devices, or a tensor group. */
z3d_status z3d_nominal_machine(const z3d_config *config, z3d_hardware *out);

/* Walks ZeRO stage x granularity x P_a x cpu x micro-batch; model, parallel sizes and global batch
 * stay. There is one row a combination, with the micro-batch that is fastest among those that fit
 * hardware->memory_gib, or with the smallest where none does. Larger micro-batches are taken to
 * need more memory and to be faster, but for what a nearly full device costs; a step of more than
 * three micro-batches is priced by its first three. On success `config` is resolved and is that of
 * the first row, for z3d_config_write. Not collective, allocates no device memory.
 * Errors: ERR_MEMORY when nothing fits (by how much, the largest category), z3d_case_create's and
 * z3d_estimate_make's. */
z3d_status z3d_fit_walk(z3d_config *config, int ranks, const z3d_hardware *hardware, z3d_fit *out);
/* A table for people, and one JSON object. */
void z3d_fit_print(const z3d_fit *fit, z3d_string *out);
void z3d_fit_json(const z3d_fit *fit, z3d_string *out);

#endif
