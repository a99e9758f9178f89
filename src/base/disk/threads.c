/* Threads with pread and pwrite: each has one piece at a time. */
#include <errno.h>
#include <unistd.h>

#include "src/base/disk/disk.h"
#include "src/base/pending_io.h"

void *z3d_disk_thread(void *argument) {
    disk_lane *lane = argument;
    z3d_disk *disk = lane->disk;
    disk_piece piece;
    while (z3d_disk_take(lane, true, &piece)) {
        z3d_pending_io io;
        z3d_pending_io_begin(&io, z3d_disk_doing(lane), disk->folder);
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
