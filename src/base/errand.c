/* The errands of this process: one list, because a disk is asked in many places and by any thread,
 * and the one who looks knows none of them. */
#include "src/base/errand.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "src/base/strings.h"

enum { PATH_SHOWN = 96 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static z3d_errand *first; /* the innermost of each thread */
static double last;
static _Thread_local z3d_errand *own;

/* With the lock. */
static void take_out(const z3d_errand *errand) {
    z3d_errand **at = &first;
    while (*at != errand) at = &(*at)->next;
    *at = errand->next;
}

static void put_in(z3d_errand *errand) {
    errand->since = last = z3d_now();
    errand->next = first;
    first = errand;
}

void z3d_errand_begin(z3d_errand *errand, const char *what, const char *path) {
    *errand = (z3d_errand){.what = what, .path = path, .at = -1, .of = -1, .outer = own};
    pthread_mutex_lock(&lock);
    if (own) take_out(own);
    put_in(errand);
    pthread_mutex_unlock(&lock);
    own = errand;
}

void z3d_errand_at(z3d_errand *errand, int64_t at, int64_t of) {
    pthread_mutex_lock(&lock);
    errand->at = at;
    errand->of = of;
    errand->since = last = z3d_now();
    pthread_mutex_unlock(&lock);
}

void z3d_errand_end(z3d_errand *errand) {
    own = errand->outer;
    pthread_mutex_lock(&lock);
    take_out(errand);
    last = z3d_now();
    if (own) put_in(own);
    pthread_mutex_unlock(&lock);
}

/* A long path's end says more than its beginning. */
static void describe(const z3d_errand *errand, char *out, size_t size) {
    size_t length = strlen(errand->path);
    bool whole = length <= PATH_SHOWN;
    int used = snprintf(out, size, "%s %s%s", errand->what, whole ? "" : "...",
                        errand->path + (whole ? 0 : length - PATH_SHOWN));
    if (errand->at >= 0 && used > 0 && (size_t)used < size)
        used += snprintf(out + used, size - (size_t)used, " at byte %lld", (long long)errand->at);
    if (errand->at >= 0 && errand->of >= 0 && used > 0 && (size_t)used < size)
        snprintf(out + used, size - (size_t)used, " of %lld", (long long)errand->of);
}

void z3d_errands_look(z3d_errands *out) {
    const z3d_errand *oldest = NULL;
    *out = (z3d_errands){0};
    pthread_mutex_lock(&lock);
    for (const z3d_errand *one = first; one; one = one->next)
        if (!oldest || one->since < oldest->since) oldest = one;
    out->last = last;
    if (oldest) {
        out->since = oldest->since;
        describe(oldest, out->text, sizeof out->text);
    }
    pthread_mutex_unlock(&lock);
}
