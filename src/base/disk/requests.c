/* Requests: starts them, cuts them into pieces at multiples of DISK_PIECE, advances the pieces,
 * waits for the requests. Reads and writes any range. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "src/base/disk/disk.h"
#include "src/base/xxh3.h"

/* ---- start ---- */

static z3d_status check_request(const z3d_disk *disk, int64_t offset, const void *memory,
                                int64_t bytes) {
    Z3D_REQUIRE((offset | bytes | (int64_t)(intptr_t)memory) % Z3D_DISK_ALIGN == 0,
                "%s: a request of %lld bytes at byte %lld: offset, memory and size must be "
                "multiples of %d",
                disk->folder, (long long)bytes, (long long)offset, Z3D_DISK_ALIGN);
    Z3D_REQUIRE(offset >= 0 && bytes > 0 && bytes <= disk->bytes && offset <= disk->bytes - bytes,
                "%s: a request of %lld bytes at byte %lld is outside of the file of %lld bytes",
                disk->folder, (long long)bytes, (long long)offset, (long long)disk->bytes);
    return Z3D_OK;
}

/* Finds a free place for the request. Call it with the lock held, like append. */
static z3d_status find_place(z3d_disk *disk, bool own, const disk_request *wanted,
                             disk_request **out) {
    *out = own ? &disk->request[disk->requests] : NULL;
    for (int i = 0; i <= disk->requests; i++) {
        disk_request *other = &disk->request[i];
        if (other->ticket == 0) {
            if (!*out && i < disk->requests) *out = other;
            continue;
        }
        bool apart = other->offset >= wanted->offset + wanted->bytes ||
                     wanted->offset >= other->offset + other->bytes;
        Z3D_REQUIRE(apart || !(other->write || wanted->write),
                    "%s: a request of %lld bytes at byte %lld overlaps one that is under way",
                    disk->folder, (long long)wanted->bytes, (long long)wanted->offset);
    }
    Z3D_REQUIRE(*out, "%s: more than %d requests are under way", disk->folder, disk->requests);
    return Z3D_OK;
}

static void append(disk_lane *lane, disk_request *request) {
    if (lane->first)
        lane->last->next = request;
    else
        lane->first = request;
    lane->last = request;
    pthread_cond_broadcast(&lane->work);
}

/* own: of z3d_disk_read and z3d_disk_write, which have a place of their own. */
static z3d_status start_at(z3d_disk *disk, bool own, bool write, int64_t offset, void *memory,
                           int64_t bytes, int64_t *ticket) {
    disk_request wanted = {.write = write, .memory = memory, .offset = offset, .bytes = bytes};
    disk_request *place;
    *ticket = 0;
    Z3D_TRY(check_request(disk, offset, memory, bytes));
    pthread_mutex_lock(&disk->lock);
    z3d_status status = find_place(disk, own, &wanted, &place);
    if (status == Z3D_OK) {
        wanted.ticket = *ticket = ++disk->tickets;
        *place = wanted;
        append(&disk->lane[write], place);
    }
    pthread_mutex_unlock(&disk->lock);
    return status;
}

z3d_status z3d_disk_start(z3d_disk *disk, bool write, int64_t offset, void *memory, int64_t bytes,
                          int64_t *ticket) {
    return start_at(disk, false, write, offset, memory, bytes, ticket);
}

/* ---- pieces: digests, the system's answers, the rest after a partial read or write ---- */

/* Calls without progress; after EAGAIN the next call comes a millisecond later. */
enum { MOST_IDLE = 1000 };

/* Never 0: 0 marks a block that was never written. */
static uint64_t digest_of(const char *block) {
    uint64_t digest = XXH3_64bits(block, Z3D_DISK_ALIGN);
    return digest ? digest : 1;
}

static char *memory_of(const disk_piece *piece) {
    return piece->request->memory + (piece->offset - piece->request->offset);
}

static void remember(z3d_disk *disk, const disk_piece *piece) {
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

/* ---- for the threads of a lane ---- */

static void cut(disk_lane *lane, disk_piece *out) {
    disk_request *request = lane->first;
    int64_t offset = request->offset + request->cut, left = request->bytes - request->cut;
    int64_t most = DISK_PIECE - offset % DISK_PIECE;
    *out = (disk_piece){.request = request, .offset = offset, .bytes = left < most ? left : most};
    request->cut += out->bytes;
    if (request->cut == request->bytes) lane->first = request->next;
}

bool z3d_disk_take(disk_lane *lane, bool wait, disk_piece *out) {
    z3d_disk *disk = lane->disk;
    pthread_mutex_lock(&disk->lock);
    while (wait && !lane->first && !disk->stopping) pthread_cond_wait(&lane->work, &disk->lock);
    bool there = lane->first && !disk->stopping;
    if (there) cut(lane, out);
    pthread_mutex_unlock(&disk->lock);
    if (there && lane->write) remember(disk, out);
    return there;
}

/* Drops the rest of a failed request. If it has a rest, it is the first request of its lane,
 * because requests are cut in order. */
static void drop_rest(disk_lane *lane, disk_request *request) {
    if (request->cut == request->bytes) return;
    lane->first = request->next;
    request->bytes = request->cut;
}

void z3d_disk_piece_over(z3d_disk *disk, disk_piece *piece) {
    disk_request *request = piece->request;
    pthread_mutex_lock(&disk->lock);
    if (piece->fault.what) {
        if (!request->fault.what || piece->fault.offset < request->fault.offset)
            request->fault = piece->fault;
        drop_rest(&disk->lane[request->write], request);
    }
    request->over += piece->bytes;
    if (request->over == request->bytes) pthread_cond_broadcast(&disk->over);
    pthread_mutex_unlock(&disk->lock);
    piece->request = NULL;
}

/* ---- wait ---- */

static z3d_status say(const z3d_disk *disk, bool write, disk_fault fault) {
    long long offset = fault.offset, bytes = fault.bytes;
    if (fault.what == 0) return Z3D_OK;
    if (fault.what == DISK_CHANGED)
        return Z3D_ERROR(Z3D_ERR_IO,
                         "%s: %lld bytes at byte %lld of the unnamed file are not what was written "
                         "there: the disk is damaged, or another program changed the file",
                         disk->folder, bytes, offset);
    if (fault.what == DISK_ENDS)
        return Z3D_ERROR(Z3D_ERR_IO,
                         "%s: the unnamed file ends at byte %lld of %lld: another program cut it",
                         disk->folder, offset, (long long)disk->bytes);
    return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot %s %lld bytes at byte %lld of the unnamed file: %s",
                     disk->folder, write ? "write" : "read", bytes, offset, strerror(fault.what));
}

z3d_status z3d_disk_wait(z3d_disk *disk, int64_t ticket) {
    disk_request *request = NULL, ended = {0};
    pthread_mutex_lock(&disk->lock);
    for (int i = 0; i <= disk->requests && ticket > 0; i++)
        if (disk->request[i].ticket == ticket) request = &disk->request[i];
    if (request) {
        while (request->over < request->bytes) pthread_cond_wait(&disk->over, &disk->lock);
        ended = *request;
        request->ticket = 0;
    }
    pthread_mutex_unlock(&disk->lock);
    Z3D_REQUIRE(request, "%s: no request has ticket %lld", disk->folder, (long long)ticket);
    return say(disk, ended.write, ended.fault);
}

/* ---- any range, through a window of whole blocks ---- */

static z3d_status transfer(z3d_disk *disk, bool write, int64_t offset, char *memory,
                           int64_t bytes) {
    int64_t ticket;
    Z3D_TRY(start_at(disk, true, write, offset, memory, bytes, &ticket));
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
