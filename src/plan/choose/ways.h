/* Private to plan --recommend: all ways of training a configuration's model on so many ranks, and
 * what each takes at least. */
#ifndef ZERO3D_PLAN_WAYS_H
#define ZERO3D_PLAN_WAYS_H

#include "src/plan/choose/fit.h"

/* What one micro-batch takes on a tensor group that has the whole model: no data ranks, no
 * pipeline. Every way with this tensor size, micro-batch and granularity does the same work. */
typedef struct z3d_alone {
    int granularity;
    int64_t micro_batch;
    double pass;                      /* seconds of the micro-batch */
    double rest;                      /* seconds of a step without micro-batches: the optimizer */
    int64_t peak[Z3D_CATEGORY_COUNT]; /* bytes */
} z3d_alone;

typedef struct z3d_way {
    int frame, stage, granularity;
    int64_t micro_batch;
    double seconds, bytes; /* at least */
} z3d_way;

typedef struct z3d_ways {
    z3d_config *config;
    const z3d_hardware *hardware;
    int ranks;
    int64_t batch;         /* samples of a step */
    int sequence_parallel; /* of several tensor ranks; -1: where the model allows it */
    int frames;            /* one for each layout, by tensor size */
    z3d_fit_frame *frame;
    z3d_fit_layout refused; /* the first that configuration or model refuses; tensor 0: none */
    int count;              /* by seconds */
    z3d_way *way;
} z3d_ways;

/* Finds all: tensor sizes that the model allows, in a node; pipeline sizes with a unit in each
 * chunk; data sizes that divide the batch; each schedule and number of chunks; ZeRO stages (one
 * where there is one data rank); granularities; micro-batches, each at least twice the one before,
 * up to the first that is too large for every stage. Zero-initialise the struct, with config ..
 * sequence_parallel set; close also after a failure. Errors: ERR_CONFIG if there is no layout. */
z3d_status z3d_ways_open(z3d_ways *w);
void z3d_ways_close(z3d_ways *w);
/* Whether ranks keep their own rows only of this part of the states, at this ZeRO stage. */
bool z3d_way_shards(int stage, z3d_group_part part);
double
z3d_ways_capacity(const z3d_ways *w); /* bytes of a device, without what is outside of arenas */

#endif
