/* Shared by both formats of token files: mapping a file for reading, and token types. */
#include "src/train/data/token_format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int z3d_token_type_bytes(z3d_token_type type) {
    static const int bytes[] = {1, 1, 2, 2, 4, 4, 8};
    return bytes[type];
}

z3d_status z3d_map_file(const char *path, z3d_mapped_file *out) {
    *out = (z3d_mapped_file){.fd = -1};
    out->path = strdup(path);
    if (!out->path) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a path");
    /* Non-blocking, so that a named pipe cannot hang the run. */
    out->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (out->fd < 0)
        return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot open the token file: %s", path, strerror(errno));
    struct stat info;
    if (fstat(out->fd, &info) != 0)
        return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot read the token file: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return Z3D_ERROR(Z3D_ERR_IO, "%s: it is %s, not a token file", path,
                         S_ISDIR(info.st_mode) ? "a folder" : "a device or pipe");
    out->bytes = info.st_size;
    if (out->bytes == 0) return Z3D_OK;
    void *map = mmap(NULL, (size_t)out->bytes, PROT_READ, MAP_SHARED, out->fd, 0);
    if (map == MAP_FAILED)
        return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot map %lld bytes: %s", path, (long long)out->bytes,
                         strerror(errno));
    out->data = map;
    return Z3D_OK;
}

void z3d_unmap_file(z3d_mapped_file *file) {
    if (file->data) munmap((void *)file->data, (size_t)file->bytes);
    if (file->fd >= 0) close(file->fd);
    free(file->path);
    *file = (z3d_mapped_file){.fd = -1};
}
