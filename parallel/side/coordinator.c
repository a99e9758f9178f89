/* The side channel's thread. On rank 0, the coordinator, it receives positions, deaths and failures
 * of all ranks, prints the one line that matters and tells all ranks to end. On the other ranks it
 * reports to the coordinator. If the coordinator is lost, the lowest remaining rank becomes the
 * next coordinator. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "parallel/side/side.h"

/* ---- ending the process ---- */

/* Flushes standard output and error, and ends this process with a non-zero code. Any thread. */
static _Noreturn void end_process(void) {
    /* The main thread may hold a stream's lock for ever: flush only the streams that are free. */
    FILE *streams[] = {stdout, stderr};
    for (int i = 0; i < 2; i++)
        if (ftrylockfile(streams[i]) == 0) {
            fflush_unlocked(streams[i]);
            funlockfile(streams[i]);
        }
    _exit(EXIT_FAILURE);
}

/* ZERO3D_STDERR is a path to zero3d-launch's own standard error, on its node. It avoids mpirun,
 * which forwards no output while it ends a run. */
void z3d_side_print(const char *text) {
    const char *path = getenv("ZERO3D_STDERR");
    int fd = path ? open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC) : -1;
    bool straight = fd >= 0;
    size_t length = strlen(text), done = 0;
    while (done < length) {
        ssize_t put = write(straight ? fd : STDERR_FILENO, text + done, length - done);
        if (put > 0) done += (size_t)put;
        if (put >= 0 || errno == EINTR) continue;
        if (!straight) break;
        straight = false;
    }
    if (fd >= 0) close(fd);
}

static bool is_coordinator(const struct z3d_side *side) {
    return side->rank == side->coordinator;
}

/* Prints, tells all ranks to end, and waits until they close their connections: a socket that is
 * closed with unread data may drop the last message. */
static _Noreturn void end_run(struct z3d_side *side, const char *text) {
    z3d_side_print(text);
    for (int i = 0; i < side->num_connections; i++) {
        z3d_wire_send(side->connections[i].fd, Z3D_WIRE_END, NULL, 0);
        shutdown(side->connections[i].fd, SHUT_WR);
    }
    double until = z3d_now() + 1;
    for (int open = side->num_connections; open > 0 && z3d_now() < until;) {
        struct pollfd one = {.fd = side->connections[open - 1].fd, .events = POLLIN};
        char drain[512];
        if (poll(&one, 1, 100) > 0 && recv(one.fd, drain, sizeof drain, MSG_DONTWAIT) <= 0) open--;
    }
    end_process();
}

/* ---- connections ---- */

int z3d_coordinator_connected(const struct z3d_side *side) {
    int known = 0;
    for (int i = 0; i < side->num_connections; i++) known += side->connections[i].rank >= 0;
    return known;
}

static void drop_connection(struct z3d_side *side, int index) {
    close(side->connections[index].fd);
    side->connections[index] = side->connections[--side->num_connections];
}

static int find_connection(const struct z3d_side *side, int rank) {
    for (int i = 0; i < side->num_connections; i++)
        if (side->connections[i].rank == rank) return i;
    return -1;
}

/* Does nothing if the rank is not connected. */
static void send_to(const struct z3d_side *side, int rank, z3d_wire_type type, const void *data,
                    size_t length) {
    int to = find_connection(side, rank);
    if (to >= 0) z3d_wire_send(side->connections[to].fd, type, data, length);
}

static bool add_connection(struct z3d_side *side, int fd, int rank) {
    if (side->num_connections == side->max_connections) return false;
    side->connections[side->num_connections++] =
        (z3d_connection){.fd = fd, .rank = rank, .since = z3d_now()};
    return true;
}

/* Strangers may connect, too: if there are too many, the oldest silent one is dropped. */
static void accept_one(struct z3d_side *side) {
    int fd = accept4(side->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        /* The waiting connection would wake the loop again at once: pause for a second. */
        side->no_files = errno == EMFILE || errno == ENFILE ? errno : 0;
        if (side->no_files) side->accept_after = z3d_now() + 1;
        return;
    }
    int strangers = 0, oldest = -1;
    for (int i = 0; i < side->num_connections; i++) {
        if (side->connections[i].rank >= 0) continue;
        strangers++;
        if (oldest < 0 || side->connections[i].since < side->connections[oldest].since) oldest = i;
    }
    if (strangers >= Z3D_STRANGERS) drop_connection(side, oldest);
    if (!add_connection(side, fd, -1)) close(fd);
}

static bool take_hello(struct z3d_side *side, z3d_connection *connection, const z3d_wire_head *head,
                       const void *data) {
    z3d_wire_hello hello;
    if (connection->rank >= 0 || head->type != Z3D_WIRE_HELLO || head->length != sizeof hello)
        return false;
    memcpy(&hello, data, sizeof hello);
    if (hello.token != side->token || hello.rank < 0 || hello.rank >= side->size ||
        hello.rank == side->rank || find_connection(side, hello.rank) >= 0)
        return false;
    connection->rank = hello.rank;
    z3d_wire_hello welcome = {.token = side->token, .rank = side->rank};
    return z3d_wire_send(connection->fd, Z3D_WIRE_WELCOME, &welcome, sizeof welcome);
}

/* ---- what this rank says to the coordinator ---- */

/* Clocks differ between nodes: times travel as ages. Negative: none. */
static double age_of(double since) {
    return since == 0 ? -1 : z3d_now() - since;
}

static double since_of(double age) {
    return age < 0 ? 0 : z3d_now() - age;
}

/* Sends this rank's position to the coordinator. The coordinator sends its own to rank 1, which
 * reports it if the coordinator dies. */
static void send_place(struct z3d_side *side, bool answer) {
    int to = is_coordinator(side) ? 1 : side->coordinator;
    z3d_position place;
    z3d_pending_ios pending;
    if (find_connection(side, to) < 0) return;
    z3d_report_position(side, side->rank, &place);
    z3d_pending_io_look(&pending);
    z3d_wire_position message = {.age = age_of(place.since),
                                 .pending_io_age = age_of(pending.since),
                                 .last_age = age_of(pending.last),
                                 .waiting = place.waiting,
                                 .answer = answer};
    memcpy(message.text, place.text, sizeof message.text);
    memcpy(message.pending_io, pending.text, sizeof message.pending_io);
    send_to(side, to, Z3D_WIRE_PLACE, &message, sizeof message);
    side->told = place;
}

static void take_place(struct z3d_side *side, int rank, const z3d_wire_head *head,
                       const void *data) {
    z3d_wire_position message;
    if (head->length != sizeof message) return;
    memcpy(&message, data, sizeof message);
    z3d_seen *seen = &side->seen[rank];
    seen->place.waiting = message.waiting != 0;
    seen->place.since = since_of(message.age);
    memcpy(seen->place.text, message.text, sizeof seen->place.text);
    seen->place.text[sizeof seen->place.text - 1] = '\0';
    seen->pending.since = since_of(message.pending_io_age);
    seen->pending.last = since_of(message.last_age);
    memcpy(seen->pending.text, message.pending_io, sizeof seen->pending.text);
    seen->pending.text[sizeof seen->pending.text - 1] = '\0';
    if (message.answer) seen->answered = true;
}

/* ---- the watchdog ---- */

static bool waits_too_long(const struct z3d_side *side, const z3d_seen *seen) {
    return seen->place.waiting && z3d_too_long(side, seen->place.since);
}

static void collect(struct z3d_side *side, int stuck) {
    if (side->collecting) { /* a question shows the rank that the coordinator lives */
        send_to(side, stuck, Z3D_WIRE_ASK, NULL, 0);
        return;
    }
    side->collecting = 1 + stuck;
    side->collect_until = z3d_now() + 2;
    for (int rank = 0; rank < side->size; rank++) {
        side->seen[rank].answered = rank == side->rank;
        side->seen[rank].pending = (z3d_pending_ios){0}; /* the last report is too old */
    }
    for (int i = 0; i < side->num_connections; i++)
        if (side->connections[i].rank >= 0)
            z3d_wire_send(side->connections[i].fd, Z3D_WIRE_ASK, NULL, 0);
}

/* Whether the run advances after all: the stuck rank has gone on, or some rank's disk is slow but
 * makes progress. */
static bool goes_on(const struct z3d_side *side) {
    const z3d_seen *stuck = &side->seen[side->collecting - 1];
    bool slow = false, dead = false;
    for (int rank = 0; rank < side->size; rank++) {
        const z3d_seen *seen = &side->seen[rank];
        dead = dead || z3d_too_long(side, seen->pending.since);
        slow = slow || (seen->answered && !seen->said_bye && !seen->place.waiting &&
                        seen->pending.last > 0 && !z3d_too_long(side, seen->pending.last));
    }
    return !dead && (slow || (stuck->answered && !waits_too_long(side, stuck)));
}

static void finish_collecting(struct z3d_side *side) {
    int missing = 0;
    for (int rank = 0; rank < side->size; rank++)
        missing += !side->seen[rank].answered && !side->seen[rank].said_bye;
    if (missing > 0 && z3d_now() < side->collect_until) return;
    for (int rank = 0; rank < side->size; rank++)
        z3d_report_position(side, rank, &side->seen[rank].place);
    z3d_pending_io_look(&side->seen[side->rank].pending);
    if (goes_on(side)) {
        side->collecting = 0;
        return;
    }
    z3d_string text = {0};
    z3d_report_stuck(side, &text);
    end_run(side, text.text ? text.text : "zero3d: watchdog: a rank hangs; ending the run\n");
}

static void coordinator_lost(struct z3d_side *side, bool silent);

static void tell_stuck(struct z3d_side *side) {
    side->stuck_told = true;
    side->stuck_heard = is_coordinator(side);
    side->stuck_at = z3d_now();
    if (is_coordinator(side))
        collect(side, side->rank);
    else
        send_to(side, side->coordinator, Z3D_WIRE_STUCK, NULL, 0);
}

/* Whether this process was stopped (SIGSTOP) a short time ago: such time is no wait. */
static bool was_stopped(struct z3d_side *side, double now) {
    enum { SECONDS = 5 }; /* a turn takes a quarter of a second */
    if (side->turned > 0 && now - side->turned > SECONDS) side->awake = now;
    side->turned = now;
    return side->awake > 0 && !z3d_too_long(side, side->awake);
}

static void check_own_wait(struct z3d_side *side) {
    const double again = 5, lost = 3; /* seconds */
    z3d_seen mine;
    double now = z3d_now();
    z3d_report_position(side, side->rank, &mine.place);
    z3d_pending_io_look(&mine.pending);
    bool stuck = waits_too_long(side, &mine) || z3d_too_long(side, mine.pending.since);
    if (was_stopped(side, now) || !stuck)
        side->stuck_told = false;
    else if (!side->stuck_told || (side->stuck_heard && now - side->stuck_at > again))
        tell_stuck(side);
    else if (!side->stuck_heard && now - side->stuck_at > lost)
        coordinator_lost(side, true);
}

/* ---- messages ---- */

static void on_message(struct z3d_side *side, z3d_connection *connection, const z3d_wire_head *head,
                       const void *data) {
    int rank = connection->rank;
    switch ((z3d_wire_type)head->type) {
    case Z3D_WIRE_END:
        end_process();
    case Z3D_WIRE_PLACE:
        take_place(side, rank, head, data);
        break;
    case Z3D_WIRE_ASK:
        side->stuck_heard = true;
        side->stuck_at = z3d_now();
        send_place(side, true);
        break;
    case Z3D_WIRE_STUCK:
        /* A rank that is stuck tells another rank only if the coordinator has not answered. */
        if (is_coordinator(side))
            collect(side, rank);
        else
            side->coordinator_suspect = true;
        break;
    case Z3D_WIRE_FAIL: {
        char line[Z3D_LINE_BYTES + 1];
        memcpy(line, data, head->length);
        line[head->length] = '\0';
        if (is_coordinator(side)) end_run(side, line);
        break;
    }
    case Z3D_WIRE_BYE:
        connection->bye = true;
        side->seen[rank].said_bye = true;
        if (rank == side->coordinator) side->coordinator_said_bye = true;
        break;
    default:
        break;
    }
}

/* Handles the messages of a connection; false: close it. */
static bool serve(struct z3d_side *side, z3d_connection *connection) {
    bool open = z3d_wire_receive(connection), bad = false;
    z3d_wire_head head;
    const void *data;
    while (z3d_wire_next(connection, &head, &data, &bad)) {
        if (connection->rank < 0) {
            if (!take_hello(side, connection, &head, data)) return false;
        } else {
            on_message(side, connection, &head, data);
        }
        z3d_wire_consume(connection, &head);
    }
    return open && !bad;
}

/* ---- deaths ---- */

/* Connects to the ranks that have not noticed the loss yet, so that they hear the end from here.
 * Else they would find this process gone and suspect more ranks. */
static void reach_the_rest(struct z3d_side *side, int lost) {
    double until = z3d_now() + 2;
    for (int rank = side->rank + 1; rank < side->size && z3d_now() < until; rank++) {
        int fd;
        if (rank == lost || side->seen[rank].said_bye || find_connection(side, rank) >= 0) continue;
        if (z3d_wire_connect(side, rank, 0.3, &fd) == Z3D_OK && !add_connection(side, fd, rank))
            close(fd);
    }
}

/* Every remaining rank looks for the lowest remaining rank, in the same order. A frozen coordinator
 * is told to end, too: if it wakes up later, it would take the others for dead. */
static void coordinator_lost(struct z3d_side *side, bool silent) {
    int lost = side->coordinator, index = find_connection(side, lost);
    if (index >= 0) {
        z3d_wire_send(side->connections[index].fd, Z3D_WIRE_END, NULL, 0);
        drop_connection(side, index);
    }
    for (int rank = 0; rank < side->rank; rank++) {
        int fd;
        if (rank == lost || side->seen[rank].said_bye) continue;
        if (z3d_wire_connect(side, rank, 3, &fd) != Z3D_OK) continue;
        side->coordinator = rank;
        side->stuck_told = side->coordinator_suspect = false;
        if (!add_connection(side, fd, rank)) end_process();
        if (silent) z3d_wire_send(fd, Z3D_WIRE_STUCK, NULL, 0);
        return;
    }
    side->coordinator = side->rank;
    side->ending = true; /* later losses are not the cause */
    /* The other ranks are connecting to this one: it must stay until they are told. */
    double until = z3d_now() + 0.3;
    char line[Z3D_LINE_BYTES];
    z3d_report_death(side, lost, silent, line);
    z3d_side_print(line);
    while (z3d_now() < until) z3d_coordinator_turn(side, 50);
    reach_the_rest(side, lost);
    end_run(side, "");
}

static void on_close(struct z3d_side *side, int index) {
    int rank = side->connections[index].rank;
    bool bye =
        side->connections[index].bye || (rank == side->coordinator && side->coordinator_said_bye);
    drop_connection(side, index);
    if (rank < 0 || bye || side->ending) return;
    if (rank == side->coordinator) {
        /* If rank 0 is not the coordinator, the run is ending already: this coordinator has printed
         * the line, or has died of the same cause. */
        if (rank != 0) end_process();
        coordinator_lost(side, false);
    } else if (is_coordinator(side)) {
        char line[Z3D_LINE_BYTES];
        z3d_report_death(side, rank, false, line);
        end_run(side, line);
    }
}

/* ---- requests of the main thread ---- */

static void take_requests(struct z3d_side *side) {
    char line[Z3D_LINE_BYTES];
    uint64_t count;
    ssize_t ignored = read(side->wake, &count, sizeof count);
    (void)ignored;
    pthread_mutex_lock(&side->lock);
    bool abort = side->want_abort;
    side->want_abort = false;
    side->stopping = side->want_stop;
    if (abort) memcpy(line, side->abort_line, sizeof line);
    pthread_mutex_unlock(&side->lock);
    if (!abort) return;
    if (is_coordinator(side)) end_run(side, line);
    send_to(side, side->coordinator, Z3D_WIRE_FAIL, line, strlen(line));
}

/* The coordinator answers the goodbyes when it has heard those of all ranks and of its own main
 * thread. */
static void say_goodbyes(struct z3d_side *side) {
    if (!side->stopping || side->said_bye) return;
    if (!is_coordinator(side)) {
        send_to(side, side->coordinator, Z3D_WIRE_BYE, NULL, 0);
        side->said_bye = true;
        return;
    }
    for (int rank = 0; rank < side->size; rank++)
        if (rank != side->rank && !side->seen[rank].said_bye) return;
    for (int i = 0; i < side->num_connections; i++)
        if (side->connections[i].rank >= 0)
            z3d_wire_send(side->connections[i].fd, Z3D_WIRE_BYE, NULL, 0);
    side->said_bye = side->coordinator_said_bye = true;
}

/* ---- the loop ---- */

static void timers(struct z3d_side *side) {
    z3d_position place;
    if (side->ending) return;
    z3d_report_position(side, side->rank, &place);
    if (!side->stopping && (place.since != side->told.since || place.waiting != side->told.waiting))
        send_place(side, false);
    if (!side->stopping) check_own_wait(side);
    if (side->coordinator_suspect && !is_coordinator(side)) coordinator_lost(side, true);
    if (side->collecting) finish_collecting(side);
    say_goodbyes(side);
}

void z3d_coordinator_turn(struct z3d_side *side, int milliseconds) {
    int count = side->num_connections;
    side->polls[0] = (struct pollfd){.fd = side->wake, .events = POLLIN};
    bool accepts = z3d_now() >= side->accept_after;
    side->polls[1] = (struct pollfd){.fd = accepts ? side->listener : -1, .events = POLLIN};
    for (int i = 0; i < count; i++)
        side->polls[2 + i] = (struct pollfd){.fd = side->connections[i].fd, .events = POLLIN};
    if (poll(side->polls, (nfds_t)(2 + count), milliseconds) > 0) {
        /* From the last to the first: drop_connection moves the last one to the free place. */
        for (int i = count - 1; i >= 0; i--)
            if (side->polls[2 + i].revents && !serve(side, &side->connections[i]))
                on_close(side, i);
        if (side->polls[1].revents) accept_one(side);
        if (side->polls[0].revents) take_requests(side);
    }
    timers(side);
}

void *z3d_coordinator_thread(void *argument) {
    struct z3d_side *side = argument;
    while (!(side->said_bye && side->coordinator_said_bye)) {
        double timeout = atomic_load(&side->timeout);
        int tick = Z3D_TICK_MS;
        if (timeout > 0 && timeout * 250 < tick) tick = (int)(timeout * 250) + 1;
        z3d_coordinator_turn(side, side->collecting ? 20 : tick);
    }
    return NULL;
}
