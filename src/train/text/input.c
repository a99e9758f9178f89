/* Reads packed files. Both libraries have the same interface here: bytes go in, bytes come out. */
#include "src/train/text/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum { PACKED = 1 << 16 };

struct z3d_unpacker {
    const char *name, *end; /* of file names */
    unsigned char magic[4];
    size_t magic_bytes;
    void *(*create)(void);
    /* Unpacks from *in to *out and moves both. *between: one packed stretch has ended and the next
     * has not begun. Returns NULL, or the fault. */
    const char *(*step)(void *state, const unsigned char **in, size_t *in_left, unsigned char **out,
                        size_t *out_left, bool *between);
    void (*destroy)(void *state);
};

/* ---- gzip ---- */

static void *gzip_create(void) {
    enum { GZIP = 16 };
    z_stream *z = calloc(1, sizeof *z);
    if (z && inflateInit2(z, MAX_WBITS + GZIP) == Z_OK) return z;
    free(z);
    return NULL;
}

static const char *gzip_step(void *state, const unsigned char **in, size_t *in_left,
                             unsigned char **out, size_t *out_left, bool *between) {
    enum { MOST = 1 << 30 };
    z_stream *z = state;
    size_t room = *out_left < MOST ? *out_left : MOST;
    if (*between) { /* zeros may fill up the last block of a tape */
        while (*in_left > 0 && **in == 0) ++*in, --*in_left;
        if (*in_left == 0) return NULL;
        inflateReset(z);
    }
    z->next_in = (unsigned char *)*in;
    z->avail_in = (unsigned)*in_left;
    z->next_out = *out;
    z->avail_out = (unsigned)room;
    int result = inflate(z, Z_NO_FLUSH);
    *in = z->next_in;
    *in_left = z->avail_in;
    *out = z->next_out;
    *out_left -= room - z->avail_out;
    *between = result == Z_STREAM_END;
    if (result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR) return NULL;
    return z->msg ? z->msg : "unknown data";
}

static void gzip_destroy(void *state) {
    inflateEnd(state);
    free(state);
}

/* ---- zstd ---- */

static void *zstd_create(void) {
    enum { LONGEST = 31 }; /* of zstd --long=31 */
    ZSTD_DStream *stream = ZSTD_createDStream();
    if (stream) ZSTD_DCtx_setParameter(stream, ZSTD_d_windowLogMax, LONGEST);
    return stream;
}

static const char *zstd_step(void *state, const unsigned char **in, size_t *in_left,
                             unsigned char **out, size_t *out_left, bool *between) {
    ZSTD_inBuffer from = {*in, *in_left, 0};
    ZSTD_outBuffer to = {*out, *out_left, 0};
    size_t result = ZSTD_decompressStream(state, &to, &from);
    *in += from.pos, *in_left -= from.pos;
    *out += to.pos, *out_left -= to.pos;
    *between = result == 0;
    return ZSTD_isError(result) ? ZSTD_getErrorName(result) : NULL;
}

static void zstd_destroy(void *state) {
    ZSTD_freeDStream(state);
}

static const z3d_unpacker unpackers[] = {
    {"gzip", ".gz", {0x1f, 0x8b}, 2, gzip_create, gzip_step, gzip_destroy},
    {"zstd", ".zst", {0x28, 0xb5, 0x2f, 0xfd}, 4, zstd_create, zstd_step, zstd_destroy}};
enum { UNPACKERS = sizeof unpackers / sizeof *unpackers };

size_t z3d_unpacked_name_length(const char *path) {
    size_t length = strlen(path);
    for (int i = 0; i < UNPACKERS; i++) {
        size_t end = strlen(unpackers[i].end);
        if (length > end && strcasecmp(path + length - end, unpackers[i].end) == 0)
            return length - end;
    }
    return length;
}

/* ---- all files ---- */

static z3d_status read_file(z3d_input *in, void *out, size_t room, size_t *count) {
    *count = 0;
    while (*count < room) {
        ssize_t some = pread(in->fd, (char *)out + *count, room - *count, in->position);
        if (some < 0 && errno == EINTR) continue;
        if (some < 0)
            return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot read the file: %s", in->path, strerror(errno));
        if (some == 0) break;
        *count += (size_t)some;
        in->position += some;
    }
    return Z3D_OK;
}

z3d_status z3d_input_open(z3d_input *in, const char *path) {
    unsigned char magic[4] = {0};
    size_t count;
    *in = (z3d_input){.path = path, .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (in->fd < 0)
        return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot open the file: %s", path, strerror(errno));
    Z3D_TRY(read_file(in, magic, sizeof magic, &count));
    in->position = 0;
    /* A zstd file may begin with a frame to skip; it has 16 magic numbers. */
    if (count == sizeof magic && (magic[0] & 0xf0) == 0x50 &&
        memcmp(magic + 1, "\x2a\x4d\x18", 3) == 0)
        memcpy(magic, unpackers[UNPACKERS - 1].magic, sizeof magic);
    for (int i = 0; i < UNPACKERS && !in->unpacker; i++)
        if (count >= unpackers[i].magic_bytes &&
            memcmp(magic, unpackers[i].magic, unpackers[i].magic_bytes) == 0)
            in->unpacker = &unpackers[i];
    if (!in->unpacker) return Z3D_OK;
    Z3D_TRY(z3d_new(PACKED, 1, "a packed file", &in->packed));
    return z3d_input_rewind(in);
}

z3d_status z3d_input_rewind(z3d_input *in) {
    in->position = 0;
    if (!in->unpacker) return Z3D_OK;
    if (in->state) in->unpacker->destroy(in->state);
    in->at = in->have = 0;
    in->ended = false;
    in->between = true;
    in->state = in->unpacker->create();
    return in->state ? Z3D_OK : Z3D_ERROR(Z3D_ERR_MEMORY, "no memory to unpack %s", in->path);
}

/* Reads packed bytes if none are left. in->ended: the file has no more. */
static z3d_status refill(z3d_input *in) {
    if (in->at < in->have || in->ended) return Z3D_OK;
    in->at = 0;
    Z3D_TRY(read_file(in, in->packed, PACKED, &in->have));
    in->ended = in->have == 0;
    return Z3D_OK;
}

static z3d_status unpack(z3d_input *in, unsigned char *out, size_t *left) {
    const unsigned char *from = in->packed + in->at;
    size_t before = *left, packed = in->have - in->at;
    const char *wrong = in->unpacker->step(in->state, &from, &packed, &out, left, &in->between);
    in->at = in->have - packed;
    if (wrong)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s: its %s data is damaged before byte %lld: %s", in->path,
                         in->unpacker->name, (long long)in->position, wrong);
    if (in->ended && *left == before)
        return Z3D_ERROR(Z3D_ERR_DATA,
                         "%s: its %s data is not whole: the file ends after %lld bytes", in->path,
                         in->unpacker->name, (long long)in->position);
    return Z3D_OK;
}

z3d_status z3d_input_read(z3d_input *in, void *out, size_t room, size_t *count) {
    size_t left = room;
    if (!in->unpacker) return read_file(in, out, room, count);
    while (left > 0) {
        Z3D_TRY(refill(in));
        if (in->ended && in->between) break;
        Z3D_TRY(unpack(in, (unsigned char *)out + (room - left), &left));
    }
    *count = room - left;
    return Z3D_OK;
}

void z3d_input_close(z3d_input *in) {
    if (in->state) in->unpacker->destroy(in->state);
    free(in->packed);
    if (in->path && in->fd >= 0) close(in->fd);
    *in = (z3d_input){0};
}
