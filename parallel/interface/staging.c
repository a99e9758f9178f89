/* Lets backends that work on host memory serve devices whose memory the host cannot access. The
 * start packs the operands into pinned host memory; the wait copies the results back. The packed
 * matrix has the rows of the bucket without gaps: the same sums in the same order. */
#include "parallel/interface/internal.h"

/* Rows of a call's matrix. */
typedef struct rows {
    int first, end;
    int left_out; /* -1: none */
} rows;

/* What this rank sends, or (`filled`) what the call fills in. */
static rows rows_of(const z3d_group *group, const z3d_collective *call, bool filled) {
    const int index = group->index;
    const rows all = {0, group->size, filled ? index : -1}, own = {index, index + 1, -1};
    switch (call->kind) {
    case Z3D_COLLECTIVE_REDUCE_SCATTER:
        return filled ? own : all;
    case Z3D_COLLECTIVE_ALL_GATHER:
        return filled ? all : own;
    case Z3D_COLLECTIVE_BROADCAST:
        return (rows){0, (call->peer == index) != filled, -1};
    case Z3D_COLLECTIVE_SEND:
        return (rows){0, !filled, -1};
    case Z3D_COLLECTIVE_RECV:
        return (rows){0, filled, -1};
    default:
        return (rows){0, 1, -1};
    }
}

static char *row_at(const z3d_collective *call, int row) {
    const int64_t first = z3d_collective_has_rows(call->kind) ? row * call->stride : 0;
    return (char *)call->buffer + z3d_bytes_of(call->dtype, first);
}

static z3d_status move(z3d_group *group, const z3d_operation *operation, rows which, bool back) {
    const z3d_collective *call = &operation->target;
    int64_t bytes = z3d_bytes_of(call->dtype, call->count);
    for (int row = which.first; row < which.end; row++) {
        if (row == which.left_out) continue;
        char *there = row_at(call, row);
        char *here = (char *)operation->staging + row * bytes;
        Z3D_TRY(back ? z3d_device_write(group->device, there, here, bytes)
                     : z3d_device_read(group->device, here, there, bytes));
    }
    return Z3D_OK;
}

bool z3d_collective_result(const z3d_group *group, const z3d_collective *call, int run, void **at,
                           int64_t *bytes) {
    if (group->size == 1 || call->kind == Z3D_COLLECTIVE_BARRIER || call->count == 0) return false;
    const rows filled = rows_of(group, call, true);
    int row = filled.first + run;
    if (filled.left_out >= 0 && row >= filled.left_out) row++;
    if (row >= filled.end) return false;
    *at = row_at(call, row);
    *bytes = z3d_bytes_of(call->dtype, call->count);
    return true;
}

z3d_status z3d_staging_begin(z3d_group *group, z3d_operation *operation) {
    z3d_collective *call = &operation->call;
    if (call->kind == Z3D_COLLECTIVE_BARRIER || call->count == 0) return Z3D_OK;
    const int matrix_rows = z3d_collective_has_rows(call->kind) ? group->size : 1;
    int64_t bytes = z3d_bytes_of(call->dtype, matrix_rows * call->count);
    if (bytes > operation->staging_bytes) {
        z3d_staging_free(group, operation);
        Z3D_TRY(z3d_device_alloc(group->device, Z3D_SPACE_HOST, bytes, &operation->staging));
        operation->staging_bytes = bytes;
    }
    operation->target = *call;
    call->buffer = operation->staging;
    call->stride = call->count;
    return move(group, operation, rows_of(group, &operation->target, false), false);
}

z3d_status z3d_staging_end(z3d_group *group, const z3d_operation *operation) {
    return move(group, operation, rows_of(group, &operation->target, true), true);
}

void z3d_staging_free(z3d_group *group, z3d_operation *operation) {
    if (operation->staging)
        z3d_device_free(group->device, Z3D_SPACE_HOST, operation->staging,
                        operation->staging_bytes);
    operation->staging = NULL;
    operation->staging_bytes = 0;
}
