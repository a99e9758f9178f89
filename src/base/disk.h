/* The disk lane: a file without a name in a folder, used as memory. Requests are started, run
 * beside the caller, and are waited for in any order. Reads and writes have separate lanes:
 * io_uring with O_DIRECT, or threads with pread and pwrite if the system has no io_uring or forbids
 * it. Digests of written blocks stay in memory, so a read gives the written bytes or an error. The
 * file is freed when its process ends, in whatever way. Two runs in one folder have two files. */
#ifndef ZERO3D_BASE_DISK_H
#define ZERO3D_BASE_DISK_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/status.h"

enum { Z3D_DISK_ALIGN = 4096 };

typedef struct z3d_disk z3d_disk;

typedef struct z3d_disk_config {
    const char *folder;
    int64_t bytes; /* size of the file; its space is reserved */
    int depth;     /* pieces in flight, for each direction; 0 means 8 */
    int requests;  /* the most requests that are started and not waited for; 0 means 64 */
    bool threads;  /* no io_uring */
    const struct z3d_disk_hook *hook; /* tests only; else NULL */
} z3d_disk_config;

/* Creates the file, which reads as zeros. Not collective. ERR_IO: the folder is missing or not
 * writable, or has less free space than `bytes`; then the error names both sizes. ERR_MEMORY. */
z3d_status z3d_disk_create(const z3d_disk_config *config, z3d_disk **out);
/* Waits for the pieces in flight; pieces that were not begun are dropped. */
void z3d_disk_destroy(z3d_disk *disk);

/* The method of reading and writing: "io_uring, O_DIRECT", "16 threads (io_uring: Operation not
 * permitted), O_DIRECT", "io_uring, buffered (tmpfs: in memory)". */
const char *z3d_disk_description(const z3d_disk *disk);
/* Bytes of host memory that a disk of this configuration takes, mostly digests (1/512 of its
 * bytes). */
int64_t z3d_disk_memory(const z3d_disk_config *config);

/* Any thread may call the functions below. They allocate nothing. */

/* Starts a request. offset, memory and bytes are multiples of Z3D_DISK_ALIGN. Do not touch the
 * memory before the wait. Until a request is waited for, another one may overlap its range only if
 * both read. ERR_INTERNAL: the request breaks these rules, or there are too many requests. */
z3d_status z3d_disk_start(z3d_disk *disk, bool write, int64_t offset, void *memory, int64_t bytes,
                          int64_t *ticket);
/* Waits for a request. Call it once for each ticket, also after an error. ERR_IO names the folder,
 * the place and the fault: the system's error, a file that ends too early, or bytes that changed
 * after they were written. */
z3d_status z3d_disk_wait(z3d_disk *disk, int64_t ticket);

/* Read or write any offset and size, through a buffer of the disk, one call at a time. All blocks
 * of Z3D_DISK_ALIGN that the range touches count for the rules of z3d_disk_start. */
z3d_status z3d_disk_read(z3d_disk *disk, int64_t offset, void *memory, int64_t bytes);
z3d_status z3d_disk_write(z3d_disk *disk, int64_t offset, const void *memory, int64_t bytes);

#endif
