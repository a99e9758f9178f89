/* zero: the training step as a program. program/ has the table of instructions, what persists
 * (states.c, the only file that reads ZeRO's stage), groups as matrices of shards, the recordings
 * of units and the set of all programs. build/ makes the lists, verify/ checks them, plan_memory/
 * lays out their memory, execute/ runs them, numerics/ reads the order of sums in them. It runs
 * units through src/model/unit.h and knows no GPT. May call src/model/unit.h, parallel/,
 * src/device, src/base. Start reading at program.h, then program/opcodes.h. */
#ifndef ZERO3D_ZERO_ZERO_H
#define ZERO3D_ZERO_ZERO_H

#include "parallel/parallel.h"
#include "src/base/base.h"
#include "src/device/device.h"
#include "src/model/unit.h"
#include "zero/program/config.h"

typedef struct z3d_layout z3d_layout;
typedef struct z3d_program z3d_program;

/* Dynamic loss scaling (DeepSpeed's keys and rules). */
typedef struct z3d_loss_scaler {
    bool dynamic;
    float scale, min_scale; /* a fixed scale when not dynamic (1: none) */
    int64_t window, hysteresis;
} z3d_loss_scaler;

/* Whether a train step is captured once and launched as one operation from then on (a CUDA graph).
 * AUTO: if possible, on one node; if a capture fails, a line says so and steps run without it. */
typedef enum z3d_graph_mode { Z3D_GRAPH_OFF, Z3D_GRAPH_AUTO, Z3D_GRAPH_ON } z3d_graph_mode;

/* Parameters with numbers of their own. */
typedef struct z3d_optimizer_group {
    float lr_scale;
    bool decays; /* also its biases and norms; else weight_decay is as that of the others */
    float weight_decay;
} z3d_optimizer_group;

/* Concrete values only: the caller has resolved every `auto`. */
typedef struct z3d_engine_config {
    const z3d_model *model; /* must outlive the engine */
    z3d_mesh mesh;
    z3d_device *device;
    z3d_device *host; /* a cpu device that steps what is offloaded (program.offload), where `device`
                         does not compute in host memory; NULL: `device` does it */
    z3d_group *group[Z3D_AXES_COUNT]; /* this rank's, by set of axes */
    z3d_world *world;                 /* for the watchdog's places; NULL: none */
    z3d_program_config program;
    z3d_optimizer_constants optimizer;          /* but lr_scale */
    const z3d_optimizer_group *optimizer_group; /* parameters' optimizer_group - 1; NULL: none.
                                                   Must outlive the engine */
    double gradient_clipping;                   /* 0: off */
    z3d_loss_scaler scaler;
    uint64_t seed; /* initial values and dropout */
    z3d_graph_mode graph;
    bool verify;             /* verify the programs before anything runs */
    bool without_values;     /* no memory behind the device: parameters are not initialised */
    const char *nvme_path;   /* folder for what lies on the disk; else NULL */
    const char *digest_path; /* NULL: no digests; else one text line per instruction is appended to
                                this file */
    const char *
        trace_path; /* NULL: no timeline; else Chrome trace events of the first trace_steps steps */
    int64_t trace_steps;
    const char *trace_run; /* which run it is, in the timeline of each rank; NULL: unknown */
    z3d_status (*enter)(void *context, const z3d_program *program,
                        int index); /* called before every instruction; NULL: none */
    void *enter_context;
} z3d_engine_config;

typedef struct z3d_engine z3d_engine;

/* Why steps of an engine with this configuration cannot be captured; NULL: they can. */
const char *z3d_graph_obstacle(const z3d_engine_config *config);

/* Lays out, records, builds, verifies and plans the programs, allocates the one arena, initialises
 * parameters (a pure function of seed, parameter name and global element index). Collective over
 * the world. Errors: ERR_CONFIG, ERR_PROGRAM (the verifier refuses), ERR_MEMORY (with the plan's
 * bytes by category). */
z3d_status z3d_engine_create(const z3d_engine_config *config, z3d_engine **out);
void z3d_engine_destroy(z3d_engine *engine);

/* This rank's data of one step: field f of micro-batch m is micro[m].field[f], host memory, batch x
 * bytes_per_sample. */
typedef struct z3d_micro_batch {
    const void *field[Z3D_MAX_FIELDS];
} z3d_micro_batch;

typedef struct z3d_step_input {
    const z3d_micro_batch *micro; /* program.accumulation of them (evaluate: 1) */
    int64_t sample_base;          /* global index of the step's first sample */
    int64_t
        global_targets; /* places for targets in the global batch. Gradients are of the mean over
                           those that are trained, whose number the step itself finds: it may be
                           any number here, but the gradients' range in fp16 follows from it */
    float learning_rate;
    bool stop_requested; /* by this rank; the answer is in the result, equal on all ranks */
} z3d_step_input;

typedef struct z3d_step_result {
    int64_t step;
    double loss;        /* mean over the global batch's valid targets; NAN: there is none */
    double grad_norm;   /* global, each logical parameter once, before clipping, unscaled */
    float loss_scale;   /* used in this step */
    int64_t targets;    /* that were trained, in the global batch */
    bool skipped;       /* overflow, or no target was trained: nothing was changed */
    int overflow_group; /* of a skipped step: the parameter group of the unit nearest to the loss
                           that had an infinity or NaN; -1: the loss itself is not finite */
    int64_t skipped_in_a_row;
    bool stop;                       /* some rank asked for a stop */
    double seconds, exposed_seconds; /* of the step; spent in waits for collectives (one rank: 0) */
    double exposed_transfer_seconds; /* spent in waits for copies from and to host memory */
    /* Both NAN for a captured step that has any: nothing in a graph is timed. */
    double exposed_disk_seconds; /* spent in waits for the disk */
    double host_step_seconds;    /* in which the host stepped what is offloaded */
} z3d_step_result;

/* One optimizer step. Collective over the world. An error may be this rank's alone, while the
 * others wait in a collective: the caller ends the run with z3d_world_abort, which stops them too.
 * This holds for every collective function here. */
z3d_status z3d_engine_train_step(z3d_engine *engine, const z3d_step_input *input,
                                 z3d_step_result *out);
/* Sees each instruction of a training step when it is over, with a digest of what it has written
 * (NULL: nothing). A failure ends the step. NULL: nobody looks. Only of steps that are not captured
 * (config.graph). */
void z3d_engine_set_finished(z3d_engine *engine,
                             z3d_status (*finished)(void *context, const z3d_program *program,
                                                    int index, const uint64_t *digest),
                             void *context);
/* Loss of one micro-batch per rank without training (no dropout): adds the whole world's sums to
 * *loss_sum and *targets. Collective. */
z3d_status z3d_engine_evaluate(z3d_engine *engine, const z3d_step_input *input, double *loss_sum,
                               double *targets, bool *stop);
/* This rank's part of what the last z3d_engine_evaluate added: the sums of its own samples; 0 on
 * ranks that hold them a second time, or not at all (tensor ranks, pipeline stages). Not
 * collective. */
z3d_status z3d_engine_own_loss(z3d_engine *engine, double *loss_sum, double *targets);
/* One call of PREFILL or PREFILL_SHORT for one of the program.generate_batch samples, or of DECODE
 * for all of them (then `sample` is not looked at): tokens and positions as the model wants them in
 * this mode (z3d_model_take_tokens), the last unit's output as fp32 [samples, elements] into host
 * memory. Caches keep what they got until parameters change, or TRAIN or EVALUATE runs. ERR_USAGE:
 * no such sample. Every rank gives the same and gets the same. Collective. */
z3d_status z3d_engine_generate(z3d_engine *engine, z3d_mode mode, int64_t sample,
                               const void *tokens, const void *positions, float *out);

/* Planned (from the memory plan) and measured (live bytes as the executor uses them) bytes of this
 * rank in one memory space, by category. */
const z3d_ledger *z3d_engine_planned(const z3d_engine *engine, z3d_space space);
const z3d_ledger *z3d_engine_measured(const z3d_engine *engine, z3d_space space);
/* Size of the one block of device memory. */
int64_t z3d_engine_arena_bytes(const z3d_engine *engine);
/* The block of a memory space and its size; NULL and 0 where there is none. */
const void *z3d_engine_arena(const z3d_engine *engine, z3d_space space, int64_t *bytes);
const z3d_program *z3d_engine_program(const z3d_engine *engine, z3d_mode mode);
const z3d_layout *z3d_engine_layout(const z3d_engine *engine);
/* Operations in the captured train step; 0: it is not captured (yet). */
int64_t z3d_engine_graph_launches(const z3d_engine *engine);
/* How what is kept on the disk is read and written (z3d_disk_description); NULL: nothing is. */
const char *z3d_engine_disk(const z3d_engine *engine);
/* The device that the engine was made with. */
z3d_device *z3d_engine_device(const z3d_engine *engine);

/* Everything that this rank keeps from step to step, as it lies, for another engine of the same
 * rank and programs: `move` is called with each piece in order. `in`: what it puts there is
 * kept. Between steps; not collective. */
z3d_status z3d_engine_move_kept(z3d_engine *engine, bool in,
                                z3d_status (*move)(void *context, void *piece, int64_t bytes),
                                void *context);
/* Bytes of a buffer of the training step's program, as they are now, from byte `first` on. */
z3d_status z3d_engine_read_buffer(const z3d_engine *engine, int buffer, int64_t first, void *out,
                                  int64_t bytes);

/* A logical parameter (or a tensor that the optimizer keeps of it, or this step's gradient), whole,
 * in fp32 on every rank: gathered over the data and tensor groups. Of a tile, the rest is 0. For
 * tests, exports of small models and fixtures. Collective over the world; gradients only right
 * after a step. ERR_USAGE where the optimizer has no such tensor. */
z3d_status z3d_engine_get(z3d_engine *engine, z3d_tensor_kind kind, int group, int parameter,
                          float *out);
/* Sets a parameter from a whole logical tensor in host memory. Every rank calls it and takes its
 * part; nothing is communicated. */
z3d_status z3d_engine_set(z3d_engine *engine, z3d_tensor_kind kind, int group, int parameter,
                          const float *values);

/* ---- the parts of logical parameters that ranks hold: for checkpoints ---- */

/* A logical parameter, seen as [outer, global, inner], is split along its middle dimension: a
 * tensor rank has `valid` rows from `offset` on, without padding. Of these, flattened as [outer,
 * valid, inner], a rank holds the elements first .. first + count - 1. */
typedef struct z3d_part {
    int64_t outer, global, inner;
    int64_t offset, valid;
    int64_t first, count;
} z3d_part;

/* What the rank of `layout` holds of a parameter: of its own shard, or (all_rows) of the whole data
 * group's. The shards of all data ranks (and, where the parameter is split, of all tensor ranks)
 * cover it exactly once. Pure. */
void z3d_layout_part(const z3d_layout *layout, const z3d_model *model, int group, int parameter,
                     bool all_rows, z3d_part *out);
/* The kinds of tensors that make up this engine's state: what a checkpoint has. */
unsigned z3d_engine_kinds(const z3d_engine *engine);
/* What this engine keeps fp32 states of: its own shard, in stage 0 all of them. */
void z3d_engine_kept_part(const z3d_engine *engine, int group, int parameter, z3d_part *out);
/* Elements first .. first + count - 1 of the slice, flattened [outer, valid, inner], as fp32 (the
 * master copy of a parameter): within the kept part. Writing a parameter also sets its copy in the
 * model's type. Not collective. ERR_USAGE outside of it, and for gradients. */
z3d_status z3d_engine_read_part(z3d_engine *engine, z3d_tensor_kind kind, int group, int parameter,
                                int64_t first, int64_t count, float *out);
z3d_status z3d_engine_write_part(z3d_engine *engine, z3d_tensor_kind kind, int group, int parameter,
                                 int64_t first, int64_t count, const float *values);
/* Every rank calls this if some have written parts of parameters: the other ranks' copies for
 * evaluation are then outdated. */
void z3d_engine_parameters_changed(z3d_engine *engine);

/* How the next step applies the gradients of the last one (program.offload.delayed). */
typedef struct z3d_pending_update {
    bool waits; /* false: no step yet, or the last one was skipped; then the rest is 0 */
    int64_t optimizer_step;
    float learning_rate, gradient_factor;
} z3d_pending_update;

/* The state beside the tensors that changes from step to step; equal on all ranks. */
typedef struct z3d_engine_state {
    int64_t step, optimizer_step, skipped_in_a_row;
    float loss_scale;
    int64_t good_steps, hysteresis_left; /* of dynamic loss scaling */
    z3d_pending_update pending;          /* its gradients are tensors of kind PENDING */
} z3d_engine_state;
void z3d_engine_get_state(const z3d_engine *engine, z3d_engine_state *out);
/* A fixed loss scale stays as configured. Every rank must set the same state. */
void z3d_engine_set_state(z3d_engine *engine, const z3d_engine_state *state);

#endif
