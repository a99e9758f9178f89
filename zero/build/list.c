/* The list under construction: new buffers and entries, and the state of each unit. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "zero/build/builder.h"

/* Makes room for element number `count`. New elements are zero. */
static void *grow(struct builder *b, void *array, int count, int *capacity, size_t bytes) {
    int wanted = *capacity ? 2 * *capacity : 64;
    if (count < *capacity) return array;
    while (wanted <= count) wanted *= 2;
    void *bigger = realloc(array, (size_t)wanted * bytes);
    if (!bigger) {
        b->status = Z3D_ERROR(Z3D_ERR_MEMORY,
                              "not enough memory for a step program of more than %d entries",
                              b->program->num_instructions);
        return array;
    }
    memset((char *)bigger + (size_t)*capacity * bytes, 0, (size_t)(wanted - *capacity) * bytes);
    *capacity = wanted;
    return bigger;
}

int z3d_builder_buffer(struct builder *b, z3d_category category, int64_t bytes, const char *what,
                       const char *owner, int micro) {
    z3d_program *p = b->program;
    if (b->status != Z3D_OK || bytes == 0) return -1;
    p->buffer = grow(b, p->buffer, p->num_buffers, &b->buffer_capacity, sizeof *p->buffer);
    if (b->status != Z3D_OK) return -1;
    z3d_buffer *buffer = &p->buffer[p->num_buffers];
    *buffer = (z3d_buffer){.what = what,
                           .owner = owner,
                           .micro = micro,
                           .category = category,
                           .bytes = bytes,
                           .first = INT_MAX,
                           .last = -1,
                           .group = -1,
                           .rows = Z3D_ROWS_ALL};
    return p->num_buffers++;
}

/* Makes room for slots. The array may move, so all entries get new pointers to theirs. */
static void grow_slots(struct builder *b, int slots) {
    z3d_program *p = b->program;
    const int before = b->slot_capacity;
    p->slot = grow(b, p->slot, p->num_slots + slots, &b->slot_capacity, sizeof *p->slot);
    memset(p->slot + before, 0xff, (size_t)(b->slot_capacity - before) * sizeof *p->slot); /* -1 */
    int *next = p->slot;
    for (int n = 0; n < p->num_instructions; next += p->instruction[n++].num_slots)
        p->instruction[n].buffer = next;
}

void z3d_builder_begin(struct builder *b) {
    z3d_program *p = b->program;
    p->instruction = grow(b, NULL, 0, &b->instruction_capacity, sizeof *p->instruction);
    b->input = grow(b, NULL, 0, &b->input_capacity, sizeof *b->input);
    if (b->status == Z3D_OK) grow_slots(b, z3d_slots_with(Z3D_MAX_UNIT_GROUPS));
}

/* After a failure it still returns an entry, to be ignored, with the first slots
 * (z3d_builder_begin). */
z3d_instruction *z3d_builder_emit_slots(struct builder *b, z3d_opcode opcode, z3d_phase phase,
                                        int *ticket, int slots) {
    z3d_program *p = b->program;
    if (phase == Z3D_PHASE_START) *ticket = p->num_tickets++;
    if (b->status == Z3D_OK)
        p->instruction = grow(b, p->instruction, p->num_instructions, &b->instruction_capacity,
                              sizeof *p->instruction);
    if (b->status == Z3D_OK && p->num_slots + slots > b->slot_capacity) grow_slots(b, slots);
    int index = p->num_instructions, *buffer = p->slot;
    if (b->status == Z3D_OK) {
        buffer += p->num_slots;
        p->num_slots += slots;
        p->num_instructions++;
    } else if (index == b->instruction_capacity) {
        index--;
    }
    z3d_instruction *i = &p->instruction[index];
    *i = (z3d_instruction){.opcode = opcode,
                           .phase = phase,
                           .ticket = phase == Z3D_PHASE_WHOLE ? -1 : *ticket,
                           .unit = -1,
                           .micro = -1,
                           .group = -1,
                           .peer = -1,
                           .rows = Z3D_ROWS_ALL,
                           .axes = z3d_opcode_axes(p->layout, opcode, -1),
                           .buffer = buffer,
                           .num_slots = slots};
    return i;
}

z3d_instruction *z3d_builder_emit(struct builder *b, z3d_opcode opcode, z3d_phase phase,
                                  int *ticket) {
    return z3d_builder_emit_slots(b, opcode, phase, ticket, z3d_slots_with(1));
}

z3d_instruction *z3d_builder_emit_group(struct builder *b, z3d_opcode opcode, z3d_phase phase,
                                        int *ticket, int g) {
    z3d_instruction *i = z3d_builder_emit(b, opcode, phase, ticket);
    i->group = g;
    i->axes = z3d_opcode_axes(b->program->layout, opcode, g);
    return i;
}

z3d_instruction *z3d_builder_emit_subject(struct builder *b, z3d_opcode opcode, z3d_phase phase,
                                          int *ticket, const struct subject *subject) {
    z3d_instruction *i = z3d_builder_emit_group(b, opcode, phase, ticket, subject->group);
    i->unit = subject->unit;
    i->micro = subject->micro;
    i->rows = subject->rows;
    i->first = subject->first;
    i->count = subject->count;
    return i;
}

struct unit_state *z3d_builder_state(const struct builder *b, int unit, int micro) {
    return &b->state[(int64_t)micro * b->program->model->num_units + unit];
}

struct kept_input *z3d_builder_keep(struct builder *b, struct unit_state *unit) {
    b->input = grow(b, b->input, b->num_inputs, &b->input_capacity, sizeof *b->input);
    if (b->status == Z3D_OK) unit->kept = b->num_inputs++;
    return &b->input[unit->kept < 0 ? 0 : unit->kept];
}

int z3d_builder_input(const struct builder *b, int unit, int micro) {
    int source = z3d_model_input(b->program->model, unit, b->program->mode);
    return source >= 0 ? z3d_builder_state(b, source, micro)->output : -1;
}
