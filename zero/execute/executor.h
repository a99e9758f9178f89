/* Private to zero/: runs one program on one rank. It never asks which stage it is in. */
#ifndef ZERO3D_ZERO_EXECUTOR_H
#define ZERO3D_ZERO_EXECUTOR_H

#include <stdio.h>

#include "src/base/disk.h"
#include "zero/program.h"
#include "zero/zero.h"

/* What the host gives to one run of a program and gets back from it. */
typedef struct z3d_host_step {
    z3d_step_state state;         /* written to the device by step_begin */
    const z3d_micro_batch *micro; /* likewise: this many of them; fields that are NULL stay */
    int micro_count;
    double gradient_clipping;
    double loss_sum, targets; /* of the whole world */
    double grad_norm;
    bool skipped;
    int overflow_group; /* of a skipped step; -1: the loss itself is no number */
    bool stop;
    float *output;       /* generate: where the result goes */
    int64_t cache_first; /* generate: the sample of the caches that is the first of this call */
} z3d_host_step;

/* A step that is one piece of work to the device: graph.c. */
typedef struct z3d_step_graph {
    z3d_graph_mode mode; /* OFF: steps are not captured, or no longer */
    bool warm; /* one step has run as it is: everything is there that the first one makes */
    z3d_region *region;                                        /* NULL: not captured yet */
    int64_t launches;                                          /* pieces of work in it */
    z3d_traffic traffic[Z3D_AXES_COUNT][Z3D_COLLECTIVE_COUNT]; /* of one step */
} z3d_step_graph;

typedef struct z3d_executor {
    const z3d_program *program;
    z3d_device *device;
    z3d_group *const *group;      /* by set of axes */
    z3d_world *world;             /* NULL: nobody watches */
    char *arena[Z3D_SPACE_COUNT]; /* of the disk NULL: */
    z3d_disk *disk;               /* NULL: none, or without values: copies are the device's */
    char *mailbox; /* pinned memory that steps are posted from and fetched to, always in the same
                      places; NULL: the host reads the device's memory itself */
    z3d_step_graph graph;
    z3d_optimizer_constants optimizer;
    const z3d_optimizer_group *optimizer_group;
    FILE *digest, *trace; /* NULL: none */
    z3d_status (*finished)(void *context, const z3d_program *program, int index,
                           const uint64_t *digest); /* NULL: none */
    void *finished_context;
    z3d_status (*enter)(void *context, const z3d_program *program, int index); /* NULL: none */
    void *enter_context;

    int64_t cache_first; /* of z3d_host_step */
    int64_t step;        /* of the run that is under way: for places */
    int position;        /* the instruction that runs */
    z3d_ticket *ticket;  /* by instruction's ticket: what was started */
    int64_t *live;       /* by buffer: bytes counted in the ledger */
    double *sums;        /* host's copy of the control vector */
    /* Since creation: waits for copies between device and host memory, for the disk; the time of
     * the host's steps. */
    z3d_device *host;   /* computes in host memory */
    z3d_step_state now; /* as step_control decided last, if the host steps: with offload.delayed
                           that of the step before, and skip 1 while no gradients are pending */
    double transfer_wait_seconds, disk_wait_seconds, host_step_seconds;
    z3d_ledger measured[Z3D_SPACE_COUNT];
    int next_child;       /* of the unit that runs */
    float gradient_scale; /* of the last step: its gradients are this times those of its mean */
} z3d_executor;

z3d_status z3d_executor_create(const z3d_program *program, z3d_executor *executor);
void z3d_executor_destroy(z3d_executor *executor);

/* graph.c. Runs the whole program. */
z3d_status z3d_executor_run(z3d_executor *executor, z3d_host_step *host);

/* executor.c. All instructions, and the fetch behind them. Nothing but enqueueing where the
 * device has a queue. */
z3d_status z3d_executor_run_list(z3d_executor *executor, const z3d_host_step *host);
/* What a failed run had begun. */
void z3d_executor_reset(z3d_executor *executor);
/* Most requests of the disk that the program has under way at once. */
int z3d_executor_disk_requests(const z3d_program *program);
/* Tells the watchdog what this rank waits for outside of instructions: "step 12: in its graph". */
void z3d_executor_announce_wait(const z3d_executor *executor, const char *what);

/* control.c. Bytes of a mailbox; what a run is given is put there. How a step begins and what all
 * ranks exchange at its end; the fetch of the results at the end of the list; and,
 * when all that is over, what the host learns of them. */
int64_t z3d_executor_mailbox_bytes(const z3d_program *program);
void z3d_executor_give(z3d_executor *executor, const z3d_host_step *host);
z3d_status z3d_executor_begin(z3d_executor *executor, const z3d_host_step *host);
z3d_status z3d_executor_exchange(z3d_executor *executor, const z3d_host_step *host);
/* Adds the squares of a group's gradients to the control vector. */
z3d_status z3d_executor_square(z3d_executor *executor, const z3d_instruction *i);
z3d_status z3d_executor_fetch(z3d_executor *executor);
z3d_status z3d_executor_end(z3d_executor *executor, z3d_host_step *host);
/* The control vector as it is now, into `sums`. */
z3d_status z3d_executor_read_sums(z3d_executor *executor);
/* Whether this rank's loss and targets count: they are equal on all tensor ranks of the stage that
 * has the last unit. */
bool z3d_executor_counts_loss(const z3d_executor *executor);

/* optimizer.c. The opcodes optimizer_step and host_step. */
z3d_status z3d_executor_optimize(z3d_executor *executor, const z3d_instruction *i);

/* places.c. Where flat element `flat` of group g lies in a buffer with `tensors` tensors of its
 * matrix: bytes from the beginning of the buffer's space. */
int64_t z3d_executor_place(const z3d_executor *executor, int group, int buffer, int tensor,
                           int tensors, int64_t flat, z3d_dtype dtype);
/* The same in a state's buffer. */
int64_t z3d_executor_state_place(const z3d_executor *executor, int group, z3d_state_role role,
                                 int tensor, int64_t flat);
/* What lies in a space from this place on, in host memory: bytes; values as fp32. */
z3d_status z3d_executor_read(const z3d_executor *executor, z3d_space space, int64_t place,
                             void *out, int64_t bytes);
z3d_status z3d_executor_read_floats(const z3d_executor *executor, z3d_space space, int64_t place,
                                    z3d_dtype dtype, int64_t count, float *out);
/* Bytes of a state's tensor from this element on, in host memory, to and from where they are kept,
 * while no program runs. */
z3d_status z3d_executor_read_state(const z3d_executor *executor, int group, z3d_state_role role,
                                   int tensor, int64_t flat, void *out, int64_t bytes);
z3d_status z3d_executor_write_state(const z3d_executor *executor, int group, z3d_state_role role,
                                    int tensor, int64_t flat, const void *from, int64_t bytes);
/* One tensor of what a copy moves, at the end that is this buffer: the own row's columns, or all
 * rows. */
typedef struct z3d_run {
    z3d_space space;
    int64_t place, bytes; /* in the space */
} z3d_run;
z3d_run z3d_executor_run_of(const z3d_executor *executor, const z3d_instruction *i, int buffer,
                            int tensor);
/* Flat element `element` of group g in what this rank keeps, which is not on the disk. */
void *z3d_executor_state_address(const z3d_executor *executor, int group, z3d_state_role role,
                                 int64_t element);
/* Where the values of a persistent tensor are: of a parameter in its master copy.
 * False: there is no such tensor. */
bool z3d_executor_find(const z3d_executor *executor, int group, z3d_tensor_kind kind,
                       z3d_state_role *role, int *tensor);
z3d_step_state *z3d_executor_state(const z3d_executor *executor);
/* Address of element `element` (of `dtype`) of a buffer. */
void *z3d_executor_address(const z3d_executor *executor, int buffer, int64_t element,
                           z3d_dtype dtype);

/* Row `row`, column `column` of the matrix that an instruction moves, in one of its buffers. */
void *z3d_executor_matrix_address(const z3d_executor *executor, const z3d_instruction *i,
                                  int buffer, int row, int64_t column);
/* Elements of the own row that an instruction moves: without a part's padding. */
int64_t z3d_executor_own_elements(const z3d_executor *executor, const z3d_instruction *i);

/* observe.c: the digest of a finished instruction, for all who ask for it. */
z3d_status z3d_executor_digest(z3d_executor *executor, int index, int64_t step);

/* trace.c: what a timeline begins with (entries: of the training step's program) and ends with; a
 * line for each instruction, and before it one for each wait for a collective in it. Write errors
 * stay with the file. */
void z3d_trace_begin(FILE *trace, const z3d_engine_config *config, int entries);
void z3d_trace_end(FILE *trace);
void z3d_executor_trace(z3d_executor *executor, int index, double begin, double end);
void z3d_executor_trace_wait(void *executor, const z3d_group *group, const z3d_collective *call,
                             double begin, double end);

#endif
