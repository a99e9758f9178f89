/* Private to the verifier: the values that buffers hold, the symbolic run, and the rules of the
 * classes. Values are named as in the naive step. It runs each micro-batch forward and backward
 * through all units, adds gradients in that order, reduces them over the data group once a step or
 * once a micro-batch, sums partial gradients of replicated parameters over the tensor group, and
 * runs one optimizer step for each group. A frozen group has no gradient and no step, and backward
 * ends at the first unit with trained parameters. The naive step has no stages, buckets or overlap.
 * Each rule: if the operands hold values of the naive step, so do the results. */
#ifndef ZERO3D_ZERO_VERIFY_RULES_H
#define ZERO3D_ZERO_VERIFY_RULES_H

#include "zero/program.h"
#include "zero/program/layout.h"

/* A contribution is what one unit's backward of one micro-batch adds to a sum of gradients. */
typedef enum z3d_value_kind {
    Z3D_VALUE_NOTHING,         /* no value: undefined, released, overwritten or never written */
    Z3D_VALUE_OUTPUT,          /* of unit `of`, micro-batch `micro` */
    Z3D_VALUE_OUTPUT_GRADIENT, /* the loss's gradient with respect to that output */
    Z3D_VALUE_SAVED,      /* what unit `of` saved for its backward; count 1: after the input half of
                             backward */
    Z3D_VALUE_DEFERRED,   /* what the input half of backward leaves to the other half */
    Z3D_VALUE_PARAMETERS, /* of group `of`; count: 0 before, 1 after the optimizer step */
    Z3D_VALUE_OPTIMIZER,  /* its optimizer state, likewise */
    Z3D_VALUE_ADDED,      /* its state of an added class, whose role is `count`; it never changes */
    Z3D_VALUE_GRADIENT_SUM,  /* the first `count` contributions to this rank's sum `micro` (0 if it
                                is  the only one) of group `of`'s gradients */
    Z3D_VALUE_GRADIENT_TWIN, /* the reduced sum of the other pipeline stage that holds the group */
    Z3D_VALUE_GRADIENT_REDUCED, /* sums `micro` to `micro` + `count` - 1, reduced and added */
    Z3D_VALUE_GRADIENT_LATE     /* the previous step's gradients (offload.delayed) */
} z3d_value_kind;

/* A bit of z3d_value.partial: the sum of the other chunk that uses the group. */
enum { Z3D_PARTIAL_TWIN = Z3D_AXES_COUNT };

typedef struct z3d_value {
    z3d_value_kind kind;
    int of, micro, count;
    int partial; /* what a reduced gradient still lacks: other ranks' addends along these axes
                    (z3d_axes), the other chunk's sum (Z3D_PARTIAL_TWIN) */
    int use;     /* of gradients: 1 for this stage's second chunk that uses the group, else 0 */
} z3d_value;

/* The kinds of rows are those of z3d_rows: bit k is kind k. */
enum { Z3D_ROW_KINDS = 3 };

/* Columns that follow each other; in each kind of rows they hold one value. A buffer that is
 * not a matrix is one cell. */
typedef struct z3d_cell {
    int64_t end; /* the first column after the cell */
    z3d_value value[Z3D_ROW_KINDS];
    int writer[Z3D_ROW_KINDS];  /* the started entry that is writing there, -1: none */
    int readers[Z3D_ROW_KINDS]; /* number of started entries that are reading there */
} z3d_cell;

/* The cells of a buffer, in the order of columns. It is a gap buffer: the free space is before cell
 * `gap`, the place of the last change, because the next change is mostly near it. The columns are
 * those of one group's matrix: a write for another group makes all values undefined. A row is a
 * shard or a block. An entry may change that only if no started entry uses the buffer, all own and
 * near rows hold one value, and all far rows one. */
typedef struct z3d_cells {
    int count, gap;
    int group; /* whose matrix, -1: none */
    int64_t capacity;
    int64_t columns; /* of the matrix; 0: not known yet */
    z3d_cell *cell;
} z3d_cells;

/* The symbolic run of one program. */
typedef struct z3d_flow {
    const z3d_program *program;
    int at;           /* current entry */
    z3d_cells *cells; /* by buffer */
    int *started;     /* by ticket: the started entry that no wait has ended, -1: none */
    int *total;       /* by group and use: number of contributions of one micro-batch */
    int *place;    /* by unit and place of the group: contributions of units earlier in backward */
    bool *squared; /* by group: square_grads has added up its squares */
    int losses;    /* micro-batches whose loss was added */
    bool begun, ended; /* ended: step_control, sum_loss or gather_output ran */
} z3d_flow;

/* All values begin undefined. Release it after a failure, too. Errors: ERR_MEMORY. */
z3d_status z3d_flow_create(const z3d_program *program, z3d_flow *out);
void z3d_flow_release(z3d_flow *flow);

/* Fails with ERR_PROGRAM "entry 12, reduce_grads block.3 (...): why". So do the checks below (also
 * ERR_MEMORY); checks of buffers name the buffer, not an entry. */
z3d_status z3d_flow_fail(const z3d_flow *flow, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
const char *z3d_slot_text(int slot);         /* "output gradient" */
const char *z3d_space_text(z3d_space space); /* "on the device" */

/* The operand's buffer must exist, be alive at this entry, have the operand's rows and at least
 * `bytes`. It must be in device memory; for a host step in host memory; for a copy beside compute
 * anywhere. */
z3d_status z3d_flow_operand(const z3d_flow *flow, const z3d_buffer_operand *operand, int64_t bytes);
/* Gives the operand's value. The operand must hold only one value, and no started entry may be
 * writing it. */
z3d_status z3d_flow_take(z3d_flow *flow, z3d_buffer_operand operand, z3d_value *out);
/* The operand must hold `value`, and no started entry may be writing it. */
z3d_status z3d_flow_read(z3d_flow *flow, z3d_buffer_operand operand, z3d_value value);
/* No started entry may use the operand. From here it holds `value`. */
z3d_status z3d_flow_write(z3d_flow *flow, z3d_buffer_operand operand, z3d_value value);
/* A start locks, its wait unlocks. In between other entries may only read the operand; with `write`
 * they may not use it. */
z3d_status z3d_flow_lock(z3d_flow *flow, z3d_buffer_operand operand, bool write);
z3d_status z3d_flow_unlock(z3d_flow *flow, z3d_buffer_operand operand, bool write);
/* Fails: the operand holds `holds`, but must hold what `must` says. */
z3d_status z3d_flow_mismatch(const z3d_flow *flow, const z3d_buffer_operand *operand,
                             const char *must, z3d_value holds);
/* For rows of a group's state, without a slot: set gives them `value`; expect checks that they hold
 * it. */
z3d_status z3d_flow_set(z3d_flow *flow, int group, z3d_state_role role, z3d_rows rows,
                        z3d_value value);
z3d_status z3d_flow_expect(z3d_flow *flow, int group, z3d_state_role role, z3d_rows rows,
                           z3d_value value);

/* memory.c. z3d_verify_fields: the numbers that entry `index` uses are within their ranges, and its
 * axes have a process group. z3d_verify_entries: the same for all entries. z3d_verify_memory:
 * lifetimes, addresses, persistent buffers. */
z3d_status z3d_verify_fields(const z3d_program *program, int index);
z3d_status z3d_verify_entries(const z3d_program *program);
z3d_status z3d_verify_memory(const z3d_program *program);

/* ---- the naive step ---- */

static inline const z3d_program_config *config_of(const z3d_flow *flow) {
    return &flow->program->config;
}

static inline bool trains(const z3d_flow *flow) {
    return flow->program->mode == Z3D_MODE_TRAIN;
}

/* Whether the optimizer steps the group. */
static inline bool is_stepped(const z3d_flow *flow, int group) {
    return trains(flow) && !flow->program->layout->group[group].frozen;
}

static inline int micro_batches(const z3d_flow *flow) {
    return trains(flow) ? config_of(flow)->accumulation : 1;
}

/* A step has one sum of gradients, or one for each micro-batch. Each is reduced once. */
static inline int sums(const z3d_flow *flow) {
    return config_of(flow)->reduce_per_step ? 1 : config_of(flow)->accumulation;
}

/* The contributions to one complete sum. */
static inline int contributions(const z3d_flow *flow, int group, int use) {
    return flow->total[2 * group + use] * (config_of(flow)->accumulation / sums(flow));
}

static inline z3d_value output_of(int unit, int micro) {
    return (z3d_value){Z3D_VALUE_OUTPUT, unit, micro, 0, 0, 0};
}

static inline z3d_value output_gradient_of(int unit, int micro) {
    return (z3d_value){Z3D_VALUE_OUTPUT_GRADIENT, unit, micro, 0, 0, 0};
}

static inline z3d_value saved_of(int unit, int micro, bool half_done) {
    return (z3d_value){Z3D_VALUE_SAVED, unit, micro, half_done, 0, 0};
}

static inline z3d_value deferred_of(int unit, int micro) {
    return (z3d_value){Z3D_VALUE_DEFERRED, unit, micro, 0, 0, 0};
}

static inline z3d_value parameters_of(int group, bool stepped) {
    return (z3d_value){Z3D_VALUE_PARAMETERS, group, 0, stepped, 0, 0};
}

static inline z3d_value optimizer_of(int group, bool stepped) {
    return (z3d_value){Z3D_VALUE_OPTIMIZER, group, 0, stepped, 0, 0};
}

static inline z3d_value gradient_sum(int group, int use, int sum, int count) {
    return (z3d_value){Z3D_VALUE_GRADIENT_SUM, group, sum, count, 0, use};
}

/* The value of this rank's row after a reduction over the shard axes. Gradients are still to be
 * added to it if the group has replica axes or copies, or is used in two chunks. */
static inline z3d_value reduced(const z3d_flow *flow, int group, int use, int first_sum,
                                int count) {
    const z3d_group_layout *g = &flow->program->layout->group[group];
    int partial = g->replica_axes | g->copy_axes | (z3d_adds_two_sums(g) ? Z3D_PARTIAL_TWIN : 0);
    return (z3d_value){Z3D_VALUE_GRADIENT_REDUCED, group, first_sum, count, partial, use};
}

static inline z3d_value final_gradient(const z3d_flow *flow, int group) {
    return (z3d_value){Z3D_VALUE_GRADIENT_REDUCED, group, 0, sums(flow), 0, 0};
}

/* The gradient that the optimizer applies; with offload.delayed the previous step's. */
static inline z3d_value applied_gradient(const z3d_flow *flow, int group) {
    if (config_of(flow)->offload.delayed)
        return (z3d_value){Z3D_VALUE_GRADIENT_LATE, group, 0, 0, 0, 0};
    return final_gradient(flow, group);
}

static const z3d_value nothing = {Z3D_VALUE_NOTHING, 0, 0, 0, 0, 0};

/* ---- the current entry ---- */

static inline const z3d_instruction *entry(const z3d_flow *flow) {
    return &flow->program->instruction[flow->at];
}

static inline const z3d_opcode_info *info(const z3d_flow *flow) {
    return z3d_opcode_info_of(entry(flow)->opcode);
}

static inline z3d_buffer_operand operand(const z3d_flow *flow, int slot) {
    return z3d_instruction_operand(flow->program, entry(flow), slot);
}

static inline int64_t output_bytes(const z3d_flow *flow, int unit) {
    return z3d_program_output_bytes(flow->program, unit);
}

static inline int source_of(const z3d_flow *flow) {
    return z3d_instruction_source(flow->program, entry(flow));
}

/* ---- operands.c ---- */

/* Bytes that the operand needs in a buffer with rows of `tensors` matrices of one group. */
int64_t z3d_flow_group_bytes(const z3d_flow *flow, const z3d_buffer_operand *o, int tensors,
                             z3d_dtype dtype);
/* A move's operand. It must exist and be large enough. */
z3d_status z3d_flow_moved_operand(const z3d_flow *flow, int slot, z3d_buffer_operand *out);
z3d_status z3d_flow_must_not_persist(const z3d_flow *flow, int slot);
/* No other slot may have this buffer: reads and writes of an entry have no fixed order. */
z3d_status z3d_flow_must_be_alone(const z3d_flow *flow, int slot);
/* The slot's buffer must have at least `bytes`. read: it must hold `value`. write: it gets it. */
z3d_status z3d_flow_read_plain(z3d_flow *flow, int slot, int64_t bytes, z3d_value value);
z3d_status z3d_flow_write_plain(z3d_flow *flow, int slot, int64_t bytes, z3d_value value);

/* ---- rules: what operands must hold before an entry, and what they hold after it ---- */

/* units.c. backward: also one of its halves. */
z3d_status z3d_rule_forward(z3d_flow *flow);
z3d_status z3d_rule_backward(z3d_flow *flow);

/* moves.c. start: the entry only starts the move; another entry waits for it. */
z3d_status z3d_rule_move(z3d_flow *flow, bool start);
z3d_status z3d_rule_cross(z3d_flow *flow, bool start);
z3d_status z3d_rule_mark(z3d_flow *flow);

/* step.c. */
z3d_status z3d_rule_begin_step(z3d_flow *flow);
z3d_status z3d_rule_exchange(z3d_flow *flow);
z3d_status z3d_rule_result(z3d_flow *flow);
z3d_status z3d_rule_norm(z3d_flow *flow);
z3d_status z3d_rule_optimizer(z3d_flow *flow);
z3d_status z3d_rule_host_optimizer(z3d_flow *flow);

#endif
