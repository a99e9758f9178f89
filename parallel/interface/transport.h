/* Private to parallel/: messages between ranks. One table with two implementations, mpi/ and tcp/;
 * everything else in parallel/ moves its data through it. channel.c has what both share. */
#ifndef ZERO3D_PARALLEL_TRANSPORT_H
#define ZERO3D_PARALLEL_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/base.h"

enum {
    Z3D_MESSAGE_BYTES = 64 * 1024 * 1024, /* one message has no more: MPI counts are ints */
    Z3D_TAGS = 1 << 20                    /* tags of a channel are below; this one is helpers' */
};

struct z3d_world;

/* Ranks that send each other messages, apart from all other channels' messages. */
typedef struct z3d_channel {
    struct z3d_world *world;
    int size, index; /* of the members */
    int *members;    /* their ranks in the world */
    void *handle;    /* mpi: the communicator */
    uint32_t number; /* tcp: the same on all members, used once */
} z3d_channel;

/* A send or a receive from its start until a test has found it over. Stays where it is meanwhile.
 */
typedef struct z3d_message {
    z3d_channel *channel; /* NULL: nothing is under way */
    char *data;
    int64_t bytes;
    int peer, tag; /* peer: index in the channel */
    bool done;
    void *handle;             /* mpi: the request */
    struct z3d_message *next; /* tcp: in a queue of its peer's */
    int64_t wanted;           /* tcp, a send: what the peer makes room for */
    double since;             /* tcp: its start */
} z3d_message;

/* Messages between two members with one tag arrive in the order of their starts, and are received
 * by what has just their size. */
typedef struct z3d_transport {
    const char *name;
    /* Collective over the world. */
    z3d_status (*open)(z3d_channel *channel);
    void (*close)(z3d_channel *channel);
    /* Start what the message describes; they never block. */
    z3d_status (*send)(z3d_message *message);
    z3d_status (*receive)(z3d_message *message);
    z3d_status (*test)(z3d_message *message, bool *done);
    /* Nothing touches the message's data any more: only after an error. */
    void (*drop)(z3d_message *message);
    /* Moves all messages; true if any did. NULL: a test does. */
    bool (*progress)(struct z3d_world *world);
    /* Ends all ranks, if it can. NULL: it cannot. */
    void (*abort)(struct z3d_world *world);
    void (*end)(struct z3d_world *world);
} z3d_transport;

/* ---- channel.c ---- */

/* A channel of those members, this process being number `index` of them. Collective over the world:
 * every rank opens one. */
z3d_status z3d_channel_open(struct z3d_world *world, const int *members, int size, int index,
                            z3d_channel **out);
void z3d_channel_close(z3d_channel *channel);

z3d_status z3d_message_send(z3d_channel *channel, const void *data, int64_t bytes, int to, int tag,
                            z3d_message *message);
z3d_status z3d_message_receive(z3d_channel *channel, void *data, int64_t bytes, int from, int tag,
                               z3d_message *message);
/* *done also when nothing is under way. */
z3d_status z3d_message_test(z3d_message *message, bool *done);
void z3d_message_drop(z3d_message *message);

/* Helpers on small data: collective over the channel, blocking. Pending collectives of the world's
 * groups move on meanwhile: another rank may need them before it comes here. */
z3d_status z3d_channel_broadcast(z3d_channel *channel, void *data, int64_t bytes, int root);
/* `bytes` from every member, in their order. */
z3d_status z3d_channel_gather_all(z3d_channel *channel, const void *mine, void *all, int64_t bytes);
/* The smallest of all members' values. */
z3d_status z3d_channel_min(z3d_channel *channel, int *value);

#endif
