/* The writer of token files. */
#include "src/train/data/token_writer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/train/data/token_format.h"

static z3d_status failed(const z3d_token_writer *writer) {
    return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot write the file: %s", writer->temporary,
                     strerror(errno));
}

static z3d_status make_parent(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path) return Z3D_OK;
    char *folder = strndup(path, (size_t)(slash - path));
    if (!folder) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the name of %s's folder", path);
    z3d_status status = z3d_make_folders(folder);
    free(folder);
    return status;
}

z3d_status z3d_token_writer_open(z3d_token_writer *writer, const char *path, int32_t vocab_size) {
    z3d_string temporary = {0};
    Z3D_TRY(make_parent(path));
    z3d_string_append(&temporary, "%s.part-%ld", path, (long)getpid());
    writer->temporary = temporary.text;
    writer->path = strdup(path);
    if (temporary.failed || !writer->path)
        return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the name %s", path);
    writer->bytes_per_token = vocab_size <= 65536 ? 2 : 4;
    writer->vocab_size = vocab_size;
    writer->file = fopen(writer->temporary, "wbxe");
    if (!writer->file) {
        z3d_status status = failed(writer);
        free(writer->temporary); /* another process's file: do not remove it */
        writer->temporary = NULL;
        return status;
    }
    static const char header[Z3D_TOKEN_HEADER_BYTES];
    return fwrite(header, 1, sizeof header, writer->file) == sizeof header ? Z3D_OK
                                                                           : failed(writer);
}

static z3d_status open_unnamed(z3d_token_writer *writer, const char *end, FILE **out) {
    z3d_string name = {0};
    z3d_string_append(&name, "%s.%s", writer->temporary, end);
    if (name.failed)
        return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the name of %s's mask", writer->path);
    *out = fopen(name.text, "w+bxe");
    z3d_status status =
        *out && unlink(name.text) == 0
            ? Z3D_OK
            : Z3D_ERROR(Z3D_ERR_IO, "%s: cannot write the file: %s", name.text, strerror(errno));
    z3d_string_free(&name);
    return status;
}

z3d_status z3d_token_writer_mask(z3d_token_writer *writer) {
    return open_unnamed(writer, "mask", &writer->mask);
}

z3d_status z3d_token_writer_document(z3d_token_writer *writer) {
    if (!writer->borders) Z3D_TRY(open_unnamed(writer, "documents", &writer->borders));
    writer->documents++;
    return fwrite(&writer->tokens, sizeof writer->tokens, 1, writer->borders) == 1 ? Z3D_OK
                                                                                   : failed(writer);
}

/* Moves the flag from an id to the mask. */
static bool keep_bit(z3d_token_writer *writer, int32_t *id) {
    const bool untrained = *id & Z3D_TOKEN_UNTRAINED;
    const int bit = (int)(writer->tokens % 8);
    *id &= ~Z3D_TOKEN_UNTRAINED;
    writer->untrained += untrained;
    writer->bits = (unsigned char)(bit == 0 ? !untrained : writer->bits | !untrained << bit);
    return bit < 7 || putc(writer->bits, writer->mask) != EOF;
}

z3d_status z3d_token_writer_append(z3d_token_writer *writer, const int32_t *ids, size_t count) {
    unsigned char buffer[4096];
    size_t size = (size_t)writer->bytes_per_token, room = sizeof buffer / size;
    for (size_t done = 0; done < count;) {
        size_t part = count - done < room ? count - done : room;
        for (size_t i = 0; i < part; i++, writer->tokens++) {
            int32_t id = ids[done + i];
            if (writer->mask && !keep_bit(writer, &id)) return failed(writer);
            memcpy(buffer + i * size, &id, size);
        }
        if (fwrite(buffer, size, part, writer->file) != part) return failed(writer);
        done += part;
    }
    return Z3D_OK;
}

/* Appends an unnamed file to the output. */
static z3d_status append_file(z3d_token_writer *writer, FILE *from) {
    char buffer[1 << 14];
    size_t count = 1;
    if (fseeko(from, 0, SEEK_SET) != 0) return failed(writer);
    while (count > 0) {
        count = fread(buffer, 1, sizeof buffer, from);
        if (fwrite(buffer, 1, count, writer->file) != count) return failed(writer);
    }
    return ferror(from) ? failed(writer) : Z3D_OK;
}

static z3d_status append_sections(z3d_token_writer *writer) {
    if (writer->mask && writer->tokens % 8 != 0 && putc(writer->bits, writer->mask) == EOF)
        return failed(writer);
    if (writer->untrained > 0) Z3D_TRY(append_file(writer, writer->mask));
    return writer->documents > 0 ? append_file(writer, writer->borders) : Z3D_OK;
}

z3d_status z3d_token_writer_finish(z3d_token_writer *writer) {
    if (writer->tokens > INT32_MAX)
        return Z3D_ERROR(
            Z3D_ERR_DATA,
            "%s: %lld tokens; a token file holds at most %d. Tokenize the input in parts and "
            "list all files in data.train",
            writer->path, (long long)writer->tokens, INT32_MAX);
    bool narrow = writer->bytes_per_token == 2;
    int32_t header[Z3D_TOKEN_HEADER_INTS] = {
        narrow ? Z3D_TOKEN_MAGIC_U16 : Z3D_TOKEN_MAGIC_U32,
        narrow ? Z3D_TOKEN_VERSION_U16 : Z3D_TOKEN_VERSION_U32,
        (int32_t)writer->tokens,
    };
    if (writer->digest) {
        header[Z3D_TOKEN_MARK_AT] = Z3D_TOKEN_MARK;
        header[Z3D_TOKEN_VOCABULARY_AT] = writer->vocab_size;
        memcpy(&header[Z3D_TOKEN_DIGEST_AT], &writer->digest, sizeof writer->digest);
        header[Z3D_TOKEN_FLAGS_AT] = (writer->untrained > 0 ? Z3D_TOKEN_HAS_MASK : 0) |
                                     (writer->documents > 0 ? Z3D_TOKEN_HAS_DOCUMENTS : 0);
        memcpy(&header[Z3D_TOKEN_DOCUMENTS_AT], &writer->documents, sizeof writer->documents);
        Z3D_TRY(append_sections(writer));
    }
    if (fseeko(writer->file, 0, SEEK_SET) != 0 ||
        fwrite(header, 1, sizeof header, writer->file) != sizeof header ||
        fflush(writer->file) != 0 || fsync(fileno(writer->file)) != 0)
        return failed(writer);
    FILE *file = writer->file;
    writer->file = NULL;
    return fclose(file) == 0 ? Z3D_OK : failed(writer);
}

z3d_status z3d_token_writer_publish(z3d_token_writer *writer) {
    if (rename(writer->temporary, writer->path) != 0)
        return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot rename the finished file to it: %s", writer->path,
                         strerror(errno));
    free(writer->temporary);
    writer->temporary = NULL;
    return Z3D_OK;
}

void z3d_token_writer_discard(z3d_token_writer *writer) {
    if (writer->file) fclose(writer->file);
    if (writer->mask) fclose(writer->mask);
    if (writer->borders) fclose(writer->borders);
    if (writer->temporary) unlink(writer->temporary);
    free(writer->temporary);
    free(writer->path);
    *writer = (z3d_token_writer){0};
}
