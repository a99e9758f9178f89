/* The list of what one rank did, in order. The executor runs the step program on the sim device and
 * the sim groups; they compute nothing and write every kernel, transfer and collective on the tape.
 * The program never reads a clock, so a tape can be priced afterwards, on any hardware
 * (src/plan/price/simulate.c plays it). */
#ifndef ZERO3D_DEVICE_SIM_TAPE_H
#define ZERO3D_DEVICE_SIM_TAPE_H

#include "src/device/device.h"

typedef enum z3d_event_kind {
    Z3D_EVENT_INSTRUCTION, /* id: its index in the program; the events up to the next INSTRUCTION
                              belong to it */
    Z3D_EVENT_KERNEL,
    Z3D_EVENT_START, /* a collective; `of` is its kind, `axes` its group */
    Z3D_EVENT_WAIT,
    Z3D_EVENT_COPY_START, /* a transfer between memory spaces */
    Z3D_EVENT_COPY_WAIT
} z3d_event_kind;

typedef struct z3d_event {
    z3d_event_kind kind;
    int of; /* kernels: z3d_kernel_kind; collectives: z3d_collective_kind */
    z3d_dtype dtype;
    int form;        /* products: 2 (A transposed) + (B transposed); with dropout: 1; collectives:
                        z3d_collective's wire; else 0 */
    int axes;        /* collectives: z3d_axes, the set that is their group */
    int peer;        /* sends and receives: the other member of the group; else 0 */
    int from, to;    /* z3d_space. copies: their ends. kernels: `to` is HOST if the host runs it on
                        host memory, else DEVICE, 0 */
    int64_t id;      /* of a start and its wait, counted from 1 by group (copies: by device) */
    int64_t m, n, k; /* products: the shape; attention: batch x heads, sequence, head_dim */
    int64_t count;   /* collectives: elements, as z3d_collective counts them */
    int64_t bytes;   /* kernels: read and written; copies: moved */
    int64_t fused;   /* kernels that the product before them can compute, too: bytes that remain to
                        be moved then; else 0 */
    double flops;
    double seconds; /* kernels that really ran: their time; else 0 */
} z3d_event;

/* The entries are the events in order. A step repeats a few hundred different events, so each event
 * is stored once. */
typedef struct z3d_tape_entry {
    int event; /* index in z3d_tape.event */
    int id;    /* the entry's own id */
} z3d_tape_entry;

typedef struct z3d_tape {
    int64_t count, capacity;
    z3d_tape_entry *entry;
    int events;
    int64_t event_capacity;
    z3d_event *event; /* the different events, with id 0 */
    int *slot;        /* hash table of 2 x event_capacity: index of an event + 1, 0: free */
} z3d_tape;

z3d_status z3d_tape_create(z3d_tape **out);
void z3d_tape_destroy(z3d_tape *tape);
/* Empties the tape. */
void z3d_tape_clear(z3d_tape *tape);
/* The event at `index`, as it was appended. */
z3d_event z3d_tape_at(const z3d_tape *tape, int64_t index);
/* Errors: ERR_MEMORY. */
z3d_status z3d_tape_append(z3d_tape *tape, const z3d_event *event);
/* Appends a kernel with its shape and cost. A product with an epilogue is appended as its parts;
 * the first part has the seconds of all. space: HOST if the kernel works on host memory. */
z3d_status z3d_tape_kernel(z3d_tape *tape, const z3d_kernel *kernel, z3d_space space,
                           double seconds);

#endif
