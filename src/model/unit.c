/* The unit's memory (bump allocators), parameter sizes, creation and destruction of a model. */
#include "src/model/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/strings.h"

enum { ALIGNMENT = 256 };

static void *take(z3d_bump *bump, int64_t bytes) {
    if (!bump->base || bytes < 0 || bytes > INT64_MAX - ALIGNMENT) return NULL;
    int64_t start = z3d_round_up(bump->used, ALIGNMENT);
    if (start > bump->capacity || bytes > bump->capacity - start) return NULL;
    bump->used = start + bytes;
    if (bump->used > bump->peak) bump->peak = bump->used;
    return bump->base + start;
}

int64_t z3d_unit_workspace_mark(const z3d_unit_run *run) {
    return run->workspace.used;
}

void z3d_unit_workspace_release(z3d_unit_run *run, int64_t mark) {
    run->workspace.used = mark;
}

static z3d_status take_checked(const z3d_unit_run *run, z3d_bump *bump, const char *what,
                               int64_t count, int64_t size, void *out_pointer) {
    int64_t bytes = 0;
    if (count < 0 || size < 0 || !z3d_mul_i64(count, size, &bytes))
        return Z3D_ERROR(Z3D_ERR_MEMORY,
                         "unit %s: %s memory of %lld x %lld bytes is too large for any machine",
                         run->unit->name, what, (long long)count, (long long)size);
    void *memory = take(bump, bytes);
    if (!memory)
        return Z3D_ERROR(Z3D_ERR_INTERNAL,
                         "unit %s: its %s memory of %lld bytes is full (%lld used, %lld more "
                         "requested); a unit must request the same sizes on every call of one mode",
                         run->unit->name, what, (long long)bump->capacity, (long long)bump->used,
                         (long long)bytes);
    memcpy(out_pointer, &memory, sizeof memory);
    return Z3D_OK;
}

z3d_status z3d_unit_take_saved(z3d_unit_run *run, int64_t count, int64_t size, void *out_pointer) {
    return take_checked(run, &run->saved, "saved", count, size, out_pointer);
}

z3d_status z3d_unit_take_workspace(z3d_unit_run *run, int64_t count, int64_t size,
                                   void *out_pointer) {
    return take_checked(run, &run->workspace, "workspace", count, size, out_pointer);
}

z3d_status z3d_unit_take_deferred(z3d_unit_run *run, int64_t count, int64_t size,
                                  void *out_pointer) {
    if (!run->deferred.base) return z3d_unit_take_workspace(run, count, size, out_pointer);
    return take_checked(run, &run->deferred, "deferred", count, size, out_pointer);
}

z3d_status z3d_unit_take_between(z3d_unit_run *run, z3d_halves halves, bool read, int64_t count,
                                 int64_t size, void *out_pointer) {
    *(void **)out_pointer = NULL;
    if (read) return z3d_unit_take_deferred(run, count, size, out_pointer);
    if (!(halves & Z3D_INPUT_HALF)) return Z3D_OK;
    return z3d_unit_take_workspace(run, count, size, out_pointer);
}

int64_t z3d_parameter_elements(const z3d_parameter *parameter) {
    int64_t elements = 1;
    for (int d = 0; d < parameter->dims; d++) elements *= z3d_parameter_extent(parameter, d);
    return elements;
}

int64_t z3d_parameter_local_elements(const z3d_parameter *parameter, int tensor_size) {
    int64_t elements = 1;
    for (int d = 0; d < parameter->dims; d++) {
        int64_t extent = z3d_parameter_extent(parameter, d);
        if (d == parameter->split_dim)
            extent = (parameter->padded_dim ? parameter->padded_dim : extent) / tensor_size;
        elements *= extent;
    }
    return elements;
}

/* Each group gets its part of one array; z3d_add_parameter never writes beyond a group's room. */
static z3d_status make_room(z3d_model *model, int room) {
    const size_t each = (size_t)room + 1;
    Z3D_TRY(z3d_new((size_t)model->num_groups * each, sizeof *model->parameter,
                    "a model's parameters", &model->parameter));
    for (int g = 0; g < model->num_groups; g++) {
        model->group[g].parameter = model->parameter + (size_t)g * each;
        model->group[g].room = room;
    }
    return Z3D_OK;
}

z3d_status z3d_model_create(int num_groups, int room, int num_units, z3d_model **out) {
    *out = NULL;
    if (num_groups < 1 || room < 1 || num_units < 1)
        return Z3D_ERROR(
            Z3D_ERR_USAGE,
            "a model needs at least 1 parameter group, room for 1 parameter in it, and "
            "1 unit; these are %d, %d and %d",
            num_groups, room, num_units);
    z3d_model *model = NULL;
    z3d_status status = z3d_new(1, sizeof *model, "a model", &model);
    if (status != Z3D_OK) return status;
    Z3D_TRY_GOTO(status,
                 z3d_new((size_t)num_groups, sizeof *model->group, "a model's parameter groups",
                         &model->group),
                 failed);
    Z3D_TRY_GOTO(status,
                 z3d_new((size_t)num_units, sizeof *model->unit, "a model's units", &model->unit),
                 failed);
    model->num_groups = num_groups;
    model->num_units = num_units;
    model->tensor_size = 1;
    Z3D_TRY_GOTO(status, make_room(model, room), failed);
    *out = model;
    return Z3D_OK;
failed:
    z3d_model_destroy(model);
    return status;
}

void z3d_model_destroy(z3d_model *model) {
    if (!model) return;
    if (model->destroy) model->destroy(model);
    free(model->place);
    free(model->unit);
    free(model->group);
    free(model->parameter);
    free(model);
}

void z3d_model_take_tokens(z3d_model *model, int64_t seq, bool packed) {
    static const char *const name[] = {"tokens", "targets", "positions"};
    const int64_t width = (int64_t)sizeof(int32_t);
    const int64_t part = seq < Z3D_PREFILL_TOKENS ? seq : Z3D_PREFILL_TOKENS;
    const int64_t few = seq < Z3D_PREFILL_SHORT_TOKENS ? seq : Z3D_PREFILL_SHORT_TOKENS;
    const int64_t tokens[Z3D_MODE_COUNT] = {seq, seq, part, few, 1};
    model->num_fields = packed ? 3 : 2;
    model->positions = seq;
    for (int f = 0; f < model->num_fields; f++)
        snprintf(model->field[f].name, Z3D_NAME, "%s", name[f]);
    for (int mode = 0; mode < Z3D_MODE_COUNT; mode++) {
        model->tokens[mode] = tokens[mode];
        model->field[0].bytes_per_sample[mode] = tokens[mode] * width;
        model->field[1].bytes_per_sample[mode] =
            (z3d_mode_generates((z3d_mode)mode) ? 2 : seq) * width;
        model->field[2].bytes_per_sample[mode] =
            packed && !z3d_mode_generates((z3d_mode)mode) ? seq * width : 0;
    }
}

static int64_t count_parameters(const z3d_model *model, bool all) {
    int64_t count = 0;
    for (int g = 0; g < model->num_groups; g++)
        for (int p = 0; p < model->group[g].num_parameters; p++) {
            const z3d_parameter *parameter = &model->group[g].parameter[p];
            if (all || !parameter->frozen) count += z3d_parameter_elements(parameter);
        }
    return count;
}

int64_t z3d_model_parameter_count(const z3d_model *model) {
    return count_parameters(model, true);
}

int64_t z3d_model_trained_count(const z3d_model *model) {
    return count_parameters(model, false);
}

z3d_parameters_text z3d_model_parameters_text(const z3d_model *model) {
    const int64_t all = count_parameters(model, true), trained = count_parameters(model, false);
    z3d_parameters_text out;
    if (trained == all)
        snprintf(out.text, sizeof out.text, "%s parameters", z3d_count_text((double)all).text);
    else
        snprintf(out.text, sizeof out.text, "%s parameters, %s of them trained",
                 z3d_count_text((double)all).text, z3d_count_text((double)trained).text);
    return out;
}

bool z3d_model_has_mode(const z3d_model *model, z3d_mode mode) {
    return !z3d_mode_generates(mode) || model->unit[model->num_units - 1].output_elements[mode] > 0;
}

int z3d_model_input(const z3d_model *model, int unit, z3d_mode mode) {
    int before = unit - 1; /* a chain */
    return before >= 0 && model->unit[before].output_elements[mode] > 0 ? before : -1;
}

bool z3d_model_is_last(const z3d_model *model, int unit) {
    return unit == model->num_units - 1;
}

bool z3d_unit_ends_part(const z3d_model *model, int unit) {
    return z3d_model_is_last(model, unit) || model->unit[unit + 1].index != model->unit[unit].index;
}

int z3d_model_part_units(const z3d_model *model) {
    int most = 0, units = 0;
    for (int u = 0; u < model->num_units; u++) {
        units++;
        if (units > most) most = units;
        if (z3d_unit_ends_part(model, u)) units = 0;
    }
    return most;
}
