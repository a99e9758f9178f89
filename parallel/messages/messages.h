/* Private to parallel/messages: the state of a group whose members send each other messages. */
#ifndef ZERO3D_PARALLEL_MESSAGES_H
#define ZERO3D_PARALLEL_MESSAGES_H

#include "parallel/interface/internal.h"
#include "parallel/node/node.h"
#include "parallel/reduce/reduce.h"

enum {
    Z3D_RING_WINDOW = 4 /* messages under way in each direction */
};

/* Segments that travel in one direction. They end in the order in which they begin. */
typedef struct z3d_window {
    bool sends;
    int64_t begun, ended; /* numbers of segments */
    z3d_message message[Z3D_RING_WINDOW];
} z3d_window;

/* The ring of the collective at the head of the queue. A ring is a sequence of segments: number q
 * is segment q % segments of step q / segments. A member sends segment q to the next member after
 * it has received segment q - lag from the previous one. */
typedef struct z3d_ring {
    int first_step;          /* 0; an all_gather is the second half of an all_reduce */
    int64_t segments, lag;   /* segments: of one row */
    int64_t receives, sends; /* of all steps */
    z3d_reduce_function reduce;
} z3d_ring;

/* The same for a sum whose elements travel in another type: no ring, each member sends to each
 * other. Segments are numbered as in a ring. */
typedef struct z3d_encoded {
    bool gathers;            /* the second half of an all_reduce: complete rows */
    int64_t segments, total; /* of one row; of all steps */
} z3d_encoded;

/* An algorithm. begin prepares the collective at the head. progress advances it without blocking:
 * *moved if it advanced; own->active becomes false at its end. Errors: ERR_COMM. */
typedef struct z3d_message_algorithm {
    z3d_status (*begin)(z3d_group *group, z3d_operation *operation);
    z3d_status (*progress)(z3d_group *group, z3d_operation *operation, bool *moved);
} z3d_message_algorithm;

typedef struct z3d_message_group {
    z3d_channel *channel;
    z3d_node *node; /* NULL: members on several nodes, or no shared memory */
    const z3d_message_algorithm *algorithm; /* of the head; NULL: `node` does it */
    bool active;                            /* the collective at the head has begun */
    int tag;                                /* of the collective at the head */
    z3d_operation *head, *tail;             /* collectives, in the order of their starts */
    z3d_operation *p2p;                     /* sends and receives; they wait for no queue */
    int64_t sequence;                       /* collectives begun: gives their tags */
    int64_t *sent_to, *received_from;       /* sends, receives by peer: give their tags */
    z3d_window in, out;                     /* of `ring` or `encoded` */
    z3d_ring ring;
    z3d_encoded encoded;
    char *slots;            /* segments received for a reduction */
    char *small;            /* size x Z3D_SMALL_BYTES: the vectors of all members */
    z3d_message *exchanged; /* 2 x size: receives by member, then sends by member */
} z3d_message_group;

/* messages.c: the windows of the collective at the head. begin starts a segment's message. test:
 * whether the oldest message has ended; then the caller counts it in `ended`. */
void z3d_windows_clear(z3d_message_group *own);
bool z3d_window_is_full(const z3d_window *window);
z3d_status z3d_window_begin(const z3d_message_group *own, z3d_window *window, void *data,
                            int64_t bytes, int peer);
z3d_status z3d_window_test(z3d_window *window, bool *ended);

/* All collectives, along a ring; a broadcast along a chain. */
extern const z3d_message_algorithm z3d_message_ring;
/* Barriers and small all_reduces; each member sends to each other. */
extern const z3d_message_algorithm z3d_message_exchange;
/* Sums whose elements travel in another type. */
extern const z3d_message_algorithm z3d_message_encoded;
/* p2p.c: sends and receives, which do not wait in the queue. */
z3d_status z3d_p2p_start(z3d_group *group, z3d_operation *operation);
z3d_status z3d_p2p_progress(z3d_group *group, bool *moved);

#endif
