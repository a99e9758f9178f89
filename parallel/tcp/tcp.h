/* Messages over TCP, for ranks that no MPI started. rendezvous.c brings them together at rank 0,
 * once; then each reaches every other. connection.c is one socket, tcp.c the queues of messages.
 *
 * A receiver says what it makes room for, and only then does its sender send: what arrives always
 * has its place, so no message stands in another's way and none has to be kept anywhere else. */
#ifndef ZERO3D_PARALLEL_TCP_H
#define ZERO3D_PARALLEL_TCP_H

#include <assert.h>

#include "parallel/interface/internal.h"
#include "parallel/interface/launcher.h"
#include "parallel/sockets/sockets.h"

/* Brings the ranks of `launch` together: the world's transport, rank and size. Every rank does it,
 * and waits for the others for launch->seconds. */
z3d_status z3d_tcp_start(z3d_world *world, const z3d_launcher *launch);

/* ---- inside tcp/ ---- */

/* Where a rank listens. */
typedef struct z3d_tcp_place {
    char host[64], address[Z3D_ADDRESS_BYTES];
    int32_t port, pid;
} z3d_tcp_place;

/* rendezvous.c: everybody's place by rank, and the token that they know each other by. place: this
 * rank's, but for the address, which is found out on the way. */
z3d_status z3d_tcp_rendezvous(const z3d_launcher *launch, const z3d_tcp_place *place,
                              z3d_tcp_place *all, uint64_t *token);
/* Whether all ranks are on this machine and reach each other at 127.0.0.1, as the name of rank 0's
 * host says. */
bool z3d_tcp_stays_here(const z3d_launcher *launch);

typedef struct z3d_tcp_frame { /* in front of every message, and all of a demand for one */
    uint32_t magic;
    uint16_t type, reserved;
    uint32_t channel;
    int32_t tag;
    int64_t bytes;
} z3d_tcp_frame;

typedef struct z3d_tcp_greeting { /* the first that comes through a connection, both ways */
    uint32_t magic;
    uint16_t type, reserved;
    uint64_t token;
    int32_t from, to;
} z3d_tcp_greeting;
static_assert(sizeof(z3d_tcp_greeting) == sizeof(z3d_tcp_frame), "read as one");

typedef enum z3d_tcp_stage {
    Z3D_TCP_CONNECTING, /* begun here */
    Z3D_TCP_GREETING,   /* has said hello, waits for the answer */
    Z3D_TCP_STRANGER,   /* begun there, has not said hello */
    Z3D_TCP_OPEN,
    Z3D_TCP_GONE
} z3d_tcp_stage;

typedef struct z3d_tcp_connection {
    z3d_tcp_stage stage;
    int fd, rank; /* rank -1: not known yet */
    bool watched; /* epoll says when it can be written */
    union {
        z3d_tcp_frame frame;
        z3d_tcp_greeting greeting;
        char bytes[sizeof(z3d_tcp_frame)];
    } head; /* of what comes in */
    size_t have;
    int64_t left;      /* to come behind the head */
    z3d_message *into; /* where to; NULL: to nowhere */
    z3d_message *from; /* what goes out, NULL: nothing is half sent */
    int64_t sent;      /* of it, head included */
    struct z3d_tcp_connection *next;
} z3d_tcp_connection;

typedef struct z3d_tcp_queue {
    z3d_message *first, **end;
} z3d_tcp_queue;

typedef struct z3d_tcp_frames {
    z3d_tcp_frame *frame;
    int count, room;
} z3d_tcp_frames;

typedef struct z3d_tcp_peer {
    z3d_tcp_connection *out;   /* through which this rank sends; NULL: none yet */
    z3d_tcp_queue unasked;     /* sends that the peer has no room for yet */
    z3d_tcp_queue asked;       /* those that it has */
    z3d_tcp_queue receives;    /* what this rank has room for */
    z3d_tcp_frames demands;    /* that are to be sent to the peer */
    int64_t demands_sent;      /* bytes of them */
    z3d_tcp_frames unanswered; /* the peer's, for sends that have not started here */
    double lost;               /* when the connection broke; 0: it has not */
    char why[80];
} z3d_tcp_peer;

typedef struct z3d_tcp {
    z3d_world *world;
    int listener, epoll;
    int strangers, gone; /* connections that are at that stage */
    uint64_t token;
    uint32_t channels; /* opened so far */
    int pending;       /* messages under way */
    double patience;   /* seconds for which a peer may not answer while there is no side channel */
    bool moved;
    z3d_tcp_place *place; /* by rank */
    z3d_tcp_peer *peer;   /* by rank */
    z3d_tcp_connection *connections;
    z3d_status broken; /* what no peer is to blame for */
    char broken_text[160];
} z3d_tcp;

/* connection.c */

/* What has come and what can go, for at most a moment. */
void z3d_tcp_poll(z3d_tcp *tcp);
/* Begins to connect, unless there is a connection. */
void z3d_tcp_reach(z3d_tcp *tcp, int rank);
/* Sends what can be sent to that rank. */
void z3d_tcp_flush(z3d_tcp *tcp, int rank);
void z3d_tcp_lose(z3d_tcp *tcp, z3d_tcp_connection *connection, const char *why);
void z3d_tcp_close_all(z3d_tcp *tcp);

/* tcp.c: what a connection has read. */

/* A head; *into: where the message behind it goes, if anywhere. */
void z3d_tcp_take_frame(z3d_tcp *tcp, int rank, const z3d_tcp_frame *frame, z3d_message **into);
void z3d_tcp_finish(z3d_tcp *tcp, z3d_message *message);

enum { Z3D_TCP_MAGIC = 0x337a746d };
typedef enum z3d_tcp_type {
    Z3D_TCP_HELLO = 1,
    Z3D_TCP_WELCOME,
    Z3D_TCP_DEMAND, /* there is room for such a message */
    Z3D_TCP_DATA    /* such a message */
} z3d_tcp_type;

#endif
