/* Where buffers, states and the rows of matrices lie in the arenas. */
#include "zero/execute/executor.h"
#include "zero/program/layout.h"

void *z3d_executor_address(const z3d_executor *executor, int buffer, int64_t element,
                           z3d_dtype dtype) {
    if (buffer < 0) return NULL;
    const z3d_buffer *b = &executor->program->buffer[buffer];
    return executor->arena[b->space] + b->offset + z3d_bytes_of(dtype, element);
}

z3d_status z3d_executor_read(const z3d_executor *executor, z3d_space space, int64_t place,
                             void *out, int64_t bytes) {
    if (space == Z3D_SPACE_DISK) return z3d_disk_read(executor->disk, place, out, bytes);
    return z3d_device_read(executor->device, out, executor->arena[space] + place, bytes);
}

z3d_status z3d_executor_read_floats(const z3d_executor *executor, z3d_space space, int64_t place,
                                    z3d_dtype dtype, int64_t count, float *out) {
    char piece[1 << 16];
    const int64_t most = z3d_values_in(dtype, sizeof piece);
    if (dtype == Z3D_F32)
        return z3d_executor_read(executor, space, place, out, z3d_bytes_of(dtype, count));
    for (int64_t done = 0, part; done < count; done += part) {
        part = count - done < most ? count - done : most;
        Z3D_TRY(z3d_executor_read(executor, space, place + z3d_bytes_of(dtype, done), piece,
                                  z3d_bytes_of(dtype, part)));
        z3d_codec_of(dtype)->decode(out + done, piece, part);
    }
    return Z3D_OK;
}

/* ---- states ---- */

void z3d_executor_find(const z3d_executor *executor, int group, z3d_tensor_kind kind,
                       z3d_state_role *role, int *tensor) {
    const z3d_layout *layout = executor->program->layout;
    *role = Z3D_STATE_OPTIMIZER;
    *tensor = z3d_state_index(layout, group, Z3D_STATE_OPTIMIZER, kind);
    if (*tensor >= 0) return;
    const bool gradient = kind == Z3D_TENSOR_GRADIENT || kind == Z3D_TENSOR_PENDING;
    *role = gradient ? Z3D_STATE_GRADIENT : Z3D_STATE_VALUE;
    *tensor = 0;
}

int64_t z3d_executor_place(const z3d_executor *executor, int group, int buffer, int tensor,
                           int tensors, int64_t flat, z3d_dtype dtype) {
    const z3d_buffer *b = &executor->program->buffer[buffer];
    const z3d_group_layout *g = &executor->program->layout->group[group];
    const int64_t stride = z3d_values_in(dtype, b->bytes) / tensors;
    if (b->rows == Z3D_ROWS_OWN) flat -= b->first_column;
    flat -= z3d_rows_first(g, b->rows);
    return b->offset + z3d_bytes_of(dtype, tensor * stride + flat);
}

int64_t z3d_executor_state_place(const z3d_executor *executor, int group, z3d_state_role role,
                                 int tensor, int64_t flat) {
    const z3d_state *state = &executor->program->layout->group[group].state[role];
    return z3d_executor_place(executor, group,
                              z3d_program_group_buffer(executor->program, group, role), tensor,
                              z3d_count_kinds(state->kinds), flat, state->at.codec);
}

z3d_status z3d_executor_read_state(const z3d_executor *executor, int group, z3d_state_role role,
                                   int tensor, int64_t flat, void *out, int64_t bytes) {
    return z3d_executor_read(executor, z3d_state_space(executor->program->layout, group, role),
                             z3d_executor_state_place(executor, group, role, tensor, flat), out,
                             bytes);
}

z3d_status z3d_executor_write_state(const z3d_executor *executor, int group, z3d_state_role role,
                                    int tensor, int64_t flat, const void *from, int64_t bytes) {
    const z3d_space space = z3d_state_space(executor->program->layout, group, role);
    const int64_t place = z3d_executor_state_place(executor, group, role, tensor, flat);
    if (space == Z3D_SPACE_DISK) return z3d_disk_write(executor->disk, place, from, bytes);
    return z3d_device_write(executor->device, executor->arena[space] + place, from, bytes);
}

z3d_step_state *z3d_executor_state(const z3d_executor *executor) {
    return z3d_executor_address(executor, Z3D_BUFFER_STATE, 0, Z3D_U8);
}

/* ---- rows of matrices ---- */

static int64_t matrix_place(const z3d_executor *executor, const z3d_instruction *i, int buffer,
                            int row, int64_t column) {
    const z3d_matrix m = z3d_instruction_matrix(executor->program, i);
    const z3d_buffer *b = &executor->program->buffer[buffer];
    int64_t element = m.base + row * m.columns + column;
    if (i->group >= 0)
        element -= z3d_rows_first(&executor->program->layout->group[i->group], b->rows);
    else if (b->rows == Z3D_ROWS_OWN)
        element -= m.own * m.columns;
    return b->offset + z3d_bytes_of(m.dtype, element);
}

void *z3d_executor_matrix_address(const z3d_executor *executor, const z3d_instruction *i,
                                  int buffer, int row, int64_t column) {
    return executor->arena[executor->program->buffer[buffer].space] +
           matrix_place(executor, i, buffer, row, column);
}

int64_t z3d_executor_own_elements(const z3d_executor *executor, const z3d_instruction *i) {
    const z3d_program *p = executor->program;
    z3d_matrix m = z3d_instruction_matrix(p, i);
    if (i->group >= 0)
        return z3d_is_collective(i) ? i->count : m.columns; /* a bucket, or the row */
    int64_t rest = z3d_program_output_elements(p, z3d_instruction_source(p, i)) - m.own * m.columns;
    return rest < 0 ? 0 : rest < m.columns ? rest : m.columns;
}

z3d_run z3d_executor_run_of(const z3d_executor *executor, const z3d_instruction *i, int buffer,
                            int tensor) {
    const z3d_matrix m = z3d_instruction_matrix(executor->program, i);
    const z3d_space space = executor->program->buffer[buffer].space;
    if (i->group < 0)
        return (z3d_run){.space = space,
                         .place = matrix_place(executor, i, buffer, m.own, i->first),
                         .bytes = z3d_bytes_of(m.dtype, z3d_executor_own_elements(executor, i))};
    const bool all = i->rows == Z3D_ROWS_ALL;
    const int64_t flat = all ? 0 : m.own * m.columns + i->first;
    return (z3d_run){
        .space = space,
        .place = z3d_executor_place(executor, i->group, buffer, tensor, m.tensors, flat, m.dtype),
        .bytes = z3d_bytes_of(m.dtype, all ? m.ranks * m.columns : i->count)};
}
