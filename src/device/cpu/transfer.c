/* The cpu device's transfer engine: one thread that copies while kernels run, as a copy engine does
 * on a GPU. */
#include "src/device/cpu/transfer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "src/device/cpu/memory.h"

enum { SLOTS = 64 }; /* copies that may be in progress; one more start waits for the oldest copy */

struct copy {
    void *to;
    const void *from;
    int64_t bytes;
};

struct z3d_cpu_transfer {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    struct copy ring[SLOTS];
    int64_t started, finished; /* copy number n (from 1) lies in ring[n % SLOTS] */
    bool ending;
};

static void *serve(void *argument) {
    z3d_cpu_transfer *t = argument;
    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (t->finished == t->started && !t->ending) pthread_cond_wait(&t->moved, &t->lock);
        if (t->finished == t->started) break;
        struct copy copy = t->ring[(t->finished + 1) % SLOTS];
        pthread_mutex_unlock(&t->lock);
        z3d_cpu_memory_copy(copy.to, copy.from, copy.bytes);
        pthread_mutex_lock(&t->lock);
        t->finished++;
        pthread_cond_broadcast(&t->moved);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

z3d_status z3d_cpu_transfer_create(z3d_cpu_transfer **out) {
    z3d_cpu_transfer *t;
    *out = NULL;
    Z3D_TRY(z3d_new(1, sizeof *t, "transfer engine", &t));
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->moved, NULL);
    int error = pthread_create(&t->thread, NULL, serve, t);
    if (error != 0) {
        pthread_cond_destroy(&t->moved);
        pthread_mutex_destroy(&t->lock);
        free(t);
        return Z3D_ERROR(Z3D_ERR_DEVICE, "transfer engine: no thread: %s", strerror(error));
    }
    *out = t;
    return Z3D_OK;
}

void z3d_cpu_transfer_destroy(z3d_cpu_transfer *t) {
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    t->ending = true;
    pthread_cond_broadcast(&t->moved);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->thread, NULL);
    pthread_cond_destroy(&t->moved);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

z3d_status z3d_cpu_transfer_start(z3d_cpu_transfer *t, void *to, const void *from, int64_t bytes,
                                  int64_t *id) {
    pthread_mutex_lock(&t->lock);
    while (t->started - t->finished == SLOTS - 1) pthread_cond_wait(&t->moved, &t->lock);
    *id = ++t->started;
    t->ring[*id % SLOTS] = (struct copy){to, from, bytes};
    pthread_cond_broadcast(&t->moved);
    pthread_mutex_unlock(&t->lock);
    return Z3D_OK;
}

z3d_status z3d_cpu_transfer_wait(z3d_cpu_transfer *t, int64_t id) {
    pthread_mutex_lock(&t->lock);
    bool known = id >= 1 && id <= t->started;
    while (known && t->finished < id) pthread_cond_wait(&t->moved, &t->lock);
    pthread_mutex_unlock(&t->lock);
    if (!known) return Z3D_ERROR(Z3D_ERR_INTERNAL, "copy %lld was never started", (long long)id);
    return Z3D_OK;
}
