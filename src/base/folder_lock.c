/* Locking a folder: an open-file-description lock on a file in it. */
#include "src/base/folder_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/log.h"
#include "src/base/pending_io.h"
#include "src/base/strings.h"

/* Writes the lock's holder to the file, for the error message of another job. */
static void write_holder(int fd) {
    char host[128] = "?";
    (void)gethostname(host, sizeof host - 1);
    if (ftruncate(fd, 0) == 0) (void)dprintf(fd, "pid %ld on host %s\n", (long)getpid(), host);
}

static z3d_status busy(const char *dir, const z3d_folder_lock_use *use, int fd) {
    char holder[160];
    ssize_t length = pread(fd, holder, sizeof holder - 1, 0);
    holder[length > 0 ? length : 0] = '\0';
    holder[strcspn(holder, "\n")] = '\0';
    return Z3D_ERROR(Z3D_ERR_IO, "%s: %s%s%s%s", dir, use->busy, *holder ? " (it is " : "", holder,
                     *holder ? ")" : "");
}

z3d_status z3d_folder_lock_take(const char *dir, const z3d_folder_lock_use *use, int *fd) {
    char *path;
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    z3d_pending_io io;
    *fd = -1;
    Z3D_TRY(z3d_join_path(dir, use->file, &path));
    z3d_pending_io_begin(&io, "locking", path);
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    int error = *fd >= 0 && fcntl(*fd, F_OFD_SETLK, &whole) == 0 ? 0 : errno;
    z3d_pending_io_end(&io);
    z3d_status status = Z3D_OK;
    if (*fd < 0)
        status = Z3D_ERROR(Z3D_ERR_IO, "%s: cannot write there: %s", path, strerror(error));
    else if (error == EAGAIN || error == EACCES)
        status = busy(dir, use, *fd);
    else if (error != 0)
        z3d_log(Z3D_LOG_WARN,
                "%s: this file system has no locks (%s): nothing keeps a second job from writing "
                "there at the same time",
                dir, strerror(error));
    else
        write_holder(*fd);
    free(path);
    return status;
}

/* A removed lock file does not keep other jobs out. */
z3d_status z3d_folder_lock_check(const char *dir, const z3d_folder_lock_use *use, int fd) {
    char *path;
    struct stat ours, theirs;
    z3d_pending_io io;
    Z3D_TRY(z3d_join_path(dir, use->file, &path));
    z3d_pending_io_begin(&io, "looking for", path);
    bool there = fstat(fd, &ours) == 0 && stat(path, &theirs) == 0 &&
                 ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
    z3d_pending_io_end(&io);
    free(path);
    return there ? Z3D_OK : Z3D_ERROR(Z3D_ERR_IO, "%s: %s", dir, use->lost);
}

z3d_status z3d_folder_lock_keep(const char *dir, const z3d_folder_lock_use *use, int *fd) {
    int other = -1;
    if (z3d_folder_lock_check(dir, use, *fd) == Z3D_OK) return Z3D_OK;
    z3d_status status = z3d_folder_lock_take(dir, use, &other);
    z3d_folder_lock_release(status == Z3D_OK ? fd : &other);
    if (status == Z3D_OK) *fd = other;
    return status;
}

void z3d_folder_lock_release(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}
