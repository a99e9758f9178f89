/* The side channel's connections: addresses, greetings, and messages of a fixed head and a short
 * body. A random token keeps out strangers who find the port. */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
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

/* Finds every address of every interface that is up. Other nodes cannot reach loopback and
 * link-local addresses. */
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

z3d_status z3d_wire_listen(bool one_node, z3d_peer *self, int *fd) {
    *fd = z3d_socket_listen(one_node, 0);
    self->port = *fd >= 0 ? z3d_socket_port(*fd) : 0;
    if (self->port == 0)
        return Z3D_ERROR(Z3D_ERR_COMM, "cannot open a port for the side channel: %s",
                         strerror(errno));
    if (!one_node) find_addresses(self);
    if (self->num_addresses == 0) {
        strcpy(self->address[0], "127.0.0.1");
        self->num_addresses = 1;
    }
    return Z3D_OK;
}

/* ---- connecting ---- */

/* Greets the other end. An address may lead to a stranger; only our peer knows the token. Reads
 * exactly the welcome: later bytes stay in the socket for the thread. */
static bool greet(const struct z3d_side *side, int fd, int rank, double until) {
    struct {
        z3d_wire_head head;
        z3d_wire_hello hello;
    } welcome;
    z3d_wire_hello hello = {.token = side->token, .rank = side->rank};
    if (!z3d_wire_send(fd, Z3D_WIRE_HELLO, &hello, sizeof hello)) return false;
    if (!z3d_socket_read(fd, &welcome, sizeof welcome, until)) return false;
    return welcome.head.magic == MAGIC && welcome.head.type == Z3D_WIRE_WELCOME &&
           welcome.hello.token == side->token && welcome.hello.rank == rank;
}

z3d_status z3d_wire_connect(const struct z3d_side *side, int rank, double seconds, int *fd) {
    const z3d_peer *peer = &side->peer[rank];
    double end = z3d_now() + seconds;
    for (int i = 0; i < peer->num_addresses; i++) {
        /* An address that drops packets must not use up the time of the next addresses. */
        double until = z3d_now() + (end - z3d_now()) / (peer->num_addresses - i);
        *fd = z3d_socket_connect(peer->address[i], peer->port, until);
        if (*fd < 0) continue;
        if (greet(side, *fd, rank, until)) return Z3D_OK;
        close(*fd);
    }
    *fd = -1;
    return Z3D_ERROR(Z3D_ERR_COMM,
                     "the side channel cannot reach rank %d on host %s, port %d (%d addresses "
                     "tried, first %s); check for a firewall between the nodes",
                     rank, peer->host, peer->port, peer->num_addresses,
                     peer->num_addresses > 0 ? peer->address[0] : "none");
}

/* ---- messages ---- */

bool z3d_wire_send(int fd, z3d_wire_type type, const void *data, size_t length) {
    char message[sizeof(z3d_wire_head) + Z3D_LINE_BYTES];
    z3d_wire_head head = {.magic = MAGIC, .type = (uint16_t)type, .length = (uint16_t)length};
    memcpy(message, &head, sizeof head);
    if (length > 0) memcpy(message + sizeof head, data, length);
    return z3d_socket_write(fd, message, sizeof head + length, z3d_now() + 1);
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
