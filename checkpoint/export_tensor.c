/* A checkpoint's tensor in another program's file. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/interop.h"

static void transpose(const float *in, int64_t rows, int64_t columns, float *out) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < columns; k++) out[k * rows + r] = in[r * columns + k];
}

/* In place: the narrow values never catch up with the wide ones. */
static void narrow(float *values, int64_t count, z3d_dtype dtype) {
    uint16_t *out = (uint16_t *)values;
    for (int64_t i = 0; i < count && dtype != Z3D_F32; i++) {
        float value;
        memcpy(&value, (char *)values + 4 * i, sizeof value);
        uint16_t half = dtype == Z3D_BF16 ? z3d_float_to_bf16(value) : z3d_float_to_f16(value);
        memcpy(&out[i], &half, sizeof half);
    }
}

z3d_status z3d_export_tensor(z3d_checkpoint *c, int tensor, const z3d_view *view, bool turned,
                             z3d_dtype dtype, int fd, const char *path, int64_t offset) {
    float *values = NULL, *other = NULL;
    z3d_part whole;
    z3d_checkpoint_whole(c, tensor, &whole);
    z3d_status status = z3d_new((size_t)whole.count, sizeof *values, "a tensor", &values);
    if (status == Z3D_OK)
        status =
            z3d_checkpoint_read(c, Z3D_TENSOR_PARAMETER, tensor, &whole, 0, whole.count, values);
    if (status == Z3D_OK && turned)
        status = z3d_new((size_t)whole.count, sizeof *other, "a tensor", &other);
    if (status == Z3D_OK && turned) transpose(values, view->rows, view->columns, other);
    float *out = turned ? other : values;
    if (status == Z3D_OK) narrow(out, whole.count, dtype);
    if (status == Z3D_OK)
        status = z3d_io_write(NULL, fd, path, out, whole.count * (int64_t)z3d_dtype_size(dtype),
                              offset, -1);
    free(values);
    free(other);
    return status;
}
