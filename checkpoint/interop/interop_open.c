/* Finds out which program wrote a model, and opens it. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint/interop/interop.h"

/* "owner/name" may mean a model of Hugging Face's hub. */
static z3d_status refuse_path(const char *from, int error) {
    const char *slash = strchr(from, '/');
    bool name = slash && slash != from && slash[1] && !strchr(slash + 1, '/') && *from != '.';
    if (error == ENOENT && name)
        return Z3D_ERROR(
            Z3D_ERR_IO,
            "%s: no such folder; if this is a model of Hugging Face's hub, download it "
            "first: hf download %s --local-dir FOLDER, then import FOLDER",
            from, from);
    return Z3D_ERROR(Z3D_ERR_IO, "%s: %s", from, strerror(error));
}

z3d_status z3d_interop_open(const char *from, z3d_interop *f) {
    struct stat info;
    *f = (z3d_interop){0};
    if (stat(from, &info) != 0) return refuse_path(from, errno);
    f->path = strdup(from);
    if (!f->path) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a file's name");
    Z3D_TRY(z3d_config_create(&f->config));
    if (S_ISDIR(info.st_mode)) return z3d_huggingface_open(from, f);
    Z3D_TRY(z3d_interop_add_file(f, from));
    return z3d_llmc_open(f);
}
