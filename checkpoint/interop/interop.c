/* A model in another program's files: which program wrote it, the names of our tensors there, and
 * their values in our order. */
#include "checkpoint/interop/interop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- opening ---- */

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

z3d_status z3d_interop_add_file(z3d_interop *f, const char *path) {
    struct stat info;
    z3d_interop_file *grown = realloc(f->file, ((size_t)f->num_files + 1) * sizeof *grown);
    if (grown) f->file = grown;
    char *copy = grown ? strdup(path) : NULL;
    if (!copy) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a file's name");
    z3d_interop_file *file = &f->file[f->num_files++];
    *file = (z3d_interop_file){copy, open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), 0};
    if (file->fd < 0 || fstat(file->fd, &info) != 0)
        return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot open it: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode)) return Z3D_ERROR(Z3D_ERR_IO, "%s: it is not a regular file", path);
    file->bytes = info.st_size;
    if (!z3d_add_i64(f->bytes, file->bytes, &f->bytes)) f->bytes = INT64_MAX;
    return Z3D_OK;
}

static z3d_status check_range(const z3d_interop *f, const char *what, int64_t value, int64_t most) {
    if (value >= 1 && value <= most) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_DATA, "%s: %lld %s: expected 1 to %lld", f->path, (long long)value,
                     what, (long long)most);
}

z3d_status z3d_interop_list(z3d_interop *f) {
    const size_t count = (size_t)f->count + 1;
    Z3D_TRY(z3d_new(count, sizeof *f->view, "the list of tensors", &f->view));
    Z3D_TRY(z3d_new(count, sizeof *f->place, "the list of tensors", &f->place));
    for (int i = 0; i < f->count; i++)
        f->type->interop->view(f->tensor[i].group, f->tensor[i].name, f->tensor[i].dims,
                               f->tensor[i].shape, &f->view[i]);
    return Z3D_OK;
}

/* Sizes come from the file: they are refused if the file is too small for such a model. */
z3d_status z3d_interop_make_model(z3d_interop *f) {
    enum { SMALLEST_ELEMENT = 2 };
    const z3d_config *c = f->config;
    z3d_model_sizes sizes;
    Z3D_TRY(check_range(f, "layers", c->model_num_layers, 10000));
    Z3D_TRY(check_range(f, "channels", c->model_hidden_size, 1 << 20));
    Z3D_TRY(check_range(f, "heads", c->model_num_attention_heads, 1 << 16));
    Z3D_TRY(check_range(f, "positions", c->model_seq_length, 1 << 24));
    Z3D_TRY(check_range(f, "token ids", c->model_vocab_size, 1 << 24));
    Z3D_TRY(z3d_model_type_of(c, &f->type));
    f->type->sizes(c, &sizes);
    if (sizes.parameters > f->bytes / SMALLEST_ELEMENT)
        return Z3D_ERROR(Z3D_ERR_DATA,
                         "%s: %lld bytes are too few for %lld layers of %lld channels, %lld "
                         "positions and %lld token ids",
                         f->path, (long long)f->bytes, (long long)c->model_num_layers,
                         (long long)c->model_hidden_size, (long long)c->model_seq_length,
                         (long long)c->model_vocab_size);
    z3d_status status = f->type->create(c, &f->model);
    if (status != Z3D_OK) return z3d_error_context(status, "%s", f->path);
    Z3D_TRY(z3d_tensors_of(f->model, &f->tensor, &f->count));
    return z3d_interop_list(f);
}

void z3d_interop_close(z3d_interop *f) {
    for (int i = 0; i < f->num_files; i++) {
        if (f->file[i].fd >= 0) close(f->file[i].fd);
        free(f->file[i].path);
    }
    z3d_model_destroy(f->model);
    z3d_config_destroy(f->config);
    z3d_json_free(f->index);
    free(f->file);
    free(f->path);
    free(f->base_name);
    free(f->tensor);
    free(f->view);
    free(f->place);
    *f = (z3d_interop){0};
}

/* ---- values ---- */

void z3d_nonfinite_add(z3d_nonfinite *bad, const char *tensor, int64_t count) {
    if (bad->count == 0 && count > 0) snprintf(bad->first, sizeof bad->first, "%s", tensor);
    bad->count += count;
}

z3d_status z3d_nonfinite_judge(const z3d_nonfinite *bad, bool allowed, const char *path,
                               z3d_dtype dtype) {
    if (bad->count == 0) return Z3D_OK;
    if (!allowed)
        return Z3D_ERROR(Z3D_ERR_NUMERIC,
                         "%s: %lld value%s not finite in %s, the first in tensor %s; "
                         "--allow-nonfinite accepts %s%s",
                         path, (long long)bad->count, bad->count == 1 ? " is" : "s are",
                         z3d_dtype_name(dtype), bad->first, bad->count == 1 ? "it" : "them",
                         dtype == Z3D_F16 ? "; --dtype bf16 or fp32 holds larger numbers" : "");
    z3d_log(Z3D_LOG_WARN, "%s: %lld value%s not finite in %s, the first in tensor %s", path,
            (long long)bad->count, bad->count == 1 ? " is" : "s are", z3d_dtype_name(dtype),
            bad->first);
    return Z3D_OK;
}

enum { RUN = 4096 }; /* elements read at once */

z3d_status z3d_interop_read_run(const z3d_interop *f, const z3d_interop_source *place,
                                int64_t first, int64_t count, float *out) {
    const z3d_interop_file *file = &f->file[place->file];
    int64_t offset = place->offset + z3d_bytes_of(place->dtype, first);
    char piece[4 * RUN];
    for (int64_t at = 0; at < count; at += RUN) {
        int64_t some = count - at < RUN ? count - at : RUN;
        Z3D_TRY(z3d_io_read(file->fd, file->path, piece, z3d_bytes_of(place->dtype, some),
                            offset + z3d_bytes_of(place->dtype, at)));
        z3d_codec_of(place->dtype)->decode(out + at, piece, some);
    }
    return Z3D_OK;
}

/* Reads rows [row, row + rows) and columns [column, column + columns) of a matrix that is [in, out]
 * in the file: each row of the file has a piece of one column of ours. */
static z3d_status read_turned(const z3d_interop *f, int tensor, int64_t row, int64_t rows,
                              int64_t column, int64_t columns, float *out) {
    int64_t across = f->view[tensor].rows;
    float run[RUN];
    for (int64_t k = 0; k < columns; k++)
        for (int64_t r = 0; r < rows; r += RUN) {
            int64_t some = rows - r < RUN ? rows - r : RUN;
            int64_t first = (column + k) * across + row + r;
            Z3D_TRY(z3d_interop_read_run(f, &f->place[tensor], first, some, run));
            for (int64_t i = 0; i < some; i++) out[(r + i) * columns + k] = run[i];
        }
    return Z3D_OK;
}

z3d_status z3d_interop_read(const z3d_interop *f, int tensor, int64_t first, int64_t count,
                            float *out) {
    const z3d_view *view = &f->view[tensor];
    if (!f->turned || !view->turned)
        return z3d_interop_read_run(f, &f->place[tensor], first, count, out);
    while (count > 0) { /* the end of a row, then whole rows, then the beginning of a row */
        int64_t row = first / view->columns, column = first % view->columns, some = 1, width;
        width = view->columns - column < count ? view->columns - column : count;
        if (width == view->columns) some = count / width;
        Z3D_TRY(read_turned(f, tensor, row, some, column, width, out));
        first += some * width, count -= some * width, out += some * width;
    }
    return Z3D_OK;
}
