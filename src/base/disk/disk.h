/* Private to src/base/disk and its tests. create.c creates the disk and its file; requests.c keeps
 * requests, cuts them into pieces and advances these; ring.c passes pieces to the system. */
#ifndef ZERO3D_BASE_DISK_DISK_H
#define ZERO3D_BASE_DISK_DISK_H

#include <pthread.h>
#include <sys/uio.h>

#include "src/base/disk.h"
#include "src/base/strings.h"

enum {
    DISK_PIECE = 1 << 20,  /* requests are cut at multiples of this */
    DISK_WINDOW = 4 << 20, /* the buffer of z3d_disk_read and z3d_disk_write */
    DISK_MOST_DEPTH = 64,
};

enum { DISK_ENDS = -1, DISK_CHANGED = -2 };
typedef struct disk_fault {
    int what; /* 0: none; an errno, DISK_ENDS, DISK_CHANGED */
    int64_t offset, bytes;
} disk_fault;

enum { Z3D_DISK_SHORT = -1 }; /* a hook's answer: do only half of the piece this time */

/* Called before each call to the system. 0 allows the call; with an errno the call fails with it.
 */
typedef struct z3d_disk_hook {
    int (*before)(void *context, bool write, int64_t offset, int64_t bytes);
    void *context;
} z3d_disk_hook;

typedef struct disk_request {
    int64_t ticket; /* 0: this place is free */
    bool write;
    char *memory;
    int64_t offset, bytes;
    int64_t cut, over;         /* bytes that were cut into pieces; bytes of finished pieces */
    disk_fault fault;          /* the first fault by place in the file */
    struct disk_request *next; /* the next request of its lane */
} disk_request;

/* A piece of a request: the bytes of one call to the system, or the rest of them. */
typedef struct disk_piece {
    disk_request *request; /* NULL: none */
    int64_t offset, bytes;
    int64_t done; /* bytes */
    int idle;     /* calls since the last progress */
    struct iovec rest;
    disk_fault fault;
} disk_piece;

/* One direction. */
typedef struct disk_lane {
    z3d_disk *disk;
    bool write;
    disk_request *first, *last; /* requests that are not completely cut */
    pthread_cond_t work;
    pthread_t thread[DISK_MOST_DEPTH];
    int threads;
    struct disk_ring *ring; /* NULL: threads */
} disk_lane;

struct z3d_disk {
    char *folder;
    int fd, depth;
    int64_t bytes;
    const z3d_disk_hook *hook;
    char how[96], description[256];
    pthread_mutex_t lock;
    pthread_cond_t over; /* a request has finished */
    bool stopping;
    disk_lane lane[2]; /* reads, writes */
    disk_request *request;
    int requests; /* places for requests; one more for z3d_disk_read and z3d_disk_write */
    int64_t tickets;
    uint64_t *digest; /* of each block of Z3D_DISK_ALIGN bytes; 0: never written */
    char *window;
    pthread_mutex_t window_lock;
};

/* requests.c. True: call the system for piece->rest at piece->offset + piece->done. False: the
 * piece has finished. */
bool z3d_disk_piece_ask(z3d_disk *disk, disk_piece *piece);
/* Takes the system's answer, bytes or -errno. True: the piece has not finished. */
bool z3d_disk_piece_answer(z3d_disk *disk, disk_piece *piece, int64_t answer);

/* Takes the next piece of a lane. False: there is none now; with `wait`: the disk is being
 * destroyed. */
bool z3d_disk_take(disk_lane *lane, bool wait, disk_piece *out);
void z3d_disk_piece_over(z3d_disk *disk, disk_piece *piece);

/* The two methods. z3d_disk_ring_create: -errno if the system does not allow io_uring. */
int z3d_disk_ring_create(disk_lane *lane);
void z3d_disk_ring_destroy(disk_lane *lane);
void *z3d_disk_ring_thread(void *lane);
void *z3d_disk_thread(void *lane);

#endif
