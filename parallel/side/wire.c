/* Sockets of the side channel: listening, connecting, and messages of a fixed head and a short
 * body. A random token keeps out whoever else finds the port. */
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "parallel/side/side.h"

enum { MAGIC = 0x337a6473 };

/* ---- listening ---- */

static void add_address(z3d_peer *self, const struct sockaddr *address, socklen_t length) {
    if (self->num_addresses == Z3D_MAX_ADDRESSES) return;
    char *text = self->address[self->num_addresses];
    if (getnameinfo(address, length, text, sizeof self->address[0], NULL, 0, NI_NUMERICHOST) == 0)
        self->num_addresses++;
}

/* Every address of every interface that is up; loopback and link-local ones lead nowhere else. */
static void find_addresses(z3d_peer *self) {
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0) return;
    for (struct ifaddrs *at = all; at; at = at->ifa_next) {
        if (!at->ifa_addr || !(at->ifa_flags & IFF_UP) || (at->ifa_flags & IFF_LOOPBACK)) continue;
        if (at->ifa_addr->sa_family == AF_INET) {
            add_address(self, at->ifa_addr, sizeof(struct sockaddr_in));
        } else if (at->ifa_addr->sa_family == AF_INET6) {
            const struct sockaddr_in6 *six = (const void *)at->ifa_addr;
            if (!IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr))
                add_address(self, at->ifa_addr, sizeof(struct sockaddr_in6));
        }
    }
    freeifaddrs(all);
}

static int bind_any(bool one_node) {
    int no = 0;
    if (!one_node) { /* both families, where there is IPv6 */
        int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
        if (fd >= 0 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) == 0 &&
            bind(fd, (struct sockaddr *)&any, sizeof any) == 0)
            return fd;
        if (fd >= 0) close(fd);
    }
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(one_node ? INADDR_LOOPBACK : INADDR_ANY)};
    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

z3d_status z3d_wire_listen(bool one_node, z3d_peer *self, int *fd) {
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } bound;
    socklen_t length = sizeof bound;
    *fd = bind_any(one_node);
    if (*fd < 0 || listen(*fd, 512) != 0 || getsockname(*fd, &bound.any, &length) != 0)
        return Z3D_ERROR(Z3D_ERR_COMM, "opening the side channel's port: %s", strerror(errno));
    self->port = ntohs(bound.any.sa_family == AF_INET ? bound.four.sin_port : bound.six.sin6_port);
    if (!one_node) find_addresses(self);
    if (self->num_addresses == 0) {
        strcpy(self->address[0], "127.0.0.1");
        self->num_addresses = 1;
    }
    return Z3D_OK;
}

/* ---- connecting ---- */

/* A machine that loses its power sends no farewell: ask now and then. */
static void set_options(int fd) {
    int yes = 1, idle = 5, interval = 3, probes = 3;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

static bool wait_for(int fd, short events, double until) {
    for (;;) {
        double left = until - z3d_now();
        if (left <= 0) return false;
        struct pollfd one = {.fd = fd, .events = events};
        int ready = poll(&one, 1, (int)(left * 1000) + 1);
        if (ready > 0) return true;
        if (ready < 0 && errno != EINTR) return false;
    }
}

static int connect_address(const char *address, int port, double until) {
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                             .ai_socktype = SOCK_STREAM},
                    *info = NULL;
    if (getaddrinfo(address, service, &hints, &info) != 0) return -1;
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool connected = false;
    if (fd >= 0) {
        connected = connect(fd, info->ai_addr, info->ai_addrlen) == 0;
        if (!connected && errno == EINPROGRESS && wait_for(fd, POLLOUT, until)) {
            int error = 0;
            socklen_t length = sizeof error;
            connected = getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
        }
    }
    freeaddrinfo(info);
    if (connected) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

/* A network address may lead to a stranger: only the one who knows the token is our peer. Reads
 * exactly the welcome: what follows it stays in the socket for the thread. */
static bool greet(int fd, uint64_t token, int own_rank, int peer_rank, double until) {
    struct {
        z3d_wire_head head;
        z3d_wire_hello hello;
    } welcome;
    z3d_wire_hello hello = {.token = token, .rank = own_rank};
    if (!z3d_wire_send(fd, Z3D_WIRE_HELLO, &hello, sizeof hello)) return false;
    size_t have = 0;
    while (have < sizeof welcome) {
        if (!wait_for(fd, POLLIN, until)) return false;
        ssize_t got = recv(fd, (char *)&welcome + have, sizeof welcome - have, 0);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
        if (got > 0) have += (size_t)got;
    }
    return welcome.head.magic == MAGIC && welcome.head.type == Z3D_WIRE_WELCOME &&
           welcome.hello.token == token && welcome.hello.rank == peer_rank;
}

z3d_status z3d_wire_connect(const z3d_peer *peer, uint64_t token, int own_rank, int peer_rank,
                            double seconds, int *fd) {
    double end = z3d_now() + seconds;
    for (int i = 0; i < peer->num_addresses; i++) {
        /* An address that swallows packets must not use up the time of those after it. */
        double until = z3d_now() + (end - z3d_now()) / (peer->num_addresses - i);
        *fd = connect_address(peer->address[i], peer->port, until);
        if (*fd < 0) continue;
        set_options(*fd);
        if (greet(*fd, token, own_rank, peer_rank, until)) return Z3D_OK;
        close(*fd);
    }
    *fd = -1;
    return Z3D_ERROR(Z3D_ERR_COMM,
                     "the side channel cannot reach rank %d on host %s, port %d (addresses tried: "
                     "%d, the first %s); a firewall between the nodes?",
                     peer_rank, peer->host, peer->port, peer->num_addresses,
                     peer->num_addresses > 0 ? peer->address[0] : "none");
}

/* ---- messages ---- */

bool z3d_wire_send(int fd, z3d_wire_type type, const void *data, size_t length) {
    char message[sizeof(z3d_wire_head) + Z3D_LINE_BYTES];
    z3d_wire_head head = {.magic = MAGIC, .type = (uint16_t)type, .length = (uint16_t)length};
    memcpy(message, &head, sizeof head);
    if (length > 0) memcpy(message + sizeof head, data, length);
    size_t total = sizeof head + length, sent = 0;
    double until = z3d_now() + 1;
    while (sent < total) {
        ssize_t put = send(fd, message + sent, total - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put > 0)
            sent += (size_t)put;
        else if (put < 0 && errno == EAGAIN) {
            if (!wait_for(fd, POLLOUT, until)) return false;
        } else if (put < 0 && errno != EINTR)
            return false;
    }
    return true;
}

bool z3d_wire_receive(z3d_connection *connection) {
    size_t room = sizeof connection->buffer - connection->have;
    ssize_t got = recv(connection->fd, connection->buffer + connection->have, room, MSG_DONTWAIT);
    if (got > 0) connection->have += (size_t)got;
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

bool z3d_wire_next(const z3d_connection *connection, z3d_wire_head *head, const void **data,
                   bool *bad) {
    *bad = false;
    if (connection->have < sizeof *head) return false;
    memcpy(head, connection->buffer, sizeof *head);
    *bad = head->magic != MAGIC || head->length > Z3D_LINE_BYTES;
    *data = connection->buffer + sizeof *head;
    return !*bad && connection->have >= sizeof *head + head->length;
}

void z3d_wire_consume(z3d_connection *connection, const z3d_wire_head *head) {
    size_t length = sizeof *head + head->length;
    memmove(connection->buffer, connection->buffer + length, connection->have - length);
    connection->have -= length;
}
