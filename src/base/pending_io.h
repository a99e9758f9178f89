/* Pending I/O: disk requests of this process's threads that have not returned. A network disk may
 * never answer; then only another thread, the watchdog's, can report it. */
#ifndef ZERO3D_BASE_PENDING_IO_H
#define ZERO3D_BASE_PENDING_IO_H

#include <stdint.h>

/* Lives in the caller's stack frame. If a thread's requests are nested, only the inner one is
 * pending; when it ends, the outer one is pending again from that time. */
typedef struct z3d_pending_io {
    const char *what,
        *path;      /* "checkpoint: writing", and the file; both texts outlive the request */
    int64_t at, of; /* bytes; negative: unknown */
    double since;   /* z3d_now() at its last progress */
    struct z3d_pending_io *outer, *next;
} z3d_pending_io;

/* These functions do not change errno, allocate nothing, and never wait for a disk. */
void z3d_pending_io_begin(z3d_pending_io *io, const char *what, const char *path);
/* The request has reached byte `at` of `of`. */
void z3d_pending_io_at(z3d_pending_io *io, int64_t at, int64_t of);
void z3d_pending_io_end(z3d_pending_io *io);

enum { Z3D_PENDING_IO_BYTES = 192 };

typedef struct z3d_pending_ios {
    double since; /* last progress of the request that has waited longest; 0: none is pending */
    double last;  /* when any request last progressed, began or ended; 0: never */
    /* "checkpoint: writing .../step-00000010/shard-00000.h5.part at byte 4194304 of 73400320" */
    char text[Z3D_PENDING_IO_BYTES];
} z3d_pending_ios;

/* The present pending I/O of all threads. */
void z3d_pending_io_look(z3d_pending_ios *out);

#endif
