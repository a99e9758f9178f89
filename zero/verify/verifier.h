/* Private to the verifier: what buffers hold, as names of values. The names are those of the naive
 * step: for every micro-batch forward through all units and backward through all; gradients added
 * in that order, reduced over the data group once per step or per micro-batch; those of replicated
 * parameters of a sequence-parallel model summed over the tensor group; one optimizer step per
 * group. A frozen group has no gradient and no step, and backward ends at the first unit with
 * trained parameters. The naive step knows no stages, buckets or overlap. If an entry's operands
 * hold the values that the naive step uses, its result is the naive step's value. */
#ifndef ZERO3D_ZERO_VERIFIER_H
#define ZERO3D_ZERO_VERIFIER_H

#include "zero/program.h"

typedef enum z3d_value_kind {
    Z3D_VALUE_NOTHING,         /* never written, released, overwritten or left undefined */
    Z3D_VALUE_OUTPUT,          /* of unit `of`, micro-batch `micro` */
    Z3D_VALUE_OUTPUT_GRADIENT, /* the loss's gradient with respect to that output */
    Z3D_VALUE_SAVED,         /* what unit `of` saved for its backward; count 1: as the input half of
                                backward left it */
    Z3D_VALUE_DEFERRED,      /* what the input half of its backward leaves to the other half */
    Z3D_VALUE_PARAMETERS,    /* of group `of`; count: 0 before, 1 after the optimizer step */
    Z3D_VALUE_OPTIMIZER,     /* its optimizer state, likewise */
    Z3D_VALUE_ADDED,         /* its state of role `count` (z3d_state_class), which none changes */
    Z3D_VALUE_GRADIENT_SUM,  /* this rank's gradients of group `of`: the first `count`
                                contributions to sum `micro` (a micro-batch's, or the step's 0) */
    Z3D_VALUE_GRADIENT_TWIN, /* what the other pipeline stage that holds the group has reduced */
    Z3D_VALUE_GRADIENT_REDUCED, /* over the shard axes: sums micro .. micro + count - 1, added */
    Z3D_VALUE_GRADIENT_LATE     /* what the step before left of that (offload.delayed) */
} z3d_value_kind;

/* What is still to be added to a reduced gradient: addends of other ranks along these axes
 * (z3d_axes), and those of the other chunk that uses the group. */
enum { Z3D_PARTIAL_TWIN = Z3D_AXES_COUNT };

typedef struct z3d_value {
    z3d_value_kind kind;
    int of, micro, count;
    int partial; /* of a reduced gradient: axes, Z3D_PARTIAL_TWIN */
    int use;     /* of gradients: which of the group's sums (z3d_layout_use) */
} z3d_value;

/* Own row, the others of its block, the rest: bit k of z3d_rows is kind k. */
enum { Z3D_ROW_KINDS = 3 };

/* A run of columns that is treated alike. What is no matrix has all columns. */
typedef struct z3d_cell {
    int64_t end; /* first column behind it */
    z3d_value value[Z3D_ROW_KINDS];
    int writer[Z3D_ROW_KINDS];  /* the started entry that is filling it, -1: none */
    int readers[Z3D_ROW_KINDS]; /* number of started entries that are reading it */
} z3d_cell;

/* Free space for growth is after cell `gap`, at the last change: the next change is near. Columns
 * are those of one group's matrix: what another group's writes leaves nothing of them. Where
 * another entry cuts the group's rows in another way, each kind of rows must hold one value. */
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
    int *started;      /* by ticket: the entry that was started and not yet waited for, -1: none */
    int *total;        /* by group and use: contributions of one micro-batch to its gradient */
    int *place;        /* by unit and slot: which contribution */
    bool *squared;     /* by group: its squares were added up before step_control */
    int losses;        /* micro-batches whose loss was added */
    bool begun, ended; /* ended: norm, loss or output have left the rank */
} z3d_flow;

z3d_status z3d_flow_create(const z3d_program *program, z3d_flow *out);
void z3d_flow_release(z3d_flow *flow);

/* ERR_PROGRAM "entry 12, reduce_grads block.3 (...): why". */
z3d_status z3d_flow_fail(const z3d_flow *flow, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
const char *z3d_slot_text(int slot);         /* "output gradient" */
const char *z3d_space_text(z3d_space space); /* "on the device" */

/* The operand's buffer must be there, alive at this entry, in device memory (or, of a copy beside
 * compute, anywhere), with the rows that are asked for, and at least `bytes` long. */
z3d_status z3d_flow_operand(const z3d_flow *flow, const z3d_buffer_operand *operand, int64_t bytes);
/* What the operand holds: one value, and nothing in flight may be writing it. */
z3d_status z3d_flow_take(z3d_flow *flow, z3d_buffer_operand operand, z3d_value *out);
/* The operand must hold `value`, and nothing in flight may be writing it. */
z3d_status z3d_flow_read(z3d_flow *flow, z3d_buffer_operand operand, z3d_value value);
/* Nothing in flight may be using the operand; it holds `value` from here. */
z3d_status z3d_flow_write(z3d_flow *flow, z3d_buffer_operand operand, z3d_value value);
/* From a start to its wait: others may read (write = false) or may do nothing with it. */
z3d_status z3d_flow_lock(z3d_flow *flow, z3d_buffer_operand operand, bool write);
/* Ends the lock of z3d_flow_lock. */
z3d_status z3d_flow_unlock(z3d_flow *flow, z3d_buffer_operand operand, bool write);
/* The entry's operand must hold another value: ERR_PROGRAM with both. */
z3d_status z3d_flow_mismatch(const z3d_flow *flow, const z3d_buffer_operand *operand,
                             const char *must, z3d_value holds);
/* Sets persistent buffers before the first entry, checks them after the last (slotless). */
z3d_status z3d_flow_set(z3d_flow *flow, int buffer, z3d_rows rows, z3d_value value);
z3d_status z3d_flow_expect(z3d_flow *flow, int buffer, z3d_rows rows, z3d_value value);

/* Lifetimes, sizes of what no slot names, addresses (memory.c). */
z3d_status z3d_verify_memory(const z3d_program *program);
/* Indices and enums of every entry are within their ranges. */
z3d_status z3d_verify_indices(const z3d_program *program);

#endif
