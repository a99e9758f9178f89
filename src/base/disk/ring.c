/* The two methods: threads with pread and pwrite, each with one piece at a time; io_uring, with one
 * thread for each direction, which keeps `depth` pieces in flight. */
#include "src/base/disk/disk.h"

#include <errno.h>
#include <unistd.h>
#ifdef ZERO3D_LIBURING
#include <liburing.h>
#include <stdlib.h>
#include <time.h>
#endif

#include "src/base/pending_io.h"

/* The words for the watchdog, before the folder's name. */
static const char *doing(const disk_lane *lane) {
    return lane->write ? "writing to the unnamed file in" : "reading from the unnamed file in";
}

void *z3d_disk_thread(void *argument) {
    disk_lane *lane = argument;
    z3d_disk *disk = lane->disk;
    disk_piece piece;
    while (z3d_disk_take(lane, true, &piece)) {
        z3d_pending_io io;
        z3d_pending_io_begin(&io, doing(lane), disk->folder);
        z3d_pending_io_at(&io, piece.offset, disk->bytes);
        while (z3d_disk_piece_ask(disk, &piece)) {
            off_t offset = piece.offset + piece.done;
            ssize_t answer = lane->write ? pwritev(disk->fd, &piece.rest, 1, offset)
                                         : preadv(disk->fd, &piece.rest, 1, offset);
            if (!z3d_disk_piece_answer(disk, &piece, answer < 0 ? -errno : answer)) break;
        }
        z3d_pending_io_end(&io);
        z3d_disk_piece_over(disk, &piece);
    }
    return NULL;
}

#ifdef ZERO3D_LIBURING

typedef struct disk_ring {
    struct io_uring ring;
    int busy; /* pieces in flight */
    disk_piece piece[DISK_MOST_DEPTH];
} disk_ring;

/* A system may allow the setup of io_uring and forbid its use, so this submits an empty request. */
static int try_ring(struct io_uring *ring) {
    struct io_uring_cqe *cqe;
    io_uring_prep_nop(io_uring_get_sqe(ring));
    int answer = io_uring_submit(ring);
    if (answer >= 0) answer = io_uring_wait_cqe(ring, &cqe);
    if (answer >= 0) io_uring_cqe_seen(ring, cqe);
    return answer;
}

int z3d_disk_ring_create(disk_lane *lane) {
    disk_ring *r = calloc(1, sizeof *r);
    if (!r) return -ENOMEM;
    int answer = io_uring_queue_init((unsigned)lane->disk->depth, &r->ring, 0);
    if (answer >= 0) {
        answer = try_ring(&r->ring);
        if (answer < 0) io_uring_queue_exit(&r->ring);
    }
    if (answer < 0)
        free(r);
    else
        lane->ring = r;
    return answer < 0 ? answer : 0;
}

void z3d_disk_ring_destroy(disk_lane *lane) {
    if (!lane->ring) return;
    io_uring_queue_exit(&lane->ring->ring);
    free(lane->ring);
    lane->ring = NULL;
}

static void pause_briefly(void) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Returns 0, or -errno if the system does not accept the ring's entries. */
static int submit(struct io_uring *ring) {
    enum { MOST = 1000 };
    int answer = 0;
    for (int i = 0; i < MOST; i++) {
        answer = io_uring_submit(ring);
        if (answer >= 0) return 0;
        if (answer != -EINTR && answer != -EAGAIN && answer != -EBUSY) return answer;
        pause_briefly();
    }
    return answer;
}

static void prepare(const disk_lane *lane, disk_piece *piece, struct io_uring_sqe *sqe) {
    uint64_t offset = (uint64_t)(piece->offset + piece->done);
    if (lane->write)
        io_uring_prep_writev(sqe, lane->disk->fd, &piece->rest, 1, offset);
    else
        io_uring_prep_readv(sqe, lane->disk->fd, &piece->rest, 1, offset);
    io_uring_sqe_set_data(sqe, piece);
}

/* Passes the piece to the system, or finishes it. */
static void go_on(const disk_lane *lane, disk_piece *piece) {
    disk_ring *r = lane->ring;
    z3d_disk *disk = lane->disk;
    while (z3d_disk_piece_ask(disk, piece)) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);
        int answer =
            sqe ? 0 : -EBUSY; /* the ring is full of entries that the system did not accept */
        if (sqe) {
            prepare(lane, piece, sqe);
            answer = submit(&r->ring);
        }
        if (answer == 0) return;
        if (sqe) { /* the entry is still in the ring; it must not touch the memory later */
            io_uring_prep_nop(sqe);
            io_uring_sqe_set_data(sqe, NULL);
        }
        if (!z3d_disk_piece_answer(disk, piece, answer)) break;
    }
    z3d_disk_piece_over(disk, piece);
    r->busy--;
}

static void handle_answer(const disk_lane *lane) {
    struct io_uring *ring = &lane->ring->ring;
    struct io_uring_cqe *cqe;
    if (io_uring_wait_cqe(ring, &cqe) < 0) {
        pause_briefly(); /* the system still uses the memory: wait */
        return;
    }
    disk_piece *piece = io_uring_cqe_get_data(cqe);
    int64_t answer = cqe->res;
    io_uring_cqe_seen(ring, cqe);
    if (!piece) return;
    if (z3d_disk_piece_answer(lane->disk, piece, answer)) {
        go_on(lane, piece);
    } else {
        z3d_disk_piece_over(lane->disk, piece);
        lane->ring->busy--;
    }
}

static disk_piece *free_place(disk_ring *r, int depth) {
    for (int i = 0; i < depth; i++)
        if (!r->piece[i].request) return &r->piece[i];
    return NULL;
}

/* The smallest file offset of the pieces in flight. */
static int64_t first_at(const disk_ring *r, int depth) {
    int64_t first = INT64_MAX;
    for (int i = 0; i < depth; i++)
        if (r->piece[i].request && r->piece[i].offset < first) first = r->piece[i].offset;
    return first;
}

void *z3d_disk_ring_thread(void *argument) {
    disk_lane *lane = argument;
    z3d_disk *disk = lane->disk;
    disk_ring *r = lane->ring;
    z3d_pending_io io;
    for (;;) {
        disk_piece *place = free_place(r, disk->depth);
        if (place && z3d_disk_take(lane, r->busy == 0, place)) {
            if (r->busy++ == 0) {
                z3d_pending_io_begin(&io, doing(lane), disk->folder);
                z3d_pending_io_at(&io, place->offset, disk->bytes);
            }
            go_on(lane, place);
        } else if (r->busy > 0) {
            z3d_pending_io_at(&io, first_at(r, disk->depth), disk->bytes);
            handle_answer(lane);
        } else {
            return NULL;
        }
        if (r->busy == 0) z3d_pending_io_end(&io);
    }
}

#else

int z3d_disk_ring_create(disk_lane *lane) {
    (void)lane;
    return -ENOSYS;
}

void z3d_disk_ring_destroy(disk_lane *lane) {
    (void)lane;
}

void *z3d_disk_ring_thread(void *lane) {
    (void)lane;
    return NULL;
}

#endif
