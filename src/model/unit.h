/* The unit type: what runs, is checkpointed and is recomputed together. To train a model of your
 * own, write its units. A unit is two functions over device kernels, forward and backward; it may
 * also have backward in two halves. It knows nothing of ZeRO or
 * pipelines and never reads device memory on the host. It must make the same launches and
 * collectives on every call in the same mode, because it is recorded once. Each call's collectives
 * are compared with the recording, and more memory than recorded is refused; launches are not
 * compared. */
#ifndef ZERO3D_MODEL_UNIT_H
#define ZERO3D_MODEL_UNIT_H

#include <stdbool.h>
#include <stdint.h>

#include "parallel/parallel.h"
#include "src/base/base.h"
#include "src/device/device.h"

enum {
    Z3D_MAX_DIMS = 4,
    Z3D_MAX_UNIT_GROUPS = 64,   /* that one unit uses, once they are divided (z3d_model_divide):
                                   bits of z3d_instruction.accumulate */
    Z3D_MAX_PROCESS_GROUPS = 4, /* that one unit uses */
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
 * never stored. A group may have one tile of a parameter, and other groups the rest: tile_count > 0
 * elements along split_dim, from tile_first on; these are divided over the tensor group. A tile has
 * no padding. */
typedef struct z3d_parameter {
    char name[Z3D_NAME]; /* "attn.c_attn.weight", unique within its group */
    int dims;
    int64_t shape[Z3D_MAX_DIMS];
    int split_dim;
    int64_t padded_dim;
    bool weight_decay;
    int optimizer_group; /* of optimizer.param_groups, from 1; 0: none */
    z3d_init init;
    float standard_deviation; /* of Z3D_INIT_NORMAL; of Z3D_INIT_UNIFORM the bound */
    bool adapter;             /* of LoRA: a checkpoint of the base has none, and a run that begins
                                 with that keeps its first values */
    bool partial_gradient;    /* replicated, and a tensor rank's gradient is its part of a sum over
                                 the tensor group, which is computed later */
    int64_t tile_first, tile_count;
    bool frozen;         /* not trained: it has neither gradient nor optimizer states */
    bool joined;         /* units take it and the parameter before it as one matrix: both are
                            trained, or neither */
    char home[Z3D_NAME]; /* the group that it belongs to in checkpoints, and in the key of its
                            initial values: the one that was divided, or whose tile it is; "": the
                            one that has it. A home's groups follow each other */
} z3d_parameter;

/* Parameters that are gathered, reduced and stepped together: usually those of one unit. A tied
 * table is a group of its own. Once a model is divided its groups are uniform. */
typedef struct z3d_parameter_group {
    char name[Z3D_NAME];      /* "block.7" */
    int num_parameters, room; /* room: how many it may have (z3d_model_create) */
    z3d_parameter *parameter; /* of the model's memory, all zero at first */
    bool frozen;              /* all its parameters are; else none is */
} z3d_parameter_group;

/* The name of its group in checkpoints. */
static inline const char *z3d_parameter_home(const z3d_parameter_group *group, int parameter) {
    const z3d_parameter *p = &group->parameter[parameter];
    return p->home[0] ? p->home : group->name;
}
/* Along a dimension: what the group has of the parameter on all tensor ranks, without padding. */
static inline int64_t z3d_parameter_extent(const z3d_parameter *parameter, int dim) {
    bool tiled = dim == parameter->split_dim && parameter->tile_count > 0;
    return tiled ? parameter->tile_count : parameter->shape[dim];
}
/* Elements of a parameter on all tensor ranks, without padding. */
int64_t z3d_parameter_elements(const z3d_parameter *parameter);
/* Elements of a parameter on one tensor rank, padding included. */
int64_t z3d_parameter_local_elements(const z3d_parameter *parameter, int tensor_size);

/* Generation, those that read most first: PREFILL and PREFILL_SHORT take a part of one sample's
 * prompt, DECODE a token of every sample. All store keys and values in the units' caches. */
typedef enum z3d_mode {
    Z3D_MODE_TRAIN,
    Z3D_MODE_EVALUATE,
    Z3D_MODE_PREFILL,
    Z3D_MODE_PREFILL_SHORT,
    Z3D_MODE_DECODE,
    Z3D_MODE_COUNT
} z3d_mode;

/* Of a prefill, at most: as many as keep matrix products busy, and as many as make a call short. */
enum { Z3D_PREFILL_TOKENS = 512, Z3D_PREFILL_SHORT_TOKENS = 64 };

static inline bool z3d_mode_generates(z3d_mode mode) {
    return mode >= Z3D_MODE_PREFILL;
}

static inline bool z3d_mode_prefills(z3d_mode mode) {
    return z3d_mode_generates(mode) && mode != Z3D_MODE_DECODE;
}

/* The parameters of one group while a unit runs: one flat local buffer, parameter i begins at
 * element offset[i]. Of a group that was divided: those that are trained. */
typedef struct z3d_unit_group {
    const char *parameters; /* run->dtype */
    char *gradients;        /* run->gradient_dtype; NULL in forward, and of a frozen group */
    const int64_t *offset;
    bool accumulate; /* backward: add to the gradients; otherwise every element must be written */
    bool frozen;     /* its gradients are never wanted */
} z3d_unit_group;

typedef struct z3d_unit_run z3d_unit_run;
struct z3d_unit;

/* A bump allocator over memory that the planner laid out; while recording it only counts. */
typedef struct z3d_bump {
    char *base;
    int64_t used, peak, capacity;
} z3d_bump;

/* Everything a unit is given for one call. */
struct z3d_unit_run {
    const struct z3d_unit *unit;
    z3d_device *device;
    z3d_group *process_group[Z3D_MAX_PROCESS_GROUPS]; /* as z3d_unit_process_axes says */
    z3d_dtype dtype, gradient_dtype;
    z3d_mode mode;
    int64_t batch;    /* samples of this micro-batch on this rank */
    int64_t tokens;   /* per sample in this call: the model's of this mode */
    int64_t sample;   /* index in the global batch of its first sample (dropout's counter) */
    bool need_output; /* forward: false if only what backward reads is needed (recompute). Then
                         output is NULL; skip work that only output needs */
    bool lean;        /* keep less for backward: do not save what is cheap to recompute. Forward and
                         backward of a micro-batch get the same value */
    bool keep_activation; /* keep what an activation function gives, too, although backward could
                             compute it again; as `lean` the same in forward and backward */
    const void *field[Z3D_MAX_FIELDS]; /* the micro-batch's data, as the model declared it */
    const void *input;                 /* previous unit's output (NULL for the first) */
    void *output;                      /* NULL if the unit has none */
    const void *output_gradient;       /* backward */
    void *input_gradient;              /* backward; NULL for the first unit */
    bool ends_backward;                /* no unit before this one has trained parameters, and
                                          input_gradient is NULL */
    z3d_step_state *state;             /* device memory */
    void *cache; /* what generation keeps from call to call: T[cache_samples, positions,
                    cache_columns] in the unit's own order; else NULL */
    int64_t cache_samples, cache_first; /* samples in it, and the one that is `batch`'s first */
    int64_t positions;                  /* of a sample in it */
    z3d_unit_group group[Z3D_MAX_UNIT_GROUPS]; /* as unit->group lists them */
    z3d_bump saved, workspace, deferred;       /* use the functions below */
};

/* Memory that keeps its content until backward. Forward and backward must take the same sizes in
 * the same order. 256-aligned. NULL if the planned capacity is exhausted: the unit takes more than
 * when it was recorded. */
void *z3d_unit_saved(z3d_unit_run *run, int64_t bytes);
/* Memory for this call only. Release frees what was taken since the mark, last in first out.
 * 256-aligned. */
void *z3d_unit_workspace(z3d_unit_run *run, int64_t bytes);
int64_t z3d_unit_workspace_mark(const z3d_unit_run *run);
void z3d_unit_workspace_release(z3d_unit_run *run, int64_t mark);
/* The same two for `count` elements of `size` bytes, as a status: *(void **)out_pointer is set.
 * ERR_INTERNAL with the unit's name if exhausted, ERR_MEMORY if count x size exceeds int64. */
z3d_status z3d_unit_take_saved(z3d_unit_run *run, int64_t count, int64_t size, void *out_pointer);
z3d_status z3d_unit_take_workspace(z3d_unit_run *run, int64_t count, int64_t size,
                                   void *out_pointer);
/* Memory that keeps its content from backward_input to backward_weight, as a status like the two
 * above. Both must take the same sizes in the same order. In backward it is workspace, so that the
 * whole can be written as its halves. */
z3d_status z3d_unit_take_deferred(z3d_unit_run *run, int64_t count, int64_t size,
                                  void *out_pointer);

struct z3d_unit_ops {
    /* input, parameters, fields -> output (where needed) and saved. */
    z3d_status (*forward)(z3d_unit_run *run);
    /* input, saved, output_gradient -> input_gradient and all gradients of the unit's groups, but
     * for those that are NULL. Only saved and input are left from the forward. */
    z3d_status (*backward)(z3d_unit_run *run);
    /* Backward in two halves, between which other units run: zero-bubble pipeline schedules want
     * them. Both or neither (NULL: the unit cannot be cut). Together they do what backward does, to
     * the bit. backward_input: input, saved, output_gradient, parameters -> input_gradient, and
     * deferred. It writes no gradient of a parameter: there is no memory for one. It may change
     * saved. */
    z3d_status (*backward_input)(z3d_unit_run *run);
    /* input, saved as backward_input left it, deferred, output_gradient -> all gradients of the
     * unit's groups. It writes no input_gradient: that memory may be gone. */
    z3d_status (*backward_weight)(z3d_unit_run *run);
};

/* Where a parameter is: in the unit's group number `slot`. */
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
    bool checkpoint;  /* granularity full recomputes it from its input; otherwise it keeps its saved
                         memory */
    int num_groups;
    int group[Z3D_MAX_UNIT_GROUPS];          /* indices of the parameter groups it uses */
    int64_t output_elements[Z3D_MODE_COUNT]; /* per sample, in run->dtype; 0: none */
    int64_t cache_columns;                   /* per position, in run->dtype; 0: none */
    /* The sets of axes over which it has a process group; 0: one, of the ranks that divide its
     * parameters. The engine must be given those that z3d_groups_create does not make. */
    int num_process_groups;
    z3d_axes process_axes[Z3D_MAX_PROCESS_GROUPS];
    const z3d_place *place[Z3D_MAX_UNIT_GROUPS]; /* of a group that was divided: where its
                                                    parameters are now; else NULL. The trained ones
                                                    keep its slot */
} z3d_unit;

/* The axes of the unit's process group `slot`; NONE: there is none in this slot. */
static inline z3d_axes z3d_unit_process_axes(const z3d_unit *unit, int slot) {
    if (slot < unit->num_process_groups) return unit->process_axes[slot];
    return slot == 0 ? Z3D_ROLE_PARTS : Z3D_AXES_NONE;
}

/* Parameter `index` of the unit's group `slot`, as the unit's description has them (NULL if the
 * recorded unit does not read the group), and its gradient (NULL in forward, and if it is frozen:
 * then nobody wants it). */
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

/* Whether the gradient is ever wanted: the same in both halves of backward. */
static inline bool z3d_unit_is_trained(const z3d_unit_run *run, int slot, int index) {
    return !run->group[z3d_unit_place(run, slot, index).slot].frozen;
}

typedef struct z3d_field {
    char name[Z3D_NAME];
    int64_t bytes_per_sample[Z3D_MODE_COUNT];
} z3d_field;

/* FLOPs per token, as the papers count, forward and backward; one block's where it says so. */
typedef struct z3d_model_flops {
    double step, recomputed_step;      /* without recompute; with each block's forward repeated */
    double replay, replay_with_output; /* of one block from its activation checkpoint; the output
                                          is only for the next block's replay */
    double attention;                  /* of one block's attention, its two products, forward */
} z3d_model_flops;

/* What a model says of itself for reports, prices and choices: nothing is computed with it. All
 * zero in a model that says nothing. */
typedef struct z3d_model_facts {
    const char *type; /* for people: "GPT" */
    char shape[80];   /* "12 layers, hidden 768, 12 heads" */
    int64_t tokens;   /* per sample */
    int64_t vocabulary, padded_vocabulary;
    int64_t product_outputs, product_inputs; /* of a block's largest matrix, on one tensor rank */
    z3d_model_flops flops;
} z3d_model_facts;

/* A model: a chain of units over parameter groups. The last unit's forward adds to state->loss_sum
 * and valid_targets; in generation its output is the result. Never changed after creation, so
 * everybody shares it. */
typedef struct z3d_model {
    int num_groups, num_units, num_fields;
    z3d_parameter_group *group;
    z3d_parameter *parameter; /* of all groups */
    z3d_unit *unit;
    z3d_place *place; /* of all units whose groups were divided */
    z3d_field field[Z3D_MAX_FIELDS];
    int64_t tokens[Z3D_MODE_COUNT]; /* per sample, that a call in this mode takes */
    int64_t positions;              /* that a sample may have in generation, at most */
    int tensor_size;                /* that the model was made for */
    bool sequence_parallel; /* between units every tensor rank has 1/tensor_size of the rows: a
                               unit's output is that part. Generation does without: there every rank
                               has all rows */
    z3d_model_facts facts;
    void *data; /* the model's own */
    void (*destroy)(struct z3d_model *model);
} z3d_model;

/* Whether a tensor rank's gradient of this parameter is only its part of a sum over the tensor
 * group. With sequence parallelism that of every replicated parameter is: a rank sees its own rows
 * of the activations only. */
static inline bool z3d_parameter_is_partial(const z3d_model *model,
                                            const z3d_parameter *parameter) {
    return model->tensor_size > 1 && parameter->split_dim < 0 &&
           (parameter->partial_gradient || model->sequence_parallel);
}
/* Allocates an empty model: so many groups, each with room for so many parameters, and so many
 * units. */
z3d_status z3d_model_create(int num_groups, int room, int num_units, z3d_model **out);
void z3d_model_destroy(z3d_model *model);
/* Only a model whose last unit has outputs in generation can generate. */
bool z3d_model_has_mode(const z3d_model *model, z3d_mode mode);
/* Between units each tensor rank has a part of the rows. */
static inline bool z3d_model_splits_rows(const z3d_model *model, z3d_mode mode) {
    return model->sequence_parallel && !z3d_mode_generates(mode);
}
/* The unit whose output `unit` reads in this mode, -1: none. The last unit adds the loss. */
int z3d_model_input(const z3d_model *model, int unit, z3d_mode mode);
bool z3d_model_is_last(const z3d_model *model, int unit);
/* Whether the next unit is of another part of the model. */
bool z3d_unit_ends_part(const z3d_model *model, int unit);
/* Units of the largest part: 1, of tiled blocks more. */
int z3d_model_part_units(const z3d_model *model);
/* Sets the fields and tokens of a model of sequences: tokens and targets, int32[seq], and, of
 * packed documents, each token's position in its document, int32[seq] (not in generation); in
 * generation tokens, and in the place of targets int32[2, batch]: the position of each sample's
 * first token, and which of its tokens the output is of. start + tokens must not exceed seq. */
void z3d_model_take_tokens(z3d_model *model, int64_t seq, bool packed);
/* Number of parameters as users count them: logical, unpadded, whole model; those that are trained.
 */
int64_t z3d_model_parameter_count(const z3d_model *model);
int64_t z3d_model_trained_count(const z3d_model *model);
/* "124M parameters", or "124M parameters, 1.2M of them trained", cut to size, into buf, which is
 * returned. */
const char *z3d_model_parameters_text(const z3d_model *model, char *buf, size_t size);
/* Divides groups with trained and frozen parameters into one of each, and says of every group
 * whether it is frozen. Once, when the model is described; units find their parameters as before.
 * Errors: ERR_CONFIG (a unit with too many groups; joined parameters of which one is frozen),
 * ERR_MEMORY; the model is to be destroyed then. */
z3d_status z3d_model_divide(z3d_model *model);
/* Of a divided model: makes its facts' FLOPs those of what is trained, adapters included. */
void z3d_model_count_trained_flops(z3d_model *model);
/* The first unit with trained parameters; 0 where no parameter is frozen. Units before it have no
 * backward and keep nothing for one. */
int z3d_model_first_trained(const z3d_model *model);

#endif
