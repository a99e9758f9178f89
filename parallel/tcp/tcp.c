/* The transport over TCP: messages wait in a queue for each peer until sockets move them. */
#include "parallel/tcp/tcp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

/* After a connection is lost, the side channel says within this time which rank died where; only
 * then the messages of that peer fail. */
static const double grace_seconds = 5;

static int rank_of(const z3d_message *message) {
    return message->channel->members[message->peer];
}

static z3d_tcp *tcp_of(const z3d_message *message) {
    return message->channel->world->transport_state;
}

/* ---- queues ---- */

static void append(z3d_tcp_queue *queue, z3d_message *message) {
    if (!queue->first) queue->end = &queue->first;
    message->next = NULL;
    *queue->end = message;
    queue->end = &message->next;
}

static void unlink_at(z3d_tcp_queue *queue, z3d_message **link) {
    z3d_message *message = *link;
    *link = message->next;
    if (queue->end == &message->next) queue->end = link;
}

static bool take_out(z3d_tcp_queue *queue, const z3d_message *message) {
    for (z3d_message **link = &queue->first; *link; link = &(*link)->next)
        if (*link == message) {
            unlink_at(queue, link);
            return true;
        }
    return false;
}

/* Takes out the first message that the frame belongs to. */
static z3d_message *take_for(z3d_tcp_queue *queue, const z3d_tcp_frame *frame) {
    for (z3d_message **link = &queue->first; *link; link = &(*link)->next) {
        z3d_message *message = *link;
        if (message->channel->number != frame->channel || message->tag != frame->tag) continue;
        unlink_at(queue, link);
        return message;
    }
    return NULL;
}

static void keep_frame(z3d_tcp *tcp, z3d_tcp_frames *frames, const z3d_tcp_frame *frame) {
    z3d_status status =
        z3d_grow(frames->count, &frames->room, sizeof *frames->frame, "messages", &frames->frame);
    if (status == Z3D_OK)
        frames->frame[frames->count++] = *frame;
    else
        tcp->broken = z3d_error_keep(status);
}

/* ---- matching ---- */

/* The peer expects this message: it may be sent. If the sizes differ, the message fails later. */
static void grant(z3d_tcp *tcp, int rank, z3d_message *message, const z3d_tcp_frame *demand) {
    if (demand->bytes != message->bytes) {
        message->wanted = demand->bytes;
        return;
    }
    append(&tcp->peer[rank].asked, message);
    z3d_tcp_flush(tcp, rank);
}

void z3d_tcp_finish(z3d_tcp *tcp, z3d_message *message) {
    message->done = true;
    tcp->pending--;
    tcp->moved = true;
}

z3d_message *z3d_tcp_take_frame(z3d_tcp *tcp, int rank, const z3d_tcp_frame *frame) {
    z3d_tcp_peer *peer = &tcp->peer[rank];
    /* NULL: the receiver has dropped the message. */
    if (frame->type == Z3D_TCP_DATA) return take_for(&peer->receives, frame);
    z3d_message *message = take_for(&peer->unasked, frame);
    if (message)
        grant(tcp, rank, message, frame);
    else
        keep_frame(tcp, &peer->unanswered, frame);
    return NULL;
}

/* ---- the table ---- */

static z3d_status tcp_open(z3d_channel *channel) {
    z3d_tcp *tcp = channel->world->transport_state;
    channel->number = ++tcp->channels;
    return Z3D_OK;
}

static void start_send(z3d_tcp *tcp, int rank, z3d_message *message) {
    z3d_tcp_frames *unanswered = &tcp->peer[rank].unanswered;
    for (int64_t i = 0; i < unanswered->count; i++) {
        z3d_tcp_frame demand = unanswered->frame[i];
        if (demand.channel != message->channel->number || demand.tag != message->tag) continue;
        memmove(unanswered->frame + i, unanswered->frame + i + 1,
                (size_t)(unanswered->count - i - 1) * sizeof demand);
        unanswered->count--;
        grant(tcp, rank, message, &demand);
        return;
    }
    append(&tcp->peer[rank].unasked, message);
    /* Normally the receiver connects, with its demand, and the side channel notices its death.
     * Without a side channel only a connection of this rank can notice it. */
    if (!tcp->world->side) z3d_tcp_reach(tcp, rank);
}

static void start_receive(z3d_tcp *tcp, int rank, z3d_message *message) {
    const z3d_tcp_frame demand = {.magic = Z3D_TCP_MAGIC,
                                  .type = Z3D_TCP_DEMAND,
                                  .channel = message->channel->number,
                                  .tag = message->tag,
                                  .bytes = message->bytes};
    append(&tcp->peer[rank].receives, message);
    keep_frame(tcp, &tcp->peer[rank].demands, &demand);
    z3d_tcp_reach(tcp, rank);
    z3d_tcp_flush(tcp, rank);
}

static z3d_status tcp_start(z3d_message *message) {
    z3d_tcp *tcp = tcp_of(message);
    message->wanted = -1;
    message->since = z3d_now();
    tcp->pending++;
    (message->sends ? start_send : start_receive)(tcp, rank_of(message), message);
    return Z3D_OK;
}

static z3d_status blame(const z3d_tcp *tcp, int rank, const char *what, const char *why) {
    return Z3D_ERROR(Z3D_ERR_COMM, "%s rank %d (host %s, pid %d, address %s): %s", what, rank,
                     tcp->place[rank].host, (int)tcp->place[rank].pid, tcp->place[rank].address,
                     why);
}

/* Whether a waiting message can still arrive; else the error. */
static z3d_status look_after(const z3d_message *message) {
    const z3d_tcp *tcp = tcp_of(message);
    int rank = rank_of(message);
    const z3d_tcp_peer *peer = &tcp->peer[rank];
    Z3D_TRY(z3d_error_restore(&tcp->broken));
    if (message->wanted >= 0)
        return Z3D_ERROR(Z3D_ERR_COMM,
                         "rank %d expects a message of %lld bytes, but this rank sends %lld", rank,
                         (long long)message->wanted, (long long)message->bytes);
    /* Before there is a side channel, only this timeout notices a rank that hangs. */
    if (!tcp->world->side && peer->lost == 0 && z3d_now() - message->since > tcp->patience)
        return blame(tcp, rank, "no answer from", "it hangs, or waits for a rank that hangs");
    if (peer->lost == 0) return Z3D_OK;
    if (tcp->world->side && z3d_now() - peer->lost < grace_seconds) return Z3D_OK;
    return blame(tcp, rank, "lost the connection to", peer->why);
}

/* Before there is a side channel, only this rank knows of its failure: ERR_START. */
static z3d_status tcp_test(z3d_message *message, bool *done) {
    *done = message->done;
    z3d_status status = *done ? Z3D_OK : look_after(message);
    return status == Z3D_OK || tcp_of(message)->world->side ? status : Z3D_ERR_START;
}

static void tcp_drop(z3d_message *message) {
    z3d_tcp *tcp = tcp_of(message);
    z3d_tcp_peer *peer = &tcp->peer[rank_of(message)];
    if (message->done) return;
    tcp->pending--;
    if (take_out(&peer->unasked, message) || take_out(&peer->asked, message) ||
        take_out(&peer->receives, message))
        return;
    for (z3d_tcp_connection *each = tcp->connections; each; each = each->next) {
        if (each->into == message) each->into = NULL;
        if (each->from == message) z3d_tcp_lose(tcp, each, "a message was cancelled half sent");
    }
}

static bool tcp_progress(z3d_world *world) {
    z3d_tcp *tcp = world->transport_state;
    tcp->moved = false;
    if (tcp->pending > 0 && tcp->broken.status == Z3D_OK) z3d_tcp_poll(tcp);
    return tcp->moved;
}

static void tcp_end(z3d_world *world) {
    z3d_tcp *tcp = world->transport_state;
    z3d_tcp_bury(tcp, true);
    if (tcp->listener >= 0) close(tcp->listener);
    if (tcp->epoll >= 0) close(tcp->epoll);
    for (int rank = 0; tcp->peer && rank < world->size; rank++) {
        free(tcp->peer[rank].demands.frame);
        free(tcp->peer[rank].unanswered.frame);
    }
    free(tcp->peer);
    free(tcp->place);
    free(tcp);
}

static const z3d_transport tcp_transport = {.name = "tcp",
                                            .open = tcp_open,
                                            .start = tcp_start,
                                            .test = tcp_test,
                                            .drop = tcp_drop,
                                            .progress = tcp_progress,
                                            .end = tcp_end};

/* ---- starting ---- */

/* Every rank may get two connections to every other rank, one in each direction. */
static void allow_files(int size) {
    struct rlimit limit;
    rlim_t wanted = 2 * (rlim_t)size + 1024;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static z3d_status listen_for_peers(z3d_tcp *tcp, const z3d_launcher *launch, z3d_tcp_place *place) {
    tcp->listener = z3d_socket_listen(z3d_tcp_stays_here(launch), 0);
    place->port = tcp->listener >= 0 ? z3d_socket_port(tcp->listener) : 0;
    place->pid = (int32_t)getpid();
    memcpy(place->host, tcp->world->hostname, sizeof place->host);
    tcp->epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (place->port == 0 || tcp->epoll < 0 ||
        epoll_ctl(tcp->epoll, EPOLL_CTL_ADD, tcp->listener, &event) != 0)
        return Z3D_ERROR(Z3D_ERR_COMM, "cannot open a port for the other ranks: %s",
                         strerror(errno));
    return Z3D_OK;
}

z3d_status z3d_tcp_start(z3d_world *world, const z3d_launcher *launch) {
    z3d_tcp *tcp = NULL;
    z3d_tcp_place place = {.port = 0};
    size_t size = (size_t)launch->size;
    Z3D_TRY(z3d_new(1, sizeof *tcp, "the ranks' connections", &tcp));
    tcp->world = world;
    tcp->listener = tcp->epoll = -1;
    tcp->patience = launch->seconds;
    world->transport = &tcp_transport;
    world->transport_state = tcp;
    world->rank = launch->rank;
    world->size = launch->size;
    Z3D_TRY(z3d_new(size, sizeof *tcp->peer, "the ranks' connections", &tcp->peer));
    Z3D_TRY(z3d_new(size, sizeof *tcp->place, "the ranks' places", &tcp->place));
    allow_files(launch->size);
    Z3D_TRY(listen_for_peers(tcp, launch, &place));
    return z3d_tcp_rendezvous(launch, &place, tcp->place, &tcp->token);
}

int z3d_tcp_port(const z3d_world *world, int rank) {
    const z3d_tcp *tcp = world->transport_state;
    return world->transport == &tcp_transport ? tcp->place[rank].port : 0;
}
