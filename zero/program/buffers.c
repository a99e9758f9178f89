/* The buffers that all programs of a configuration have, their sizes, and the names of buffers. */
#include <stdio.h>

#include "zero/program.h"
#include "zero/program/layout.h"

int64_t z3d_program_field_bytes(const z3d_program *program, int field) {
    return z3d_samples_in_mode(&program->config, program->mode) *
           program->model->field[field].bytes_per_sample[program->mode];
}

/* All programs have the same buffers; generation uses the first micro-batch's. */
int64_t z3d_program_batch_bytes(const z3d_program *program, int micro, int field) {
    const z3d_model *model = program->model;
    int64_t most = 0;
    for (int mode = 0; mode < Z3D_MODE_COUNT; mode++) {
        if (!z3d_model_has_mode(model, (z3d_mode)mode)) continue;
        if (!z3d_needs_mode(&program->config, (z3d_mode)mode)) continue;
        if (micro > 0 && z3d_mode_generates((z3d_mode)mode)) continue;
        int64_t bytes = z3d_samples_in_mode(&program->config, (z3d_mode)mode) *
                        model->field[field].bytes_per_sample[mode];
        if (bytes > most) most = bytes;
    }
    return most;
}

z3d_buffer_text z3d_buffer_name(const z3d_buffer *buffer) {
    z3d_buffer_text name;
    char micro[16] = "";
    if (buffer->micro >= 0) snprintf(micro, sizeof micro, " m%d", buffer->micro);
    snprintf(name.text, sizeof name.text, "%s %s%s", buffer->what, buffer->owner, micro);
    return name;
}

int z3d_program_batch_buffer(const z3d_program *program, int micro, int field) {
    return Z3D_BUFFER_BATCH + micro * program->model->num_fields + field;
}

int z3d_program_group_buffer(const z3d_program *program, int group, z3d_state_role role) {
    return z3d_program_batch_buffer(program, program->config.accumulation, 0) +
           z3d_state_classes(&program->config) * group + (int)role;
}

int z3d_program_cache_buffer(const z3d_program *program, int unit) {
    return z3d_program_group_buffer(program, program->model->num_groups, Z3D_STATE_VALUE) + unit;
}

int64_t z3d_program_cache_bytes(const z3d_program *program, int unit) {
    if (!z3d_mode_generates(program->mode) || !z3d_layout_has_unit(program->layout, unit)) return 0;
    return z3d_bytes_of(program->config.dtype,
                        z3d_samples_in_caches(&program->config) *
                            z3d_cache_positions(&program->config, program->model) *
                            program->model->unit[unit].cache_columns);
}

int z3d_control_capacity(const z3d_layout *layout) {
    return Z3D_CONTROL_FIXED + layout->num_groups;
}

int z3d_control_count(const z3d_program *program) {
    if (z3d_mode_generates(program->mode)) return 0;
    return program->mode == Z3D_MODE_TRAIN ? z3d_control_capacity(program->layout)
                                           : Z3D_CONTROL_FIXED;
}

int64_t z3d_program_output_elements(const z3d_program *program, int unit) {
    return z3d_samples_in_mode(&program->config, program->mode) *
           program->model->unit[unit].output_elements[program->mode];
}

int64_t z3d_program_output_bytes(const z3d_program *program, int unit) {
    return z3d_bytes_of(program->config.dtype, z3d_program_output_elements(program, unit));
}
