/* Changes to a disk, which a hook may refuse; reads; digests. Each request to the disk is a pending
 * I/O, so the watchdog can name it. */
#include "checkpoint/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "src/base/xxh3.h"

/* ---- single changes ---- */

static int ask(const z3d_io_hook *hook, z3d_io_event event) {
    return hook && hook->before ? hook->before(hook->context, &event) : 0;
}

static z3d_status failed(const char *path, const char *what, int error) {
    return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot %s: %s", path, what, strerror(error));
}

z3d_status z3d_io_create(const z3d_io_hook *hook, const char *path, int *fd) {
    z3d_pending_io io;
    z3d_pending_io_begin(&io, "checkpoint: creating", path);
    int error = ask(hook, (z3d_io_event){.kind = Z3D_IO_CREATE, .path = path});
    *fd = error ? -1 : open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (error == 0 && *fd < 0) error = errno;
    z3d_pending_io_end(&io);
    return error ? failed(path, "create the file", error) : Z3D_OK;
}

/* Returns 0 or an errno. */
static int write_range(const z3d_io_hook *hook, int fd, const char *path, const char *at,
                       int64_t bytes, int64_t offset, int64_t whole, z3d_pending_io *io) {
    while (bytes > 0) {
        z3d_pending_io_at(io, offset, whole);
        int error = ask(hook, (z3d_io_event){Z3D_IO_WRITE, path, NULL, at, offset, bytes});
        if (error > 0) return error;
        size_t now = (size_t)(error == Z3D_IO_SHORT ? (bytes + 1) / 2 : bytes);
        ssize_t written = pwrite(fd, at, now, offset);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return written < 0 ? errno : ENOSPC;
        /* The disk begins to write now, not at the sync. Only a hint: the sync reports failures. */
        (void)sync_file_range(fd, offset, written, SYNC_FILE_RANGE_WRITE);
        at += written, offset += written, bytes -= written;
    }
    return 0;
}

z3d_status z3d_io_write(const z3d_io_hook *hook, int fd, const char *path, const void *data,
                        int64_t bytes, int64_t offset, int64_t whole) {
    z3d_pending_io io;
    z3d_pending_io_begin(&io, "checkpoint: writing", path);
    int error = write_range(hook, fd, path, data, bytes, offset, whole, &io);
    z3d_pending_io_end(&io);
    return error ? failed(path, "write", error) : Z3D_OK;
}

/* Waits for a file's bytes piece by piece, so the watchdog sees the progress of a slow disk. If the
 * disk fails here, the sync must fail: the system reports a file's failure only once. If the system
 * call is not supported, the later fsync does all the work. Returns 0 or an errno. */
static int drain(int fd, z3d_pending_io *io) {
    enum { PIECE = 16 << 20 };
    const unsigned all =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    off_t size = lseek(fd, 0, SEEK_END);
    for (off_t at = 0; at < size; at += PIECE) {
        z3d_pending_io_at(io, at, size);
        if (sync_file_range(fd, at, PIECE, all) == 0) continue;
        return errno == EIO || errno == ENOSPC || errno == EDQUOT ? errno : 0;
    }
    z3d_pending_io_at(io, size, size);
    return 0;
}

z3d_status z3d_io_sync(const z3d_io_hook *hook, int fd, const char *path) {
    z3d_pending_io io;
    z3d_pending_io_begin(&io, "checkpoint: fsync of", path);
    int error = ask(hook, (z3d_io_event){.kind = Z3D_IO_SYNC, .path = path});
    if (error == 0) error = drain(fd, &io);
    if (error == 0 && fsync(fd) != 0) error = errno;
    z3d_pending_io_end(&io);
    return error ? failed(path, "fsync the file", error) : Z3D_OK;
}

void z3d_io_close(int fd, const char *path, z3d_status *status) {
    z3d_pending_io io;
    z3d_pending_io_begin(&io, "checkpoint: closing", path);
    int error = close(fd) == 0 ? 0 : errno;
    z3d_pending_io_end(&io);
    /* Network file systems report a full disk here. */
    if (error && *status == Z3D_OK) *status = failed(path, "write", error);
}

z3d_status z3d_io_rename(const z3d_io_hook *hook, const char *from, const char *to) {
    z3d_pending_io io;
    z3d_pending_io_begin(&io, "checkpoint: rename of", from);
    int error = ask(hook, (z3d_io_event){.kind = Z3D_IO_RENAME, .path = from, .to = to});
    if (error == 0 && rename(from, to) != 0) error = errno;
    z3d_pending_io_end(&io);
    return error ? failed(to, "rename the finished file to this name", error) : Z3D_OK;
}

z3d_status z3d_io_sync_folder(const z3d_io_hook *hook, const char *path) {
    z3d_pending_io io;
    z3d_pending_io_begin(&io, "checkpoint: fsync of folder", path);
    int error = ask(hook, (z3d_io_event){.kind = Z3D_IO_SYNC_FOLDER, .path = path});
    int fd = error ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (error == 0 && fd < 0) error = errno;
    /* Some network file systems cannot sync a folder and return EINVAL: we can do nothing more. */
    if (error == 0 && fsync(fd) != 0 && errno != EINVAL) error = errno;
    if (fd >= 0) close(fd);
    z3d_pending_io_end(&io);
    return error ? failed(path, "fsync the folder", error) : Z3D_OK;
}

z3d_status z3d_io_make_folder(const z3d_io_hook *hook, const char *path) {
    z3d_pending_io io;
    z3d_pending_io_begin(&io, "checkpoint: creating folder", path);
    int error = ask(hook, (z3d_io_event){.kind = Z3D_IO_MAKE_FOLDER, .path = path});
    if (error == 0 && mkdir(path, 0777) != 0 && errno != EEXIST) error = errno;
    z3d_pending_io_end(&io);
    return error ? failed(path, "create the folder", error) : Z3D_OK;
}

z3d_status z3d_io_link(const z3d_io_hook *hook, const char *target, const char *path) {
    z3d_pending_io io;
    z3d_pending_io_begin(&io, "checkpoint: creating", path);
    int error = ask(hook, (z3d_io_event){.kind = Z3D_IO_CREATE, .path = path});
    if (error == 0 && symlink(target, path) != 0) error = errno;
    z3d_pending_io_end(&io);
    return error ? failed(path, "make a link", error) : Z3D_OK;
}

z3d_status z3d_io_unlink(const z3d_io_hook *hook, const char *path) {
    z3d_pending_io io;
    z3d_pending_io_begin(&io, "checkpoint: removing", path);
    int error = ask(hook, (z3d_io_event){.kind = Z3D_IO_UNLINK, .path = path});
    if (error == 0 && unlink(path) != 0 && errno != ENOENT) error = errno;
    z3d_pending_io_end(&io);
    return error ? failed(path, "remove it", error) : Z3D_OK;
}

static z3d_status remove_folder(const z3d_io_hook *hook, const char *path) {
    z3d_pending_io io;
    z3d_pending_io_begin(&io, "checkpoint: removing folder", path);
    int error = ask(hook, (z3d_io_event){.kind = Z3D_IO_REMOVE_FOLDER, .path = path});
    if (error == 0 && rmdir(path) != 0 && errno != ENOENT) error = errno;
    z3d_pending_io_end(&io);
    return error ? failed(path, "remove the folder", error) : Z3D_OK;
}

/* ---- changes made of several ---- */

z3d_status z3d_io_part(const char *path, char **out) {
    z3d_string part = {0};
    z3d_string_append(&part, "%s.part", path);
    *out = part.failed ? NULL : part.text;
    return *out ? Z3D_OK : Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a file's name");
}

static z3d_status remove_entry(const z3d_io_hook *hook, const char *folder, const char *name) {
    char *path;
    Z3D_TRY(z3d_join_path(folder, name, &path));
    z3d_status status = z3d_io_remove_tree(hook, path, NULL);
    free(path);
    return status;
}

static z3d_status remove_tree(const z3d_io_hook *hook, const char *path, const char *first) {
    struct stat info;
    if (lstat(path, &info) != 0) return errno == ENOENT ? Z3D_OK : failed(path, "remove it", errno);
    if (!S_ISDIR(info.st_mode)) return z3d_io_unlink(hook, path);
    if (first) {
        Z3D_TRY(remove_entry(hook, path, first));
        Z3D_TRY(z3d_io_sync_folder(hook, path));
    }
    DIR *folder = opendir(path);
    if (!folder) return failed(path, "open the folder", errno);
    z3d_status status = Z3D_OK;
    for (struct dirent *entry; status == Z3D_OK && (entry = readdir(folder));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = remove_entry(hook, path, entry->d_name);
    closedir(folder);
    return status == Z3D_OK ? remove_folder(hook, path) : status;
}

z3d_status z3d_io_remove_tree(const z3d_io_hook *hook, const char *path, const char *first) {
    z3d_pending_io io;
    z3d_pending_io_begin(&io, "checkpoint: removing folder", path);
    z3d_status status = remove_tree(hook, path, first);
    z3d_pending_io_end(&io);
    return status;
}

z3d_status z3d_io_write_file(const z3d_io_hook *hook, const char *folder, const char *name,
                             const void *data, int64_t bytes) {
    char *path = NULL, *part = NULL;
    int fd = -1;
    z3d_status status = z3d_join_path(folder, name, &path);
    if (status == Z3D_OK) status = z3d_io_part(path, &part);
    if (status == Z3D_OK) status = z3d_io_create(hook, part, &fd);
    if (status == Z3D_OK) status = z3d_io_write(hook, fd, part, data, bytes, 0, bytes);
    if (status == Z3D_OK) status = z3d_io_sync(hook, fd, part);
    if (fd >= 0) z3d_io_close(fd, part, &status);
    if (status == Z3D_OK) status = z3d_io_rename(hook, part, path);
    if (status == Z3D_OK) status = z3d_io_sync_folder(hook, folder);
    free(path);
    free(part);
    return status;
}

z3d_status z3d_io_exists(const char *path, bool *exists) {
    z3d_pending_io io;
    z3d_pending_io_begin(&io, "checkpoint: looking for", path);
    int error = access(path, F_OK) == 0 ? 0 : errno;
    z3d_pending_io_end(&io);
    *exists = error == 0;
    return error == 0 || error == ENOENT || error == ENOTDIR
               ? Z3D_OK
               : Z3D_ERROR(Z3D_ERR_IO, "%s: cannot check whether it exists: %s", path,
                           strerror(error));
}

z3d_status z3d_io_has(const char *folder, const char *name, bool *there) {
    char *path;
    Z3D_TRY(z3d_join_path(folder, name, &path));
    z3d_status status = z3d_io_exists(path, there);
    free(path);
    return status;
}

bool z3d_io_is_damage(int error, int64_t file_system) {
    /* File systems on a disk of this machine (linux/magic.h has most of the numbers). */
    static const int64_t on_disk[] = {0xEF53 /* ext2 to 4 */, 0x58465342 /* xfs */,
                                      0x9123683E /* btrfs */, 0xF2F52010 /* f2fs */,
                                      0x2FC12FC1 /* zfs */,   0x794C7630 /* overlay */};
    for (size_t i = 0; i < sizeof on_disk / sizeof *on_disk && error == EIO; i++)
        if (on_disk[i] == (file_system & 0xFFFFFFFF)) return true;
    return false;
}

/* fd: -1 if the file could not be opened. */
static z3d_status cannot_read(int fd, const char *path, int error) {
    struct statfs disk = {0};
    bool told = (fd < 0 ? statfs(path, &disk) : fstatfs(fd, &disk)) == 0;
    bool damage = told && z3d_io_is_damage(error, (int64_t)disk.f_type);
    return Z3D_ERROR(damage ? Z3D_ERR_DATA : Z3D_ERR_IO, "%s: cannot read it: %s", path,
                     strerror(error));
}

static z3d_status open_file(const char *path, int *fd, int64_t *size) {
    struct stat info;
    z3d_status status = Z3D_OK;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe does not block us */
    if (*fd < 0 && errno == ENOENT)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s: this file of the checkpoint is missing", path);
    if (*fd < 0) return cannot_read(-1, path, errno);
    if (fstat(*fd, &info) != 0)
        status = cannot_read(*fd, path, errno);
    else if (!S_ISREG(info.st_mode))
        status = Z3D_ERROR(Z3D_ERR_DATA, "%s: damaged: it is not a regular file", path);
    if (status != Z3D_OK) {
        close(*fd);
        *fd = -1;
        return status;
    }
    *size = info.st_size;
    return Z3D_OK;
}

z3d_status z3d_io_open(const char *path, int *fd, int64_t *size) {
    z3d_pending_io io;
    z3d_pending_io_begin(&io, "checkpoint: opening", path);
    z3d_status status = open_file(path, fd, size);
    z3d_pending_io_end(&io);
    return status;
}

static z3d_status read_range(int fd, const char *path, char *at, int64_t bytes, int64_t offset,
                             z3d_pending_io *io) {
    while (bytes > 0) {
        z3d_pending_io_at(io, offset, -1);
        ssize_t count = pread(fd, at, (size_t)bytes, offset);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return cannot_read(fd, path, errno);
        if (count == 0)
            return Z3D_ERROR(Z3D_ERR_DATA,
                             "%s: damaged: it ends at byte %lld, %lld more bytes are missing", path,
                             (long long)offset, (long long)bytes);
        at += count, offset += count, bytes -= count;
    }
    return Z3D_OK;
}

z3d_status z3d_io_read(int fd, const char *path, void *out, int64_t bytes, int64_t offset) {
    z3d_pending_io io;
    z3d_pending_io_begin(&io, "checkpoint: reading", path);
    z3d_status status = read_range(fd, path, out, bytes, offset, &io);
    z3d_pending_io_end(&io);
    return status;
}

/* ---- digests ---- */

z3d_digest z3d_digest_of(const void *data, int64_t bytes) {
    XXH128_canonical_t canonical;
    z3d_digest digest;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, (size_t)bytes));
    memcpy(digest.byte, canonical.digest, sizeof digest.byte);
    return digest;
}

const char *z3d_digest_text(z3d_digest digest, char text[Z3D_DIGEST_TEXT]) {
    for (int i = 0; i < Z3D_DIGEST_BYTES; i++) snprintf(text + 2 * i, 3, "%02x", digest.byte[i]);
    return text;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool z3d_digest_parse(const char *text, z3d_digest *out) {
    for (int i = 0; i < Z3D_DIGEST_BYTES; i++) {
        int high = hex_digit(text[2 * i]), low = high < 0 ? -1 : hex_digit(text[2 * i + 1]);
        if (low < 0) return false;
        out->byte[i] = (uint8_t)(high * 16 + low);
    }
    return text[2 * Z3D_DIGEST_BYTES] == '\0';
}

bool z3d_digest_equal(z3d_digest a, z3d_digest b) {
    return memcmp(a.byte, b.byte, sizeof a.byte) == 0;
}
