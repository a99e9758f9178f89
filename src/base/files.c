/* Reads whole small files, joins paths, creates folders. */
#include "src/base/strings.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/pending_io.h"

/* Reads to the end, or a piece more than `limit`. Does not use stat's size: pipes and files of
 * /proc have none. */
static z3d_status read_all(int fd, const char *path, size_t limit, z3d_string *out) {
    char piece[16384];
    z3d_string_append_bytes(out, "", 0); /* an empty file has a text, too */
    while (!out->failed) {
        ssize_t count = read(fd, piece, sizeof piece);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return Z3D_ERROR(Z3D_ERR_IO, "cannot read %s: %s", path, strerror(errno));
        if (count == 0) return Z3D_OK;
        z3d_string_append_bytes(out, piece, (size_t)count);
        if (out->length > limit)
            return Z3D_ERROR(Z3D_ERR_IO, "%s is larger than %zu bytes", path, limit);
    }
    return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory to read %s", path);
}

z3d_status z3d_read_file(const char *path, size_t limit, char **out, size_t *out_length) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return Z3D_ERROR(Z3D_ERR_IO, "cannot open %s: %s", path, strerror(errno));
    /* The open does not wait for a pipe's writer; reads do wait for its data. */
    (void)fcntl(fd, F_SETFL, 0);
    struct stat info;
    z3d_string text = {0};
    z3d_status status = fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)
                            ? Z3D_ERROR(Z3D_ERR_IO, "cannot read %s: it is a folder", path)
                            : read_all(fd, path, limit, &text);
    close(fd);
    if (status == Z3D_OK)
        *out = text.text, *out_length = text.length;
    else
        z3d_string_free(&text);
    return status;
}

bool z3d_is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static z3d_status take_path(const z3d_string *path, char **out) {
    *out = path->failed ? NULL : path->text;
    return *out ? Z3D_OK : Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a file's name");
}

z3d_status z3d_join_path(const char *folder, const char *name, char **out) {
    z3d_string path = {0};
    z3d_string_append(&path, "%s/%s", folder, name);
    return take_path(&path, out);
}

z3d_status z3d_path_beside(const char *path, const char *name, char **out) {
    const char *slash = strrchr(path, '/');
    z3d_string beside = {0};
    z3d_string_append(&beside, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, name);
    return take_path(&beside, out);
}

static z3d_status make_folder(const char *path, const char *whole) {
    if (mkdir(path, 0777) == 0) return Z3D_OK;
    int error = errno;
    struct stat info;
    if (stat(path, &info) == 0) { /* it exists: another rank may have made it meanwhile */
        if (S_ISDIR(info.st_mode)) return Z3D_OK;
        return Z3D_ERROR(Z3D_ERR_IO, "cannot create folder %s: %s is a file", whole, path);
    }
    return Z3D_ERROR(Z3D_ERR_IO, "cannot create folder %s: %s: %s", whole, path, strerror(error));
}

z3d_status z3d_make_folders(const char *path) {
    size_t length = strlen(path);
    char part[PATH_MAX];
    if (length == 0) return Z3D_ERROR(Z3D_ERR_IO, "cannot create a folder with an empty name");
    if (length >= sizeof part) {
        return Z3D_ERROR(Z3D_ERR_IO, "cannot create folder %.80s...: name too long", path);
    }
    for (size_t i = 1; i <= length; i++) {
        if (i < length && (path[i] != '/' || path[i - 1] == '/')) continue;
        memcpy(part, path, i);
        part[i] = '\0';
        z3d_pending_io io;
        z3d_pending_io_begin(&io, "making folder", part);
        z3d_status status = make_folder(part, path);
        z3d_pending_io_end(&io);
        Z3D_TRY(status);
    }
    return Z3D_OK;
}
