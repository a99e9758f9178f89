/* The file: it has no name, its space is reserved, and it bypasses the page cache if the file
 * system allows that. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "src/base/disk/disk.h"
#include "src/base/pending_io.h"

static z3d_status failed(const z3d_disk *disk, const char *what, int error) {
    return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot %s: %s", disk->folder, what, strerror(error));
}

/* For file systems without unnamed files: removes the name at once. */
static z3d_status create_and_unlink(z3d_disk *disk) {
    char *path;
    Z3D_TRY(z3d_join_path(disk->folder, ".zero3d-disk-XXXXXX", &path));
    disk->fd = mkostemp(path, O_CLOEXEC);
    z3d_status status = Z3D_OK;
    if (disk->fd < 0)
        status = failed(disk, "create a file in this folder", errno);
    else if (unlink(path) != 0)
        status = failed(disk, "remove the name of a file in this folder", errno);
    free(path);
    return status;
}

static z3d_status create_file(z3d_disk *disk) {
    disk->fd = open(disk->folder, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
    if (disk->fd >= 0) return Z3D_OK;
    if (errno == EOPNOTSUPP || errno == EISDIR) return create_and_unlink(disk);
    return failed(disk, "create a file in this folder", errno);
}

static z3d_status too_small(const z3d_disk *disk, int64_t space) {
    char need[32], have[32];
    return Z3D_ERROR(Z3D_ERR_IO, "%s: a file of %s is needed here, but only %s are free",
                     disk->folder, z3d_format_bytes(disk->bytes, need, sizeof need),
                     z3d_format_bytes(space, have, sizeof have));
}

static z3d_status check_limit(const z3d_disk *disk) {
    struct rlimit limit;
    char need[32], most[32];
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= (rlim_t)disk->bytes)
        return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_IO,
                     "%s: a file of %s is needed here, but this process may write files of at most "
                     "%s (ulimit -f)",
                     disk->folder, z3d_format_bytes(disk->bytes, need, sizeof need),
                     z3d_format_bytes((int64_t)limit.rlim_cur, most, sizeof most));
}

static z3d_status reserve(z3d_disk *disk) {
    struct statvfs info;
    Z3D_TRY(check_limit(disk));
    if (fstatvfs(disk->fd, &info) != 0) return failed(disk, "see how much space is free", errno);
    int64_t space = (int64_t)info.f_bavail * (int64_t)info.f_frsize;
    if (space < disk->bytes) return too_small(disk, space);
    if (fallocate(disk->fd, 0, 0, disk->bytes) == 0) return Z3D_OK;
    if (errno == ENOSPC) return too_small(disk, space);
    /* This file system cannot reserve space: if the disk fills up, a write fails. */
    if (errno == EOPNOTSUPP && ftruncate(disk->fd, disk->bytes) == 0) return Z3D_OK;
    return failed(disk, "reserve space for a file in this folder", errno);
}

/* Some file systems accept O_DIRECT and then refuse the first request, so this tries one. */
static bool go_direct(const z3d_disk *disk) {
    if (fcntl(disk->fd, F_SETFL, O_DIRECT) != 0) return false;
    if (pread(disk->fd, disk->window, Z3D_DISK_ALIGN, 0) == Z3D_DISK_ALIGN) return true;
    (void)fcntl(disk->fd, F_SETFL, 0);
    return false;
}

static void choose_cache(z3d_disk *disk) {
    enum { TMPFS = 0x01021994 };
    const int64_t ramfs = 0x858458f6;
    struct statfs info = {0};
    const char *how = "buffered (this file system refuses O_DIRECT)";
    bool told = fstatfs(disk->fd, &info) == 0;
    if (told && ((int64_t)info.f_type == TMPFS || ((int64_t)info.f_type & 0xFFFFFFFF) == ramfs))
        how = "buffered (tmpfs: in memory)";
    else if (go_direct(disk))
        how = "O_DIRECT";
    snprintf(disk->how, sizeof disk->how, "%s", how);
}

z3d_status z3d_disk_open_file(z3d_disk *disk) {
    z3d_pending_io io;
    z3d_pending_io_begin(&io, "reserving space in", disk->folder);
    z3d_status status = create_file(disk);
    if (status == Z3D_OK) status = reserve(disk);
    if (status == Z3D_OK) choose_cache(disk);
    z3d_pending_io_end(&io);
    return status;
}
