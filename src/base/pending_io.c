/* The pending I/O of this process. It is one global list, because many places and threads use
 * disks, and the watchdog knows none of them. */
#include "src/base/pending_io.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "src/base/strings.h"

enum { PATH_SHOWN = 96 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static z3d_pending_io *first; /* the innermost of each thread */
static double last;
static _Thread_local z3d_pending_io *own;

/* Call it with the lock held. */
static void take_out(const z3d_pending_io *io) {
    z3d_pending_io **at = &first;
    while (*at != io) at = &(*at)->next;
    *at = io->next;
}

static void put_in(z3d_pending_io *io) {
    io->since = last = z3d_now();
    io->next = first;
    first = io;
}

void z3d_pending_io_begin(z3d_pending_io *io, const char *what, const char *path) {
    *io = (z3d_pending_io){.what = what, .path = path, .at = -1, .of = -1, .outer = own};
    pthread_mutex_lock(&lock);
    if (own) take_out(own);
    put_in(io);
    pthread_mutex_unlock(&lock);
    own = io;
}

void z3d_pending_io_at(z3d_pending_io *io, int64_t at, int64_t of) {
    pthread_mutex_lock(&lock);
    io->at = at;
    io->of = of;
    io->since = last = z3d_now();
    pthread_mutex_unlock(&lock);
}

void z3d_pending_io_end(z3d_pending_io *io) {
    own = io->outer;
    pthread_mutex_lock(&lock);
    take_out(io);
    last = z3d_now();
    if (own) put_in(own);
    pthread_mutex_unlock(&lock);
}

/* Shows only the end of a long path. */
static void describe(const z3d_pending_io *io, char *out, size_t size) {
    size_t length = strlen(io->path);
    bool whole = length <= PATH_SHOWN;
    int used = snprintf(out, size, "%s %s%s", io->what, whole ? "" : "...",
                        io->path + (whole ? 0 : length - PATH_SHOWN));
    if (io->at >= 0 && used > 0 && (size_t)used < size)
        used += snprintf(out + used, size - (size_t)used, " at byte %lld", (long long)io->at);
    if (io->at >= 0 && io->of >= 0 && used > 0 && (size_t)used < size)
        snprintf(out + used, size - (size_t)used, " of %lld", (long long)io->of);
}

void z3d_pending_io_look(z3d_pending_ios *out) {
    const z3d_pending_io *oldest = NULL;
    *out = (z3d_pending_ios){0};
    pthread_mutex_lock(&lock);
    for (const z3d_pending_io *one = first; one; one = one->next)
        if (!oldest || one->since < oldest->since) oldest = one;
    out->last = last;
    if (oldest) {
        out->since = oldest->since;
        describe(oldest, out->text, sizeof out->text);
    }
    pthread_mutex_unlock(&lock);
}
