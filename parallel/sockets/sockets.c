/* TCP sockets: listening, connecting, and reading or writing a fixed number of bytes. */
#include "parallel/sockets/sockets.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/base.h"

/* ---- listening ---- */

typedef union address {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
} address;

static int close_for(int fd) {
    int error = errno;
    if (fd >= 0) close(fd);
    errno = error;
    return -1;
}

static int bound(int fd, const address *at, socklen_t length) {
    int yes = 1;
    if (fd < 0) return -1;
    /* A port that only connections of an earlier run still hold counts as free. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    return bind(fd, &at->any, length) == 0 ? fd : close_for(fd);
}

static int bind_any(bool loopback, int port) {
    int no = 0;
    if (!loopback) { /* both families, where there is IPv6 */
        int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        address any = {.six = {.sin6_family = AF_INET6,
                               .sin6_port = htons((uint16_t)port),
                               .sin6_addr = in6addr_any}};
        if (fd >= 0 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) == 0) {
            fd = bound(fd, &any, sizeof any.six);
            if (fd >= 0 || errno == EADDRINUSE) return fd;
        } else if (fd >= 0) {
            close(fd);
        }
    }
    address at = {.four = {.sin_family = AF_INET,
                           .sin_port = htons((uint16_t)port),
                           .sin_addr.s_addr = htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY)}};
    return bound(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), &at,
                 sizeof at.four);
}

int z3d_socket_listen(bool loopback, int port) {
    int fd = bind_any(loopback, port);
    return fd >= 0 && listen(fd, 4096) != 0 ? close_for(fd) : fd;
}

int z3d_socket_port(int fd) {
    address at;
    socklen_t length = sizeof at;
    if (getsockname(fd, &at.any, &length) != 0) return 0;
    return ntohs(at.any.sa_family == AF_INET ? at.four.sin_port : at.six.sin6_port);
}

bool z3d_socket_address(int fd, bool other_end, char *text, size_t size) {
    address at;
    socklen_t length = sizeof at;
    int error = other_end ? getpeername(fd, &at.any, &length) : getsockname(fd, &at.any, &length);
    if (error != 0 || getnameinfo(&at.any, length, text, (socklen_t)size, NULL, 0, NI_NUMERICHOST))
        return false;
    /* A socket of both families writes IPv4 addresses like this. */
    if (strncmp(text, "::ffff:", 7) == 0 && strchr(text, '.'))
        memmove(text, text + 7, strlen(text + 7) + 1);
    return true;
}

bool z3d_socket_is_loopback(const char *address) {
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

/* ---- connecting ---- */

void z3d_socket_options(int fd) {
    int yes = 1, idle = 5, interval = 3, probes = 3;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

long long z3d_socket_file_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return -1;
    return (long long)limit.rlim_cur;
}

/* Waits for `events` of poll(2). False: none came until then. */
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

int z3d_socket_begin(const char *address, int port) {
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                             .ai_socktype = SOCK_STREAM},
                    *info = NULL;
    if (getaddrinfo(address, service, &hints, &info) != 0) {
        errno = EADDRNOTAVAIL;
        return -1;
    }
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, info->ai_addr, info->ai_addrlen) != 0 && errno != EINPROGRESS)
        fd = close_for(fd);
    freeaddrinfo(info);
    if (fd >= 0) z3d_socket_options(fd);
    return fd;
}

/* Whether a socket has connected to itself: while nobody listens at a port of the range that the
 * kernel assigns to sockets, the kernel may assign this port to our own socket. */
static bool meets_itself(int fd) {
    address here = {0}, there = {0};
    socklen_t length = sizeof here, other = sizeof there;
    return getsockname(fd, &here.any, &length) == 0 && getpeername(fd, &there.any, &other) == 0 &&
           length == other && memcmp(&here, &there, length) == 0;
}

int z3d_socket_outcome(int fd) {
    int error = 0;
    socklen_t length = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
    if (error != 0 || !meets_itself(fd)) return error;
    /* Its close must free the port immediately: another process will listen there. */
    struct linger none = {.l_onoff = 1};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    return ECONNREFUSED;
}

int z3d_socket_connect(const char *address, int port, double until) {
    int fd = z3d_socket_begin(address, port);
    if (fd < 0) return -1;
    int error = wait_for(fd, POLLOUT, until) ? z3d_socket_outcome(fd) : ETIMEDOUT;
    if (error == 0) return fd;
    close(fd);
    errno = error;
    return -1;
}

/* ---- a number of bytes ---- */

static bool again(ssize_t moved, int fd, short events, double until) {
    if (moved >= 0 || errno == EINTR) return moved != 0;
    return errno == EAGAIN && wait_for(fd, events, until);
}

bool z3d_socket_write(int fd, const void *data, size_t bytes, double until) {
    for (size_t sent = 0; sent < bytes;) {
        ssize_t put =
            send(fd, (const char *)data + sent, bytes - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put > 0)
            sent += (size_t)put;
        else if (!again(put, fd, POLLOUT, until))
            return false;
    }
    return true;
}

bool z3d_socket_read(int fd, void *data, size_t bytes, double until) {
    for (size_t have = 0; have < bytes;) {
        ssize_t got = recv(fd, (char *)data + have, bytes - have, MSG_DONTWAIT);
        if (got > 0)
            have += (size_t)got;
        else if (!again(got, fd, POLLIN, until))
            return false;
    }
    return true;
}
