/* Measures the disk of a folder as checkpoints use it: all ranks at once write pieces that go to
 * the disk as they are made, then read them back from the disk itself. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "src/plan/price/measure.h"

enum { PIECE = 4 << 20, NODE_BYTES = 256 << 20 };
static const double MOST_SECONDS = 2; /* of each way; a slow disk gets less to do */

typedef struct probe {
    const char *folder;
    char *path, *piece;
    int fd;
    int64_t wanted, bytes; /* of this rank; written so far */
    double seconds;        /* of the way that was measured last */
} probe;

static z3d_status failed(const probe *p, const char *what, int error) {
    return Z3D_ERROR(Z3D_ERR_IO, "%.200s: cannot %s: %s", p->folder, what, strerror(error));
}

static z3d_status check_space(const probe *p, int ranks) {
    struct statvfs info;
    char need[32], have[32];
    if (statvfs(p->folder, &info) != 0) return failed(p, "see how much space is left", errno);
    int64_t space = (int64_t)info.f_bavail * (int64_t)info.f_frsize, all = ranks * p->wanted;
    if (space >= 2 * all) return Z3D_OK; /* it is not ours to fill */
    return Z3D_ERROR(Z3D_ERR_IO,
                     "%.200s: the measurement needs %s of free space, but only %s are free",
                     p->folder, z3d_format_bytes(space, have, sizeof have),
                     z3d_format_bytes(2 * all, need, sizeof need));
}

/* A file that loses its name at once: it goes away with this process. */
static z3d_status open_probe(probe *p, int ranks) {
    z3d_string path = {0};
    Z3D_TRY(check_space(p, ranks));
    z3d_string_append(&path, "%s/.zero3d-disk-XXXXXX", p->folder);
    p->path = path.text;
    if (path.failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory for the name of a file");
    Z3D_TRY(z3d_new(1, PIECE, "a piece of a file", &p->piece));
    for (int i = 0; i < PIECE; i++) p->piece[i] = (char)(i * 167 + (i >> 8)); /* no holes */
    p->fd = mkostemp(p->path, O_CLOEXEC);
    if (p->fd < 0) return failed(p, "make a file", errno);
    return unlink(p->path) == 0 ? Z3D_OK : failed(p, "remove the name of a file", errno);
}

static void close_probe(probe *p) {
    if (p->fd >= 0) close(p->fd);
    free(p->path);
    free(p->piece);
}

/* No more than two pieces wait for the disk, so that the sync at the end is a short one. */
static z3d_status write_out(probe *p) {
    const unsigned finished =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    double begin = z3d_now();
    while (p->bytes < p->wanted && z3d_now() - begin < MOST_SECONDS) {
        ssize_t written = pwrite(p->fd, p->piece, PIECE, p->bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return failed(p, "write", written < 0 ? errno : ENOSPC);
        (void)sync_file_range(p->fd, p->bytes, written, SYNC_FILE_RANGE_WRITE);
        if (p->bytes > 0) (void)sync_file_range(p->fd, p->bytes - PIECE, PIECE, finished);
        p->bytes += written;
    }
    if (fsync(p->fd) != 0) return failed(p, "write a file to the disk", errno);
    p->seconds = z3d_now() - begin;
    return Z3D_OK;
}

/* Reads are only the disk's where the pages really went. */
static z3d_status drop_pages(const probe *p) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (size_t)p->bytes / page, resident = 0;
    unsigned char *map = NULL;
    if (posix_fadvise(p->fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
        return failed(p, "drop a file from the page cache", errno);
    void *at = mmap(NULL, (size_t)p->bytes, PROT_READ, MAP_SHARED, p->fd, 0);
    if (at == MAP_FAILED) return failed(p, "map a file", errno);
    z3d_status status = z3d_new(pages + 1, 1, "a map of pages", &map);
    if (status == Z3D_OK && mincore(at, (size_t)p->bytes, map) != 0)
        status = failed(p, "see which pages are in memory", errno);
    for (size_t i = 0; i < pages && status == Z3D_OK; i++) resident += map[i] & 1;
    if (status == Z3D_OK && resident > pages / 8)
        status = Z3D_ERROR(
            Z3D_ERR_IO,
            "%.200s: this file system keeps files in memory, so there is no disk to measure",
            p->folder);
    free(map);
    munmap(at, (size_t)p->bytes);
    return status;
}

static z3d_status read_back(probe *p) {
    int64_t at = 0;
    double begin = z3d_now();
    while (at < p->bytes && z3d_now() - begin < MOST_SECONDS) {
        ssize_t count = pread(p->fd, p->piece, PIECE, at);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return failed(p, "read", count < 0 ? errno : EIO);
        at += count;
    }
    p->bytes = at;
    p->seconds = z3d_now() - begin;
    return Z3D_OK;
}

/* GB/s of a node: what all ranks moved in the time of the slowest. */
static z3d_status node_rate(z3d_world *world, const probe *p, double *out) {
    struct moved {
        double bytes, seconds;
    } mine = {(double)p->bytes, p->seconds}, *all, sum = {0};
    int size = z3d_world_size(world);
    Z3D_TRY(z3d_new((size_t)size, sizeof *all, "ranks' rates", &all));
    z3d_status status = z3d_world_gather_all(world, &mine, all, sizeof *all);
    for (int r = 0; r < size && status == Z3D_OK; r++) {
        sum.bytes += all[r].bytes;
        sum.seconds = fmax(sum.seconds, all[r].seconds);
    }
    free(all);
    if (status == Z3D_OK && sum.seconds > 0)
        *out = fmin(1e5, sum.bytes / sum.seconds * 1e-9 / z3d_world_nodes(world));
    return status;
}

z3d_status z3d_measure_disk(z3d_world *world, const char *folder, z3d_hardware *out) {
    int ranks = z3d_world_local_size(world);
    probe p = {.folder = folder, .fd = -1};
    double written = 0, read = 0;
    p.wanted = (NODE_BYTES / ranks + PIECE - 1) / PIECE * PIECE;
    /* Each agreement also is where ranks wait for each other before the next is timed. */
    z3d_status status = z3d_world_agree(world, open_probe(&p, ranks));
    if (status == Z3D_OK) status = z3d_world_agree(world, write_out(&p));
    if (status == Z3D_OK) status = node_rate(world, &p, &written);
    if (status == Z3D_OK) status = z3d_world_agree(world, drop_pages(&p));
    if (status == Z3D_OK) status = z3d_world_agree(world, read_back(&p));
    if (status == Z3D_OK) status = node_rate(world, &p, &read);
    close_probe(&p);
    if (status != Z3D_OK) return status;
    out->disk_write = written;
    out->disk_read = read;
    return Z3D_OK;
}
