/* One thread reads blocks, another checks and uses them; a ring of buffers is between them. */
#include "checkpoint/prefetch.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

enum { PREFETCH = 8 }; /* blocks: enough to keep a disk busy; all of them fit a large cache */

struct z3d_prefetch {
    z3d_prefetch_next next;
    void *context;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    char *ring[PREFETCH]; /* block number n is in ring[n % PREFETCH] */
    int64_t read, taken;  /* blocks */
    bool stopping, ended;
    z3d_kept_error end; /* why it ended; kept, because an error's text belongs to one thread */
};

/* Reads one more block into the ring. */
static void read_one(z3d_prefetch *a) {
    bool end = false;
    z3d_status status = a->next(a->context, a->ring[a->read % PREFETCH], &end);
    pthread_mutex_lock(&a->lock);
    if (status == Z3D_OK && !end) {
        a->read++;
    } else {
        a->ended = true;
        a->end = z3d_error_keep(status);
    }
    pthread_cond_signal(&a->moved);
    pthread_mutex_unlock(&a->lock);
}

static void *read_on(void *argument) {
    z3d_prefetch *a = argument;
    for (;;) {
        pthread_mutex_lock(&a->lock);
        while (a->read - a->taken == PREFETCH && !a->stopping)
            pthread_cond_wait(&a->moved, &a->lock);
        bool over = a->stopping || a->ended;
        pthread_mutex_unlock(&a->lock);
        if (over) return NULL;
        read_one(a);
    }
}

/* Starts the thread with all signals blocked: the calling thread handles them. */
static void start_thread(z3d_prefetch *a) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    a->has_thread = pthread_create(&a->thread, NULL, read_on, a) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

z3d_status z3d_prefetch_start(z3d_prefetch_next next, void *context, int64_t block_bytes,
                              z3d_prefetch **out) {
    z3d_prefetch *a;
    *out = NULL;
    Z3D_TRY(z3d_new(1, sizeof *a, "reading ahead", &a));
    a->next = next;
    a->context = context;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->moved, NULL);
    z3d_status status = Z3D_OK;
    for (int i = 0; i < PREFETCH && status == Z3D_OK; i++)
        status = z3d_new((size_t)block_bytes, 1, "a block that is read ahead", &a->ring[i]);
    if (status == Z3D_OK) {
        start_thread(a);
        *out = a;
    } else {
        z3d_prefetch_stop(a);
    }
    return status;
}

z3d_status z3d_prefetch_take(z3d_prefetch *a, char **bytes) {
    /* The thread could not start: this thread reads, which is slower. */
    if (!a->has_thread && a->read == a->taken && !a->ended) read_one(a);
    pthread_mutex_lock(&a->lock);
    while (a->read == a->taken && !a->ended) pthread_cond_wait(&a->moved, &a->lock);
    bool there = a->read > a->taken;
    if (there) {
        char *given = *bytes;
        *bytes = a->ring[a->taken % PREFETCH];
        a->ring[a->taken % PREFETCH] = given;
        a->taken++;
        pthread_cond_signal(&a->moved);
    }
    pthread_mutex_unlock(&a->lock);
    if (there) return Z3D_OK;
    Z3D_TRY(z3d_error_restore(&a->end));
    return Z3D_ERROR(Z3D_ERR_INTERNAL, "a block was requested after the last planned one");
}

void z3d_prefetch_stop(z3d_prefetch *a) {
    if (!a) return;
    pthread_mutex_lock(&a->lock);
    a->stopping = true;
    pthread_cond_signal(&a->moved);
    pthread_mutex_unlock(&a->lock);
    if (a->has_thread) pthread_join(a->thread, NULL);
    for (int i = 0; i < PREFETCH; i++) free(a->ring[i]);
    pthread_cond_destroy(&a->moved);
    pthread_mutex_destroy(&a->lock);
    free(a);
}
