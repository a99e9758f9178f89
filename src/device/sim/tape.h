/* What one rank did, in order, with nothing behind it: the sim device and the sim groups write
 * every kernel, transfer and collective on a tape while the executor runs the step program on them.
 * The program never looks at a clock, so a tape is priced afterwards, on any hardware
 * (src/plan/price/simulate.c plays it). */
#ifndef ZERO3D_DEVICE_SIM_TAPE_H
#define ZERO3D_DEVICE_SIM_TAPE_H

#include "src/device/device.h"

typedef enum z3d_event_kind {
    Z3D_EVENT_INSTRUCTION, /* id: index in the program; what follows belongs to it */
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
    int from, to;    /* z3d_space. copies: their ends. kernels: to: HOST: one that works on host
                        memory, so the host runs it; else 0, DEVICE */
    int64_t id;      /* of a start and its wait, counted from 1 by group (copies: by device) */
    int64_t m, n, k; /* products: the shape; attention: batch x heads, sequence, head_dim */
    int64_t count;   /* collectives: elements, as z3d_collective counts them */
    int64_t bytes;   /* kernels: read and written; copies: moved */
    int64_t fused;   /* kernels that the product before them can take in: bytes that are then left
                        to move; 0: none such */
    double flops;
    double seconds; /* kernels that really ran; else 0 */
} z3d_event;

/* What happened, in order. A step repeats a few hundred different events, so each of them is there
 * once. */
typedef struct z3d_tape_entry {
    int event; /* which of the different ones */
    int id;    /* its own */
} z3d_tape_entry;

typedef struct z3d_tape {
    int64_t count, capacity;
    z3d_tape_entry *entry;
    int events, event_capacity;
    z3d_event *event; /* the different ones, ids left out */
    int *slot;        /* hash table of 2 x event_capacity: index of an event + 1, 0: free */
} z3d_tape;

z3d_status z3d_tape_create(z3d_tape **out);
void z3d_tape_destroy(z3d_tape *tape);
/* Forgets what was written so far. */
void z3d_tape_clear(z3d_tape *tape);
/* The entry as it was appended. */
z3d_event z3d_tape_at(const z3d_tape *tape, int64_t index);
/* Errors: ERR_MEMORY. */
z3d_status z3d_tape_append(z3d_tape *tape, const z3d_event *event);
/* A kernel with its shape and cost; of a product with something behind it, all its parts, the first
 * with the seconds of all. space: where what it works on lies. */
z3d_status z3d_tape_kernel(z3d_tape *tape, const z3d_kernel *kernel, z3d_space space,
                           double seconds);

#endif
