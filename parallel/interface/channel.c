/* Channels and messages, independent of the transport, and small blocking helpers on binomial
 * trees. A member's subtree consists of the members after it, so gathered data is in order. */
#include <stdlib.h>
#include <string.h>

#include "parallel/interface/internal.h"

/* ---- making ---- */

z3d_status z3d_channel_open(z3d_world *world, const int *members, int size, int index,
                            z3d_channel **out) {
    z3d_channel *channel = NULL;
    *out = NULL;
    z3d_status status = z3d_new(1, sizeof *channel, "a channel", &channel);
    if (status == Z3D_OK)
        status = z3d_new((size_t)size, sizeof *members, "a channel's members", &channel->members);
    if (status == Z3D_OK) {
        memcpy(channel->members, members, (size_t)size * sizeof *members);
        channel->world = world;
        channel->size = size;
        channel->index = index;
    }
    /* All ranks open it, or none. */
    if (world->channel) status = z3d_world_agree(world, status);
    if (status == Z3D_OK) status = world->transport->open(channel);
    if (status == Z3D_OK) {
        *out = channel;
        return Z3D_OK;
    }
    if (channel) free(channel->members);
    free(channel);
    return status;
}

void z3d_channel_close(z3d_channel *channel) {
    if (!channel) return;
    if (channel->world->transport->close) channel->world->transport->close(channel);
    free(channel->members);
    free(channel);
}

/* ---- messages ---- */

z3d_status z3d_message_start(z3d_channel *channel, bool sends, void *data, int64_t bytes, int peer,
                             int tag, z3d_message *message) {
    *message = (z3d_message){
        .channel = channel, .sends = sends, .data = data, .bytes = bytes, .peer = peer, .tag = tag};
    z3d_status status = channel->world->transport->start(message);
    if (status != Z3D_OK) message->channel = NULL;
    return status;
}

z3d_status z3d_message_test(z3d_message *message, bool *done) {
    *done = true;
    if (!message->channel) return Z3D_OK;
    Z3D_TRY(message->channel->world->transport->test(message, done));
    if (*done) message->channel = NULL;
    return Z3D_OK;
}

void z3d_message_drop(z3d_message *message) {
    if (message->channel) message->channel->world->transport->drop(message);
    message->channel = NULL;
}

/* ---- helpers ---- */

static z3d_status finish(z3d_message *message) {
    z3d_world *world = message->channel->world;
    for (int64_t idle = 0;;) {
        bool done;
        Z3D_TRY(z3d_message_test(message, &done));
        if (done) return Z3D_OK;
        if (z3d_world_progress(world))
            idle = 0;
        else
            z3d_world_idle(world, idle++);
    }
}

static z3d_status move(z3d_channel *channel, void *data, int64_t bytes, int peer, bool sends) {
    for (int64_t at = 0; at < bytes; at += Z3D_MESSAGE_BYTES) {
        int64_t piece = bytes - at < Z3D_MESSAGE_BYTES ? bytes - at : Z3D_MESSAGE_BYTES;
        z3d_message message;
        Z3D_TRY(
            z3d_message_start(channel, sends, (char *)data + at, piece, peer, Z3D_TAGS, &message));
        z3d_status status = finish(&message);
        if (status != Z3D_OK) z3d_message_drop(&message);
        Z3D_TRY(status);
    }
    return Z3D_OK;
}

/* Members are numbered from the root. A member's parent has its number without the lowest bit; its
 * children have its number plus one bit below the lowest. */
z3d_status z3d_channel_broadcast(z3d_channel *channel, void *data, int64_t bytes, int root) {
    int size = channel->size, self = (channel->index - root + size) % size, bit = 1;
    for (; bit < size && !(self & bit); bit <<= 1) {
    }
    if (self > 0) Z3D_TRY(move(channel, data, bytes, (self - bit + root) % size, false));
    for (bit >>= 1; bit > 0; bit >>= 1)
        if (self + bit < size)
            Z3D_TRY(move(channel, data, bytes, (self + bit + root) % size, true));
    return Z3D_OK;
}

z3d_status z3d_channel_gather_all(z3d_channel *channel, const void *mine, void *all,
                                  int64_t bytes) {
    int size = channel->size, self = channel->index;
    char *to = all;
    if (bytes > 0) memmove(to + self * bytes, mine, (size_t)bytes);
    for (int bit = 1; bit < size; bit <<= 1) {
        if (self & bit) {
            int64_t members = size - self < bit ? size - self : bit;
            Z3D_TRY(move(channel, to + self * bytes, members * bytes, self - bit, true));
            break;
        }
        if (self + bit >= size) continue;
        int64_t members = size - self - bit < bit ? size - self - bit : bit;
        Z3D_TRY(move(channel, to + (self + bit) * bytes, members * bytes, self + bit, false));
    }
    return z3d_channel_broadcast(channel, all, size * bytes, 0);
}

z3d_status z3d_channel_min(z3d_channel *channel, int *value) {
    int size = channel->size, self = channel->index, theirs;
    for (int bit = 1; bit < size; bit <<= 1) {
        if (self & bit) {
            Z3D_TRY(move(channel, value, sizeof *value, self - bit, true));
            break;
        }
        if (self + bit >= size) continue;
        Z3D_TRY(move(channel, &theirs, sizeof theirs, self + bit, false));
        if (theirs < *value) *value = theirs;
    }
    return z3d_channel_broadcast(channel, value, sizeof *value, 0);
}
