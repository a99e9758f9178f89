/* The step program: what a training step does on one rank, as a list made once by a pure function
 * of (model, configuration, rank). Everything reads it: the verifier, the memory planner, the
 * executor, print, plan, sim. */
#ifndef ZERO3D_ZERO_PROGRAM_H
#define ZERO3D_ZERO_PROGRAM_H

#include "parallel/parallel.h"
#include "parallel/schedule/schedule.h"
#include "src/base/base.h"
#include "src/model/unit.h"
#include "zero/program/opcodes.h"

/* How units are divided among pipeline stages, and in which order these run them. All zero: there
 * is one chunk, with all units. */
typedef struct z3d_pipeline_config {
    z3d_schedule_kind schedule;
    int chunks_per_stage;               /* 0: 1 */
    int first_unit[Z3D_MAX_CHUNKS + 1]; /* of each chunk, and the number of units; all zero: as
                                           many units in each chunk as possible */
    const z3d_schedule *file;           /* of schedule FILE; must outlive all that is made of it */
    /* Of this configuration, made once for the programs of several ranks; must outlive their
     * building. NULL: each program makes its own. */
    const struct z3d_timetables *timetables;
    bool gather_per_step; /* parameters that are gathered for use stay until the step's last use;
                             else until the end of the pass that uses them */
} z3d_pipeline_config;

static inline int z3d_chunks_of_stage(const z3d_pipeline_config *pipeline) {
    return pipeline->chunks_per_stage ? pipeline->chunks_per_stage : 1;
}

/* Where what persists lies, and how the host steps it. All zero: on the device. */
typedef struct z3d_offload_plan {
    z3d_space optimizer;  /* states, with a master copy of the parameters; and gradients, as soon as
                             they are reduced, of what a rank keeps only its own row */
    z3d_space parameters; /* of stage 3; in training only with the optimizer */
    int64_t sub_group;    /* elements of a group that are stepped at a time; 0: all */
    int pieces;           /* of these, that are under way at once; 0: 3 */
    double resident;      /* share of the states that stays on the device (Twin-Flow: 1 - ratio), by
                             whole parameter groups; these keep nothing elsewhere */
    bool delayed; /* a step's gradients are kept, and stepped beside the next step's forward and
                     backward, which use the parameters as they were (ZeRO-Offload's one-step
                     delayed parameter update); no group is resident */
} z3d_offload_plan;

/* What a data axis that is cut, into the ranks of a node and the nodes, means for parameter groups:
 * in the order of z3d_data_cut. Where it is not cut, all are as FLAT. */
typedef enum z3d_sharding {
    Z3D_SHARDING_FLAT,         /* collectives are over the whole data axis */
    Z3D_SHARDING_HIERARCHICAL, /* they are over its two parts, one after the other */
    Z3D_SHARDING_HPZ,   /* likewise, and stage 3 keeps a second value, sharded over a node's ranks
                           (ZeRO++, Wang et al. 2306.10209) */
    Z3D_SHARDING_HYBRID /* states are sharded over a node's ranks, and each node has them all (MiCS,
                           Zhang et al. 2205.00119; FSDP's HSDP) */
} z3d_sharding;

/* What the builder decides from. No `auto` here. */
typedef struct z3d_program_config {
    int stage;           /* ZeRO stage 0-3 */
    int64_t persistence; /* stage 3: parameter groups of at most so many elements are kept whole */
    z3d_sharding sharding;
    z3d_dtype dtype;      /* of parameters, activations: fp32, bf16, fp16 */
    z3d_dtype grad_dtype; /* what gradients accumulate and are reduced in: dtype or fp32 */
    z3d_dtype wire;       /* in which fp32 gradients travel to be summed: z3d_collective's */
    z3d_optimizer optimizer;
    bool ema;            /* an average of the parameters is one of its states */
    int64_t micro_batch; /* samples per rank and micro-batch */
    /* Where data ranks have unequal shares of a micro-batch: its samples before each of them, and
     * all of them (data size + 1 numbers; not owned). A program's own micro_batch is its share.
     * NULL: each has micro_batch. */
    const int64_t *first_sample;
    int64_t generate_batch;     /* samples that generation works on together; 0: 1 */
    int64_t generate_positions; /* of each of them in the caches; 0: all that the model has */
    int accumulation;           /* micro-batches per step */
    bool reduce_per_step; /* full gradients accumulate, one reduction a step; else every micro-batch
                             is reduced */
    bool recompute;       /* activation_checkpointing.granularity full */
    bool selective;       /* units keep less and compute again what is cheap (granularity
                             selective): no unit is recomputed whole */
    bool keep_activation; /* units keep what an activation function gives (recompute_activation
                             false) */
    bool replay_full; /* recompute repeats the whole forward (activation_checkpointing.replay full)
                       */
    int checkpoint_every; /* units from one activation checkpoint to the next (number_checkpoints);
                             0 means 1 */
    bool partition_activations;           /* P_a: a checkpoint is split over the tensor group; of
                                             a sequence-parallel model it is split anyway, and a
                                             program's own configuration says false */
    z3d_space checkpoint_space;           /* where they lie; P_a+cpu: in host memory */
    bool overlap;                         /* collectives run beside compute */
    int64_t reduce_bucket, gather_bucket; /* elements of the full matrix per collective */
    int64_t gather_ahead;   /* elements of parameters that may be gathered before the units that use
                               them, at least the next unit's; and of gradients that may be under way
                               at once, at least one unit's */
    int64_t reuse_distance; /* parameters that are gathered for use stay for a later one if fewer
                               elements of others come before it; those of the next unit always */
    int64_t max_live; /* elements of parameters that are gathered at a time; those of the unit that
                         runs always are. 0: any number */
    int64_t prefetch; /* elements of offloaded parameters, behind the next unit's, that may be on
                         their way to the device, and behind those from a disk to the host; at least
                         one unit's */
    bool inference;   /* only generation, or with `evaluates` only evaluation: there is no training
                         step, and neither gradients nor optimizer states are kept */
    bool evaluates;
    bool without_generation; /* no program of generation, and no room for its caches */
    bool gathered; /* evaluate, generation: no parameter changed since this mode's gathers ran, so
                      that what every rank keeps whole is whole already */
    bool rough_memory; /* for prices of programs that do not run: buffers share no addresses, so the
                          arena is far too large; its lower bound is what counts */
    z3d_pipeline_config pipeline;
    z3d_offload_plan offload;
} z3d_program_config;

/* Whether there is a program of this mode, if the model has the mode. */
static inline bool z3d_needs_mode(const z3d_program_config *config, z3d_mode mode) {
    if (config->inference)
        return z3d_mode_generates(mode) != config->evaluates && mode != Z3D_MODE_TRAIN;
    return !z3d_mode_generates(mode) || !config->without_generation;
}

/* Of a micro-batch: the samples of this place, those of the data ranks before it, all of them. */
int64_t z3d_samples_of(const z3d_program_config *config, const z3d_mesh *mesh);
int64_t z3d_samples_before(const z3d_program_config *config, const z3d_mesh *mesh);
int64_t z3d_samples_in_all(const z3d_program_config *config, const z3d_mesh *mesh);

/* Shares out `samples` among `count` data ranks in proportion to their speeds: the one that takes
 * longest takes as little time as possible. first: count + 1 numbers, as first_sample. Pure. False:
 * a rank gets none. */
bool z3d_share_samples(int64_t samples, const double *speed, int count, int64_t *first);

/* ---- pipeline stages: which units each chunk has ---- */

/* What the chunks have about as much of. */
typedef enum z3d_balance {
    Z3D_BALANCE_TIME, /* chunks take about as long: FLOPs, and bytes moved, of the recordings */
    Z3D_BALANCE_PARAMETERS, /* chunks have about as many parameters */
    Z3D_BALANCE_UNIFORM     /* chunks have as many units */
} z3d_balance;

/* Sets pipeline.first_unit of `config`, whose other fields are decided, for so many stages: the
 * chunk with most, for its stage's speed, has as little as possible. speed: of each stage; NULL:
 * they are equal. Pure. Errors: ERR_CONFIG, also for a stage so slow that the others were faster
 * without it, ERR_MEMORY, ERR_PROGRAM. */
z3d_status z3d_partition_units(const z3d_model *model, int stages, z3d_balance balance,
                               const double *speed, z3d_program_config *config);

/* ---- timetables: the order of passes on all pipeline stages ---- */

/* The moments at which passes end if each takes its usual time, by chunk x micros + micro-batch. */
typedef struct z3d_timetable {
    const z3d_schedule *schedule; /* made, or the user's own */
    z3d_schedule *made;
    double *forward_end;
    double *gradient_end; /* of a whole backward, or of its input half; NULL: there is one stage */
} z3d_timetable;

typedef struct z3d_timetables {
    z3d_timetable train, forward; /* forward: of the other modes */
} z3d_timetables;

/* For so many stages. Errors: ERR_CONFIG, as z3d_schedule_create. */
z3d_status z3d_timetables_create(const z3d_program_config *config, int stages,
                                 z3d_timetables **out);
void z3d_timetables_destroy(z3d_timetables *timetables);

/* ---- layout: parameter groups as flat buffers and shards ---- */

/* Elements of a shard that are treated alike: same weight decay, same counting in norms, same sums
 * over the tensor group. At most six a shard. */
typedef struct z3d_range {
    int64_t first, count; /* in the group's flat local buffer */
    bool weight_decay, replicated;
    bool partial; /* replicated, and a tensor rank's gradient is its part of a sum */
} z3d_range;

/* Rows of a group's [rows x shard] matrix: this rank's; the others of its block, the rows of the
 * ranks at its place in other nodes; all others. They nest: a block's rows follow each other. */
typedef enum z3d_rows {
    Z3D_ROWS_OWN = 1,
    Z3D_ROWS_NEAR = 2,
    Z3D_ROWS_FAR = 4,
    Z3D_ROWS_BLOCK = Z3D_ROWS_OWN | Z3D_ROWS_NEAR,
    Z3D_ROWS_OTHERS = Z3D_ROWS_NEAR | Z3D_ROWS_FAR,
    Z3D_ROWS_ALL = Z3D_ROWS_BLOCK | Z3D_ROWS_FAR
} z3d_rows;

/* What of a parameter group persists between steps. */
typedef enum z3d_state_role {
    Z3D_STATE_VALUE,     /* the parameters */
    Z3D_STATE_SECONDARY, /* hpZ: their block, gathered once after they changed */
    Z3D_STATE_GRADIENT,
    Z3D_STATE_OPTIMIZER,
    Z3D_STATE_COUNT
} z3d_state_role;

/* Where a state is on each rank. */
typedef struct z3d_placement {
    z3d_axes sharded; /* over which its rows are divided; NONE: each rank has all */
    z3d_space space;
    z3d_dtype codec;
} z3d_placement;

/* A state is a matrix for each kind of tensor, in the kinds' order. The optimizer state of 16-bit
 * parameters, and an offloaded one, begins with an fp32 master copy, which is the trainer's
 * (Z3D_TENSOR_PARAMETER); the optimizer's own tensors follow. Other fp32 parameters are their own
 * master copy. */
typedef struct z3d_state {
    z3d_placement at;
    unsigned kinds; /* of z3d_tensor_kind; 0: the group does not have it */
} z3d_state;

typedef struct z3d_group_layout {
    z3d_axes shard_axes;   /* over which states may be sharded: a row of the matrix a rank */
    z3d_axes replica_axes; /* over which finished gradients of the partial ranges are summed; NONE:
                              there are none */
    z3d_axes copy_axes;    /* over which equal states are kept, and gradients summed once they are
                              reduced; NONE: there is one copy */
    int rows, own;         /* of the matrix: ranks along the shard axes; which one is this rank's */
    int block;             /* rows of a block; 1 where the shard axes are not cut */
    int chunk[2];          /* of the pipeline, that use it; -1: none */
    bool frozen;           /* not trained: its value is all that is kept of it */
    bool held;             /* a unit of this pipeline stage uses it; else nothing of it is kept */
    bool counts;           /* this stage is the first that holds it: counts its norm, saves it */
    /* It is used in two chunks, and trained: gradients are summed up apart and then added, wherever
     * they are. */
    int twin;         /* the other pipeline stage that holds it; -1: none */
    int second_chunk; /* both chunks are this stage's: the later one; -1: they are not */
    int64_t *offset;  /* first element of each parameter in the flat local buffer */
    int64_t elements; /* of the parameters, without the flat padding */
    int64_t padded;   /* = rows x shard: what P counts */
    int64_t shard;    /* elements of one rank's shard; a multiple of Z3D_SHARD_ALIGN */
    int num_ranges;
    z3d_range range[6]; /* of the whole flat buffer, in order, padding left out; a shard's are its
                           intersections */
    z3d_state state[Z3D_STATE_COUNT];
} z3d_group_layout;

/* This stage adds two sums of its gradients at the end of a step. */
static inline bool z3d_adds_two_sums(const z3d_group_layout *group) {
    return group->twin >= 0 || group->second_chunk >= 0;
}

enum {
    Z3D_SHARD_ALIGN = 64,
    Z3D_OFFLOAD_ALIGN = 2048 /* columns: pieces of a disk's blocks in every type */
};

typedef struct z3d_layout {
    int num_groups;
    z3d_mesh mesh;                 /* whose sizes and place these are */
    int tensor_size, tensor_index; /* of the group that parameters are split over */
    int stages, stage;             /* of the pipeline; this rank's */
    int num_chunks;                /* of all stages */
    int *first_unit;               /* of each chunk, and the number of units */
    int *stage_of_chunk, *chunk_of_unit;
    int first_trained;    /* unit: those before it have no backward (z3d_model_first_trained) */
    int64_t padded_total; /* P: sum of padded of what this stage holds */
    z3d_group_layout *group;
    int64_t *offset; /* of all groups' parameters */
} z3d_layout;

/* config: decides what is kept (z3d_states_decide), and which stage has which unit; NULL where only
 * places and sizes matter, and there is one stage. Errors: ERR_CONFIG, also for chunks that are not
 * all units in order, and for a group that units of more than two chunks use. */
z3d_status z3d_layout_create(const z3d_model *model, const z3d_mesh *mesh,
                             const z3d_program_config *config, z3d_layout **out);
void z3d_layout_destroy(z3d_layout *layout);
int z3d_layout_stage_of(const z3d_layout *layout, int unit);
/* Which of a group's two sums of gradients the unit adds to: 1 for its second chunk, else 0. */
int z3d_layout_use(const z3d_layout *layout, int unit, int group);
/* Whether this pipeline stage runs the unit; whether the unit is the first of its chunk. */
bool z3d_layout_has_unit(const z3d_layout *layout, int unit);
bool z3d_layout_begins_chunk(const z3d_layout *layout, int unit);
/* Whether something trained wants the gradient of the unit's input, that is, of the output of the
 * unit before it. */
static inline bool z3d_layout_wants_input_gradient(const z3d_layout *layout, int unit) {
    return unit > layout->first_trained;
}
/* Intersection of range r of group g with this rank's shard; false when empty. first is in the flat
 * buffer. */
bool z3d_layout_shard_range(const z3d_layout *layout, int group, int range, z3d_range *out);
/* Elements of the largest group, padding included: larger buckets change nothing. */
int64_t z3d_layout_largest(const z3d_layout *layout);
/* The run of partial gradients in this rank's shard (first is in the flat buffer; count 0: none of
 * it there). */
void z3d_layout_partial_part(const z3d_layout *layout, int group, int64_t *first, int64_t *count);

/* ---- states: what persists (program/states.c, the one file where ZeRO's stage is read) ---- */

/* The axes over which states may be sharded; nodes: the size of Z3D_ROLE_NODES. */
z3d_axes z3d_states_axes(z3d_sharding sharding, int nodes);
/* The states of a parameter group of so many elements, which may be sharded over `axes`. offloaded:
 * it is one of those that config.offload is about. frozen: it is not trained. */
void z3d_states_decide(const z3d_program_config *config, z3d_axes axes, int64_t elements,
                       bool offloaded, bool frozen, z3d_state state[Z3D_STATE_COUNT]);
/* The kinds of tensors that make up a run's state: what a checkpoint has. Of a frozen group it is
 * the parameters only. */
unsigned z3d_state_kinds(const z3d_program_config *config);
/* Whether gradients are best reduced once a step: what is kept between micro-batches is all rows.
 */
bool z3d_states_reduce_per_step(int stage);
/* What the layout says of a group's state: its rows, OWN, BLOCK or ALL; whether they are all;
 * elements of one tensor, the first of them in the group's flat buffer, bytes of all tensors. */
z3d_rows z3d_state_rows(const z3d_layout *layout, int group, z3d_state_role role);
bool z3d_state_is_whole(const z3d_layout *layout, int group, z3d_state_role role);
int64_t z3d_state_elements(const z3d_layout *layout, int group, z3d_state_role role);
/* The elements of these rows (OWN, BLOCK or ALL), and the first in the group's flat buffer. */
int64_t z3d_rows_elements(const z3d_group_layout *group, z3d_rows rows);
int64_t z3d_rows_first(const z3d_group_layout *group, z3d_rows rows);
int64_t z3d_state_first(const z3d_layout *layout, int group, z3d_state_role role);
int64_t z3d_state_bytes(const z3d_layout *layout, int group, z3d_state_role role);
/* Elements from one of the state's tensors to the next. */
int64_t z3d_state_stride(const z3d_layout *layout, int group, z3d_state_role role);
/* Which of the state's tensors is of this kind; -1: none. */
int z3d_state_index(const z3d_layout *layout, int group, z3d_state_role role, z3d_tensor_kind kind);
/* Of the elements that this stage holds and trains: those of groups whose optimizer states are
 * offloaded. */
double z3d_offloaded_share(const z3d_layout *layout);
/* Every rank keeps whole gradients, although it steps only its own rows: for people. */
bool z3d_keeps_whole_gradients(const z3d_layout *layout);

/* ---- traces: what a unit does, recorded once per kind, per what of it is frozen, and per call
 * ----
 */

typedef enum z3d_call {
    Z3D_CALL_FORWARD,
    Z3D_CALL_RECOMPUTE,
    Z3D_CALL_BACKWARD,
    Z3D_CALL_BACKWARD_INPUT, /* not recorded of a unit that cannot be cut */
    Z3D_CALL_BACKWARD_WEIGHT,
    Z3D_CALL_COUNT
} z3d_call;

/* The unit's function for the call. */
z3d_status z3d_unit_call(z3d_unit_run *run, z3d_call call);
/* Gives a run those of the groups, by set of axes, that its unit has. */
void z3d_unit_take_groups(z3d_unit_run *run, z3d_group *const group[Z3D_AXES_COUNT]);
/* The observer of all its groups. */
void z3d_unit_set_observer(const z3d_unit_run *run,
                           z3d_status (*observe)(void *context, z3d_group *group,
                                                 const z3d_collective *call),
                           void *context);

/* One inner collective of a unit. */
typedef struct z3d_child {
    z3d_collective_kind kind;
    z3d_reduce_op op;
    z3d_dtype dtype;
    z3d_axes axes;
    int64_t count;
    bool scalar;
} z3d_child;

z3d_child z3d_child_of(const z3d_group *group, const z3d_collective *call);
bool z3d_child_equal(const z3d_child *a, const z3d_child *b);

typedef struct z3d_trace {
    bool recorded;
    int num_children;
    z3d_child *child;
    double flops; /* all kernels of the call */
    int64_t bytes, kernels;
    int64_t saved, deferred, workspace; /* bytes; deferred: of a half of backward */
    int64_t scratch;                    /* the device's (see z3d_kernel_scratch) */
    bool reads_parameters[Z3D_MAX_UNIT_GROUPS];
    bool writes_gradients[Z3D_MAX_UNIT_GROUPS];
    bool reads_input, reads_output_gradient, writes_input_gradient;
    bool uses_cache;
} z3d_trace;

/* Traces by [mode][unit kind][call]. A unit of which other parameters are frozen than of the first
 * one of its kind counts as one of another kind, with a number behind the model's. */
typedef struct z3d_traces {
    int num_kinds;
    int *kind;        /* by unit */
    z3d_trace *trace; /* index: (mode * num_kinds + kind) * Z3D_CALL_COUNT + call */
    int threads;      /* of the device */
} z3d_traces;

/* Runs every distinct unit on a recording device. threads: of the real device (scratch depends on
 * it). Not collective. ERR_PROGRAM when a unit breaks its contract (saved sizes of forward and
 * backward differ, a half of backward writes what is the other's, ...). */
z3d_status z3d_traces_record(const z3d_model *model, const z3d_layout *layout,
                             const z3d_program_config *config, int threads, z3d_traces **out);
void z3d_traces_destroy(z3d_traces *traces);
/* Bytes: the largest scratch that any kernel of any program of this pipeline stage wants. */
int64_t z3d_traces_scratch(const z3d_traces *traces, const z3d_model *model,
                           const z3d_layout *layout);
const z3d_trace *z3d_traces_get(const z3d_traces *traces, z3d_mode mode, int kind, z3d_call call);
/* The same of unit number `unit`. */
const z3d_trace *z3d_traces_of(const z3d_traces *traces, z3d_mode mode, int unit, z3d_call call);

/* ---- the program ---- */

/* What runs beside compute stands in the list twice: START makes it wait for compute's position,
 * WAIT makes compute wait for it. Both have the same ticket. */
typedef enum z3d_phase { Z3D_PHASE_WHOLE, Z3D_PHASE_START, Z3D_PHASE_WAIT } z3d_phase;

/* Roles of an instruction's buffers; a slot holds a buffer's index or -1. A unit's first parameter
 * group has the slots PARAMETERS and GRADIENTS, the others' two each follow from COUNT on. */
typedef enum z3d_slot {
    Z3D_SLOT_INPUT,
    Z3D_SLOT_OUTPUT,
    Z3D_SLOT_OUTPUT_GRADIENT,
    Z3D_SLOT_INPUT_GRADIENT,
    Z3D_SLOT_SAVED,
    Z3D_SLOT_WORKSPACE,
    Z3D_SLOT_DEFERRED, /* from backward_input to backward_weight */
    Z3D_SLOT_CACHE,    /* of generation, from run to run */
    Z3D_SLOT_PARAMETERS,
    Z3D_SLOT_GRADIENTS,
    Z3D_SLOT_SHARD, /* kept gradients */
    Z3D_SLOT_OPTIMIZER,
    Z3D_SLOT_COUNT
} z3d_slot;

/* Slots of an instruction that runs a unit with so many groups; with 1, of every other one. */
static inline int z3d_slots_with(int groups) {
    return groups > 1 ? Z3D_SLOT_COUNT + 2 * (groups - 1) : Z3D_SLOT_COUNT;
}
/* Where the parameters of the unit's group number `place` are, and their gradients. */
static inline int z3d_slot_parameters(int place) {
    return place ? z3d_slots_with(place) : Z3D_SLOT_PARAMETERS;
}
static inline int z3d_slot_gradients(int place) {
    return place ? z3d_slots_with(place) + 1 : Z3D_SLOT_GRADIENTS;
}
/* Of a slot of any number: what is in it, and of which of the unit's groups. */
static inline z3d_slot z3d_slot_role(int slot) {
    if (slot < Z3D_SLOT_COUNT) return (z3d_slot)slot;
    return (slot - Z3D_SLOT_COUNT) % 2 ? Z3D_SLOT_GRADIENTS : Z3D_SLOT_PARAMETERS;
}
static inline int z3d_slot_place(int slot) {
    return slot < Z3D_SLOT_COUNT ? 0 : (slot - Z3D_SLOT_COUNT) / 2 + 1;
}

/* Whose data an instruction moves. */
typedef enum z3d_moves {
    Z3D_MOVES_NONE,
    Z3D_MOVES_PARAMETERS,
    Z3D_MOVES_GRADIENTS,
    Z3D_MOVES_STATES,              /* of the optimizer: all its tensors */
    Z3D_MOVES_ACTIVATIONS,         /* a unit's input */
    Z3D_MOVES_ACTIVATION_GRADIENTS /* its gradient */
} z3d_moves;

/* Whether what moves is a unit's input or that input's gradient. */
static inline bool z3d_moves_input(z3d_moves moves) {
    return moves >= Z3D_MOVES_ACTIVATIONS;
}

/* What an instruction does with the buffer in a slot. CLOBBER: what it leaves there is nobody's. */
typedef enum z3d_access {
    Z3D_ACCESS_NONE = 0,
    Z3D_ACCESS_READ = 1,
    Z3D_ACCESS_WRITE = 2,
    Z3D_ACCESS_UPDATE = Z3D_ACCESS_READ | Z3D_ACCESS_WRITE,
    Z3D_ACCESS_CLOBBER = 4
} z3d_access;

/* A row of the table of instructions (opcodes.h). */
typedef struct z3d_opcode_info {
    const char *name;
    z3d_opcode_class rules;
    z3d_opcode_subject subject;
    z3d_opcode_over over;
    z3d_moves moves;
    z3d_slot from, to;
    unsigned modes; /* bit m: mode m */
} z3d_opcode_info;

/* Of an opcode out of range, too: a wrong program is described before it is refused. */
const z3d_opcode_info *z3d_opcode_info_of(z3d_opcode opcode);
const char *z3d_opcode_name(z3d_opcode opcode);
/* The ranks that its entries are about, of parameter group `group` (-1: none). */
z3d_axes z3d_opcode_axes(const z3d_layout *layout, z3d_opcode opcode, int group);

typedef struct z3d_instruction {
    z3d_opcode opcode;
    z3d_phase phase;
    int ticket;             /* the same of a start and its wait; WHOLE: -1 */
    int unit, micro, group; /* -1: not about one */
    int peer;               /* send and receive: the other pipeline stage; else -1 */
    z3d_axes axes;          /* z3d_opcode_axes: of its collective, of the parts that it copies */
    z3d_rows rows;          /* of activations that move: OWN: the part of this rank among those of
                               the axes; ALL: whole */
    int64_t first, count;   /* collectives: columns of z3d_instruction_matrix; moved activation
                               checkpoints: elements of one rank's part */
    /* Collectives that travel as one follow each other, starts and waits: the first start's columns
     * begin at `column` 0 of a packed matrix of so many columns, in the slot WORKSPACE, and the
     * last one's end there. columns 0: it travels alone. */
    int64_t column, columns;
    int *buffer;            /* by slot; the program's memory */
    int num_slots;          /* z3d_slots_with */
    bool keep;              /* forward: saved is for backward */
    bool need_output;       /* recompute: false leaves out what only leads to the output */
    uint64_t accumulate;    /* backward: bit s set: gradients of the unit's group s are added to;
                               sums: 1: the gradients are added to */
    int num_children;       /* inner collectives */
    const z3d_child *child; /* of the traces; not owned */
} z3d_instruction;

/* One operand: what an instruction does with some rows and columns of a buffer. What is not a
 * parameter group's matrix has all columns that there are. */
typedef struct z3d_buffer_operand {
    int slot, buffer, group; /* group: whose matrix, -1: none */
    unsigned access;         /* z3d_access, together */
    z3d_rows rows;
    int64_t first, count; /* columns */
    int64_t columns;      /* of the matrix: the shard's, or a block's; 0: the entry takes all of the
                             buffer, however its rows are cut */
} z3d_buffer_operand;

/* The matrix that an instruction moves: `ranks` rows, of which this rank's is number `own`. Of a
 * parameter group it is [rows x shard]; for a collective over one part of the data axis, its
 * blocks, or the rows of this rank's block. */
typedef struct z3d_matrix {
    int ranks, own;
    int64_t columns;
    int64_t base; /* its first element in the group's flat buffer */
    z3d_dtype dtype;
    int tensors; /* such matrices, one behind the other: the optimizer's; else 1 */
} z3d_matrix;

/* A stretch of memory with one lifetime. */
typedef struct z3d_buffer {
    const char *what, *owner; /* its name: literals, or names in the model */
    int64_t bytes, offset;    /* offset: in the arena of its space, set by the planner */
    int64_t first_column;     /* of a matrix's own row: the first that lies in it */
    int first, last; /* first and last instruction that touches it; persistent: 0 and INT_MAX */
    int micro;       /* -1: not of one micro-batch */
    int group;       /* parameters, gradients, optimizer: of which group, else -1 */
    z3d_category category;
    z3d_space space;
    z3d_rows
        rows; /* of a matrix: those that lie in it, OWN, BLOCK or ALL; of everything else ALL */
    bool persistent;
} z3d_buffer;

/* "saved block.3 m0", in z3d_buffer_name(buffer).text. */
typedef struct z3d_buffer_text {
    char text[2 * Z3D_NAME];
} z3d_buffer_text;
z3d_buffer_text z3d_buffer_name(const z3d_buffer *buffer);

const char *z3d_mode_name(z3d_mode mode); /* "train" */

typedef struct z3d_program {
    z3d_mode mode;
    z3d_program_config config;
    z3d_mesh mesh;
    const z3d_model *model;
    const z3d_layout *layout;
    const z3d_traces *traces;
    int num_instructions, num_slots, num_buffers, num_tickets;
    z3d_instruction *instruction;
    int *slot; /* of all instructions, in their order */
    z3d_buffer *buffer;
    int64_t arena[Z3D_SPACE_COUNT]; /* bytes, set by the planner */
    int64_t bound[Z3D_SPACE_COUNT]; /* lower bound: the largest sum of live bytes */
} z3d_program;

/* Every program of one configuration begins with the same persistent buffers: step state, control
 * vector, kernel scratch, the batch's fields, then one for each state of a parameter group. */
enum { Z3D_BUFFER_STATE, Z3D_BUFFER_CONTROL, Z3D_BUFFER_SCRATCH, Z3D_BUFFER_BATCH };
int z3d_program_batch_buffer(const z3d_program *program, int micro, int field);
int z3d_program_group_buffer(const z3d_program *program, int group, z3d_state_role role);
/* In the programs of generation a cache of each unit follows. */
int z3d_program_cache_buffer(const z3d_program *program, int unit);
/* Bytes of these buffers, and of what a field brings in this mode. */
int64_t z3d_program_batch_bytes(const z3d_program *program, int micro, int field);
int64_t z3d_program_cache_bytes(const z3d_program *program, int unit);
int64_t z3d_program_field_bytes(const z3d_program *program, int field);
/* Samples of a rank that generation has caches for; of a call in this mode. */
int64_t z3d_samples_in_caches(const z3d_program_config *config);
int64_t z3d_samples_in_mode(const z3d_program_config *config, z3d_mode mode);
/* Positions of a sample in generation's caches, at least those of one PREFILL. */
int64_t z3d_cache_positions(const z3d_program_config *config, const z3d_model *model);
/* Samples of a call of this program on this rank. */
int64_t z3d_program_samples(const z3d_program *program);

/* The control vector: loss, targets, stop requests, the skip flag (behind the sum), then, in
 * training, the squared gradients by group. */
enum {
    Z3D_CONTROL_LOSS,
    Z3D_CONTROL_TARGETS,
    Z3D_CONTROL_STOP,
    Z3D_CONTROL_SKIP,
    Z3D_CONTROL_FIXED,
    Z3D_CONTROL_SQUARES = Z3D_CONTROL_FIXED
};
/* Its numbers; those that this program uses, 0: none. */
int z3d_control_capacity(const z3d_layout *layout);
int z3d_control_count(const z3d_program *program);

/* The output of a unit for one micro-batch of this program. */
int64_t z3d_program_output_elements(const z3d_program *program, int unit);
int64_t z3d_program_output_bytes(const z3d_program *program, int unit);
/* The unit whose output this entry's unit reads, -1: none. */
int z3d_instruction_source(const z3d_program *program, const z3d_instruction *in);

/* The recording of what an entry's unit does. */
z3d_call z3d_instruction_call(const z3d_instruction *in);
/* What the table says of an entry: a collective that is started and waited for; that, or an
 * exchange; its kind and type. */
bool z3d_is_collective(const z3d_instruction *in);
bool z3d_is_point_to_point(const z3d_instruction *in); /* of collectives: a send or a receive */
bool z3d_communicates(const z3d_instruction *in);
z3d_collective_kind z3d_instruction_kind(const z3d_instruction *in);
z3d_dtype z3d_instruction_dtype(const z3d_program *program, const z3d_instruction *in);
/* z3d_collective's: of those that sum gradients the configuration's, else fp32. */
z3d_dtype z3d_instruction_wire(const z3d_program *program, const z3d_instruction *in);
/* Whether it moves from one buffer to another, not in place. */
bool z3d_moves_apart(const z3d_instruction *in);
/* Whether it is about some columns of its group's matrix: first, count. */
bool z3d_instruction_has_columns(const z3d_instruction *in);
/* What the instruction does with a slot's buffer (z3d_access, together); with how much of it. */
unsigned z3d_instruction_access(const z3d_instruction *in, int slot);
z3d_buffer_operand z3d_instruction_operand(const z3d_program *program, const z3d_instruction *in,
                                           int slot);
/* Of a collective about a group: the rows that this rank brings to it, or has of its result: its
 * own, or its block. */
z3d_rows z3d_instruction_own_rows(const z3d_program *program, const z3d_instruction *in);
/* The matrix of an instruction about a group, or that moves a unit's input. */
z3d_matrix z3d_instruction_matrix(const z3d_program *program, const z3d_instruction *in);
/* Elements that each member brings, and the first of them (of an all-reduce: in the group's flat
 * buffer). */
void z3d_instruction_columns(const z3d_program *program, const z3d_instruction *in, int64_t *first,
                             int64_t *count);
/* For each set of axes: raised to the bytes of the largest bucket that a collective of it cuts out
 * of a wider matrix. */
void z3d_program_buckets(const z3d_program *program, int64_t bucket[Z3D_AXES_COUNT]);

/* Pure: no communication, no device, no clock. model, layout and traces must outlive the program.
 */
z3d_status z3d_program_build(const z3d_model *model, const z3d_layout *layout,
                             const z3d_traces *traces, const z3d_mesh *mesh,
                             const z3d_program_config *config, z3d_mode mode, z3d_program **out);
void z3d_program_destroy(z3d_program *program);

/* Packs the lifetimes of several programs' buffers into one arena: persistent buffers (the same
 * list in each) get the same offsets, the rest is packed per program behind them; the arena is the
 * maximum. */
z3d_status z3d_program_plan(z3d_program **programs, int count);
/* Peak bytes by category and in total in one memory space, from lifetimes. */
void z3d_program_ledger(const z3d_program *program, z3d_space space, z3d_ledger *out);

/* Dataflow of one program against what a step must compute (symbolically), lifetimes, overlaps.
 * ERR_PROGRAM with the first entry that is wrong and why. */
z3d_status z3d_program_verify(const z3d_program *program);
/* Plays the programs of all ranks of a world against each other, children included: same
 * collectives in the same order per group, no circular wait. programs[rank]; world size = count. */
z3d_status z3d_program_verify_world(z3d_program *const *programs, int count);
/* The same for a large world, with one program for each pipeline stage: ranks of one stage have the
 * same program but for their rank, so one stands for its class. */
z3d_status z3d_program_verify_classes(z3d_program *const *programs, int stages);

/* ---- all programs of a configuration ---- */

typedef struct z3d_program_set {
    const z3d_model *model;
    z3d_mesh mesh;
    z3d_program_config config;
    z3d_layout *layout;
    z3d_traces *traces;
    z3d_program *program[Z3D_MODE_COUNT]; /* NULL: the model has no such mode, or the
                                             configuration leaves it out */
    /* The same modes once their gathers have run and until a parameter changes
     * (config.gathered); NULL: they would gather all the same. */
    z3d_program *again[Z3D_MODE_COUNT];
    z3d_timetables *timetables; /* NULL: those of the configuration are used */
    bool classes; /* a large world: one program for each pipeline stage stands for those of all */
} z3d_program_set;

/* Layout, traces, programs of all modes and their memory; with `verify` each is verified, alone and
 * with those of all ranks. threads: of the device (scratch depends on it). Release it after a
 * failure, too. The model must outlive it. Not collective, no device memory. Errors: ERR_CONFIG,
 * ERR_PROGRAM. */
z3d_status z3d_program_set_create(const z3d_model *model, const z3d_mesh *mesh,
                                  const z3d_program_config *config, int threads, bool verify,
                                  z3d_program_set *set);
void z3d_program_set_release(z3d_program_set *set);
/* The mode whose program stands for all in what they have in common: persistent buffers, memory. */
static inline z3d_mode z3d_program_set_main(const z3d_program_set *set) {
    if (!set->config.inference) return Z3D_MODE_TRAIN;
    return set->config.evaluates ? Z3D_MODE_EVALUATE : Z3D_MODE_PREFILL;
}

/* Elements x (N-1)/N that this rank's program moves over `axes` with data of parameters and
 * gradients (children: with_children). */
int64_t z3d_program_volume(const z3d_program *program, z3d_axes axes, bool children);
/* The same of one instruction. */
int64_t z3d_instruction_volume(const z3d_program *program, int index, z3d_axes axes, bool children);

/* The list as text, one instruction a line, with bytes and children. */
void z3d_program_print(const z3d_program *program, z3d_string *out);
/* "reduce_grads block.3 (micro 0, columns 0-4095)": for errors, the watchdog, traces. */
const char *z3d_instruction_describe(const z3d_program *program, int index, char *buf, size_t size);

#endif
