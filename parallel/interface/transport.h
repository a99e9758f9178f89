/* Private to parallel/: messages between ranks. One table with two implementations, mpi/ and tcp/;
 * everything else in parallel/ moves its data through it. channel.c has what both share. */
#ifndef ZERO3D_PARALLEL_TRANSPORT_H
#define ZERO3D_PARALLEL_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/base.h"

enum {
    Z3D_MESSAGE_BYTES = 64 * 1024 * 1024, /* the most of one message: MPI counts are ints */
    Z3D_TAGS = 1 << 20                    /* groups use tags below it; channel.c's helpers use it */
};

struct z3d_world;

/* Ranks that send each other messages. Messages of different channels never mix. */
typedef struct z3d_channel {
    struct z3d_world *world;
    int size, index; /* members; this rank among them */
    int *members;    /* their ranks in the world */
    void *handle;    /* mpi: the communicator */
    uint32_t number; /* tcp: equal on all members, different for each channel */
} z3d_channel;

/* A send or a receive, from its start until a test has found it done. Until then its address must
 * not change. */
typedef struct z3d_message {
    z3d_channel *channel; /* NULL: not started, or done */
    bool sends;
    char *data;
    int64_t bytes;
    int peer, tag; /* peer: index in the channel */
    bool done;
    void *handle;             /* mpi: the request */
    struct z3d_message *next; /* tcp: in a queue of its peer */
    int64_t wanted;           /* tcp, a send: the wrong size that the peer expects; -1: none */
    double since;             /* tcp: its start */
} z3d_message;

/* A transport. Messages between two members with one tag arrive in the order of their starts; a
 * receive has the exact size of its message. Functions return ERR_COMM or ERR_MEMORY. */
typedef struct z3d_transport {
    const char *name;
    /* Collective over the world. close NULL: there is nothing to close. */
    z3d_status (*open)(z3d_channel *channel);
    void (*close)(z3d_channel *channel);
    /* Starts the message; never blocks. */
    z3d_status (*start)(z3d_message *message);
    z3d_status (*test)(z3d_message *message, bool *done);
    /* Cancels a message after an error: the transport touches its data no longer. */
    void (*drop)(z3d_message *message);
    /* Advances all messages; true if any advanced. NULL: `test` advances its message. */
    bool (*progress)(struct z3d_world *world);
    /* Ends all ranks. NULL: the transport cannot. */
    void (*abort)(struct z3d_world *world);
    /* Ends the transport. NULL: its caller does. */
    void (*end)(struct z3d_world *world);
} z3d_transport;

/* ---- channel.c ---- */

/* Opens a channel of members[size], which are ranks of the world; this process is members[index].
 * Collective over the world: every rank opens a channel that it is in. Errors: ERR_COMM,
 * ERR_MEMORY. */
z3d_status z3d_channel_open(struct z3d_world *world, const int *members, int size, int index,
                            z3d_channel **out);
void z3d_channel_close(z3d_channel *channel);

/* Starts a send to the peer, or a receive from it, which changes `data`. */
z3d_status z3d_message_start(z3d_channel *channel, bool sends, void *data, int64_t bytes, int peer,
                             int tag, z3d_message *message);
/* *done is also true for a message that was not started. */
z3d_status z3d_message_test(z3d_message *message, bool *done);
/* Cancels a message after an error. */
void z3d_message_drop(z3d_message *message);

/* Helpers on small data. All block, and are collective over the channel. The pending collectives of
 * all groups advance during these calls: another rank may need them before it makes the call.
 * Errors: ERR_COMM. */
z3d_status z3d_channel_broadcast(z3d_channel *channel, void *data, int64_t bytes, int root);
/* Gathers `bytes` of every member into all[size x bytes], in the members' order. */
z3d_status z3d_channel_gather_all(z3d_channel *channel, const void *mine, void *all, int64_t bytes);
/* *value becomes the smallest of all members' values. */
z3d_status z3d_channel_min(z3d_channel *channel, int *value);

#endif
