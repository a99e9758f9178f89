/* The unit type: a part of a model that runs, is checkpointed and is recomputed as a whole. To
 * train a model of your own, write its units. A unit is two functions over device kernels, forward
 * and backward; it may also have backward in two halves. It knows nothing of ZeRO or pipelines and
 * never reads device memory on the host. It must make the same launches and collectives on every
 * call in the same mode, because it is recorded once. Each call's collectives are compared with the
 * recording, and more memory than recorded is refused; launches are not compared. */
#ifndef ZERO3D_MODEL_UNIT_H
#define ZERO3D_MODEL_UNIT_H

#include <stdbool.h>
#include <stdint.h>

#include "parallel/parallel.h"
#include "src/base/base.h"
#include "src/device/device.h"

enum {
    Z3D_MAX_DIMS = 4,
    /* Of one unit, after z3d_model_divide: bits of z3d_instruction.accumulate. */
    Z3D_MAX_UNIT_GROUPS = 64,
    Z3D_MAX_PROCESS_GROUPS = 4, /* of one unit */
    Z3D_MAX_FIELDS = 4,         /* of a batch */
    Z3D_NAME = 48
};

typedef enum z3d_init {
    Z3D_INIT_ZEROS,
    Z3D_INIT_ONES,
    Z3D_INIT_NORMAL,
    Z3D_INIT_UNIFORM /* between -bound and bound */
} z3d_init;

/* One parameter. `shape` is logical (global, unpadded). split_dim is the one dimension divided over
 * the tensor group, -1: replicated. padded_dim >= shape[split_dim] is that dimension with padding
 * (a vocabulary); 0: none. The tensor size must divide it. The padding is zero, stays zero and is
 * never stored. A parameter may be cut into tiles in several groups: then each group has tile_count
 * > 0 elements along split_dim, from tile_first on, and they are divided over the tensor group. A
 * tile has no padding. */
typedef struct z3d_parameter {
    char name[Z3D_NAME]; /* "attn.c_attn.weight", unique within its group */
    int dims;
    int64_t shape[Z3D_MAX_DIMS];
    int split_dim;
    int64_t padded_dim;
    bool weight_decay;
    int optimizer_group; /* of optimizer.param_groups, from 1; 0: none */
    z3d_init init;
    float standard_deviation; /* of Z3D_INIT_NORMAL; for Z3D_INIT_UNIFORM the bound */
    bool adapter; /* of LoRA: the base model's checkpoint lacks it, so a run that loads the base
                     keeps its initial value */
    bool partial_gradient; /* replicated; a tensor rank's gradient is its addend of a sum over the
                              tensor group, which is computed later */
    int64_t tile_first, tile_count;
    bool frozen; /* not trained: it has neither gradient nor optimizer states */
    bool joined; /* units use it and the parameter before it as one matrix: both are trained, or
                    neither */
    char home[Z3D_NAME]; /* the name of its group in checkpoints and in the key of its initial
                            values: the group before it was divided or cut into tiles; "": its
                            present group. Groups with the same home are next to each other */
} z3d_parameter;

/* Parameters that are gathered, reduced and stepped together: usually those of one unit. A tied
 * table is a group of its own. After z3d_model_divide the groups are uniform. */
typedef struct z3d_parameter_group {
    char name[Z3D_NAME];      /* "block.7" */
    int num_parameters, room; /* room: the most that it may have (z3d_model_create) */
    z3d_parameter *parameter; /* in the model's memory, all zero at first */
    bool frozen;              /* all its parameters are frozen; otherwise none is */
} z3d_parameter_group;

/* The name of its group in checkpoints. */
static inline const char *z3d_parameter_home(const z3d_parameter_group *group, int parameter) {
    const z3d_parameter *p = &group->parameter[parameter];
    return p->home[0] ? p->home : group->name;
}
/* The group's extent of the parameter along dimension `dim`, on all tensor ranks, without padding.
 */
static inline int64_t z3d_parameter_extent(const z3d_parameter *parameter, int dim) {
    bool tiled = dim == parameter->split_dim && parameter->tile_count > 0;
    return tiled ? parameter->tile_count : parameter->shape[dim];
}
/* Elements of a parameter on all tensor ranks, without padding. */
int64_t z3d_parameter_elements(const z3d_parameter *parameter);
/* Elements of a parameter on one tensor rank, padding included. */
int64_t z3d_parameter_local_elements(const z3d_parameter *parameter, int tensor_size);

/* The modes of a call. The last three generate: PREFILL and PREFILL_SHORT read a part of one
 * sample's prompt, DECODE reads one token of every sample. All three store keys and values in the
 * units' caches. The order is that of tokens read, the most first. */
typedef enum z3d_mode {
    Z3D_MODE_TRAIN,
    Z3D_MODE_EVALUATE,
    Z3D_MODE_PREFILL,
    Z3D_MODE_PREFILL_SHORT,
    Z3D_MODE_DECODE,
    Z3D_MODE_COUNT
} z3d_mode;

/* The most tokens of a prefill: enough to keep matrix products busy; few enough for a short call.
 */
enum { Z3D_PREFILL_TOKENS = 512, Z3D_PREFILL_SHORT_TOKENS = 64 };

static inline bool z3d_mode_generates(z3d_mode mode) {
    return mode >= Z3D_MODE_PREFILL;
}

static inline bool z3d_mode_prefills(z3d_mode mode) {
    return z3d_mode_generates(mode) && mode != Z3D_MODE_DECODE;
}

/* The parameters of one group while a unit runs: one flat local buffer, in which parameter i begins
 * at element offset[i]. */
typedef struct z3d_unit_group {
    const char *parameters; /* run->dtype */
    char *gradients;        /* run->gradient_dtype; NULL in forward, and for a frozen group */
    const int64_t *offset;
    bool accumulate; /* backward: add to the gradients; otherwise every element must be written */
    bool frozen;     /* its parameters are not trained */
} z3d_unit_group;

typedef struct z3d_unit_run z3d_unit_run;
struct z3d_unit;

/* A bump allocator over planned memory; while a unit is recorded it only counts bytes. */
typedef struct z3d_bump {
    char *base;
    int64_t used, peak, capacity;
} z3d_bump;

/* The arguments of one call of a unit. */
struct z3d_unit_run {
    const struct z3d_unit *unit;
    z3d_device *device;
    z3d_group *process_group[Z3D_MAX_PROCESS_GROUPS]; /* by slot: z3d_unit_process_axes */
    z3d_dtype dtype, gradient_dtype;
    z3d_mode mode;
    int64_t batch;    /* samples of this micro-batch on this rank */
    int64_t tokens;   /* per sample in this call: model->tokens[mode] */
    int64_t sample;   /* index of its first sample in the global batch (dropout's counter) */
    bool need_output; /* forward: false in a recompute, which needs only what backward reads. Then
                         output is NULL; skip work that only the output needs */
    bool lean;        /* keep less for backward: do not save what is cheap to recompute. Forward and
                         backward of a micro-batch get the same value */
    bool keep_activation; /* also save the output of an activation function, which backward could
                             compute again. Forward and backward of a micro-batch get the same value
                           */
    const void *field[Z3D_MAX_FIELDS]; /* the micro-batch's data, as the model declared it */
    const void *input;                 /* previous unit's output (NULL for the first) */
    void *output;                      /* NULL if the unit has none */
    const void *output_gradient;       /* backward */
    void *input_gradient;              /* backward; NULL for the first unit */
    bool ends_backward;                /* no unit before this one has trained parameters, and
                                          input_gradient is NULL */
    z3d_step_state *state;             /* device memory */
    void *cache;           /* generation: the unit's cache, kept from call to call, T[cache_samples,
                              positions, cache_columns] in the unit's own order; else NULL */
    int64_t cache_samples; /* in the cache */
    int64_t cache_first;   /* index of this call's first sample in the cache */
    int64_t positions;     /* of a sample in the cache */
    z3d_unit_group group[Z3D_MAX_UNIT_GROUPS]; /* in the order of unit->group */
    z3d_bump saved, workspace, deferred;       /* use the functions below */
};

/* Takes memory for `count` elements of `size` bytes, aligned to 256 bytes: *(void **)out_pointer is
 * set. It keeps its content from forward to backward. Both must take the same sizes in the same
 * order. ERR_INTERNAL with the unit's name if the planned capacity is exhausted: the unit takes
 * more than when it was recorded. ERR_MEMORY if count x size exceeds int64. */
z3d_status z3d_unit_take_saved(z3d_unit_run *run, int64_t count, int64_t size, void *out_pointer);
/* Takes memory for this call only, as above. Release frees all workspace that was taken since the
 * mark. */
z3d_status z3d_unit_take_workspace(z3d_unit_run *run, int64_t count, int64_t size,
                                   void *out_pointer);
int64_t z3d_unit_workspace_mark(const z3d_unit_run *run);
void z3d_unit_workspace_release(z3d_unit_run *run, int64_t mark);
/* Takes memory that keeps its content from the input half of backward to the weight half, with a
 * status as above. Both halves must take the same sizes in the same order. In a whole backward it
 * is workspace, so that backward can be written as its two halves. */
z3d_status z3d_unit_take_deferred(z3d_unit_run *run, int64_t count, int64_t size,
                                  void *out_pointer);

/* The halves of backward that a call computes. */
typedef enum z3d_halves {
    Z3D_INPUT_HALF = 1,
    Z3D_WEIGHT_HALF = 2,
    Z3D_BOTH_HALVES = Z3D_INPUT_HALF | Z3D_WEIGHT_HALF
} z3d_halves;

/* Takes memory that the input half fills. read: the weight half reads it, so it is deferred memory.
 * Otherwise it is workspace, and the weight half gets NULL. */
z3d_status z3d_unit_take_between(z3d_unit_run *run, z3d_halves halves, bool read, int64_t count,
                                 int64_t size, void *out_pointer);

struct z3d_unit_ops {
    /* input, parameters, fields -> output (if needed) and saved memory. */
    z3d_status (*forward)(z3d_unit_run *run);
    /* input, saved memory, output_gradient -> input_gradient and all gradients of the unit's
     * groups, except those that are NULL. Of the forward only saved memory and input are left. */
    z3d_status (*backward)(z3d_unit_run *run);
    /* Set this instead, if backward can also run in two halves, for zero-bubble pipeline schedules:
     * other units run between the halves. Together they give the same bits as the whole.
     * Input half: input, saved memory, output_gradient, parameters -> input_gradient and deferred
     * memory. It has no memory for gradients of parameters. It may change saved memory.
     * Weight half: input, saved memory as the input half left it, deferred memory, output_gradient
     * -> all gradients of the unit's groups. It must not write input_gradient: its memory may be in
     * other use. */
    z3d_status (*backward_halves)(z3d_unit_run *run, z3d_halves halves);
};

/* A parameter's place: index `index` in the unit's group `slot`. */
typedef struct z3d_place {
    int slot, index;
} z3d_place;

typedef struct z3d_unit {
    char name[Z3D_NAME]; /* "block.7" */
    const struct z3d_unit_ops *ops;
    const void *data; /* the model's own description; read-only at run time */
    int kind;         /* units of equal kind make the same launches: recorded once */
    int index;        /* place among the model's parts (embedding, blocks, head), which keys its
                         dropout; the units of a tiled block share it */
    bool checkpoint; /* with granularity full, its saved memory is recomputed from its input; false:
                        it is always kept */
    int num_groups;
    int group[Z3D_MAX_UNIT_GROUPS];          /* indices of the parameter groups it uses */
    int64_t output_elements[Z3D_MODE_COUNT]; /* per sample, in run->dtype; 0: none */
    int64_t cache_columns;                   /* per position, in run->dtype; 0: none */
    /* Each process group of the unit is over a set of axes. num_process_groups 0: it has one, the
     * ranks that divide its parameters. If z3d_groups_create does not make a group, the engine's
     * caller must. */
    int num_process_groups;
    z3d_axes process_axes[Z3D_MAX_PROCESS_GROUPS];
    /* for a group that was divided: the present places of its parameters; else NULL. The trained
     * group keeps the slot */
    const z3d_place *place[Z3D_MAX_UNIT_GROUPS];
} z3d_unit;

/* The axes of the unit's process group `slot`; NONE: no group in this slot. */
static inline z3d_axes z3d_unit_process_axes(const z3d_unit *unit, int slot) {
    if (slot < unit->num_process_groups) return unit->process_axes[slot];
    return slot == 0 ? Z3D_ROLE_PARTS : Z3D_AXES_NONE;
}

/* slot, index: a parameter as the unit's description counts it, before groups were divided.
 * z3d_unit_parameter: the parameter; NULL if the recorded unit does not read the group.
 * z3d_unit_gradient: its gradient; NULL in forward, and if it is frozen. */
static inline z3d_place z3d_unit_place(const z3d_unit_run *run, int slot, int index) {
    const z3d_place *place = run->unit->place[slot];
    z3d_place as_described = {slot, index};
    return place ? place[index] : as_described;
}
static inline const void *z3d_unit_parameter(const z3d_unit_run *run, int slot, int index) {
    const z3d_place at = z3d_unit_place(run, slot, index);
    const z3d_unit_group *g = &run->group[at.slot];
    if (!g->parameters) return NULL;
    return g->parameters + z3d_bytes_of(run->dtype, g->offset[at.index]);
}
static inline void *z3d_unit_gradient(const z3d_unit_run *run, int slot, int index) {
    const z3d_place at = z3d_unit_place(run, slot, index);
    const z3d_unit_group *g = &run->group[at.slot];
    if (!g->gradients) return NULL;
    return g->gradients + z3d_bytes_of(run->gradient_dtype, g->offset[at.index]);
}

/* Whether the parameter is trained. Its gradient may be NULL nevertheless, in the input half of
 * backward. */
static inline bool z3d_unit_is_trained(const z3d_unit_run *run, int slot, int index) {
    return !run->group[z3d_unit_place(run, slot, index).slot].frozen;
}

typedef struct z3d_field {
    char name[Z3D_NAME];
    int64_t bytes_per_sample[Z3D_MODE_COUNT];
} z3d_field;

/* FLOPs per token, counted as the papers count them (gpt/gpt.c), forward and backward together
 * unless a comment says otherwise. */
typedef struct z3d_model_flops {
    double step, recomputed_step; /* of the whole model: without recompute; with each block's
                                     forward repeated */
    /* of one block's recompute from its activation checkpoint; with_output: up to its output, which
     * only the next block's recompute needs */
    double replay, replay_with_output;
    double attention; /* of the two products in one block's attention, forward only */
} z3d_model_flops;

/* Facts of a model for reports, prices and choices; training does not use them. All zero if the
 * model gives none. */
typedef struct z3d_model_facts {
    const char *type; /* for people: "GPT" */
    char shape[80];   /* "12 layers, hidden 768, 12 heads" */
    int64_t tokens;   /* per sample */
    int64_t vocabulary, padded_vocabulary;
    /* Sizes of a block's largest matrix, on one tensor rank. */
    int64_t product_outputs, product_inputs;
    z3d_model_flops flops;
} z3d_model_facts;

/* A model: a chain of units over parameter groups. The last unit's forward adds to state->loss_sum
 * and valid_targets; in generation its output is the result. A model never changes after its
 * creation, so all parts of the program share it. */
typedef struct z3d_model {
    int num_groups, num_units, num_fields;
    z3d_parameter_group *group;
    z3d_parameter *parameter; /* of all groups */
    z3d_unit *unit;
    z3d_place *place; /* of all units whose groups were divided */
    z3d_field field[Z3D_MAX_FIELDS];
    int64_t tokens[Z3D_MODE_COUNT]; /* per sample, in a call in this mode */
    int64_t positions;              /* the most that a sample may have in generation */
    int tensor_size;                /* the tensor size that the model was made for */
    bool sequence_parallel; /* between units every tensor rank has 1/tensor_size of the rows: a
                               unit's output is this part. Not in generation: there every rank has
                               all rows */
    z3d_model_facts facts;
    void *data; /* the model's own */
    void (*destroy)(struct z3d_model *model);
} z3d_model;

/* Whether a tensor rank's gradient of this parameter is only its addend of a sum over the tensor
 * group. With sequence parallelism this holds for every replicated parameter: a rank sees only its
 * own rows of the activations. */
static inline bool z3d_parameter_is_partial(const z3d_model *model,
                                            const z3d_parameter *parameter) {
    return model->tensor_size > 1 && parameter->split_dim < 0 &&
           (parameter->partial_gradient || model->sequence_parallel);
}
/* Allocates an empty model with `num_groups` groups, each with room for `room` parameters, and
 * `num_units` units. ERR_USAGE, ERR_MEMORY. */
z3d_status z3d_model_create(int num_groups, int room, int num_units, z3d_model **out);
void z3d_model_destroy(z3d_model *model);
/* Whether the model can run in this mode: it can generate only if its last unit has outputs in
 * generation. */
bool z3d_model_has_mode(const z3d_model *model, z3d_mode mode);
/* Whether between units each tensor rank has only a part of the rows. */
static inline bool z3d_model_splits_rows(const z3d_model *model, z3d_mode mode) {
    return model->sequence_parallel && !z3d_mode_generates(mode);
}
/* The unit whose output `unit` reads in this mode; -1: none. z3d_model_is_last: whether it is the
 * unit that adds the loss. */
int z3d_model_input(const z3d_model *model, int unit, z3d_mode mode);
bool z3d_model_is_last(const z3d_model *model, int unit);
/* Whether the next unit belongs to another part of the model (embedding, a block, head). */
bool z3d_unit_ends_part(const z3d_model *model, int unit);
/* The number of units in the largest part: 1; more if blocks are tiled. */
int z3d_model_part_units(const z3d_model *model);
/* Sets the fields and tokens of a model of sequences. Fields in training and evaluation: tokens and
 * targets, int32[seq]; for packed documents also each token's position in its document, int32[seq].
 * Fields in generation: tokens; and int32[2, batch] in the place of targets: the position of each
 * sample's first token (position + tokens must not exceed seq), and the index of the token in each
 * sample whose logits are the output. */
void z3d_model_take_tokens(z3d_model *model, int64_t seq, bool packed);
/* Number of parameters as users count them: logical, unpadded, whole model.
 * z3d_model_trained_count: only trained ones. */
int64_t z3d_model_parameter_count(const z3d_model *model);
int64_t z3d_model_trained_count(const z3d_model *model);
/* "124M parameters", or "124M parameters, 1.2M of them trained". */
typedef struct z3d_parameters_text {
    char text[96];
} z3d_parameters_text;
z3d_parameters_text z3d_model_parameters_text(const z3d_model *model);
/* Divides each group with trained and frozen parameters into a trained and a frozen one, and sets
 * `frozen` of all groups. Call it once, after the model is described; units find their parameters
 * as before (z3d_unit_place). Errors: ERR_CONFIG (a unit with too many groups; joined parameters of
 * which one is frozen), ERR_MEMORY; destroy the model after an error. */
z3d_status z3d_model_divide(z3d_model *model);
/* For a divided model: reduces the FLOPs in its facts to those of the trained parts, adapters
 * included. */
void z3d_model_count_trained_flops(z3d_model *model);
/* The first unit with trained parameters; 0 if no parameter is frozen. Units before it have no
 * backward and save nothing. */
int z3d_model_first_trained(const z3d_model *model);

#endif
