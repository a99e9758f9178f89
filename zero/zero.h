/* zero: the training step as a program. program/ has the table of instructions, states (states.c,
 * the only file that reads ZeRO's stage), groups as matrices of shards, the recordings of units and
 * the set of all programs. build/ makes the lists, verify/ checks them, plan_memory/ lays out their
 * memory, execute/ runs them, numerics/ reads the order of sums in them. It runs units through
 * src/model/unit.h and knows no GPT. May call src/model/unit.h, parallel/, src/device, src/base.
 * Start reading at program.h, then program/opcodes.h. */
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
    float scale, min_scale; /* not dynamic: scale is fixed (1: none) */
    int64_t window, hysteresis;
} z3d_loss_scaler;

/* Whether a train step is captured once and then launched as one operation (a CUDA graph). AUTO: if
 * possible, on one node; after a failed capture steps run without it, and a line says so. */
typedef enum z3d_graph_mode { Z3D_GRAPH_OFF, Z3D_GRAPH_AUTO, Z3D_GRAPH_ON } z3d_graph_mode;

/* Parameters with hyperparameters of their own. */
typedef struct z3d_optimizer_group {
    float lr_scale;
    bool decays; /* weight_decay holds, also for biases and norms; else the common one */
    float weight_decay;
} z3d_optimizer_group;

/* No `auto` here: the caller has resolved it. */
typedef struct z3d_engine_config {
    const z3d_model *model; /* must outlive the engine */
    z3d_mesh mesh;
    z3d_device *device;
    z3d_device *host; /* a cpu device for the host's steps (program.offload), if `device` does not
                         compute in host memory; NULL: `device` does them */
    z3d_group *group[Z3D_AXES_COUNT]; /* of this rank, by set of axes */
    z3d_world *world;                 /* for the watchdog; NULL: none */
    z3d_program_config program;
    z3d_optimizer_constants optimizer;          /* lr_scale is not read */
    const z3d_optimizer_group *optimizer_group; /* index: a parameter's optimizer_group - 1; NULL:
                                                   none. Must outlive the engine */
    double gradient_clipping;                   /* 0: off */
    z3d_loss_scaler scaler;
    uint64_t seed; /* initial values and dropout */
    z3d_graph_mode graph;
    bool verify;             /* verify the programs before anything runs */
    bool without_values;     /* a device without memory (sim): parameters are not initialised */
    const char *nvme_path;   /* folder of the disk's states; NULL: none */
    const char *digest_path; /* file of digests, a line for each instruction; NULL: none */
    const char *trace_path;  /* timeline of the first trace_steps steps; NULL: none */
    int64_t trace_steps;
    const char *trace_run; /* name of the run in the timelines; NULL: unknown */
    z3d_status (*enter)(void *context, const z3d_program *program,
                        int index); /* called before each instruction; NULL: none */
    void *enter_context;
} z3d_engine_config;

typedef struct z3d_engine z3d_engine;

/* Why this configuration's steps cannot be captured; NULL: they can. */
const char *z3d_graph_obstacle(const z3d_engine_config *config);

/* Lays out, records, builds, verifies and plans the programs, allocates the arenas, initialises
 * parameters (a pure function of seed, parameter name and global element index). Collective over
 * the world. Errors: ERR_CONFIG; ERR_PROGRAM (the verifier refuses); ERR_USAGE (a unit's group is
 * missing); ERR_IO; ERR_MEMORY. */
z3d_status z3d_engine_create(const z3d_engine_config *config, z3d_engine **out);
/* NULL does nothing. Not collective. */
void z3d_engine_destroy(z3d_engine *engine);

/* One micro-batch of this rank's data: field[f] is in host memory, [batch x bytes_per_sample]. */
typedef struct z3d_micro_batch {
    const void *field[Z3D_MAX_FIELDS];
} z3d_micro_batch;

typedef struct z3d_step_input {
    const z3d_micro_batch *micro; /* program.accumulation micro-batches (evaluate: 1) */
    int64_t sample_base;          /* global index of the step's first sample */
    int64_t global_targets; /* places for targets in the global batch. Any number: gradients are of
                               the mean over the trained targets, which the step counts; but the
                               gradients' range in fp16 follows from it */
    float learning_rate;
    bool stop_requested; /* by this rank; the result has the answer, equal on all ranks */
} z3d_step_input;

typedef struct z3d_step_result {
    int64_t step;
    double loss;        /* mean over the global batch's valid targets; NAN: no target */
    double grad_norm;   /* over the world, each logical parameter once, before clipping, unscaled */
    float loss_scale;   /* used in this step */
    int64_t targets;    /* trained targets in the global batch */
    bool skipped;       /* overflow, or no trained target: nothing was changed */
    int overflow_group; /* of a skipped step: the group with an infinity or NaN whose unit is
                           nearest to the loss; -1: the loss itself is not finite */
    int64_t skipped_in_a_row;
    bool stop;                       /* a rank asked for a stop */
    double seconds, exposed_seconds; /* of the step; in waits for collectives (one rank: 0) */
    double exposed_transfer_seconds; /* in waits for copies from and to host memory */
    /* NAN if a captured step has any: a graph has no times. */
    double exposed_disk_seconds; /* in waits for the disk */
    double host_step_seconds;    /* of the host's steps */
} z3d_step_result;

/* One optimizer step. Collective over the world. This holds for every collective function here: an
 * error may be this rank's alone, while the others wait in a collective, so the caller ends the run
 * with z3d_world_abort, which stops them. Errors: the device's, the disk's and the collectives'. */
z3d_status z3d_engine_train_step(z3d_engine *engine, const z3d_step_input *input,
                                 z3d_step_result *out);
/* `finished` is called after each instruction of a training step that is not captured
 * (config.graph), with a digest of its output (NULL: no output). Its failure ends the step. NULL
 * removes the observer. Not collective. */
void z3d_engine_set_finished(z3d_engine *engine,
                             z3d_status (*finished)(void *context, const z3d_program *program,
                                                    int index, const uint64_t *digest),
                             void *context);
/* The loss of one micro-batch of each rank without training or dropout: adds the world's sums to
 * *loss_sum and *targets. Collective over the world. */
z3d_status z3d_engine_evaluate(z3d_engine *engine, const z3d_step_input *input, double *loss_sum,
                               double *targets, bool *stop);
/* This rank's part of the sums that the last z3d_engine_evaluate added: those of its own samples; 0
 * on ranks that hold them a second time or not at all (tensor ranks, pipeline stages). Not
 * collective. */
z3d_status z3d_engine_own_loss(z3d_engine *engine, double *loss_sum, double *targets);
/* One call of PREFILL or PREFILL_SHORT for sample number `sample` of program.generate_batch, or of
 * DECODE for all samples (`sample` is not read). tokens and positions: as the model's mode takes
 * them (z3d_model_take_tokens). out: the last unit's output, fp32 [samples, elements] in host
 * memory. Caches persist until parameters change, or TRAIN or EVALUATE runs. ERR_USAGE: no such
 * sample. All ranks give and get the same. Collective over the world. */
z3d_status z3d_engine_generate(z3d_engine *engine, z3d_mode mode, int64_t sample,
                               const void *tokens, const void *positions, float *out);

/* This rank's bytes in one memory space, by category: planned, and measured (live bytes as the
 * executor uses them). */
const z3d_ledger *z3d_engine_planned(const z3d_engine *engine, z3d_space space);
const z3d_ledger *z3d_engine_measured(const z3d_engine *engine, z3d_space space);
/* Bytes of the one block of device memory. */
int64_t z3d_engine_arena_bytes(const z3d_engine *engine);
/* The block of a memory space and its bytes; NULL and 0: none. */
const void *z3d_engine_arena(const z3d_engine *engine, z3d_space space, int64_t *bytes);
const z3d_program *z3d_engine_program(const z3d_engine *engine, z3d_mode mode);
const z3d_layout *z3d_engine_layout(const z3d_engine *engine);
/* Operations in the captured train step; 0: it is not captured (yet). */
int64_t z3d_engine_graph_launches(const z3d_engine *engine);
/* How the disk is read and written (z3d_disk_description); NULL: it is not used. */
const char *z3d_engine_disk(const z3d_engine *engine);
z3d_device *z3d_engine_device(const z3d_engine *engine);

/* All that this rank keeps from step to step, in its own format, for another engine of the same
 * rank and programs: `move` is called with each piece in order. in: the engine keeps the bytes that
 * `move` puts there; else `move` reads them. Between steps; not collective. */
z3d_status z3d_engine_move_kept(z3d_engine *engine, bool in,
                                z3d_status (*move)(void *context, void *piece, int64_t bytes),
                                void *context);
/* Bytes of a buffer of the training program as they are now, from byte `first` on. ERR_USAGE: the
 * buffer has no such bytes. Not collective. */
z3d_status z3d_engine_read_buffer(const z3d_engine *engine, int buffer, int64_t first, void *out,
                                  int64_t bytes);

/* A whole logical parameter (or a tensor that the optimizer keeps of it, or this step's gradient),
 * in fp32 on every rank: gathered over the data and tensor groups and the pipeline. Outside a tile
 * it is 0. For tests, exports of small models and fixtures. Collective over the world; gradients
 * only right after a step. ERR_USAGE: the optimizer has no such tensor. */
z3d_status z3d_engine_get(z3d_engine *engine, z3d_tensor_kind kind, int group, int parameter,
                          float *out);
/* Sets a parameter from a whole logical tensor in host memory. Every rank calls it and takes its
 * part; nothing is communicated. ERR_USAGE: as z3d_engine_get, and for gradients. */
z3d_status z3d_engine_set(z3d_engine *engine, z3d_tensor_kind kind, int group, int parameter,
                          const float *values);

/* ---- the parts of logical parameters that ranks hold: for checkpoints ---- */

/* A logical parameter as [outer, global, inner] is split along its middle dimension: a tensor rank
 * has `valid` rows from `offset` on, without padding. Of these, flattened as [outer, valid, inner],
 * a rank holds elements first .. first + count - 1. */
typedef struct z3d_part {
    int64_t outer, global, inner;
    int64_t offset, valid;
    int64_t first, count;
} z3d_part;

/* The part of a parameter that the rank of `layout` holds: of its own shard, or (all_rows) of all
 * its data group's. The shards of all data ranks (and of all tensor ranks, if the parameter is
 * split) cover the parameter exactly once. Pure. */
void z3d_layout_part(const z3d_layout *layout, const z3d_model *model, int group, int parameter,
                     bool all_rows, z3d_part *out);
/* The kinds of tensors in this engine's state, as bits: a checkpoint has these. */
unsigned z3d_engine_kinds(const z3d_engine *engine);
/* The part whose fp32 states this engine keeps: its own shard's, in stage 0 all. */
void z3d_engine_kept_part(const z3d_engine *engine, int group, int parameter, z3d_part *out);
/* Elements first .. first + count - 1 of the slice, flattened [outer, valid, inner], as fp32 (of a
 * parameter: the master copy), within the kept part. Writing a parameter also sets its copy in the
 * model's type. Not collective. ERR_USAGE: outside of the part; gradients. */
z3d_status z3d_engine_read_part(z3d_engine *engine, z3d_tensor_kind kind, int group, int parameter,
                                int64_t first, int64_t count, float *out);
z3d_status z3d_engine_write_part(z3d_engine *engine, z3d_tensor_kind kind, int group, int parameter,
                                 int64_t first, int64_t count, const float *values);
/* Every rank calls this if any rank has written parts of parameters: copies that evaluation has
 * gathered are then outdated. */
void z3d_engine_parameters_changed(z3d_engine *engine);

/* How the next step applies the last step's gradients (program.offload.delayed). */
typedef struct z3d_pending_update {
    bool waits; /* false: no step yet, or the last one was skipped; the other fields are 0 */
    int64_t optimizer_step;
    float learning_rate, gradient_factor;
} z3d_pending_update;

/* The state that changes from step to step, without the tensors; equal on all ranks. */
typedef struct z3d_engine_state {
    int64_t step, optimizer_step, skipped_in_a_row;
    float loss_scale;
    int64_t good_steps, hysteresis_left; /* of the dynamic loss scale */
    z3d_pending_update pending;          /* its gradients are the tensors of kind PENDING */
} z3d_engine_state;
void z3d_engine_get_state(const z3d_engine *engine, z3d_engine_state *out);
/* Every rank must set the same state. A fixed loss scale stays as configured. */
void z3d_engine_set_state(z3d_engine *engine, const z3d_engine_state *state);

#endif
