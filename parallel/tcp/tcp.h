/* Messages over TCP, for ranks without MPI. rendezvous.c brings them together at rank 0, once; then
 * each can reach every other. connection.c is one socket, tcp.c the queues of messages.
 *
 * A receiver sends a demand for each message, and its sender sends only after the demand. So an
 * arriving message always has its buffer: no message blocks another, and none is buffered. */
#ifndef ZERO3D_PARALLEL_TCP_H
#define ZERO3D_PARALLEL_TCP_H

#include <assert.h>

#include "parallel/interface/internal.h"
#include "parallel/interface/launcher.h"
#include "parallel/sockets/sockets.h"

/* Brings the ranks of `launch` together, and sets the world's transport, rank and size. Every rank
 * calls it, and waits launch->seconds for the others. Errors: ERR_COMM, ERR_MEMORY; ERR_PEER if
 * rank 0 reports the failure. */
z3d_status z3d_tcp_start(z3d_world *world, const z3d_launcher *launch);

/* ---- inside tcp/ ---- */

/* Where a rank listens. */
typedef struct z3d_tcp_place {
    char host[64], address[Z3D_ADDRESS_BYTES];
    int32_t port, pid;
} z3d_tcp_place;

/* rendezvous.c: all[size] gets the places of all ranks; *token is the random number by which ranks
 * recognise each other. place: this rank's place; its address is found here. Collective over the
 * ranks of `launch`. Errors: those of z3d_tcp_start. */
z3d_status z3d_tcp_rendezvous(const z3d_launcher *launch, const z3d_tcp_place *place,
                              z3d_tcp_place *all, uint64_t *token);
/* Whether the name of rank 0's host means 127.0.0.1: then all ranks are on this machine. */
bool z3d_tcp_stays_here(const z3d_launcher *launch);

typedef struct z3d_tcp_frame { /* the head of a message; a demand has only this head */
    uint32_t magic;
    uint16_t type, reserved;
    uint32_t channel;
    int32_t tag;
    int64_t bytes;
} z3d_tcp_frame;

typedef struct z3d_tcp_greeting { /* the first bytes in each direction of a connection */
    uint32_t magic;
    uint16_t type, reserved;
    uint64_t token;
    int32_t from, to;
} z3d_tcp_greeting;
static_assert(sizeof(z3d_tcp_greeting) == sizeof(z3d_tcp_frame), "read as one");

typedef enum z3d_tcp_stage {
    Z3D_TCP_CONNECTING, /* this rank has begun to connect */
    Z3D_TCP_GREETING,   /* this rank has sent its hello and waits for the welcome */
    Z3D_TCP_STRANGER,   /* the other end has connected and has sent no hello */
    Z3D_TCP_OPEN,
    Z3D_TCP_GONE /* closed; to be freed */
} z3d_tcp_stage;

typedef struct z3d_tcp_connection {
    z3d_tcp_stage stage;
    int fd, rank; /* rank -1: not known yet */
    bool watched; /* epoll waits until it can be written */
    union {
        z3d_tcp_frame frame;
        z3d_tcp_greeting greeting;
        char bytes[sizeof(z3d_tcp_frame)];
    } head;            /* of the incoming message */
    size_t have;       /* bytes of the head that have arrived */
    int64_t left;      /* bytes after the head that are still to arrive */
    z3d_message *into; /* the receive that they belong to; NULL: they are thrown away */
    z3d_message *from; /* the send that is half sent; NULL: none */
    int64_t sent;      /* bytes of it, head included */
    struct z3d_tcp_connection *next;
} z3d_tcp_connection;

typedef struct z3d_tcp_queue {
    z3d_message *first, **end;
} z3d_tcp_queue;

typedef struct z3d_tcp_frames {
    z3d_tcp_frame *frame;
    int64_t count, room;
} z3d_tcp_frames;

typedef struct z3d_tcp_peer {
    z3d_tcp_connection *out;   /* this rank sends through it; NULL: not connected */
    z3d_tcp_queue unasked;     /* sends without the peer's demand */
    z3d_tcp_queue asked;       /* sends with it */
    z3d_tcp_queue receives;    /* receives, each with a demand of this rank */
    z3d_tcp_frames demands;    /* demands that are to be sent to the peer */
    int64_t demands_sent;      /* bytes of them that are sent */
    z3d_tcp_frames unanswered; /* the peer's demands whose sends have not started here */
    double lost;               /* when the connection broke; 0: it did not */
    char why[80];              /* why it broke */
} z3d_tcp_peer;

typedef struct z3d_tcp {
    z3d_world *world;
    int listener, epoll;
    int strangers, gone; /* connections at these stages */
    uint64_t token;
    uint32_t channels;    /* opened so far */
    int pending;          /* messages under way */
    double patience;      /* seconds to wait for a peer while there is no side channel */
    bool moved;           /* something has moved in this turn */
    z3d_tcp_place *place; /* by rank */
    z3d_tcp_peer *peer;   /* by rank */
    z3d_tcp_connection *connections;
    z3d_kept_error broken; /* an error of this process: every message fails */
} z3d_tcp;

/* connection.c */

/* One turn: accepts, reads and writes on all connections without blocking. */
void z3d_tcp_poll(z3d_tcp *tcp);
/* Begins to connect to a rank, unless there is a connection. */
void z3d_tcp_reach(z3d_tcp *tcp, int rank);
/* Sends to a rank until its socket takes no more. */
void z3d_tcp_flush(z3d_tcp *tcp, int rank);
/* Closes a connection; its rank counts as lost. */
void z3d_tcp_lose(z3d_tcp *tcp, z3d_tcp_connection *connection, const char *why);
/* Frees the closed connections; all: closes and frees every connection. */
void z3d_tcp_bury(z3d_tcp *tcp, bool all);

/* tcp.c */

/* Handles an incoming head. Returns the receive of the bytes after it; NULL: none. */
z3d_message *z3d_tcp_take_frame(z3d_tcp *tcp, int rank, const z3d_tcp_frame *frame);
/* A message is done. */
void z3d_tcp_finish(z3d_tcp *tcp, z3d_message *message);

enum { Z3D_TCP_MAGIC = 0x337a746d };
typedef enum z3d_tcp_type {
    Z3D_TCP_HELLO = 1,
    Z3D_TCP_WELCOME,
    Z3D_TCP_DEMAND, /* the receiver is ready for the message */
    Z3D_TCP_DATA    /* the message */
} z3d_tcp_type;

#endif
