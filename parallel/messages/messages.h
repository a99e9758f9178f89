/* Private to parallel/messages: the state of a group whose members send each other messages. */
#ifndef ZERO3D_PARALLEL_MESSAGES_H
#define ZERO3D_PARALLEL_MESSAGES_H

#include "parallel/interface/internal.h"
#include "parallel/node/node.h"
#include "parallel/reduce/reduce.h"

enum {
    Z3D_RING_WINDOW = 4 /* messages under way in each direction */
};

/* The collective at the head of the queue. Every ring is a sequence of segments: number q is
 * segment q % segments of step q / segments. A member sends its q-th segment to the next member
 * when it has received its (q - lag)-th from the previous one. */
typedef struct z3d_ring {
    int first_step;           /* 0; an all_gather is the second half of an all_reduce */
    int64_t segments, lag;    /* segments: of one row */
    int64_t receives, sends;  /* in total */
    int64_t posted, received; /* receives: posted; finished and added in */
    int64_t sending, sent;    /* sends: posted; finished */
    z3d_message receive[Z3D_RING_WINDOW], send[Z3D_RING_WINDOW];
    z3d_reduce_function reduce;
} z3d_ring;

/* The same of a sum whose elements travel in another type: no ring, everybody sends to everybody.
 * Segment q is segment q % segments of step q / segments. */
typedef struct z3d_encoded {
    bool gathers;                            /* an all_reduce: complete rows are under way */
    int64_t segments, total;                 /* of one row; of all steps */
    int64_t posted, received, sending, sent; /* segments, as in a ring */
    z3d_message receive[Z3D_RING_WINDOW], send[Z3D_RING_WINDOW];
} z3d_encoded;

/* How the collective at the head is done. */
typedef enum z3d_way { Z3D_WAY_RING, Z3D_WAY_EXCHANGE, Z3D_WAY_ENCODED, Z3D_WAY_NODE } z3d_way;

typedef struct z3d_message_group {
    z3d_channel *channel;
    z3d_node *node; /* NULL: members on several nodes, or no shared memory */
    z3d_way way;    /* of the collective at the head */
    bool active;    /* it has begun */
    int tag;
    z3d_operation *head, *tail;       /* collectives, in the order of their starts */
    z3d_operation *p2p;               /* sends and receives: these do not queue behind anything */
    int64_t sequence;                 /* of the collectives: gives their tags */
    int64_t *sent_to, *received_from; /* sends and receives by peer: give theirs */
    z3d_ring ring;
    z3d_encoded encoded;
    char *slots;            /* segments received for a reduction */
    char *small;            /* size x Z3D_SMALL_BYTES: everybody's vector, own one included */
    z3d_message *exchanged; /* 2 x size: from everybody, to everybody */
} z3d_message_group;

/* ring.c: the collective at the head, one step further. */
z3d_status z3d_ring_begin(z3d_group *group, z3d_operation *operation);
z3d_status z3d_ring_progress(z3d_group *group, z3d_operation *operation, bool *moved);
/* exchange.c: barriers and small all_reduces, by everybody sending to everybody. */
z3d_status z3d_exchange_begin(z3d_group *group, z3d_operation *operation);
z3d_status z3d_exchange_progress(z3d_group *group, z3d_operation *operation, bool *moved);
/* encoded.c: sums whose elements travel in another type. */
z3d_status z3d_encoded_begin(z3d_group *group, z3d_operation *operation);
z3d_status z3d_encoded_progress(z3d_group *group, z3d_operation *operation, bool *moved);
/* p2p.c: sends and receives. */
z3d_status z3d_p2p_start(z3d_group *group, z3d_operation *operation);
z3d_status z3d_p2p_progress(z3d_group *group, bool *moved);

#endif
