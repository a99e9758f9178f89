/* Writes a checkpoint's tensor into another program's file. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/interop/interop.h"
#include "src/model/lora.h"

enum { CHUNK = 1 << 22 }; /* elements at once */

static void transpose(const float *in, int64_t rows, int64_t columns, float *out) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < columns; k++) out[k * rows + r] = in[r * columns + k];
}

typedef struct target {
    z3d_checkpoint *checkpoint;
    int tensor;
    const z3d_view *view;
    const z3d_export_values *written;
    int fd;
    const char *path;
    int64_t offset;
    z3d_nonfinite *bad;
    float *values, *other; /* [CHUNK]; other: transposed */
    int64_t rank;          /* of the adapter to add; 0: none */
    float *a, *b;          /* the adapter's [rank, columns] and [rows, rank] */
} target;

/* ---- adding an adapter to the weight ---- */

static z3d_status read_whole(const target *t, int tensor, float **out) {
    z3d_part whole;
    z3d_checkpoint_whole(t->checkpoint, tensor, &whole);
    Z3D_TRY(z3d_new((size_t)whole.count, sizeof **out, "an adapter", out));
    return z3d_checkpoint_read(t->checkpoint, t->written->kind, tensor, &whole, 0, whole.count,
                               *out);
}

static int find_adapter(const target *t, const char *end) {
    const z3d_tensor *own = z3d_checkpoint_tensor(t->checkpoint, t->tensor);
    const char *last = strrchr(own->name, '.');
    char adapter[Z3D_NAME];
    if (!last || strcmp(last, ".weight") != 0) return -1;
    snprintf(adapter, sizeof adapter, "%.*s%s", (int)(last - own->name), own->name, end);
    return z3d_checkpoint_find(t->checkpoint, own->group, adapter);
}

static z3d_status read_adapter(target *t) {
    const int a = find_adapter(t, Z3D_LORA_A), b = find_adapter(t, Z3D_LORA_B);
    if (t->written->scale == 0 || a < 0 || b < 0) return Z3D_OK;
    t->rank = z3d_tensor_elements(z3d_checkpoint_tensor(t->checkpoint, a)) / t->view->columns;
    if (t->rank < 1 ||
        z3d_tensor_elements(z3d_checkpoint_tensor(t->checkpoint, b)) != t->rank * t->view->rows)
        return Z3D_ERROR(Z3D_ERR_DATA, "tensor %s: its adapter has another shape", t->view->name);
    Z3D_TRY(read_whole(t, a, &t->a));
    return read_whole(t, b, &t->b);
}

/* Adds the adapter to elements first .. first + count - 1 of the weight. */
static void add_adapter(const target *t, int64_t first, int64_t count) {
    const float scale = (float)t->written->scale;
    const int64_t columns = t->view->columns;
    for (int64_t i = 0; i < count && t->rank > 0; i++) {
        const int64_t row = (first + i) / columns, column = (first + i) % columns;
        float sum = 0;
        for (int64_t k = 0; k < t->rank; k++)
            sum += t->b[row * t->rank + k] * t->a[k * columns + column];
        t->values[i] += scale * sum;
    }
}

/* ---- values ---- */

/* Counts in the written type, in which a large number may have become an infinity. */
static int64_t count_nonfinite(const void *values, int64_t count, z3d_dtype dtype) {
    enum { PIECE = 1024 };
    float piece[PIECE];
    int64_t found = 0;
    for (int64_t at = 0; at < count; at += PIECE) {
        const int64_t some = count - at < PIECE ? count - at : PIECE;
        z3d_codec_of(dtype)->decode(piece, (const char *)values + z3d_bytes_of(dtype, at), some);
        for (int64_t i = 0; i < some; i++) found += !isfinite(piece[i]);
    }
    return found;
}

static z3d_status write_values(const target *t, float *values, int64_t count, int64_t first) {
    z3d_codec_of(t->written->dtype)->encode(values, values, count);
    z3d_nonfinite_add(t->bad, t->view->name, count_nonfinite(values, count, t->written->dtype));
    return z3d_io_write(NULL, t->fd, t->path, values, z3d_bytes_of(t->written->dtype, count),
                        t->offset + z3d_bytes_of(t->written->dtype, first), -1);
}

static z3d_status read_values(const target *t, int64_t first, int64_t count) {
    z3d_part whole;
    const z3d_tensor_kind kind =
        z3d_value_kind(z3d_checkpoint_tensor(t->checkpoint, t->tensor), t->written->kind);
    z3d_checkpoint_whole(t->checkpoint, t->tensor, &whole);
    Z3D_TRY(z3d_checkpoint_read(t->checkpoint, kind, t->tensor, &whole, first, count, t->values));
    add_adapter(t, first, count);
    z3d_progress_add(z3d_checkpoint_progress(t->checkpoint), count * (int64_t)sizeof *t->values);
    return Z3D_OK;
}

static z3d_status write_straight(const target *t, int64_t count) {
    for (int64_t at = 0; at < count; at += CHUNK) {
        int64_t some = count - at < CHUNK ? count - at : CHUNK;
        Z3D_TRY(read_values(t, at, some));
        Z3D_TRY(write_values(t, t->values, some, at));
    }
    return Z3D_OK;
}

/* Writes the transpose, a few of our rows at a time: they are a piece of each row of the file. A
 * row of ours has at most CHUNK elements. */
static z3d_status write_turned(const target *t) {
    int64_t rows = t->view->rows, columns = t->view->columns, most = CHUNK / columns;
    for (int64_t row = 0; row < rows; row += most) {
        int64_t some = rows - row < most ? rows - row : most;
        Z3D_TRY(read_values(t, row * columns, some * columns));
        transpose(t->values, some, columns, t->other);
        if (some == rows) return write_values(t, t->other, rows * columns, 0);
        for (int64_t k = 0; k < columns; k++)
            Z3D_TRY(write_values(t, t->other + k * some, some, k * rows + row));
    }
    return Z3D_OK;
}

z3d_status z3d_export_tensor(z3d_checkpoint *c, int tensor, const z3d_view *view,
                             const z3d_export_values *values, int fd, const char *path,
                             int64_t offset, z3d_nonfinite *bad) {
    target t = {.checkpoint = c,
                .tensor = tensor,
                .view = view,
                .written = values,
                .fd = fd,
                .path = path,
                .offset = offset,
                .bad = bad};
    int64_t count = (view->rows ? view->rows : 1) * view->columns;
    size_t size = (size_t)(count < CHUNK ? count : CHUNK);
    if (view->turned && view->columns > CHUNK)
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "tensor %s: %lld columns are more than %d",
                         view->name, (long long)view->columns, CHUNK);
    z3d_status status = z3d_new(size, sizeof *t.values, "a tensor", &t.values);
    if (status == Z3D_OK && view->turned)
        status = z3d_new(size, sizeof *t.other, "a tensor", &t.other);
    if (status == Z3D_OK) status = read_adapter(&t);
    if (status == Z3D_OK) status = view->turned ? write_turned(&t) : write_straight(&t, count);
    free(t.values);
    free(t.other);
    free(t.a);
    free(t.b);
    return status;
}
