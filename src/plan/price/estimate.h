/* The memory, time and speed of a configuration on described hardware, from a step on the sim
 * device. */
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

/* The node of cases on this machine. */
z3d_sim_node z3d_case_node(const z3d_config *config, const z3d_hardware *hardware);

/* Resolves `config` for a world of `ranks` (0: as it says) and runs a step of `rank` on the sim
 * device. ERR_CONFIG (also for sizes that overflow), ERR_TOPOLOGY, ERR_PROGRAM, ERR_MEMORY. */
z3d_status z3d_case_create(z3d_config *config, int ranks, int rank, z3d_sim_node node,
                           z3d_case **out);
void z3d_case_destroy(z3d_case *of);
/* The case as z3d_compared_find needs it. */
z3d_run_kind z3d_case_kind(const z3d_case *of);

/* A checkpoint of fp32 parameters and the optimizer's tensors, without HDF5's metadata. The node
 * with the most bytes decides its time; all ranks write at once. */
typedef struct z3d_saving {
    double bytes;                      /* of all nodes */
    double node_saved, node_loaded;    /* by this node; loaded: on the same topology */
    double save_seconds, load_seconds; /* at the node's disk rates; -1: not known */
    double
        stall_seconds; /* training waits for the save or checkpoint.async's copy; -1: not known */
} z3d_saving;

/* Errors: ERR_MEMORY. */
z3d_status z3d_saving_find(const z3d_case *of, const z3d_hardware *hardware, z3d_saving *out);

/* The price of one way of zero_optimization.pipeline_gather. */
typedef struct z3d_gather_price {
    double seconds; /* of a step; 0: not priced */
    int64_t arena;  /* bytes of device memory of a rank of the fullest pipeline stage */
    bool fits;
} z3d_gather_price;

/* FLOPs by Narayanan et al. (2104.04473): 96 B s l h^2 (1 + s/6h + V/16lh) with the recomputed
 * forward ("96"), 72 B s l h^2 (1 + s/6h + V/12lh) without ("72"). */
typedef struct z3d_estimate {
    z3d_memory_need memory;  /* of the case's rank */
    z3d_memory_need fullest; /* of a rank of the pipeline stage with the least free memory */
    int fullest_stage, slowest_stage; /* slowest: z3d_simulation_slowest */
    double bubble, sends;             /* z3d_simulation_bubble */
    z3d_step_time time;               /* of the case's rank */
    z3d_gather_price gather[2];  /* index: pipeline.gather_per_step; set by z3d_choose_gather */
    double samples, tokens;      /* of one step */
    double tflops_96, tflops_72; /* per device */
    double mfu, hfu;             /* shares of the peak in the model's type */
} z3d_estimate;

/* Prices a case. extra: more bytes of device memory. spans: as in z3d_simulation_play. ERR_CONFIG:
 * the machine's description lacks the speed of the run's type, or of host or disk that it offloads
 * to. ERR_TOPOLOGY: a tensor group straddles nodes without parallel.allow_tensor_across_nodes. */
z3d_status z3d_estimate_make(const z3d_case *of, const z3d_hardware *hardware, double extra,
                             const z3d_spans *spans, z3d_estimate *out);

/* z3d_estimate_make for rank 0 of `config` on a world of `ranks` ranks (0: as it says). Resolves
 * `config`. Errors: also those of z3d_case_create. */
z3d_status z3d_estimate_config(z3d_config *config, int ranks, const z3d_hardware *hardware,
                               z3d_estimate *out);

/* Appends an SVG picture of the step: pipeline stages x time, with each micro-batch's passes, waits
 * and their shares. Errors: as z3d_simulation_play. */
z3d_status z3d_schedule_picture(const z3d_case *of, const z3d_hardware *hardware, z3d_string *out);

/* Append text for people; one JSON object. train_tokens: the length of a whole training, whose bill
 * is added (on several nodes with failures); 0: none. */
void z3d_estimate_print(const z3d_case *of, const z3d_hardware *hardware,
                        const z3d_estimate *estimate, const z3d_saving *saving, double train_tokens,
                        z3d_string *out);
void z3d_estimate_json(const z3d_case *of, const z3d_hardware *hardware,
                       const z3d_estimate *estimate, const z3d_saving *saving, double train_tokens,
                       z3d_string *out);

#endif
