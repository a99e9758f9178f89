/* Advice for a plan that does not fit. No function here is collective. */
#ifndef ZERO3D_PLAN_ADVICE_H
#define ZERO3D_PLAN_ADVICE_H

#include "src/device/sim/hardware.h"
#include "src/plan/plan.h"

/* Bytes that one rank needs: its arenas, and the memory outside of them. */
typedef struct z3d_need {
    int rank;
    int64_t arena[Z3D_SPACE_COUNT];
    int64_t snapshot;  /* in host memory: z3d_plan_snapshot */
    int64_t outside;   /* on the cpu device: z3d_plan_outside */
    int64_t buckets;   /* in device memory: buffers that NCCL's groups copy buckets to */
    z3d_ledger ledger; /* of the training step, in device memory */
    int64_t sent;      /* elements to other data ranks, in a training step */
} z3d_need;

/* The memory budget of a rank. */
typedef struct z3d_room {
    int64_t device, host; /* bytes that may be taken */
    bool shared;      /* the two spaces share one memory (the cpu device): `host` is ignored, and
                         everything must fit into `device` */
    int64_t reserved; /* bytes of device memory for the device's libraries; not part of `device` */
    const char *from; /* the limit that makes `host` smaller than the machine's memory, as in
                         z3d_host_memory; NULL: none */
} z3d_room;

/* What a choice or an advice depends on beside the configuration. */
typedef struct z3d_choice {
    int ranks;                    /* of the world; 0: as z3d_plan_place finds them */
    int threads;                  /* of each rank; for `room` */
    const z3d_hardware *hardware; /* a described machine; NULL: unknown */
    const z3d_room *room;         /* the memory budget of each rank in a run; NULL: no run */
} z3d_choice;

/* *out: the needs of the rank that needs most, of at->ranks ranks with at->threads threads each. It
 * is rank 0 or the first rank of another pipeline stage. As z3d_plan_create, but without
 * verification. Resolves `config`. Errors: as z3d_plan_create. */
z3d_status z3d_plan_need(z3d_config *config, const z3d_choice *at, z3d_need *out);

/* Bytes of device memory; if the spaces share one memory, the bytes of all spaces and outside of
 * the plan. */
int64_t z3d_need_total(const z3d_need *need, const z3d_room *room);
/* Missing bytes; 0: it fits. */
int64_t z3d_need_missing(const z3d_need *need, const z3d_room *room);

/* The placeholder for a folder on a local disk, which only the user knows. */
extern const char z3d_tiers_folder[];

/* Writes text for a configuration that does not fit: how many bytes are missing, the largest
 * category, and the single changes of the configuration (ZeRO stage, recompute, sequence
 * parallelism, P_a, when parameters are gathered, activation checkpoints in host memory or not,
 * fewer of them, synchronous checkpoints, offload of optimizer or parameters, twice the tensor
 * size, the largest part of the micro-batch) that would make it fit. Each change is planned; if
 * none is enough, the text has the change that helps most. at: the room; the hardware, unless NULL,
 * prices the changes that fit, and the fastest comes first. No text if the configuration fits.
 * Errors: ERR_MEMORY, and as z3d_plan_create for the configuration itself. */
z3d_status z3d_plan_advice(const z3d_config *config, const z3d_choice *at, z3d_string *out);

/* ERR_MEMORY with the same text in one line if the configuration does not fit. */
z3d_status z3d_plan_check_room(const z3d_config *config, const z3d_choice *at);

#endif
