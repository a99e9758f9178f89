/* The disk lane: a file without a name in a folder, used as memory. Requests are started, run
 * beside the caller, and are waited for in any order. Reads and writes have lanes of their own:
 * io_uring with O_DIRECT, or threads with pread and pwrite where the system has no io_uring or
 * forbids it. Digests of what was written stay in memory: what is read is what was written, or an
 * error. The file goes away with its process, however that ends. Two runs in one folder have two
 * files. */
#ifndef ZERO3D_BASE_DISK_H
#define ZERO3D_BASE_DISK_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/status.h"

enum { Z3D_DISK_ALIGN = 4096 };

typedef struct z3d_disk z3d_disk;

typedef struct z3d_disk_config {
    const char *folder;
    int64_t bytes;                    /* of the file; the space is reserved */
    int depth;                        /* pieces of a request under way, each direction; 0: 8 */
    int requests;                     /* most that are started and not waited for; 0: 64 */
    bool threads;                     /* no io_uring */
    const struct z3d_disk_hook *hook; /* tests only; else NULL */
} z3d_disk_config;

/* Local. ERR_IO: the folder cannot have such a file (missing, not writable), or has less space than
 * that: both sizes are named. The file reads as zeros. */
z3d_status z3d_disk_create(const z3d_disk_config *config, z3d_disk **out);
/* Waits for what the system is doing. What it has not begun is dropped. */
void z3d_disk_destroy(z3d_disk *disk);

/* How it reads and writes: "io_uring, O_DIRECT", "16 threads (io_uring: Operation not permitted),
 * O_DIRECT", "io_uring, buffered (tmpfs: in memory)". */
const char *z3d_disk_description(const z3d_disk *disk);
/* Bytes of host memory that a disk of this configuration takes, mostly digests (1/512 of it). */
int64_t z3d_disk_memory(const z3d_disk_config *config);

/* Any thread may call what follows. Nothing is allocated. */

/* offset, memory and bytes are multiples of Z3D_DISK_ALIGN. The memory is the disk's until the
 * wait. A request may not overlap one that is not waited for, unless both read. ERR_INTERNAL: a
 * request that breaks these rules, or too many. */
z3d_status z3d_disk_start(z3d_disk *disk, bool write, int64_t offset, void *memory, int64_t bytes,
                          int64_t *ticket);
/* Once for each ticket, also after an error. ERR_IO names the folder, the place and what happened:
 * the system's error, a file that ends too early, or bytes that were changed since they were
 * written. */
z3d_status z3d_disk_wait(z3d_disk *disk, int64_t ticket);

/* Any offset and size, through a buffer of the disk; one at a time. Blocks of Z3D_DISK_ALIGN that
 * the range touches count as a whole for the rules of z3d_disk_start. */
z3d_status z3d_disk_read(z3d_disk *disk, int64_t offset, void *memory, int64_t bytes);
z3d_status z3d_disk_write(z3d_disk *disk, int64_t offset, const void *memory, int64_t bytes);

#endif
