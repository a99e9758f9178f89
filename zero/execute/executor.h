/* Private to zero/: runs one program on one rank. It never asks for ZeRO's stage. All functions may
 * fail with the errors of the device, the disk and the collectives. */
#ifndef ZERO3D_ZERO_EXECUTOR_H
#define ZERO3D_ZERO_EXECUTOR_H

#include <stdio.h>

#include "src/base/disk.h"
#include "zero/program.h"
#include "zero/zero.h"

/* What the host gives to one run of a program, and its results. */
typedef struct z3d_host_step {
    z3d_step_state state;         /* written to the device by step_begin */
    const z3d_micro_batch *micro; /* likewise, micro_count of them; NULL fields stay */
    int micro_count;
    double gradient_clipping;
    double loss_sum, targets; /* of the whole world */
    double grad_norm;
    bool skipped;
    int overflow_group; /* of a skipped step; -1: the loss itself is not finite */
    bool stop;
    float *output;       /* generate: the result is written here */
    int64_t cache_first; /* generate: the first sample of the caches in this call */
} z3d_host_step;

/* graph.c: a step that is one operation of the device. */
typedef struct z3d_step_graph {
    z3d_graph_mode mode; /* OFF: steps are not captured (any more) */
    bool warm;           /* one step has run uncaptured: all that the first step makes exists */
    z3d_region *region;  /* NULL: not captured yet */
    int64_t launches;    /* operations in it */
    z3d_traffic traffic[Z3D_AXES_COUNT][Z3D_COLLECTIVE_COUNT]; /* of one step */
} z3d_step_graph;

typedef struct z3d_executor {
    const z3d_program *program;
    const z3d_engine_config *config;
    z3d_device *device;
    z3d_group *const *group;      /* by set of axes */
    char *arena[Z3D_SPACE_COUNT]; /* NULL for the disk */
    z3d_disk *disk;               /* NULL: no disk, or no values: then the device prices copies */
    char *mailbox; /* pinned memory, always at the same address: steps are posted from it and
                      results fetched to it. NULL: the host reads the device's memory */
    z3d_step_graph graph;
    FILE *digest, *trace; /* NULL: none */
    z3d_status (*finished)(void *context, const z3d_program *program, int index,
                           const uint64_t *digest); /* NULL: none */
    void *finished_context;

    int64_t cache_first; /* of z3d_host_step */
    int64_t step;        /* of the run under way, for the watchdog */
    int position;        /* the number of the instruction that runs */
    z3d_ticket *ticket;  /* by ticket: what was started */
    int64_t *live;       /* by buffer: bytes counted in the ledger */
    double *sums;        /* host's copy of the control vector */
    z3d_device *host;    /* computes in host memory */
    z3d_step_state now;  /* the last step_control's results, if the host steps: with offload.delayed
                            those of the step before, and skip 1 while no gradients are pending */
    double transfer_wait_seconds, disk_wait_seconds, host_step_seconds; /* since creation */
    z3d_ledger measured[Z3D_SPACE_COUNT];
    int next_child;       /* the next inner collective of the unit that runs */
    float gradient_scale; /* of the last step, whose gradients are this times the mean loss's */
} z3d_executor;

z3d_status z3d_executor_create(const z3d_program *program, z3d_executor *executor);
void z3d_executor_destroy(z3d_executor *executor);

/* graph.c. Runs the whole program. Collective. */
z3d_status z3d_executor_run(z3d_executor *executor, z3d_host_step *host);

/* executor.c. Runs all instructions, then the fetch; it only enqueues if the device has a queue. */
z3d_status z3d_executor_run_list(z3d_executor *executor, const z3d_host_step *host);
/* Takes the buffers of a failed run from the ledger. */
void z3d_executor_reset(z3d_executor *executor);
/* The most disk requests that the program has under way at once. */
int z3d_executor_disk_requests(const z3d_program *program);
/* Tells the watchdog what this rank waits for between instructions: "step 12: in its graph". */
void z3d_executor_announce_wait(const z3d_executor *executor, const char *what);

/* control.c. Bytes of a mailbox; give: fills it with a run's input; begin: step_begin; exchange:
 * step_control or sum_loss, collective over the world. */
int64_t z3d_executor_mailbox_bytes(const z3d_program *program);
void z3d_executor_give(z3d_executor *executor, const z3d_host_step *host);
z3d_status z3d_executor_begin(z3d_executor *executor, const z3d_host_step *host);
z3d_status z3d_executor_exchange(z3d_executor *executor, const z3d_host_step *host);
/* Adds the squares of group g's gradients to the control vector. `buffer` has this rank's row. */
z3d_status z3d_executor_square(z3d_executor *executor, int g, int buffer);
/* Fetches the results to the mailbox, at the end of the list; end: waits for them and sets the
 * results in `host`. */
z3d_status z3d_executor_fetch(z3d_executor *executor);
z3d_status z3d_executor_end(z3d_executor *executor, z3d_host_step *host);
/* Reads the control vector into `sums`. */
z3d_status z3d_executor_read_sums(z3d_executor *executor);
/* Whether this rank's loss and targets count: it is the first tensor rank with the last unit. */
bool z3d_executor_counts_loss(const z3d_executor *executor);

/* optimizer.c. optimizer_step and host_step. */
z3d_status z3d_executor_optimize(z3d_executor *executor, const z3d_instruction *i);

/* places.c. The place of flat element `flat` of group g in a buffer with `tensors` tensors, in
 * bytes of the buffer's memory space. */
int64_t z3d_executor_place(const z3d_executor *executor, int group, int buffer, int tensor,
                           int tensors, int64_t flat, z3d_dtype dtype);
/* The same in a state's buffer. */
int64_t z3d_executor_state_place(const z3d_executor *executor, int group, z3d_state_role role,
                                 int tensor, int64_t flat);
/* Reads from this place of a space into host memory: bytes; or values of any type, as fp32. */
z3d_status z3d_executor_read(const z3d_executor *executor, z3d_space space, int64_t place,
                             void *out, int64_t bytes);
z3d_status z3d_executor_read_floats(const z3d_executor *executor, z3d_space space, int64_t place,
                                    z3d_dtype dtype, int64_t count, float *out);
/* Copies bytes of a state's tensor, from element `flat` on, to or from host memory. No program may
 * run. */
z3d_status z3d_executor_read_state(const z3d_executor *executor, int group, z3d_state_role role,
                                   int tensor, int64_t flat, void *out, int64_t bytes);
z3d_status z3d_executor_write_state(const z3d_executor *executor, int group, z3d_state_role role,
                                    int tensor, int64_t flat, const void *from, int64_t bytes);
/* The bytes of one tensor at one end of a copy: columns of this rank's row, or all rows. */
typedef struct z3d_run {
    z3d_space space;
    int64_t place, bytes; /* place: in the memory space */
} z3d_run;
z3d_run z3d_executor_run_of(const z3d_executor *executor, const z3d_instruction *i, int buffer,
                            int tensor);
/* Finds a tensor's state and its number in the state (of a parameter: the master copy). The group
 * must have this kind. */
void z3d_executor_find(const z3d_executor *executor, int group, z3d_tensor_kind kind,
                       z3d_state_role *role, int *tensor);
z3d_step_state *z3d_executor_state(const z3d_executor *executor);
/* Address of element `element` (of `dtype`) of a buffer. */
void *z3d_executor_address(const z3d_executor *executor, int buffer, int64_t element,
                           z3d_dtype dtype);

/* Address of row `row`, column `column` of an instruction's matrix in one of its buffers. */
void *z3d_executor_matrix_address(const z3d_executor *executor, const z3d_instruction *i,
                                  int buffer, int row, int64_t column);
/* Elements of the own row that an instruction moves, without padding. */
int64_t z3d_executor_own_elements(const z3d_executor *executor, const z3d_instruction *i);

/* observe.c: the digest of the finished instruction, for the digest file and the observer. */
z3d_status z3d_executor_digest(z3d_executor *executor);

/* trace.c. begin, end: of a timeline (entries: of the training program). trace: an event for the
 * finished instruction, after one for each wait for a collective in it (trace_wait). Write errors
 * stay in the file. */
void z3d_trace_begin(FILE *trace, const z3d_engine_config *config, int entries);
void z3d_trace_end(FILE *trace);
void z3d_executor_trace(z3d_executor *executor, double begin, double end);
void z3d_executor_trace_wait(void *executor, const z3d_group *group, const z3d_collective *call,
                             double begin, double end);

#endif
