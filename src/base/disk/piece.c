/* Advances a piece: digests, the system's answers, the rest after a partial read or write. */
#include <errno.h>
#include <time.h>

#include "src/base/disk/disk.h"
#include "src/base/xxh3.h"

enum {
    MOST_IDLE = 1000
}; /* calls without progress; after EAGAIN the next call comes a millisecond later */

/* Never 0: 0 marks a block that was never written. */
static uint64_t digest_of(const char *block) {
    uint64_t digest = XXH3_64bits(block, Z3D_DISK_ALIGN);
    return digest ? digest : 1;
}

static char *memory_of(const disk_piece *piece) {
    return piece->request->memory + (piece->offset - piece->request->offset);
}

void z3d_disk_piece_remember(z3d_disk *disk, const disk_piece *piece) {
    const char *memory = memory_of(piece);
    uint64_t *digest = disk->digest + piece->offset / Z3D_DISK_ALIGN;
    for (int64_t at = 0; at < piece->bytes; at += Z3D_DISK_ALIGN)
        *digest++ = digest_of(memory + at);
}

static void check(const z3d_disk *disk, disk_piece *piece) {
    const char *memory = memory_of(piece);
    const uint64_t *digest = disk->digest + piece->offset / Z3D_DISK_ALIGN;
    for (int64_t at = 0; at < piece->bytes; at += Z3D_DISK_ALIGN, digest++) {
        if (*digest == 0 || *digest == digest_of(memory + at)) continue;
        piece->fault = (disk_fault){DISK_CHANGED, piece->offset + at, Z3D_DISK_ALIGN};
        return;
    }
}

bool z3d_disk_piece_ask(z3d_disk *disk, disk_piece *piece) {
    const z3d_disk_hook *hook = disk->hook;
    for (;;) {
        int64_t left = piece->bytes - piece->done, offset = piece->offset + piece->done;
        piece->rest = (struct iovec){memory_of(piece) + piece->done, (size_t)left};
        int answer = hook ? hook->before(hook->context, piece->request->write, offset, left) : 0;
        if (answer == Z3D_DISK_SHORT)
            piece->rest.iov_len = (size_t)z3d_round_up(left / 2, Z3D_DISK_ALIGN);
        if (answer <= 0) return true;
        if (!z3d_disk_piece_answer(disk, piece, -answer)) return false;
    }
}

static bool fail(disk_piece *piece, int what) {
    piece->fault = (disk_fault){what, piece->offset + piece->done, piece->bytes - piece->done};
    return false;
}

bool z3d_disk_piece_answer(z3d_disk *disk, disk_piece *piece, int64_t answer) {
    bool write = piece->request->write;
    if (answer == 0) return fail(piece, write ? ENOSPC : DISK_ENDS);
    if (answer < 0 && answer != -EINTR && answer != -EAGAIN) return fail(piece, (int)-answer);
    if (answer == -EAGAIN) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    /* O_DIRECT must continue at a whole block. */
    int64_t progress = answer < 0 ? 0 : answer / Z3D_DISK_ALIGN * Z3D_DISK_ALIGN;
    piece->done += progress;
    piece->idle = progress > 0 ? 0 : piece->idle + 1;
    if (piece->idle == MOST_IDLE)
        return fail(piece, answer < 0 ? (int)-answer : write ? ENOSPC : DISK_ENDS);
    if (piece->done < piece->bytes) return true;
    if (!write) check(disk, piece);
    return false;
}
