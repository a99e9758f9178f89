/* One socket between two ranks: connecting, greetings, and frames in both directions. The rank that
 * first has data for the other connects. If both connect at the same time, each rank sends through
 * the connection that it has begun. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "parallel/tcp/tcp.h"

enum { READS = 8 /* of one connection in a turn; then the other connections are served */ };

/* ---- making and losing ---- */

static void watch(z3d_tcp *tcp, z3d_tcp_connection *connection, bool writing) {
    struct epoll_event event = {.events = EPOLLIN | (writing ? EPOLLOUT : 0u),
                                .data.ptr = connection};
    if (connection->watched == writing) return;
    connection->watched = writing;
    epoll_ctl(tcp->epoll, EPOLL_CTL_MOD, connection->fd, &event);
}

static void break_off(z3d_tcp *tcp, const char *what) {
    const int error = errno;
    const char *why = strerror(error);
    tcp->broken = z3d_error_keep(error == EMFILE ? Z3D_ERROR(Z3D_ERR_COMM,
                                                             "%s: %s (limit %lld); raise ulimit -n",
                                                             what, why, z3d_socket_file_limit())
                                                 : Z3D_ERROR(Z3D_ERR_COMM, "%s: %s", what, why));
}

/* Closes the file if there is no memory for a connection. */
static z3d_tcp_connection *add(z3d_tcp *tcp, int fd, int rank, z3d_tcp_stage stage) {
    z3d_tcp_connection *connection = calloc(1, sizeof *connection);
    bool connecting = stage == Z3D_TCP_CONNECTING;
    struct epoll_event event = {.events = EPOLLIN | (connecting ? EPOLLOUT : 0u),
                                .data.ptr = connection};
    if (!connection || epoll_ctl(tcp->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        break_off(tcp, "cannot connect to another rank");
        free(connection);
        close(fd);
        return NULL;
    }
    connection->stage = stage;
    connection->fd = fd;
    connection->rank = rank;
    connection->watched = connecting;
    connection->next = tcp->connections;
    tcp->connections = connection;
    return connection;
}

static void mark_lost(z3d_tcp *tcp, int rank, const char *why) {
    z3d_tcp_peer *peer = &tcp->peer[rank];
    if (peer->lost > 0) return;
    peer->lost = z3d_now();
    snprintf(peer->why, sizeof peer->why, "%s", why);
    tcp->moved = true;
}

/* Closes a connection. Messages of that rank fail when they are tested. The connection itself is
 * freed at the end of the turn, because events of this turn may still point to it. */
void z3d_tcp_lose(z3d_tcp *tcp, z3d_tcp_connection *connection, const char *why) {
    if (connection->stage == Z3D_TCP_GONE) return;
    if (connection->stage == Z3D_TCP_STRANGER)
        tcp->strangers--;
    else
        mark_lost(tcp, connection->rank, why);
    /* close alone does not end the events if a child process has the socket, too. */
    epoll_ctl(tcp->epoll, EPOLL_CTL_DEL, connection->fd, NULL);
    close(connection->fd);
    tcp->gone++;
    connection->stage = Z3D_TCP_GONE;
    connection->into = connection->from = NULL;
    if (connection->rank >= 0 && tcp->peer[connection->rank].out == connection)
        tcp->peer[connection->rank].out = NULL;
}

void z3d_tcp_bury(z3d_tcp *tcp, bool all) {
    z3d_tcp_connection **link = &tcp->connections;
    while (*link) {
        z3d_tcp_connection *connection = *link;
        if (connection->stage != Z3D_TCP_GONE && !all) {
            link = &connection->next;
            continue;
        }
        *link = connection->next;
        if (connection->stage != Z3D_TCP_GONE) close(connection->fd);
        free(connection);
    }
    tcp->gone = 0;
}

void z3d_tcp_reach(z3d_tcp *tcp, int rank) {
    z3d_tcp_peer *peer = &tcp->peer[rank];
    const z3d_tcp_place *place = &tcp->place[rank];
    if (peer->out || peer->lost > 0) return;
    int fd = z3d_socket_begin(place->address, place->port);
    if (fd >= 0)
        peer->out = add(tcp, fd, rank, Z3D_TCP_CONNECTING);
    else if (errno == EMFILE || errno == ENFILE)
        break_off(tcp, "cannot connect to another rank");
    else
        mark_lost(tcp, rank, strerror(errno));
}

/* ---- greetings ---- */

static void greet(z3d_tcp *tcp, z3d_tcp_connection *connection, z3d_tcp_type type) {
    const z3d_tcp_greeting greeting = {.magic = Z3D_TCP_MAGIC,
                                       .type = (uint16_t)type,
                                       .token = tcp->token,
                                       .from = tcp->world->rank,
                                       .to = connection->rank};
    /* These are the connection's first bytes, so the socket's buffer takes all of them. */
    if (send(connection->fd, &greeting, sizeof greeting, MSG_NOSIGNAL | MSG_DONTWAIT) !=
        (ssize_t)sizeof greeting)
        z3d_tcp_lose(tcp, connection, strerror(errno));
}

static void finish_connecting(z3d_tcp *tcp, z3d_tcp_connection *connection) {
    int error = z3d_socket_outcome(connection->fd);
    if (error != 0) {
        z3d_tcp_lose(tcp, connection, strerror(error));
        return;
    }
    watch(tcp, connection, false);
    connection->stage = Z3D_TCP_GREETING;
    greet(tcp, connection, Z3D_TCP_HELLO);
}

/* A stranger who found the port does not know the token: the connection is closed. */
static void take_greeting(z3d_tcp *tcp, z3d_tcp_connection *connection) {
    const z3d_tcp_greeting *greeting = &connection->head.greeting;
    bool asked = connection->stage == Z3D_TCP_GREETING;
    bool ours = greeting->magic == Z3D_TCP_MAGIC && greeting->token == tcp->token &&
                greeting->type == (asked ? Z3D_TCP_WELCOME : Z3D_TCP_HELLO) &&
                greeting->to == tcp->world->rank && greeting->from >= 0 &&
                greeting->from < tcp->world->size && greeting->from != tcp->world->rank &&
                (!asked || greeting->from == connection->rank);
    if (!ours) {
        z3d_tcp_lose(tcp, connection, "another program answers at its port");
        return;
    }
    connection->have = 0;
    if (!asked) {
        tcp->strangers--;
        connection->rank = greeting->from;
        if (!tcp->peer[connection->rank].out) tcp->peer[connection->rank].out = connection;
    }
    connection->stage = Z3D_TCP_OPEN;
    tcp->moved = true;
    if (!asked) greet(tcp, connection, Z3D_TCP_WELCOME);
    z3d_tcp_flush(tcp, connection->rank);
}

/* ---- going out ---- */

/* Whether to go on writing: false if the socket takes no more now, or is lost. */
static bool after_write(z3d_tcp *tcp, z3d_tcp_connection *connection, ssize_t put) {
    if (put >= 0 || errno == EINTR) return true;
    if (errno == EAGAIN)
        watch(tcp, connection, true);
    else
        z3d_tcp_lose(tcp, connection, strerror(errno));
    return false;
}

static bool write_demands(z3d_tcp *tcp, z3d_tcp_connection *connection, z3d_tcp_peer *peer) {
    int64_t bytes = peer->demands.count * (int64_t)sizeof(z3d_tcp_frame);
    ssize_t put = send(connection->fd, (const char *)peer->demands.frame + peer->demands_sent,
                       (size_t)(bytes - peer->demands_sent), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put > 0) peer->demands_sent += put;
    if (peer->demands_sent == bytes) peer->demands_sent = peer->demands.count = 0;
    return after_write(tcp, connection, put);
}

static bool write_message(z3d_tcp *tcp, z3d_tcp_connection *connection) {
    const int64_t head = (int64_t)sizeof(z3d_tcp_frame);
    z3d_message *message = connection->from;
    z3d_tcp_frame frame = {.magic = Z3D_TCP_MAGIC,
                           .type = Z3D_TCP_DATA,
                           .channel = message->channel->number,
                           .tag = message->tag,
                           .bytes = message->bytes};
    int64_t in_head = connection->sent < head ? connection->sent : head;
    int64_t in_data = connection->sent - in_head;
    struct iovec parts[2] = {
        {.iov_base = (char *)&frame + in_head, .iov_len = (size_t)(head - in_head)},
        {.iov_base = message->data + in_data, .iov_len = (size_t)(message->bytes - in_data)}};
    struct msghdr both = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t put = sendmsg(connection->fd, &both, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put > 0) {
        connection->sent += put;
        tcp->moved = true;
    }
    if (connection->sent == head + message->bytes) {
        connection->from = NULL;
        z3d_tcp_finish(tcp, message);
    }
    return after_write(tcp, connection, put);
}

void z3d_tcp_flush(z3d_tcp *tcp, int rank) {
    z3d_tcp_peer *peer = &tcp->peer[rank];
    z3d_tcp_connection *connection = peer->out;
    if (!connection || connection->stage != Z3D_TCP_OPEN) return;
    for (bool more = true; more;) {
        if (connection->from) {
            more = write_message(tcp, connection);
        } else if (peer->demands.count > 0) {
            more = write_demands(tcp, connection, peer);
        } else if (peer->asked.first) {
            connection->from = peer->asked.first;
            connection->sent = 0;
            peer->asked.first = connection->from->next;
        } else {
            watch(tcp, connection, false);
            return;
        }
    }
}

/* ---- coming in ---- */

static void take_head(z3d_tcp *tcp, z3d_tcp_connection *connection) {
    if (connection->stage != Z3D_TCP_OPEN) {
        take_greeting(tcp, connection);
        return;
    }
    const z3d_tcp_frame frame = connection->head.frame;
    bool ours = frame.magic == Z3D_TCP_MAGIC && frame.bytes >= 0 &&
                (frame.type == Z3D_TCP_DEMAND || frame.type == Z3D_TCP_DATA);
    if (!ours) {
        z3d_tcp_lose(tcp, connection, "it sends messages that are not zero3d's");
        return;
    }
    connection->left = frame.type == Z3D_TCP_DATA ? frame.bytes : 0;
    connection->into = z3d_tcp_take_frame(tcp, connection->rank, &frame);
    /* A sender of ours sends the size that was demanded. */
    if (connection->into && connection->into->bytes != frame.bytes)
        z3d_tcp_lose(tcp, connection, "it sends messages of the wrong size");
}

static ssize_t read_piece(z3d_tcp_connection *connection) {
    char nowhere[4096];
    void *to = nowhere;
    size_t bytes = sizeof nowhere;
    if (connection->have < sizeof connection->head) {
        to = connection->head.bytes + connection->have;
        bytes = sizeof connection->head - connection->have;
    } else if (connection->into) {
        to = connection->into->data + (connection->into->bytes - connection->left);
        bytes = (size_t)connection->left;
    } else if (connection->left < (int64_t)bytes) {
        bytes = (size_t)connection->left;
    }
    return recv(connection->fd, to, bytes, MSG_DONTWAIT);
}

static void take_bytes(z3d_tcp *tcp, z3d_tcp_connection *connection, ssize_t got) {
    if (connection->have < sizeof connection->head) {
        connection->have += (size_t)got;
        if (connection->have < sizeof connection->head) return;
        z3d_tcp_stage before = connection->stage;
        take_head(tcp, connection);
        if (before != Z3D_TCP_OPEN || connection->stage == Z3D_TCP_GONE) return;
    } else {
        connection->left -= got;
        tcp->moved = true;
    }
    if (connection->left > 0) return;
    if (connection->into) z3d_tcp_finish(tcp, connection->into);
    connection->into = NULL;
    connection->have = 0;
}

static void read_some(z3d_tcp *tcp, z3d_tcp_connection *connection) {
    for (int turn = 0; turn < READS && connection->stage != Z3D_TCP_GONE; turn++) {
        ssize_t got = read_piece(connection);
        if (got > 0)
            take_bytes(tcp, connection, got);
        else if (got == 0)
            z3d_tcp_lose(tcp, connection, "it closed the connection");
        else if (errno == EAGAIN)
            return;
        else if (errno != EINTR)
            z3d_tcp_lose(tcp, connection, strerror(errno));
    }
}

/* ---- a turn ---- */

/* Reads first what the oldest stranger has sent: it may be a rank by now, and stays. */
static void drop_oldest_stranger(z3d_tcp *tcp) {
    z3d_tcp_connection *oldest = NULL;
    for (z3d_tcp_connection *each = tcp->connections; each; each = each->next)
        if (each->stage == Z3D_TCP_STRANGER) oldest = each;
    if (oldest) read_some(tcp, oldest);
    if (oldest && oldest->stage == Z3D_TCP_STRANGER) z3d_tcp_lose(tcp, oldest, "");
}

/* All ranks may connect at once. If there are more strangers, the oldest silent one is dropped. */
static void accept_all(z3d_tcp *tcp) {
    enum { STRANGERS = 16 };
    for (;;) {
        int fd = accept4(tcp->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE)
                break_off(tcp, "cannot accept a connection from another rank");
            return;
        }
        z3d_socket_options(fd);
        if (tcp->strangers >= tcp->world->size + STRANGERS) drop_oldest_stranger(tcp);
        if (!add(tcp, fd, -1, Z3D_TCP_STRANGER)) return;
        tcp->strangers++;
    }
}

static void serve(z3d_tcp *tcp, z3d_tcp_connection *connection, uint32_t events) {
    if (connection->stage == Z3D_TCP_CONNECTING) {
        if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) finish_connecting(tcp, connection);
        return;
    }
    if (events & ~(uint32_t)EPOLLOUT) read_some(tcp, connection);
    if (connection->stage == Z3D_TCP_OPEN && (events & EPOLLOUT))
        z3d_tcp_flush(tcp, connection->rank);
}

void z3d_tcp_poll(z3d_tcp *tcp) {
    struct epoll_event events[64];
    int count = epoll_wait(tcp->epoll, events, 64, 0);
    for (int i = 0; i < count; i++) {
        z3d_tcp_connection *connection = events[i].data.ptr;
        if (!connection)
            accept_all(tcp);
        else if (connection->stage != Z3D_TCP_GONE)
            serve(tcp, connection, events[i].events);
    }
    if (tcp->gone > 0) z3d_tcp_bury(tcp, false);
}
