/* Copies of the cpu device, and its transfer engine: one thread that copies while kernels run, as a
 * copy engine does on a GPU. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "src/device/cpu/cpu.h"

#ifdef __SSE2__
/* `to` is 16-aligned, bytes a multiple of 64. */
static void copy_past_caches(char *to, const char *from, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += 64) {
        __m128i line[4];
        memcpy(line, from + at, sizeof line);
        for (int i = 0; i < 4; i++) _mm_stream_si128((__m128i *)(to + at) + i, line[i]);
    }
    _mm_sfence();
}
#endif

void z3d_cpu_copy(void *to, const void *from, int64_t bytes) {
#ifdef __SSE2__
    enum { LARGE = 4 << 20 };
    if (bytes >= LARGE) {
        int64_t head = (int64_t)(-(uintptr_t)to & 15), body = (bytes - head) / 64 * 64;
        memcpy(to, from, (size_t)head);
        copy_past_caches((char *)to + head, (const char *)from + head, body);
        to = (char *)to + head + body, from = (const char *)from + head + body;
        bytes -= head + body;
    }
#endif
    if (bytes > 0) memcpy(to, from, (size_t)bytes);
}

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
    struct z3d_cpu_transfer *t = argument;
    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (t->finished == t->started && !t->ending) pthread_cond_wait(&t->moved, &t->lock);
        if (t->finished == t->started) break;
        struct copy copy = t->ring[(t->finished + 1) % SLOTS];
        pthread_mutex_unlock(&t->lock);
        z3d_cpu_copy(copy.to, copy.from, copy.bytes);
        pthread_mutex_lock(&t->lock);
        t->finished++;
        pthread_cond_broadcast(&t->moved);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

z3d_status z3d_cpu_transfer_create(struct z3d_cpu_transfer **out) {
    struct z3d_cpu_transfer *t;
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

void z3d_cpu_transfer_destroy(struct z3d_cpu_transfer *t) {
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

void z3d_cpu_transfer_start(struct z3d_cpu_transfer *t, void *to, const void *from, int64_t bytes,
                            int64_t *id) {
    pthread_mutex_lock(&t->lock);
    while (t->started - t->finished == SLOTS - 1) pthread_cond_wait(&t->moved, &t->lock);
    *id = ++t->started;
    t->ring[*id % SLOTS] = (struct copy){to, from, bytes};
    pthread_cond_broadcast(&t->moved);
    pthread_mutex_unlock(&t->lock);
}

z3d_status z3d_cpu_transfer_wait(struct z3d_cpu_transfer *t, int64_t id) {
    pthread_mutex_lock(&t->lock);
    bool known = id >= 1 && id <= t->started;
    while (known && t->finished < id) pthread_cond_wait(&t->moved, &t->lock);
    pthread_mutex_unlock(&t->lock);
    if (!known) return Z3D_ERROR(Z3D_ERR_INTERNAL, "copy %lld was never started", (long long)id);
    return Z3D_OK;
}
