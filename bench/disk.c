/* Compares the disk lane with raw transfers of as many bytes, in one run: disk FOLDER [MB]. FOLDER
 * is on the disk to be measured. Raw: O_DIRECT and io_uring, PIECE bytes each, DEPTH of them in
 * progress in each direction. Ours: requests of REQUEST bytes, BUFFERS of them in progress in each
 * direction, as optimizer states are read and written; by io_uring and by threads. It measures
 * reads, writes, and both at once. The ways take turns; medians of ROUNDS; ratios are medians of
 * the rounds' ratios. CPU: time of all threads for each GB moved; ours includes the digests. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "src/base/disk.h"
#include "src/base/sort.h"
#include "src/base/strings.h"

enum { ROUNDS = 9, PIECE = 1 << 20, DEPTH = 8, REQUEST = 16 << 20, BUFFERS = 3, RAW = 2, WAYS = 3 };
enum { READ, WRITE, BOTH, MOVES };

static const char *const move_name[MOVES] = {"read", "write", "both"};
static const char *const way_name[WAYS] = {"io_uring", "threads", "raw"};

typedef struct bench {
    const char *folder;
    int64_t bytes; /* of each direction: reads use the first half of a file, writes the second */
    char *memory;  /* of reads, then of writes */
    z3d_disk *disk[RAW];
    int fd;
    struct io_uring ring;
    double rate[MOVES][WAYS][ROUNDS], cpu[MOVES][WAYS][ROUNDS]; /* GB/s; s/GB */
} bench;

static void must(z3d_status status) {
    if (status == Z3D_OK) return;
    fprintf(stderr, "disk: %s\n", z3d_error_message());
    exit(1);
}

static void must_system(int answer, const char *what) {
    if (answer >= 0) return;
    fprintf(stderr, "disk: %s: %s\n", what, strerror(answer == -1 ? errno : -answer));
    exit(1);
}

static bool has(int move, int direction) {
    return move == BOTH || move == direction;
}

/* ---- raw ---- */

static void ask(bench *b, int direction, int slot, int64_t at) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&b->ring);
    const int64_t buffers = BUFFERS * (int64_t)REQUEST; /* as much memory as ours uses */
    char *memory = b->memory + direction * buffers + at % buffers;
    uint64_t offset = (uint64_t)(direction * b->bytes + at);
    if (direction == WRITE)
        io_uring_prep_write(sqe, b->fd, memory, PIECE, offset);
    else
        io_uring_prep_read(sqe, b->fd, memory, PIECE, offset);
    sqe->user_data = (uint64_t)(direction * DEPTH + slot);
    must_system(io_uring_submit(&b->ring), "io_uring_submit");
}

static void move_raw(bench *b, int move) {
    int64_t next[2] = {0, 0};
    int busy = 0;
    for (int direction = READ; direction <= WRITE; direction++)
        for (int s = 0; s < DEPTH && has(move, direction); s++, busy++, next[direction] += PIECE)
            ask(b, direction, s, next[direction]);
    while (busy > 0) {
        struct io_uring_cqe *cqe;
        must_system(io_uring_wait_cqe(&b->ring, &cqe), "io_uring_wait_cqe");
        int direction = (int)cqe->user_data / DEPTH, slot = (int)cqe->user_data % DEPTH;
        must_system(cqe->res == PIECE ? 0 : cqe->res < 0 ? cqe->res : -EIO, "raw");
        io_uring_cqe_seen(&b->ring, cqe);
        busy--;
        if (next[direction] == b->bytes) continue;
        ask(b, direction, slot, next[direction]);
        next[direction] += PIECE;
        busy++;
    }
}

/* ---- ours ---- */

static void move_ours(bench *b, z3d_disk *disk, int move) {
    int64_t ticket[2][BUFFERS] = {{0}};
    for (int64_t at = 0; at < b->bytes + BUFFERS * (int64_t)REQUEST; at += REQUEST) {
        int slot = (int)(at / REQUEST % BUFFERS);
        for (int direction = READ; direction <= WRITE; direction++) {
            if (!has(move, direction)) continue;
            int64_t *t = &ticket[direction][slot];
            if (*t) must(z3d_disk_wait(disk, *t));
            *t = 0;
            if (at < b->bytes)
                must(z3d_disk_start(disk, direction == WRITE, direction * b->bytes + at,
                                    b->memory + (direction * BUFFERS + slot) * (int64_t)REQUEST,
                                    REQUEST, t));
        }
    }
}

/* ---- time ---- */

static double cpu_seconds(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

static void run(bench *b, int move, int way, int round) {
    double bytes = (double)b->bytes * (move == BOTH ? 2 : 1), cpu = cpu_seconds(),
           begin = z3d_now();
    if (way == RAW)
        move_raw(b, move);
    else
        move_ours(b, b->disk[way], move);
    double seconds = z3d_now() - begin;
    if (round < 0) return;
    b->rate[move][way][round] = bytes * 1e-9 / seconds;
    b->cpu[move][way][round] = (cpu_seconds() - cpu) / (bytes * 1e-9);
}

static double quartile(const double *values, int which) {
    double sorted[ROUNDS];
    memcpy(sorted, values, sizeof sorted);
    z3d_sort_numbers(sorted, ROUNDS);
    return sorted[which * (ROUNDS - 1) / 4];
}

static void print(const bench *b, int move) {
    for (int way = 0; way < WAYS; way++) {
        double ratio[ROUNDS];
        for (int r = 0; r < ROUNDS; r++) ratio[r] = b->rate[move][way][r] / b->rate[move][RAW][r];
        printf("%-6s %-9s %6.2f GB/s, %.3f s of CPU a GB", move_name[move], way_name[way],
               quartile(b->rate[move][way], 2), quartile(b->cpu[move][way], 2));
        if (way == RAW)
            printf("\n");
        else
            printf(", ratio %.2f (%.2f to %.2f)\n", quartile(ratio, 2), quartile(ratio, 1),
                   quartile(ratio, 3));
    }
}

static void create(bench *b) {
    int64_t memory = 2 * BUFFERS * (int64_t)REQUEST;
    b->memory = aligned_alloc(1 << 21, (size_t)memory);
    for (int64_t i = 0; i < memory; i++) b->memory[i] = (char)(i * 167 + (i >> 8));
    for (int way = 0; way < RAW; way++) {
        z3d_disk_config config = {
            .folder = b->folder, .bytes = 2 * b->bytes, .depth = DEPTH, .threads = way == 1};
        must(z3d_disk_create(&config, &b->disk[way]));
        printf("%s: %s\n", way_name[way], z3d_disk_description(b->disk[way]));
    }
    b->fd = open(b->folder, O_TMPFILE | O_RDWR | O_DIRECT, 0600);
    must_system(b->fd, "raw: a file");
    must_system(fallocate(b->fd, 0, 0, 2 * b->bytes), "raw: its space");
    must_system(io_uring_queue_init(2 * DEPTH, &b->ring, 0), "raw: io_uring");
}

/* Writing blocks for the first time is slower. */
static void fill(const bench *b) {
    for (int64_t at = 0; at < 2 * b->bytes; at += REQUEST) {
        for (int way = 0; way < RAW; way++)
            must(z3d_disk_write(b->disk[way], at, b->memory, REQUEST));
        must_system(pwrite(b->fd, b->memory, REQUEST, at) == REQUEST ? 0 : -1, "raw: write");
    }
}

int main(int argc, char **argv) {
    static bench b;
    long megabytes = argc > 2 ? strtol(argv[2], NULL, 10) : 512;
    if (argc < 2 || argc > 3 || megabytes < 64) {
        fprintf(stderr, "usage: disk FOLDER [MB, at least 64]\n");
        return 2;
    }
    b.folder = argv[1];
    b.bytes = z3d_round_up((int64_t)megabytes << 20, REQUEST);
    create(&b);
    fill(&b);
    for (int round = -1; round < ROUNDS; round++)
        for (int move = 0; move < MOVES; move++)
            for (int i = 0; i < WAYS; i++) run(&b, move, (i + round + 1) % WAYS, round);
    for (int move = 0; move < MOVES; move++) print(&b, move);
    for (int way = 0; way < RAW; way++) z3d_disk_destroy(b.disk[way]);
    return 0;
}
