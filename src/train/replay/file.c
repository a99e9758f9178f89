/* A file of blocks: 16 bytes name the format, then each block has a head and up to 1 MiB of data.
 * Numbers are little-endian, as on every machine that zero3d supports. */
#include "src/train/replay/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/base/xxh3.h"

static const char format[16] = "zero3d-replay-1";

typedef struct head {
    uint64_t bytes, digest; /* the digest's seed is the digest of the previous block */
} head;

struct z3d_block_file {
    char *path;
    FILE *file;
    bool ended;         /* a read failed at the end of the file */
    uint64_t before;    /* digest of the last block */
    int64_t offset;     /* of the block in the file */
    size_t bytes, used; /* bytes in the block; bytes of it that were read */
    char block[1 << 20];
};

static z3d_status fail(const z3d_block_file *file) {
    return Z3D_ERROR(Z3D_ERR_IO, "%s: %s", file->path, strerror(errno ? errno : EIO));
}

static z3d_status open_file(const char *path, const char *mode, z3d_block_file **out) {
    z3d_block_file *file = NULL;
    *out = NULL;
    Z3D_TRY(z3d_new(1, sizeof *file, "a block of a recording", &file));
    *out = file;
    file->path = strdup(path);
    if (!file->path) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a file's name");
    file->file = fopen(path, mode);
    return file->file ? Z3D_OK : fail(file);
}

z3d_status z3d_block_file_create(const char *path, z3d_block_file **out) {
    z3d_status status = open_file(path, "wb", out);
    if (status == Z3D_OK && fwrite(format, sizeof format, 1, (*out)->file) != 1)
        status = fail(*out);
    return status;
}

static uint64_t digest_of(const z3d_block_file *file) {
    return XXH3_64bits_withSeed(file->block, file->bytes, file->before);
}

static z3d_status end_block(z3d_block_file *file) {
    const head head = {file->bytes, digest_of(file)};
    errno = 0;
    if (fwrite(&head, sizeof head, 1, file->file) != 1 ||
        fwrite(file->block, file->bytes, 1, file->file) != 1)
        return fail(file);
    file->before = head.digest;
    file->bytes = 0;
    return Z3D_OK;
}

z3d_status z3d_block_file_put(z3d_block_file *file, const void *data, int64_t bytes) {
    while (bytes > 0) {
        const size_t room = sizeof file->block - file->bytes;
        const size_t part = (uint64_t)bytes < room ? (size_t)bytes : room;
        memcpy(file->block + file->bytes, data, part);
        file->bytes += part;
        if (file->bytes == sizeof file->block) Z3D_TRY(end_block(file));
        data = (const char *)data + part;
        bytes -= (int64_t)part;
    }
    return Z3D_OK;
}

z3d_status z3d_block_file_flush(z3d_block_file *file) {
    if (file->bytes > 0) Z3D_TRY(end_block(file));
    errno = 0;
    return fflush(file->file) == 0 ? Z3D_OK : fail(file);
}

z3d_status z3d_block_file_open(const char *path, z3d_block_file **out) {
    char there[sizeof format];
    struct stat info;
    *out = NULL;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) /* opening a pipe would wait */
        return Z3D_ERROR(Z3D_ERR_DATA, "%s is %s, no recording of a rank; name a file", path,
                         S_ISDIR(info.st_mode) ? "a folder" : "a device or pipe");
    Z3D_TRY(open_file(path, "rb", out));
    errno = 0;
    if (fread(there, sizeof there, 1, (*out)->file) != 1 && ferror((*out)->file)) return fail(*out);
    if (feof((*out)->file) || memcmp(there, format, sizeof format) != 0)
        return Z3D_ERROR(Z3D_ERR_DATA,
                         "%s is no recording of a rank; `zero3d train --record-rank R --steps A:B` "
                         "makes one",
                         path);
    (*out)->offset = sizeof format;
    return Z3D_OK;
}

static z3d_status ends_early(z3d_block_file *file) {
    file->ended = true;
    return Z3D_ERROR(Z3D_ERR_DATA,
                     "%s ends at byte %lld, before its recording does: the run that made it was "
                     "stopped, or the file was cut",
                     file->path, (long long)file->offset);
}

static z3d_status next_block(z3d_block_file *file) {
    head head;
    file->offset += file->bytes ? (int64_t)(sizeof head + file->bytes) : 0;
    file->bytes = file->used = 0;
    errno = 0;
    if (fread(&head, sizeof head, 1, file->file) != 1)
        return ferror(file->file) ? fail(file) : ends_early(file);
    bool fits = head.bytes > 0 && head.bytes <= sizeof file->block;
    if (fits && fread(file->block, head.bytes, 1, file->file) != 1)
        return ferror(file->file) ? fail(file) : ends_early(file);
    file->bytes = fits ? head.bytes : 0;
    if (!fits || digest_of(file) != head.digest)
        return Z3D_ERROR(Z3D_ERR_DATA,
                         "%s: the block at byte %lld was changed since it was written", file->path,
                         (long long)file->offset);
    file->before = head.digest;
    return Z3D_OK;
}

z3d_status z3d_block_file_get(z3d_block_file *file, void *data, int64_t bytes) {
    while (bytes > 0) {
        if (file->used == file->bytes) Z3D_TRY(next_block(file));
        const size_t left = file->bytes - file->used;
        const size_t part = (uint64_t)bytes < left ? (size_t)bytes : left;
        memcpy(data, file->block + file->used, part);
        file->used += part;
        data = (char *)data + part;
        bytes -= (int64_t)part;
    }
    return Z3D_OK;
}

z3d_status z3d_block_file_at_end(z3d_block_file *file) {
    char more;
    if (file->used == file->bytes && fread(&more, 1, 1, file->file) == 0 && !ferror(file->file))
        return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_DATA, "%s has more bytes after its recording: it was changed",
                     file->path);
}

bool z3d_block_file_ended(const z3d_block_file *file) {
    return file->ended;
}

const char *z3d_block_file_path(const z3d_block_file *file) {
    return file->path;
}

void z3d_block_file_close(z3d_block_file *file) {
    if (!file) return;
    if (file->file) fclose(file->file);
    free(file->path);
    free(file);
}
