/* Private to the verifier: names of the values that buffers hold. The names are those of the naive
 * step: for every micro-batch forward and backward through all units; gradients added in that
 * order, reduced over the data group once a step or once a micro-batch; partial gradients of
 * replicated parameters summed over the tensor group; one optimizer step for each group. A frozen
 * group has no gradient and no step, and backward ends at the first unit with trained parameters.
 * The naive step knows no stages, buckets or overlap. If an entry's operands hold the naive step's
 * values, its result is the naive step's value. */
#ifndef ZERO3D_ZERO_VERIFIER_H
#define ZERO3D_ZERO_VERIFIER_H

#include "zero/program.h"

/* A contribution is what one unit's backward of one micro-batch adds to a sum of gradients. */
typedef enum z3d_value_kind {
    Z3D_VALUE_NOTHING,         /* no value: never written, released, overwritten or undefined */
    Z3D_VALUE_OUTPUT,          /* of unit `of`, micro-batch `micro` */
    Z3D_VALUE_OUTPUT_GRADIENT, /* the loss's gradient with respect to that output */
    Z3D_VALUE_SAVED,      /* what unit `of` saved for its backward; count 1: after the input half of
                             backward */
    Z3D_VALUE_DEFERRED,   /* what the input half of backward leaves to the other half */
    Z3D_VALUE_PARAMETERS, /* of group `of`; count: 0 before, 1 after the optimizer step */
    Z3D_VALUE_OPTIMIZER,  /* its optimizer state, likewise */
    Z3D_VALUE_ADDED,      /* its state of an added class (role `count`); no entry changes it */
    Z3D_VALUE_GRADIENT_SUM,  /* this rank's sum number `micro` of group `of`'s gradients (a
                                micro-batch's; the step's is 0): its first `count` contributions */
    Z3D_VALUE_GRADIENT_TWIN, /* the reduced sum of the other pipeline stage that holds the group */
    Z3D_VALUE_GRADIENT_REDUCED, /* sums `micro` to `micro` + `count` - 1, reduced and added */
    Z3D_VALUE_GRADIENT_LATE     /* the previous step's gradients (offload.delayed) */
} z3d_value_kind;

/* What a reduced gradient may lack: the addends of other ranks along axes (z3d_axes); TWIN: the sum
 * of the other chunk that uses the group. */
enum { Z3D_PARTIAL_TWIN = Z3D_AXES_COUNT };

typedef struct z3d_value {
    z3d_value_kind kind;
    int of, micro, count;
    int partial; /* what a reduced gradient lacks: axes, Z3D_PARTIAL_TWIN */
    int use;     /* of gradients: 1: of this stage's second chunk that uses the group; else 0 */
} z3d_value;

/* Own row, near rows (the others of its row block), the rest: bit k of z3d_rows is kind k. */
enum { Z3D_ROW_KINDS = 3 };

/* A run of columns. A buffer that is no matrix is one run. */
typedef struct z3d_cell {
    int64_t end; /* the first column after it */
    z3d_value value[Z3D_ROW_KINDS];
    int writer[Z3D_ROW_KINDS];  /* the started entry that is filling it, -1: none */
    int readers[Z3D_ROW_KINDS]; /* number of started entries that are reading it */
} z3d_cell;

/* A gap buffer: the free space is before cell `gap`, where the last change was: most changes are
 * near the last one. The columns are those of one group's matrix: a write for another group makes
 * all values undefined. The rows are shards or blocks. An entry may change that if no other is in
 * flight there, and each kind of rows holds one value, own and near rows the same. */
typedef struct z3d_cells {
    int count, capacity, gap;
    int group;       /* whose matrix, -1: none */
    int64_t columns; /* of the matrix; 0: not known yet */
    z3d_cell *cell;
} z3d_cells;

/* The symbolic run of one program. */
typedef struct z3d_flow {
    const z3d_program *program;
    int at;            /* current entry */
    z3d_cells *cells;  /* by buffer */
    int *started;      /* by ticket: the started entry that no wait has ended, -1: none */
    int *total;        /* by group and use: number of contributions of one micro-batch */
    int *place;        /* by unit and number of its group: its contribution's place among these */
    bool *squared;     /* by group: its squares were added up before step_control */
    int losses;        /* micro-batches whose loss was added */
    bool begun, ended; /* ended: step_control, sum_loss or gather_output ran */
} z3d_flow;

/* All values begin undefined. Release it after a failure, too. Errors: ERR_MEMORY. */
z3d_status z3d_flow_create(const z3d_program *program, z3d_flow *out);
void z3d_flow_release(z3d_flow *flow);

/* The checks below fail with ERR_PROGRAM "entry 12, reduce_grads block.3 (...): why"; they may also
 * run out of memory (ERR_MEMORY). */
z3d_status z3d_flow_fail(const z3d_flow *flow, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
const char *z3d_slot_text(int slot);         /* "output gradient" */
const char *z3d_space_text(z3d_space space); /* "on the device" */

/* The operand's buffer must exist, be alive at this entry, have these rows and at least `bytes`. It
 * must be in device memory (the host's step: host memory; a copy beside compute: anywhere). */
z3d_status z3d_flow_operand(const z3d_flow *flow, const z3d_buffer_operand *operand, int64_t bytes);
/* Gives the operand's value. It must hold only one, and no entry in flight may be writing it. */
z3d_status z3d_flow_take(z3d_flow *flow, z3d_buffer_operand operand, z3d_value *out);
/* The operand must hold `value`, and no entry in flight may be writing it. */
z3d_status z3d_flow_read(z3d_flow *flow, z3d_buffer_operand operand, z3d_value value);
/* No entry in flight may use the operand; it holds `value` from here. */
z3d_status z3d_flow_write(z3d_flow *flow, z3d_buffer_operand operand, z3d_value value);
/* From lock (a start) to unlock (its wait) other entries may only read the operand; with `write`
 * they may not use it. */
z3d_status z3d_flow_lock(z3d_flow *flow, z3d_buffer_operand operand, bool write);
z3d_status z3d_flow_unlock(z3d_flow *flow, z3d_buffer_operand operand, bool write);
/* The entry's operand must hold another value: fails and names both. */
z3d_status z3d_flow_mismatch(const z3d_flow *flow, const z3d_buffer_operand *operand,
                             const char *must, z3d_value holds);
/* Of a persistent buffer, without an operand: sets its value at the start; checks its value. */
z3d_status z3d_flow_set(z3d_flow *flow, int buffer, z3d_rows rows, z3d_value value);
z3d_status z3d_flow_expect(z3d_flow *flow, int buffer, z3d_rows rows, z3d_value value);

/* memory.c. Lifetimes, addresses, and persistent buffers. */
z3d_status z3d_verify_memory(const z3d_program *program);
/* memory.c. Indices and enums of every entry are within their ranges. */
z3d_status z3d_verify_indices(const z3d_program *program);

#endif
