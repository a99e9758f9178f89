#include "src/base/disk.h"
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
struct z3d_disk {
    int fd;
    int64_t next;
};
z3d_status z3d_disk_create(const z3d_disk_config *c, z3d_disk **out) {
    *out = calloc(1, sizeof **out);
    (*out)->fd = open(c->folder, O_TMPFILE | O_RDWR, 0600);
    if ((*out)->fd < 0) return Z3D_ERROR(Z3D_ERR_IO, "%s: %m", c->folder);
    return ftruncate((*out)->fd, c->bytes) ? Z3D_ERR_IO : Z3D_OK;
}
void z3d_disk_destroy(z3d_disk *d) {
    if (d) close(d->fd);
    free(d);
}
z3d_status z3d_disk_start(z3d_disk *d, bool write, int64_t offset, void *memory, int64_t bytes,
                          int64_t *ticket) {
    if (offset % 4096 || bytes % 4096 || (uintptr_t)memory % 4096)
        return Z3D_ERROR(Z3D_ERR_INTERNAL, "unaligned %lld %lld %p", (long long)offset,
                         (long long)bytes, memory);
    *ticket = ++d->next;
    int64_t n = write ? pwrite(d->fd, memory, (size_t)bytes, offset)
                      : pread(d->fd, memory, (size_t)bytes, offset);
    return n == bytes ? Z3D_OK
                      : Z3D_ERROR(Z3D_ERR_IO, "disk: %lld of %lld", (long long)n, (long long)bytes);
}
z3d_status z3d_disk_wait(z3d_disk *d, int64_t ticket) {
    (void)d;
    (void)ticket;
    return Z3D_OK;
}
z3d_status z3d_disk_read(z3d_disk *d, int64_t offset, void *memory, int64_t bytes) {
    return pread(d->fd, memory, (size_t)bytes, offset) == bytes ? Z3D_OK : Z3D_ERR_IO;
}
z3d_status z3d_disk_write(z3d_disk *d, int64_t offset, const void *memory, int64_t bytes) {
    return pwrite(d->fd, memory, (size_t)bytes, offset) == bytes ? Z3D_OK : Z3D_ERR_IO;
}
