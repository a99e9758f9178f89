/* Pending I/O: what threads of this process have requested from a disk and not got yet. A network
 * disk may never answer. Then only another thread can report it: the watchdog's. */
#ifndef ZERO3D_BASE_PENDING_IO_H
#define ZERO3D_BASE_PENDING_IO_H

#include <stdbool.h>
#include <stdint.h>

/* Lives in the caller's stack frame. If a thread's calls are nested, the inner one counts; when it
 * ends, the outer one restarts. */
typedef struct z3d_pending_io {
    const char *what, *path; /* "checkpoint: writing", and the file; both outlive it */
    int64_t at, of;          /* bytes; negative: unknown */
    double since;            /* z3d_now() at its last progress */
    struct z3d_pending_io *outer, *next;
} z3d_pending_io;

/* None of these changes errno, allocates, or makes a system call that waits for a disk. */
void z3d_pending_io_begin(z3d_pending_io *io, const char *what, const char *path);
/* It has reached byte `at` of `of`. */
void z3d_pending_io_at(z3d_pending_io *io, int64_t at, int64_t of);
void z3d_pending_io_end(z3d_pending_io *io);

enum { Z3D_PENDING_IO_BYTES = 192 };

typedef struct z3d_pending_ios {
    double since; /* last progress of the one that has been stuck longest; 0: none is pending */
    double last;  /* when any last progressed, began or ended; 0: there was none yet */
    /* "checkpoint: writing .../step-00000010/shard-00000.h5.part at byte 4194304 of 73400320" */
    char text[Z3D_PENDING_IO_BYTES];
} z3d_pending_ios;

/* The pending I/O of all threads, now. */
void z3d_pending_io_look(z3d_pending_ios *out);

#endif
