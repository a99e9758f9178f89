/* Private to parallel/side. The side channel: one thread per rank, TCP between rank 0 (the
 * coordinator) and the others, independent of messages, which may be blocked. position.c keeps what
 * this rank is doing, wire.c opens sockets and frames messages, coordinator.c is the thread and
 * decides, report.c writes the texts, watchdog.c is the interface. */
#ifndef ZERO3D_PARALLEL_SIDE_H
#define ZERO3D_PARALLEL_SIDE_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "parallel/interface/internal.h"
#include "parallel/sockets/sockets.h"

enum {
    Z3D_POSITION_BYTES = 160,
    Z3D_LINE_BYTES = 1152, /* a failure's line on its way */
    Z3D_STRANGERS = 16,    /* connections that have not said who they are */
    Z3D_MAX_ADDRESSES = 6,
    Z3D_TICK_MS = 250
};

/* ---- position.c: what a rank is doing ---- */

typedef struct z3d_position {
    bool waiting;
    double since; /* z3d_now() of this node when it was entered; 0: it has not said */
    char text[Z3D_POSITION_BYTES];
} z3d_position;

/* One rank's place in memory shared by the ranks of a node, written by its main thread alone and
 * read by any thread of any of them: the version is odd while it is being written. */
typedef struct z3d_position_slot {
    _Atomic uint32_t version, waiting;
    _Atomic uint64_t since;
    _Atomic uint64_t text[Z3D_POSITION_BYTES / 8];
} z3d_position_slot;

void z3d_position_write(z3d_position_slot *slot, const z3d_position *place);
void z3d_position_read(z3d_position_slot *slot, z3d_position *out);

/* ---- wire.c: sockets and messages ---- */

typedef enum z3d_wire_type {
    Z3D_WIRE_HELLO = 1, /* connector: token and rank */
    Z3D_WIRE_WELCOME,   /* listener's answer: token and rank */
    Z3D_WIRE_PLACE,     /* to the coordinator: z3d_wire_position */
    Z3D_WIRE_ASK,       /* from the coordinator: where are you? */
    Z3D_WIRE_STUCK,     /* to the coordinator: this rank has waited too long */
    Z3D_WIRE_FAIL,      /* to the coordinator: a line to print, then the end */
    Z3D_WIRE_END,       /* from the coordinator: exit now */
    Z3D_WIRE_BYE        /* a normal end */
} z3d_wire_type;

typedef struct z3d_wire_head {
    uint32_t magic;
    uint16_t type, length; /* of what follows */
} z3d_wire_head;

typedef struct z3d_wire_hello {
    uint64_t token;
    int32_t rank, reserved;
} z3d_wire_hello;

typedef struct z3d_wire_position {
    double age; /* seconds in this place; negative: it has not said any */
    /* Seconds since the pending I/O that stands still longest got further, and since any did;
     * negative: none. */
    double pending_io_age, last_age;
    int32_t waiting, answer;
    char text[Z3D_POSITION_BYTES], pending_io[Z3D_PENDING_IO_BYTES];
} z3d_wire_position;

typedef struct z3d_connection {
    int fd;
    int rank;     /* -1: has not said */
    bool bye;     /* has said goodbye */
    double since; /* of a stranger */
    size_t have;
    char buffer[sizeof(z3d_wire_head) + Z3D_LINE_BYTES];
} z3d_connection;

/* What everybody knows of a rank: gathered at the start. */
typedef struct z3d_peer {
    char host[64];
    int32_t pid, port, num_addresses, reserved;
    char address[Z3D_MAX_ADDRESSES][Z3D_ADDRESS_BYTES];
} z3d_peer;

/* A listening socket, and the addresses at which other ranks may reach it (127.0.0.1 alone when all
 * ranks are on this node). */
z3d_status z3d_wire_listen(bool one_node, z3d_peer *self, int *fd);
/* Connects to a peer, says hello and waits for its welcome. ERR_COMM after `seconds`. */
z3d_status z3d_wire_connect(const z3d_peer *peer, uint64_t token, int own_rank, int peer_rank,
                            double seconds, int *fd);
/* False when the connection is broken or full for more than a second. */
bool z3d_wire_send(int fd, z3d_wire_type type, const void *data, size_t length);
/* Reads what has come without blocking: false at the end of the connection. */
bool z3d_wire_receive(z3d_connection *connection);
/* The next whole message of the buffer; false when there is none. *bad: no message of ours. The
 * data is valid until z3d_wire_consume. */
bool z3d_wire_next(const z3d_connection *connection, z3d_wire_head *head, const void **data,
                   bool *bad);
void z3d_wire_consume(z3d_connection *connection, const z3d_wire_head *head);

/* ---- coordinator.c: the thread ---- */

typedef struct z3d_seen { /* what the coordinator knows of a rank */
    z3d_position place;
    z3d_pending_ios pending;
    bool answered, said_bye;
} z3d_seen;

struct z3d_side {
    int rank, size, coordinator;
    const int *node; /* by rank; the world's */
    uint64_t token;
    z3d_peer *peer;     /* by rank */
    int listener, wake; /* wake: an eventfd */
    z3d_position_slot *slots;
    size_t slots_bytes;
    bool slots_shared;
    int *slot_of; /* by rank: index in slots, -1: on another node */
    pthread_t thread;
    bool running;
    _Atomic double timeout; /* seconds; 0: no watchdog */

    pthread_mutex_t lock; /* of the two requests of the main thread */
    bool want_stop, want_abort;
    char abort_line[Z3D_LINE_BYTES];

    /* The thread's own. */
    z3d_connection *connections;
    int num_connections, max_connections;
    struct pollfd *polls;
    z3d_seen *seen;    /* by rank, of use on the coordinator */
    z3d_position told; /* the place last sent to the coordinator */
    bool stopping, said_bye, coordinator_said_bye, stuck_told;
    bool stuck_heard;         /* the coordinator has asked since */
    bool ending;              /* this rank has said why the run ends */
    bool coordinator_suspect; /* another rank has had no answer from the coordinator */
    double stuck_at;          /* when this rank told the coordinator, or heard of it again */
    double turned, awake;     /* the last turn; since when this process has not been stopped */
    double accept_after;      /* nobody is let in before: this process had no file left */
    int no_files;             /* its errno */
    int collecting;           /* 0, or 1 + the rank that is stuck */
    double collect_until;
};

/* One turn of the loop: messages for at most `milliseconds`, then timers. */
void z3d_coordinator_turn(struct z3d_side *side, int milliseconds);
void *z3d_coordinator_thread(void *side);
/* Ranks, other than this one, that the coordinator is connected with. */
int z3d_coordinator_connected(const struct z3d_side *side);
/* This process ends here with a non-zero code; what it had printed is flushed. */
void z3d_side_exit(void) __attribute__((noreturn));

/* Whether what stands still since then does so longer than the watchdog's time (position.c). */
bool z3d_too_long(const struct z3d_side *side, double since);

/* ---- report.c ---- */

/* The place of any rank as far as this one knows. */
void z3d_report_position(struct z3d_side *side, int rank, z3d_position *out);
void z3d_report_death(struct z3d_side *side, int rank, bool silent, z3d_string *out);
void z3d_report_stuck(struct z3d_side *side, z3d_string *out);

#endif
