/* Pending I/O: what threads of this process have asked of a disk and not got yet. A network disk
 * may never answer, and then nobody can say so but another thread: the watchdog's. */
#ifndef ZERO3D_BASE_PENDING_IO_H
#define ZERO3D_BASE_PENDING_IO_H

#include <stdbool.h>
#include <stdint.h>

/* In the frame of whoever does it. Of a thread's pending I/O calls within one another the inner one
 * counts; the outer goes on anew at its end. */
typedef struct z3d_pending_io {
    const char *what, *path; /* "checkpoint: writing", and of which file; they outlive it */
    int64_t at, of;          /* bytes; negative: not said */
    double since;            /* z3d_now() when it last got further */
    struct z3d_pending_io *outer, *next;
} z3d_pending_io;

/* None of the three changes errno, takes memory or makes a system call that waits for a disk. */
void z3d_pending_io_begin(z3d_pending_io *io, const char *what, const char *path);
/* It has got to byte `at` of `of`. */
void z3d_pending_io_at(z3d_pending_io *io, int64_t at, int64_t of);
void z3d_pending_io_end(z3d_pending_io *io);

enum { Z3D_PENDING_IO_BYTES = 192 };

typedef struct z3d_pending_ios {
    double since; /* when the one that stands still longest last got further; 0: there is none */
    double last;  /* when any last got further, began or ended; 0: there was none yet */
    /* "checkpoint: writing .../step-00000010/shard-00000.h5.part at byte 4194304 of 73400320" */
    char text[Z3D_PENDING_IO_BYTES];
} z3d_pending_ios;

/* All threads' pending I/O, as they stand. */
void z3d_pending_io_look(z3d_pending_ios *out);

#endif
