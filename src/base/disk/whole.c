/* Any range, through a window of whole blocks. */
#include <string.h>

#include "src/base/disk/disk.h"

static z3d_status transfer(z3d_disk *disk, bool write, int64_t offset, char *memory,
                           int64_t bytes) {
    int64_t ticket;
    Z3D_TRY(z3d_disk_start_at(disk, true, write, offset, memory, bytes, &ticket));
    return z3d_disk_wait(disk, ticket);
}

/* Reads the first and the last block if only a part of them will be written. */
static z3d_status read_edges(z3d_disk *disk, int64_t begin, int64_t end, int64_t from, int64_t to) {
    int64_t last = end - Z3D_DISK_ALIGN;
    if (from > begin || (to < end && last == begin))
        Z3D_TRY(transfer(disk, false, begin, disk->window, Z3D_DISK_ALIGN));
    if (to < end && last > begin)
        Z3D_TRY(transfer(disk, false, last, disk->window + (last - begin), Z3D_DISK_ALIGN));
    return Z3D_OK;
}

/* Moves bytes `from` to `to`, which are inside one window. */
static z3d_status move(z3d_disk *disk, bool write, int64_t from, int64_t to, char *memory) {
    int64_t begin = from - from % Z3D_DISK_ALIGN, end = z3d_round_up(to, Z3D_DISK_ALIGN);
    char *at = disk->window + (from - begin);
    size_t bytes = (size_t)(to - from);
    if (write) {
        Z3D_TRY(read_edges(disk, begin, end, from, to));
        memcpy(at, memory, bytes);
        return transfer(disk, true, begin, disk->window, end - begin);
    }
    Z3D_TRY(transfer(disk, false, begin, disk->window, end - begin));
    memcpy(memory, at, bytes);
    return Z3D_OK;
}

static z3d_status move_all(z3d_disk *disk, bool write, int64_t offset, char *memory,
                           int64_t bytes) {
    Z3D_REQUIRE(offset >= 0 && bytes >= 0 && bytes <= disk->bytes && offset <= disk->bytes - bytes,
                "%s: %lld bytes at byte %lld are outside of the file of %lld bytes", disk->folder,
                (long long)bytes, (long long)offset, (long long)disk->bytes);
    z3d_status status = Z3D_OK;
    pthread_mutex_lock(&disk->window_lock);
    for (int64_t end = offset + bytes; offset < end && status == Z3D_OK;) {
        int64_t to = (offset / DISK_WINDOW + 1) * DISK_WINDOW;
        if (to > end) to = end;
        status = move(disk, write, offset, to, memory);
        memory += to - offset;
        offset = to;
    }
    pthread_mutex_unlock(&disk->window_lock);
    return status;
}

z3d_status z3d_disk_read(z3d_disk *disk, int64_t offset, void *memory, int64_t bytes) {
    return move_all(disk, false, offset, memory, bytes);
}

z3d_status z3d_disk_write(z3d_disk *disk, int64_t offset, const void *memory, int64_t bytes) {
    return move_all(disk, true, offset, (char *)memory, bytes); /* the memory is only read */
}
