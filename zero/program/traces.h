/* Traces: the recordings of units, one for each kind, for each set of frozen parameters, and for
 * each call. */
#ifndef ZERO3D_ZERO_TRACES_H
#define ZERO3D_ZERO_TRACES_H

#include "zero/program/config.h"

typedef struct z3d_layout z3d_layout;

typedef enum z3d_call {
    Z3D_CALL_FORWARD,
    Z3D_CALL_RECOMPUTE,
    Z3D_CALL_BACKWARD,
    Z3D_CALL_BACKWARD_INPUT, /* the halves come last; not recorded if the unit has none */
    Z3D_CALL_BACKWARD_WEIGHT,
    Z3D_CALL_COUNT
} z3d_call;

/* A run of unit number `unit`: its sizes and axes, without a device, process groups, addresses and
 * what differs between calls. */
z3d_unit_run z3d_unit_run_of(const z3d_model *model, const z3d_layout *layout,
                             const z3d_program_config *config, z3d_mode mode, int unit);
/* Calls the unit's function. Errors: the unit's. */
z3d_status z3d_unit_call(z3d_unit_run *run, z3d_call call);
/* Gives a run the groups (by set of axes) of its unit. */
void z3d_unit_take_groups(z3d_unit_run *run, z3d_group *const group[Z3D_AXES_COUNT]);
/* Sets the observer of all its groups; NULL removes it. */
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
    double flops; /* of all kernels of the call; bytes: read and written */
    int64_t bytes;
    int64_t saved, deferred, workspace; /* bytes; deferred: between the halves of backward */
    int64_t scratch;                    /* of the device (z3d_kernel_scratch) */
    bool reads_parameters[Z3D_MAX_UNIT_GROUPS];
    bool writes_gradients[Z3D_MAX_UNIT_GROUPS];
    bool reads_input, reads_output_gradient, writes_input_gradient;
    bool uses_cache;
} z3d_trace;

/* Traces by [mode][unit kind][call]. A unit whose frozen parameters are not those of the first unit
 * of its kind has a kind of its own, after the model's. */
typedef struct z3d_traces {
    int num_kinds;
    int *kind;        /* by unit */
    z3d_trace *trace; /* index: (mode * num_kinds + kind) * Z3D_CALL_COUNT + call */
    int threads;      /* of the device */
} z3d_traces;

/* Runs every distinct unit on a recording device. threads: of the real device (scratch depends on
 * it). Not collective. Errors: ERR_MEMORY; ERR_PROGRAM if a unit breaks its contract (saved sizes
 * of forward and backward differ, a half of backward writes the other's results, ...). */
z3d_status z3d_traces_record(const z3d_model *model, const z3d_layout *layout,
                             const z3d_program_config *config, int threads, z3d_traces **out);
void z3d_traces_destroy(z3d_traces *traces);
/* Bytes of the largest scratch of any kernel of any program of this pipeline stage. */
int64_t z3d_traces_scratch(const z3d_traces *traces, const z3d_model *model,
                           const z3d_layout *layout);
const z3d_trace *z3d_traces_get(const z3d_traces *traces, z3d_mode mode, int kind, z3d_call call);
/* The same for unit number `unit`. */
const z3d_trace *z3d_traces_of(const z3d_traces *traces, z3d_mode mode, int unit, z3d_call call);

#endif
