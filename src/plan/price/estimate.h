/* What a configuration needs on described hardware: it runs the step on the sim device, compares
 * memory with the capacity, and gives the time of each part and the speed in both conventions. */
#ifndef ZERO3D_PLAN_ESTIMATE_H
#define ZERO3D_PLAN_ESTIMATE_H

#include "src/plan/plan.h"
#include "src/plan/price/accuracy.h"
#include "src/plan/price/simulate.h"

/* A configuration at full size on the sim device. */
typedef struct z3d_case {
    z3d_mesh mesh;
    z3d_program_config program;
    z3d_model *model;
    z3d_simulation *simulation;
    bool tensor_across_nodes; /* allowed */
    bool begins;              /* z3d_plan_begins */
} z3d_case;

/* The node that cases on this machine are made for. */
z3d_sim_node z3d_case_node(const z3d_config *config, const z3d_hardware *hardware);

/* Resolves `config` for a world of `ranks` (0: what it asks for) and runs a step of `rank` on the
 * sim device. threads: of the ranks of a cpu machine, 0 for a gpu. Errors: ERR_CONFIG (also sizes
 * that overflow), ERR_TOPOLOGY, ERR_PROGRAM, ERR_MEMORY. */
z3d_status z3d_case_create(z3d_config *config, int ranks, int rank, z3d_sim_node node,
                           z3d_case **out);
void z3d_case_destroy(z3d_case *of);
/* Which compared steps it is like. */
z3d_run_kind z3d_case_kind(const z3d_case *of);

/* A checkpoint of fp32 parameters and the optimizer's tensors, as checkpoint/ writes it: bytes of
 * values. The fullest node decides how long it takes; all its ranks write at once. */
typedef struct z3d_saving {
    double bytes;                      /* of all nodes */
    double node_saved, node_loaded;    /* by the fullest node; loaded: on the same topology */
    double save_seconds, load_seconds; /* at the node's disk rates; -1: unknown rates */
    double stall_seconds; /* of training: all of a save, or the copy of checkpoint.async; -1:
                             unknown */
} z3d_saving;

/* Errors: ERR_MEMORY. */
z3d_status z3d_saving_find(const z3d_case *of, const z3d_hardware *hardware, z3d_saving *out);

/* FLOPs are counted by Narayanan et al.'s formula (2104.04473): 96 B s l h^2 (1 + s/6h + V/16lh)
 * with the recomputed forward ("96"), 72 B s l h^2 (1 + s/6h + V/12lh) without ("72"). */
typedef struct z3d_gather_price {
    double seconds; /* of a step; 0: not priced */
    int64_t arena;  /* bytes of device memory of the fullest stage's ranks */
    bool fits;
} z3d_gather_price;

typedef struct z3d_estimate {
    z3d_memory_need memory;  /* of the case's rank */
    z3d_memory_need fullest; /* of a rank of the pipeline stage with the least left; it decides */
    int fullest_stage, slowest_stage; /* slowest: z3d_simulation_slowest */
    double bubble, sends;             /* z3d_simulation_bubble */
    z3d_step_time time;               /* of the case's rank */
    z3d_gather_price gather[2];       /* by pipeline.gather_per_step: z3d_choose_gather's */
    double samples, tokens;           /* of one step */
    double tflops_96, tflops_72;      /* per device */
    double mfu, hfu;                  /* of the peak in the model's type */
} z3d_estimate;

/* Prices a case. extra: bytes of a caller's named memory line. spans: as z3d_simulation_play.
 * ERR_CONFIG if the machine has no products in the run's type, or no rate of what it offloads to.
 * ERR_TOPOLOGY if a tensor group straddles this machine's nodes without
 * parallel.allow_tensor_across_nodes. */
z3d_status z3d_estimate_make(const z3d_case *of, const z3d_hardware *hardware, double extra,
                             const z3d_spans *spans, z3d_estimate *out);

/* An SVG picture of the step: pipeline stages x time, with each micro-batch's passes, what is
 * waited for, and their shares. Errors: as z3d_simulation_play. */
z3d_status z3d_schedule_picture(const z3d_case *of, const z3d_hardware *hardware, z3d_string *out);

/* Text for people, and one JSON object. train_tokens: 0, or the length of a whole training; on
 * several nodes also with failures. Errors: z3d_goodput_find's. */
z3d_status z3d_estimate_print(const z3d_case *of, const z3d_hardware *hardware,
                              const z3d_estimate *estimate, const z3d_saving *saving,
                              double train_tokens, z3d_string *out);
z3d_status z3d_estimate_json(const z3d_case *of, const z3d_hardware *hardware,
                             const z3d_estimate *estimate, const z3d_saving *saving,
                             double train_tokens, z3d_string *out);

#endif
