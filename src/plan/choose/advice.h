/* What to do about a plan that does not fit. */
#ifndef ZERO3D_PLAN_ADVICE_H
#define ZERO3D_PLAN_ADVICE_H

#include "src/device/sim/hardware.h"
#include "src/plan/plan.h"

/* Bytes that one rank needs: its arenas, and what is outside of them. */
typedef struct z3d_need {
    int rank;
    int64_t arena[Z3D_SPACE_COUNT];
    int64_t snapshot;                 /* in host memory: z3d_plan_snapshot */
    int64_t outside;                  /* on the cpu device: z3d_plan_outside */
    int64_t buckets;                  /* in device memory: what NCCL's groups copy buckets to */
    int64_t peak[Z3D_CATEGORY_COUNT]; /* of the training step, in device memory */
    int64_t sent;                     /* elements to other data ranks, in a training step */
} z3d_need;

/* What the rank that needs most of `ranks` ranks (0: as z3d_plan_place finds them) with `threads`
 * threads needs: rank 0, or the first rank of another pipeline stage. As z3d_plan_create, but
 * without verification. Resolves `config`. Errors: as z3d_plan_create. */
z3d_status z3d_plan_need(z3d_config *config, int ranks, int threads, z3d_need *out);

/* The memory that a rank may use. */
typedef struct z3d_room {
    int64_t device, host; /* bytes that may be taken */
    bool shared;      /* host space is device memory too (the cpu device): `host` is ignored, and
                         everything must fit into `device` */
    int64_t reserved; /* of the device's memory, left out of `device`: for its libraries */
    const char
        *from; /* what makes the host's part so small, as z3d_host_memory has it; NULL: none */
} z3d_room;

/* Bytes of device memory. Where it is the host's, with what is outside of the plan. */
int64_t z3d_need_total(const z3d_need *need, const z3d_room *room);
/* Missing bytes; 0: it fits. */
int64_t z3d_need_missing(const z3d_need *need, const z3d_room *room);

/* What stands for a folder on a local disk, which only the user knows. */
extern const char z3d_tiers_folder[];

/* Text for a configuration that does not fit: how much is missing, which category is the largest,
 * and which single change of the configuration (ZeRO stage, recompute, sequence parallelism, P_a,
 * when parameters are gathered, activation checkpoints in host memory or not, fewer of them,
 * synchronous checkpoints, offload of optimizer or parameters, twice the tensor size, the largest
 * part of the micro-batch) would make it fit. Each change is planned; if none is enough, the one
 * that helps most. hardware: NULL, or what prices the changes that fit, of which the fastest comes
 * first. No text if it fits. Errors: ERR_MEMORY, and as z3d_plan_create for the
 * configuration itself. */
z3d_status z3d_plan_advice(const z3d_config *config, int ranks, int threads, const z3d_room *room,
                           const z3d_hardware *hardware, z3d_string *out);

/* ERR_MEMORY with the same in one line if it does not fit. */
z3d_status z3d_plan_check_room(const z3d_config *config, int ranks, int threads,
                               const z3d_room *room);

#endif
