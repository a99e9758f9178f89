/* Ranks know only where rank 0 is; here they find each other. All others connect to rank 0 and say
 * who they are. When all have connected, rank 0 tells each where all ranks listen. A rank's address
 * is the address from which it connected: the other ranks can reach it there, too. */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "parallel/tcp/tcp.h"

enum { VERSION = 1, STRANGERS = 16, ANSWER_SECONDS = 5 };
static const char magic[8] = "zero3d\n";

/* The message of a rank to rank 0. */
typedef struct coming {
    char magic[8];
    int32_t version, rank, size, reserved;
    uint64_t run;
    z3d_tcp_place place;
} coming;

/* The answers of rank 0: HEARD at once; later COMPLETE, followed by the places of all ranks, or
 * REFUSED, with a text that says what is wrong. */
typedef enum verdict { HEARD = 1, COMPLETE, REFUSED } verdict;
typedef struct answer {
    char magic[8];
    int32_t verdict, reserved;
    uint64_t token;
    char text[400];
} answer;

typedef struct visitor {
    int fd, rank; /* rank -1: has not said who it is */
    size_t have;
    coming said;
} visitor;

/* ---- rank 0 ---- */

typedef struct hall {
    const z3d_launcher *launch;
    z3d_tcp_place *all;
    int listener, count, room, come;
    visitor *visitors;
    struct pollfd *polls;
    bool failed, late;
    answer last; /* to all ranks */
} hall;

static void tell(const visitor *to, const answer *what) {
    z3d_socket_write(to->fd, what, sizeof *what, z3d_now() + ANSWER_SECONDS);
}

static answer make_answer(verdict verdict) {
    answer made = {.verdict = verdict};
    memcpy(made.magic, magic, sizeof magic);
    return made;
}

/* Keeps the message of the first error: from now on it is the answer to every rank. */
static void refuse(hall *h, z3d_status status) {
    if (status == Z3D_OK || h->failed) return;
    h->failed = true;
    h->last = make_answer(REFUSED);
    snprintf(h->last.text, sizeof h->last.text, "%s", z3d_error_message());
}

static void let_go(hall *h, int index) {
    close(h->visitors[index].fd);
    h->visitors[index] = h->visitors[--h->count];
}

static z3d_status check_coming(const hall *h, const visitor *from) {
    const coming *said = &from->said;
    const z3d_tcp_place *place = &said->place;
    if (said->version != VERSION)
        return Z3D_ERROR(Z3D_ERR_COMM,
                         "a rank on host %.63s runs another version of zero3d than rank 0",
                         place->host);
    if (said->size != h->launch->size)
        return Z3D_ERROR(Z3D_ERR_COMM,
                         "rank %d (host %.63s, pid %d) was started with WORLD_SIZE %d, rank 0 with "
                         "%d",
                         said->rank, place->host, place->pid, said->size, h->launch->size);
    if (said->rank < 1 || said->rank >= said->size)
        return Z3D_ERROR(Z3D_ERR_COMM, "a process on host %.63s has rank %d of %d", place->host,
                         said->rank, said->size);
    const z3d_tcp_place *other = &h->all[said->rank];
    if (other->port != 0)
        return Z3D_ERROR(Z3D_ERR_COMM,
                         "two processes were started as rank %d: pid %d on host %.63s and pid %d "
                         "on host %.63s",
                         said->rank, other->pid, other->host, place->pid, place->host);
    return Z3D_OK;
}

/* Keeps a rank's address. A rank that connects over the loopback address is on this machine: the
 * others reach it at the address of rank 0. */
static void keep_place(hall *h, visitor *from) {
    z3d_tcp_place *place = &from->said.place;
    if (!z3d_socket_address(from->fd, true, place->address, sizeof place->address) ||
        z3d_socket_is_loopback(place->address))
        place->address[0] = '\0';
    else if (!h->all[0].address[0])
        z3d_socket_address(from->fd, false, h->all[0].address, sizeof h->all[0].address);
    from->rank = from->said.rank;
    h->all[from->rank] = *place;
    h->come++;
}

/* Answers a visitor that has said who it is. False: close its connection. */
static bool welcome(hall *h, visitor *from) {
    if (memcmp(from->said.magic, magic, sizeof magic) != 0) return false;
    from->said.place.host[sizeof from->said.place.host - 1] = '\0';
    if (from->said.run != h->launch->run) {
        answer no = make_answer(REFUSED);
        snprintf(no.text, sizeof no.text,
                 "port %d is used by the ranks of another run; set MASTER_PORT to another port",
                 h->launch->port);
        tell(from, &no);
        return false;
    }
    if (!h->failed) refuse(h, check_coming(h, from));
    answer heard = make_answer(HEARD);
    tell(from, &heard);
    if (h->failed) {
        tell(from, &h->last);
        h->come++;
        return false;
    }
    keep_place(h, from);
    return true;
}

/* Reads from a visitor. False: close its connection. */
static bool hear(hall *h, visitor *from) {
    ssize_t got = recv(from->fd, (char *)&from->said + from->have, sizeof from->said - from->have,
                       MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (from->rank >= 0 && !h->failed) {
        const z3d_tcp_place *place = &h->all[from->rank];
        refuse(h, Z3D_ERROR(Z3D_ERR_COMM,
                            "rank %d (host %s, pid %d) ended before all ranks had connected",
                            from->rank, place->host, place->pid));
    }
    if (got <= 0 || from->rank >= 0) return false;
    from->have += (size_t)got;
    return from->have < sizeof from->said || welcome(h, from);
}

/* Accepts a connection. Strangers may connect, too: if there is no room, the oldest silent one is
 * dropped. */
static void let_in(hall *h) {
    int fd = accept4(h->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
        refuse(h, Z3D_ERROR(Z3D_ERR_COMM,
                            "rank 0 cannot accept the connections of %d ranks: %s (limit %lld); "
                            "raise ulimit -n",
                            h->launch->size - 1, strerror(errno), z3d_socket_file_limit()));
        h->late = true;
    }
    if (fd < 0) return;
    for (int i = 0; i < h->count && h->count == h->room; i++)
        if (h->visitors[i].rank < 0) let_go(h, i);
    if (h->count == h->room) {
        close(fd);
        return;
    }
    z3d_socket_options(fd);
    h->visitors[h->count++] = (visitor){.fd = fd, .rank = -1};
}

static void turn(hall *h) {
    int count = h->count;
    h->polls[count] = (struct pollfd){.fd = h->listener, .events = POLLIN};
    for (int i = 0; i < count; i++)
        h->polls[i] = (struct pollfd){.fd = h->visitors[i].fd, .events = POLLIN};
    if (poll(h->polls, (nfds_t)count + 1, 100) <= 0) return;
    /* From the last to the first: let_go moves the last visitor to the free place. */
    for (int i = count - 1; i >= 0; i--)
        if (h->polls[i].revents && !hear(h, &h->visitors[i])) let_go(h, i);
    if (h->polls[count].revents) let_in(h);
}

static z3d_status nobody_more(const hall *h) {
    z3d_string missing = {0};
    int named = 0, absent = h->launch->size - 1 - h->come;
    for (int rank = 1; rank < h->launch->size && named < 8; rank++)
        if (h->all[rank].port == 0) z3d_string_append(&missing, "%s%d", named++ ? ", " : "", rank);
    z3d_status status = Z3D_ERROR(
        Z3D_ERR_COMM,
        "only %d of %d ranks connected to rank 0 at host %s, port %d, within %g s; missing: %s%s",
        h->come + 1, h->launch->size, h->all[0].host, h->launch->port, h->launch->seconds,
        missing.text ? missing.text : "?", absent > named ? ", ..." : "");
    z3d_string_free(&missing);
    return status;
}

static void wait_for_all(hall *h) {
    double until = z3d_now() + h->launch->seconds;
    while (!h->failed && h->come < h->launch->size - 1) {
        turn(h);
        if (z3d_now() < until || h->failed || h->come == h->launch->size - 1) continue;
        refuse(h, nobody_more(h));
        h->late = true;
    }
}

/* Tells the failure to the ranks that have connected, and for 3 s to ranks that still connect. */
static z3d_status tell_failure(hall *h) {
    double until = z3d_now() + (h->late ? 0 : 3);
    for (int i = h->count - 1; i >= 0; i--) {
        if (h->visitors[i].rank < 0) continue;
        tell(&h->visitors[i], &h->last);
        let_go(h, i);
    }
    while (h->come < h->launch->size - 1 && z3d_now() < until) turn(h);
    return Z3D_ERROR(Z3D_ERR_COMM, "%s", h->last.text);
}

static z3d_status tell_places(hall *h, uint64_t *token) {
    size_t bytes = (size_t)h->launch->size * sizeof *h->all;
    if (!h->all[0].address[0]) strcpy(h->all[0].address, "127.0.0.1");
    for (int rank = 1; rank < h->launch->size; rank++)
        if (!h->all[rank].address[0])
            memcpy(h->all[rank].address, h->all[0].address, sizeof h->all[0].address);
    if (getrandom(token, sizeof *token, 0) != sizeof *token)
        return Z3D_ERROR(Z3D_ERR_COMM, "cannot get random numbers for the ranks' token");
    h->last = make_answer(COMPLETE);
    h->last.token = *token;
    for (int i = 0; i < h->count; i++) {
        const visitor *to = &h->visitors[i];
        double until = z3d_now() + 30;
        if (to->rank >= 0 && (!z3d_socket_write(to->fd, &h->last, sizeof h->last, until) ||
                              !z3d_socket_write(to->fd, h->all, bytes, until)))
            return Z3D_ERROR(Z3D_ERR_COMM, "rank %d (host %s) ended during the rendezvous",
                             to->rank, h->all[to->rank].host);
    }
    return Z3D_OK;
}

static z3d_status open_hall(hall *h) {
    size_t room = (size_t)h->launch->size + STRANGERS;
    h->room = (int)room;
    Z3D_TRY(z3d_new(room, sizeof *h->visitors, "the ranks that come", &h->visitors));
    Z3D_TRY(z3d_new(room + 1, sizeof *h->polls, "the ranks that come", &h->polls));
    h->listener = z3d_socket_listen(z3d_tcp_stays_here(h->launch), h->launch->port);
    if (h->listener < 0)
        return Z3D_ERROR(Z3D_ERR_COMM,
                         "cannot listen at port %d of host %s for the ranks' rendezvous: %s; set "
                         "MASTER_PORT to another port",
                         h->launch->port, h->all[0].host, strerror(errno));
    return Z3D_OK;
}

static z3d_status receive_all(const z3d_launcher *launch, z3d_tcp_place *all, uint64_t *token) {
    hall h = {.launch = launch, .all = all, .listener = -1};
    z3d_status status = open_hall(&h);
    if (status == Z3D_OK) {
        wait_for_all(&h);
        status = h.failed ? tell_failure(&h) : tell_places(&h, token);
    }
    for (int i = 0; i < h.count; i++) close(h.visitors[i].fd);
    if (h.listener >= 0) close(h.listener);
    free(h.polls);
    free(h.visitors);
    return status;
}

/* ---- the others ---- */

/* Tries one address. Returns a connection on which rank 0 has answered, or -1 and *why. Once
 * connected we wait long: rank 0 may be slow, and if we closed the connection, it would take this
 * rank for dead. */
static int try_address(const struct addrinfo *info, const z3d_launcher *launch, const coming *say,
                       answer *heard, const char **why) {
    char text[Z3D_ADDRESS_BYTES];
    double until = z3d_now() + ANSWER_SECONDS;
    if (getnameinfo(info->ai_addr, info->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST))
        return -1;
    int fd = z3d_socket_connect(text, launch->port, until);
    if (fd < 0) {
        *why = strerror(errno);
        return -1;
    }
    until = z3d_now() + launch->seconds + ANSWER_SECONDS;
    if (z3d_socket_write(fd, say, sizeof *say, until) &&
        z3d_socket_read(fd, heard, sizeof *heard, until) &&
        memcmp(heard->magic, magic, sizeof magic) == 0)
        return fd;
    *why = "another program answers at that port, not rank 0 of a run";
    close(fd);
    return -1;
}

static int try_host(const z3d_launcher *launch, const coming *say, answer *heard,
                    const char **why) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all = NULL;
    int fd = -1;
    if (getaddrinfo(launch->host, NULL, &hints, &all) != 0) {
        *why = "the host name has no address; set MASTER_ADDR to an address";
        return -1;
    }
    for (struct addrinfo *at = all; at && fd < 0; at = at->ai_next)
        fd = try_address(at, launch, say, heard, why);
    freeaddrinfo(all);
    return fd;
}

/* Rank 0 may start later than this rank. The pause grows, because every try asks the name server.
 */
static z3d_status find_first(const z3d_launcher *launch, const coming *say, answer *heard,
                             int *fd) {
    double until = z3d_now() + launch->seconds;
    const char *why = "no address";
    long pause = 20000000;
    while ((*fd = try_host(launch, say, heard, &why)) < 0) {
        if (z3d_now() > until)
            return Z3D_ERROR(
                Z3D_ERR_COMM,
                "rank %d could not connect to rank 0 at %.80s, port %d, within %g s: %s",
                launch->rank, launch->host, launch->port, launch->seconds, why);
        nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
        pause = pause < 400000000 ? 2 * pause : pause;
    }
    return Z3D_OK;
}

/* Waits longer than rank 0 waits for the other ranks. */
static z3d_status hear_verdict(const z3d_launcher *launch, int fd, answer *last,
                               z3d_tcp_place *all) {
    double until = z3d_now() + launch->seconds + 2 * ANSWER_SECONDS;
    if (last->verdict == HEARD && !z3d_socket_read(fd, last, sizeof *last, until))
        return Z3D_ERROR(Z3D_ERR_COMM, "rank 0 at %.80s ended before all ranks had connected",
                         launch->host);
    last->text[sizeof last->text - 1] = '\0';
    if (last->verdict != COMPLETE) return Z3D_ERROR(Z3D_ERR_PEER, "rank 0: %s", last->text);
    if (!z3d_socket_read(fd, all, (size_t)launch->size * sizeof *all, until))
        return Z3D_ERROR(Z3D_ERR_COMM, "rank 0 at %.80s ended during the rendezvous", launch->host);
    return Z3D_OK;
}

static z3d_status go_there(const z3d_launcher *launch, const z3d_tcp_place *place,
                           z3d_tcp_place *all, uint64_t *token) {
    coming say = {.version = VERSION,
                  .rank = launch->rank,
                  .size = launch->size,
                  .run = launch->run,
                  .place = *place};
    answer last;
    int fd;
    memcpy(say.magic, magic, sizeof magic);
    Z3D_TRY(find_first(launch, &say, &last, &fd));
    z3d_status status = hear_verdict(launch, fd, &last, all);
    close(fd);
    *token = last.token;
    return status;
}

/* ---- both ---- */

/* Only these two names: 127.0.1.1 (some systems give it to their own host name) and ::1 are on this
 * machine, too, but a socket on 127.0.0.1 does not listen there. */
bool z3d_tcp_stays_here(const z3d_launcher *launch) {
    return strcmp(launch->host, "localhost") == 0 || strcmp(launch->host, "127.0.0.1") == 0;
}

z3d_status z3d_tcp_rendezvous(const z3d_launcher *launch, const z3d_tcp_place *place,
                              z3d_tcp_place *all, uint64_t *token) {
    if (launch->rank > 0) return go_there(launch, place, all, token);
    all[0] = *place;
    return receive_all(launch, all, token);
}
