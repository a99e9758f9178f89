/* Creates the disk: its memory, its file, its threads. The file has no name, its space is reserved,
 * and it bypasses the page cache if the file system allows that. Only this file allocates. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "src/base/disk/disk.h"
#include "src/base/pending_io.h"

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

/* ---- the file ---- */

static z3d_status failed(const z3d_disk *disk, const char *what, int error) {
    return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot %s: %s", disk->folder, what, strerror(error));
}

/* For file systems without unnamed files: removes the name at once. */
static z3d_status create_and_unlink(z3d_disk *disk) {
    char *path;
    Z3D_TRY(z3d_join_path(disk->folder, ".zero3d-disk-XXXXXX", &path));
    disk->fd = mkostemp(path, O_CLOEXEC);
    z3d_status status = Z3D_OK;
    if (disk->fd < 0)
        status = failed(disk, "create a file in this folder", errno);
    else if (unlink(path) != 0)
        status = failed(disk, "remove the name of a file in this folder", errno);
    free(path);
    return status;
}

static z3d_status create_file(z3d_disk *disk) {
    disk->fd = open(disk->folder, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
    if (disk->fd >= 0) return Z3D_OK;
    if (errno == EOPNOTSUPP || errno == EISDIR) return create_and_unlink(disk);
    return failed(disk, "create a file in this folder", errno);
}

static z3d_status too_small(const z3d_disk *disk, int64_t space) {
    char need[32], have[32];
    return Z3D_ERROR(Z3D_ERR_IO, "%s: a file of %s is needed here, but only %s are free",
                     disk->folder, z3d_format_bytes(disk->bytes, need, sizeof need),
                     z3d_format_bytes(space, have, sizeof have));
}

static z3d_status check_limit(const z3d_disk *disk) {
    struct rlimit limit;
    char need[32], most[32];
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= (rlim_t)disk->bytes)
        return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_IO,
                     "%s: a file of %s is needed here, but this process may write files of at most "
                     "%s (ulimit -f)",
                     disk->folder, z3d_format_bytes(disk->bytes, need, sizeof need),
                     z3d_format_bytes((int64_t)limit.rlim_cur, most, sizeof most));
}

static z3d_status reserve(z3d_disk *disk) {
    struct statvfs info;
    Z3D_TRY(check_limit(disk));
    if (fstatvfs(disk->fd, &info) != 0) return failed(disk, "see how much space is free", errno);
    int64_t space = (int64_t)info.f_bavail * (int64_t)info.f_frsize;
    if (space < disk->bytes) return too_small(disk, space);
    if (fallocate(disk->fd, 0, 0, disk->bytes) == 0) return Z3D_OK;
    if (errno == ENOSPC) return too_small(disk, space);
    /* This file system cannot reserve space: if the disk fills up, a write fails. */
    if (errno == EOPNOTSUPP && ftruncate(disk->fd, disk->bytes) == 0) return Z3D_OK;
    return failed(disk, "reserve space for a file in this folder", errno);
}

/* Some file systems accept O_DIRECT and then refuse the first request, so this tries one. */
static bool go_direct(const z3d_disk *disk) {
    if (fcntl(disk->fd, F_SETFL, O_DIRECT) != 0) return false;
    if (pread(disk->fd, disk->window, Z3D_DISK_ALIGN, 0) == Z3D_DISK_ALIGN) return true;
    (void)fcntl(disk->fd, F_SETFL, 0);
    return false;
}

static void choose_cache(z3d_disk *disk) {
    enum { TMPFS = 0x01021994 };
    const int64_t ramfs = 0x858458f6;
    struct statfs info = {0};
    const char *how = "buffered (this file system refuses O_DIRECT)";
    bool told = fstatfs(disk->fd, &info) == 0;
    if (told && ((int64_t)info.f_type == TMPFS || ((int64_t)info.f_type & 0xFFFFFFFF) == ramfs))
        how = "buffered (tmpfs: in memory)";
    else if (go_direct(disk))
        how = "O_DIRECT";
    snprintf(disk->how, sizeof disk->how, "%s", how);
}

static z3d_status open_file(z3d_disk *disk) {
    z3d_pending_io io;
    z3d_pending_io_begin(&io, "reserving space in", disk->folder);
    z3d_status status = create_file(disk);
    if (status == Z3D_OK) status = reserve(disk);
    if (status == Z3D_OK) choose_cache(disk);
    z3d_pending_io_end(&io);
    return status;
}

/* ---- the threads ---- */

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
    if (status == Z3D_OK) status = open_file(disk);
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
