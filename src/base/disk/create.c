/* Creates the disk: its memory, its file, its threads. Only this file allocates. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/disk/disk.h"

enum { DEPTH = 8, REQUESTS = 64 };

static int depth_of(const z3d_disk_config *config) {
    int depth = config->depth > 0 ? config->depth : DEPTH;
    return depth < DISK_MOST_DEPTH ? depth : DISK_MOST_DEPTH;
}

static int requests_of(const z3d_disk_config *config) {
    return config->requests > 0 ? config->requests : REQUESTS;
}

int64_t z3d_disk_memory(const z3d_disk_config *config) {
    int64_t blocks = z3d_round_up(config->bytes, Z3D_DISK_ALIGN) / Z3D_DISK_ALIGN;
    int64_t requests = requests_of(config) + 1;
    return blocks * (int64_t)sizeof(uint64_t) + requests * (int64_t)sizeof(disk_request) +
           DISK_WINDOW + (int64_t)sizeof(z3d_disk);
}

static z3d_status allocate(z3d_disk *disk, const z3d_disk_config *config) {
    Z3D_REQUIRE(config->bytes > 0, "%s: a file of %lld bytes", config->folder,
                (long long)config->bytes);
    disk->bytes = z3d_round_up(config->bytes, Z3D_DISK_ALIGN);
    disk->depth = depth_of(config);
    disk->requests = requests_of(config);
    disk->hook = config->hook;
    disk->folder = strdup(config->folder);
    disk->window = aligned_alloc(Z3D_DISK_ALIGN, DISK_WINDOW);
    if (!disk->folder || !disk->window)
        return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the window of a disk");
    return z3d_new((size_t)disk->requests + 1, sizeof *disk->request, "requests of a disk",
                   &disk->request);
}

static z3d_status allocate_digests(z3d_disk *disk) {
    return z3d_new((size_t)(disk->bytes / Z3D_DISK_ALIGN), sizeof *disk->digest,
                   "digests of what is on a disk", &disk->digest);
}

/* Creates a ring for both lanes, or for none. Returns 0 or -errno. */
static int create_rings(z3d_disk *disk) {
    int answer = 0;
    for (int w = 0; w < 2 && answer == 0; w++) answer = z3d_disk_ring_create(&disk->lane[w]);
    for (int w = 0; w < 2 && answer != 0; w++) z3d_disk_ring_destroy(&disk->lane[w]);
    return answer;
}

/* The disk's threads block all signals, so the caller's threads get them. */
static int start_threads(disk_lane *lane) {
    int wanted = lane->ring ? 1 : lane->disk->depth, error = 0;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; lane->threads < wanted && error == 0; lane->threads += error == 0)
        error = pthread_create(&lane->thread[lane->threads], NULL,
                               lane->ring ? z3d_disk_ring_thread : z3d_disk_thread, lane);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return lane->threads > 0 ? 0 : error;
}

static z3d_status start_lanes(z3d_disk *disk, bool threads) {
    int refused = threads ? 0 : create_rings(disk), error = 0;
    for (int w = 0; w < 2 && error == 0; w++) error = start_threads(&disk->lane[w]);
    if (error)
        return Z3D_ERROR(Z3D_ERR_MEMORY, "%s: cannot start a thread for the disk: %s", disk->folder,
                         strerror(error));
    if (disk->lane[0].ring)
        snprintf(disk->description, sizeof disk->description, "io_uring, %s", disk->how);
    else
        snprintf(disk->description, sizeof disk->description, "%d threads%s%s%s, %s",
                 disk->lane[0].threads + disk->lane[1].threads, refused ? " (io_uring: " : "",
                 refused ? strerror(-refused) : "", refused ? ")" : "", disk->how);
    return Z3D_OK;
}

z3d_status z3d_disk_create(const z3d_disk_config *config, z3d_disk **out) {
    z3d_disk *disk;
    *out = NULL;
    Z3D_TRY(z3d_new(1, sizeof *disk, "a disk", &disk));
    disk->fd = -1;
    pthread_mutex_init(&disk->lock, NULL);
    pthread_mutex_init(&disk->window_lock, NULL);
    pthread_cond_init(&disk->over, NULL);
    for (int w = 0; w < 2; w++) {
        disk->lane[w].disk = disk;
        disk->lane[w].write = w == 1;
        pthread_cond_init(&disk->lane[w].work, NULL);
    }
    z3d_status status = allocate(disk, config);
    if (status == Z3D_OK) status = z3d_disk_open_file(disk);
    if (status == Z3D_OK) status = allocate_digests(disk);
    if (status == Z3D_OK) status = start_lanes(disk, config->threads);
    if (status == Z3D_OK)
        *out = disk;
    else
        z3d_disk_destroy(disk);
    return status;
}

void z3d_disk_destroy(z3d_disk *disk) {
    if (!disk) return;
    pthread_mutex_lock(&disk->lock);
    disk->stopping = true;
    for (int w = 0; w < 2; w++) pthread_cond_broadcast(&disk->lane[w].work);
    pthread_mutex_unlock(&disk->lock);
    for (int w = 0; w < 2; w++) {
        disk_lane *lane = &disk->lane[w];
        for (int t = 0; t < lane->threads; t++) pthread_join(lane->thread[t], NULL);
        z3d_disk_ring_destroy(lane);
        pthread_cond_destroy(&lane->work);
    }
    if (disk->fd >= 0) close(disk->fd);
    pthread_cond_destroy(&disk->over);
    pthread_mutex_destroy(&disk->window_lock);
    pthread_mutex_destroy(&disk->lock);
    free(disk->digest);
    free(disk->request);
    free(disk->window);
    free(disk->folder);
    free(disk);
}

const char *z3d_disk_description(const z3d_disk *disk) {
    return disk->description;
}
