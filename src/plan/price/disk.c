/* Measures a folder's disk: as checkpoints use it, with a file; as offload uses it, through the
 * disk lane. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "src/base/disk.h"
#include "src/plan/price/measure.h"

enum { PIECE = 4 << 20, NODE_BYTES = 256 << 20 };
static const double MOST_SECONDS = 2; /* each way; a slow disk gets fewer pieces */

typedef struct probe {
    const char *folder;
    char *path, *piece;
    int fd;
    int64_t wanted, bytes; /* of this rank; written so far */
    double seconds;        /* of the latest measurement */
} probe;

static z3d_status failed(const probe *p, const char *what, int error) {
    return Z3D_ERROR(Z3D_ERR_IO, "%.200s: cannot %s: %s", p->folder, what, strerror(error));
}

static z3d_status check_space(const probe *p, int ranks) {
    struct statvfs info;
    if (statvfs(p->folder, &info) != 0) return failed(p, "see how much space is left", errno);
    int64_t space = (int64_t)info.f_bavail * (int64_t)info.f_frsize, all = ranks * p->wanted;
    if (space >= 2 * all) return Z3D_OK; /* leave half of it to others */
    return Z3D_ERROR(Z3D_ERR_IO, "%.200s: only %s are free, but the measurement needs %s",
                     p->folder, z3d_bytes_text(space).text, z3d_bytes_text(2 * all).text);
}

/* Opens a file and removes its name, so it vanishes with this process. */
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

/* At most two pieces wait for the disk, so the sync at the end is short. */
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

/* Drops the file from the page cache, and checks that the pages are gone: else reads would not
 * reach the disk. */
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

/* GB/s of a node: the bytes of all ranks in the time of the slowest. */
static z3d_status node_rate(z3d_world *world, int64_t bytes, double seconds, double *out) {
    struct moved {
        double bytes, seconds;
    } mine = {(double)bytes, seconds}, *all, sum = {0};
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

/* ---- as offload uses the disk ---- */

typedef struct lane {
    z3d_disk *disk;
    char *memory;   /* two pieces for each way */
    int64_t wanted; /* bytes of this rank and of its file */
    int64_t moved;
    double seconds; /* of the latest turn */
} lane;

/* FEWEST pieces: with fewer a read and a write would meet in one. */
enum { WRITES = 1, READS = 2, FEWEST = 4 };

static z3d_status open_lane(lane *l, const char *folder, int ranks) {
    l->wanted = (NODE_BYTES / ranks + PIECE - 1) / PIECE * PIECE;
    if (l->wanted < (int64_t)FEWEST * PIECE) l->wanted = (int64_t)FEWEST * PIECE;
    const z3d_disk_config config = {.folder = folder, .bytes = l->wanted};
    Z3D_TRY(z3d_disk_create(&config, &l->disk));
    l->memory = aligned_alloc(Z3D_DISK_ALIGN, 4 * (size_t)PIECE);
    if (!l->memory) return Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory to measure a disk");
    for (int64_t i = 0; i < 4L * PIECE; i++) l->memory[i] = (char)(i * 167 + (i >> 8));
    return Z3D_OK;
}

/* With reads at the same time, writes go to pieces half of the file away. */
static z3d_status start_pieces(lane *l, unsigned ways, int64_t at, int64_t ticket[2]) {
    char *memory = l->memory + at / PIECE % 2 * PIECE;
    int64_t to = ways & READS ? (at + l->moved / 2 / PIECE * PIECE) % l->moved : at;
    if (ways & WRITES) Z3D_TRY(z3d_disk_start(l->disk, true, to, memory, PIECE, &ticket[0]));
    if (ways & READS)
        Z3D_TRY(z3d_disk_start(l->disk, false, at, memory + 2L * PIECE, PIECE, &ticket[1]));
    return Z3D_OK;
}

static z3d_status wait_pieces(lane *l, unsigned ways, const int64_t ticket[2]) {
    z3d_status status = Z3D_OK;
    for (int way = 0; way < 2; way++)
        if (ways >> way & 1 && status == Z3D_OK) status = z3d_disk_wait(l->disk, ticket[way]);
    return status;
}

/* Moves `most` bytes each way (fewer if slow), two pieces at a time. */
static z3d_status run_lane(lane *l, unsigned ways, int64_t most) {
    int64_t ticket[2][2], started = 0, over = 0;
    double begin = z3d_now();
    while (over < most) {
        while (started < most && started - over < 2L * PIECE) {
            Z3D_TRY(start_pieces(l, ways, started, ticket[started / PIECE % 2]));
            started += PIECE;
        }
        Z3D_TRY(wait_pieces(l, ways, ticket[over / PIECE % 2]));
        over += PIECE;
        if (z3d_now() - begin > MOST_SECONDS && started >= (int64_t)FEWEST * PIECE) most = started;
    }
    l->moved = over;
    l->seconds = z3d_now() - begin;
    return Z3D_OK;
}

static z3d_status measure_turn(z3d_world *world, lane *l, unsigned ways, double *rate) {
    Z3D_TRY(z3d_world_agree(world, run_lane(l, ways, l->moved)));
    return node_rate(world, l->moved, l->seconds, rate);
}

/* Whether reads and writes do not share the disk: both at once take less time than one after the
 * other. */
static bool runs_both(double write, double read, double each) {
    double sum = 1 / write + 1 / read, longer = fmax(1 / write, 1 / read);
    return 1 / each < 0.5 * (sum + longer);
}

static z3d_status measure_lane(z3d_world *world, const char *folder, z3d_hardware *out) {
    lane l = {0};
    double write = 0, read = 0, each = 0;
    z3d_status status = z3d_world_agree(world, open_lane(&l, folder, z3d_world_local_size(world)));
    l.moved = l.wanted;
    /* Twice: a disk is slower at first, and training writes the same blocks many times. */
    for (int time = 0; time < 2 && status == Z3D_OK; time++)
        status = measure_turn(world, &l, WRITES, &write);
    if (status == Z3D_OK) status = measure_turn(world, &l, READS, &read);
    if (status == Z3D_OK) status = measure_turn(world, &l, WRITES | READS, &each);
    z3d_disk_destroy(l.disk);
    free(l.memory);
    if (status != Z3D_OK) return status;
    out->nvme_write = write;
    out->nvme_read = read;
    out->nvme_duplex = write > 0 && read > 0 && each > 0 && runs_both(write, read, each);
    return Z3D_OK;
}

z3d_status z3d_measure_disk(z3d_world *world, const char *folder, z3d_hardware *out) {
    int ranks = z3d_world_local_size(world);
    probe p = {.folder = folder, .fd = -1};
    double written = 0, read = 0;
    p.wanted = (NODE_BYTES / ranks + PIECE - 1) / PIECE * PIECE;
    /* In each agreement ranks also wait for each other, before the next measurement. */
    z3d_status status = z3d_world_agree(world, open_probe(&p, ranks));
    if (status == Z3D_OK) status = z3d_world_agree(world, write_out(&p));
    if (status == Z3D_OK) status = node_rate(world, p.bytes, p.seconds, &written);
    if (status == Z3D_OK) status = z3d_world_agree(world, drop_pages(&p));
    if (status == Z3D_OK) status = z3d_world_agree(world, read_back(&p));
    if (status == Z3D_OK) status = node_rate(world, p.bytes, p.seconds, &read);
    close_probe(&p);
    if (status == Z3D_OK) status = measure_lane(world, folder, out);
    if (status != Z3D_OK) return status;
    out->disk_write = written;
    out->disk_read = read;
    return Z3D_OK;
}
