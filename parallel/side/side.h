/* Private to parallel/side. The side channel: one thread per rank, TCP between rank 0 (the
 * coordinator) and the others, independent of messages, which may be blocked. position.c keeps this
 * rank's position, wire.c opens sockets and frames messages, coordinator.c is the thread and its
 * decisions, report.c writes the texts, watchdog.c is the interface. At the start the main thread
 * calls these functions; later only the thread does. Exception: z3d_position_write is always the
 * main thread's. */
#ifndef ZERO3D_PARALLEL_SIDE_H
#define ZERO3D_PARALLEL_SIDE_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "parallel/interface/internal.h"
#include "parallel/sockets/sockets.h"

enum {
    Z3D_POSITION_BYTES = 160,
    Z3D_LINE_BYTES = 1152, /* the most of a failure's line, and of any message */
    Z3D_STRANGERS = 16,    /* the most connections that have not said their rank */
    Z3D_MAX_ADDRESSES = 6,
    Z3D_TICK_MS = 250 /* the longest turn of the loop */
};

/* ---- position.c: where a rank is in its program ---- */

typedef struct z3d_position {
    bool waiting;
    double since; /* when the rank came here, in this node's z3d_now(); 0: not reported */
    char text[Z3D_POSITION_BYTES];
} z3d_position;

/* A rank's position in memory that the ranks of a node share. Only the rank's main thread writes
 * it; any thread of any of these ranks reads it. The version is odd during a write. */
typedef struct z3d_position_slot {
    _Atomic uint32_t version, waiting;
    _Atomic double since;
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
    double age; /* seconds at this position; negative: not reported */
    /* Seconds since the last progress of the pending I/O that has stood still longest; seconds
     * since the last progress of any pending I/O; negative: none is pending. */
    double pending_io_age, last_age;
    int32_t waiting, answer;
    char text[Z3D_POSITION_BYTES], pending_io[Z3D_PENDING_IO_BYTES];
} z3d_wire_position;

typedef struct z3d_connection {
    int fd;
    int rank;     /* -1: a stranger, which has not said its rank */
    bool bye;     /* it has said goodbye */
    double since; /* when it was accepted */
    size_t have;  /* bytes in the buffer */
    char buffer[sizeof(z3d_wire_head) + Z3D_LINE_BYTES];
} z3d_connection;

/* The facts of a rank that all ranks know; gathered at the start. */
typedef struct z3d_peer {
    char host[64];
    int32_t pid, port, num_addresses, reserved;
    char address[Z3D_MAX_ADDRESSES][Z3D_ADDRESS_BYTES];
} z3d_peer;

/* Opens a listening socket and writes its port and addresses into *self: 127.0.0.1 only if all
 * ranks are on this node. Errors: ERR_COMM. */
z3d_status z3d_wire_listen(bool one_node, z3d_peer *self, int *fd);
/* False: the connection is broken, or was full for more than a second. */
bool z3d_wire_send(int fd, z3d_wire_type type, const void *data, size_t length);
/* Reads into the connection's buffer without blocking. False: the connection has ended. */
bool z3d_wire_receive(z3d_connection *connection);
/* The next whole message in the buffer; false: none. *bad: the bytes are no message of ours. The
 * data is valid until z3d_wire_consume. */
bool z3d_wire_next(const z3d_connection *connection, z3d_wire_head *head, const void **data,
                   bool *bad);
/* Removes that message from the buffer. */
void z3d_wire_consume(z3d_connection *connection, const z3d_wire_head *head);

/* Connects to a rank, sends hello and waits for its welcome. Errors: ERR_COMM after `seconds`. */
z3d_status z3d_wire_connect(const struct z3d_side *side, int rank, double seconds, int *fd);

/* ---- coordinator.c: the thread ---- */

typedef struct z3d_seen { /* the coordinator's knowledge of a rank */
    z3d_position place;
    z3d_pending_ios pending;
    bool answered, said_bye;
} z3d_seen;

struct z3d_side {
    int rank, size, coordinator;
    uint64_t token;
    z3d_peer *peer;     /* by rank */
    int listener, wake; /* wake: an eventfd */
    z3d_position_slot *slots;
    size_t slots_bytes;
    bool slots_shared;
    int *slot_of; /* by rank: index in slots, -1: on another node */
    pthread_t thread;
    _Atomic double timeout; /* seconds; 0: no watchdog */

    pthread_mutex_t lock; /* of the two requests of the main thread */
    bool want_stop, want_abort;
    char abort_line[Z3D_LINE_BYTES];

    /* The thread's own. */
    z3d_connection *connections;
    int num_connections, max_connections;
    struct pollfd *polls;
    z3d_seen *seen;    /* by rank, used on the coordinator */
    z3d_position told; /* the position last sent to the coordinator */
    bool stopping;     /* the main thread wants to say goodbye */
    bool said_bye, coordinator_said_bye;
    bool stuck_told;          /* this rank has told the coordinator that it is stuck */
    bool stuck_heard;         /* the coordinator has asked for positions since then */
    bool ending;              /* this rank has printed why the run ends */
    bool coordinator_suspect; /* the coordinator has not answered another rank */
    double stuck_at;          /* when stuck_told or stuck_heard last happened */
    double turned, awake;     /* the last turn; when this process woke up after a stop; 0: never */
    double accept_after;      /* time; until then no connection is accepted */
    int no_files;             /* why accept failed (EMFILE, ENFILE); 0: it did not */
    int collecting;           /* 0, or 1 + the rank that is stuck */
    double collect_until;     /* ranks must answer until then */
};

/* One turn of the loop: waits for messages at most `milliseconds`, then checks the timers. */
void z3d_coordinator_turn(struct z3d_side *side, int milliseconds);
/* The thread: turns until all have said goodbye. */
void *z3d_coordinator_thread(void *side);
/* How many other ranks are connected to this coordinator. */
int z3d_coordinator_connected(const struct z3d_side *side);

/* Whether the time since `since` is longer than the watchdog's timeout (position.c). */
bool z3d_too_long(const struct z3d_side *side, double since);

/* ---- report.c ---- */

/* A rank's position: from shared memory, or else its last report. */
void z3d_report_position(struct z3d_side *side, int rank, z3d_position *out);
/* Writes the line of a rank that died, or (silent) that does not answer. */
void z3d_report_death(struct z3d_side *side, int rank, bool silent, char line[Z3D_LINE_BYTES]);
/* Appends the lines of a hang: its cause, and a table of all positions. */
void z3d_report_stuck(struct z3d_side *side, z3d_string *out);

#endif
