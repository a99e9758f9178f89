/* Started entries, in one list per opcode and parameter group, sorted by first column. Buckets are
 * started and waited for in ascending order: lists are searched from the end where that finds the
 * place at once. */
#include "zero/program/in_flight.h"

#include <stdlib.h>

enum { ABSENT = -2 };

/* A wrong program is looked at, too: what is out of range has a list as well. */
static int list_of(const z3d_in_flight *f, int entry) {
    const z3d_instruction *in = &f->program->instruction[entry];
    int groups = f->program->model->num_groups;
    int opcode = (unsigned)in->opcode < Z3D_OPCODE_COUNT ? (int)in->opcode : 0;
    int group = in->group >= 0 && in->group < groups ? in->group + 1 : 0;
    return opcode * (groups + 1) + group;
}

z3d_status z3d_in_flight_create(const z3d_program *program, z3d_in_flight *out) {
    size_t entries = (size_t)program->num_instructions + 1;
    size_t lists = Z3D_OPCODE_COUNT * ((size_t)program->model->num_groups + 1);
    *out = (z3d_in_flight){.program = program};
    Z3D_TRY(z3d_new(entries, sizeof *out->before, "verifier", &out->before));
    Z3D_TRY(z3d_new(entries, sizeof *out->after, "verifier", &out->after));
    Z3D_TRY(z3d_new(lists, sizeof *out->first, "verifier", &out->first));
    Z3D_TRY(z3d_new(lists, sizeof *out->last, "verifier", &out->last));
    for (size_t i = 0; i < entries; i++) out->before[i] = ABSENT;
    for (size_t i = 0; i < lists; i++) out->first[i] = out->last[i] = -1;
    return Z3D_OK;
}

void z3d_in_flight_release(z3d_in_flight *flight) {
    free(flight->before);
    free(flight->after);
    free(flight->first);
    free(flight->last);
}

/* The last one in the entry's list whose columns do not begin behind the entry's, -1: none. */
static int place_for(const z3d_in_flight *f, int entry) {
    const z3d_instruction *instruction = f->program->instruction;
    int at = f->last[list_of(f, entry)];
    while (at >= 0 && instruction[at].first > instruction[entry].first) at = f->before[at];
    return at;
}

void z3d_in_flight_add(z3d_in_flight *f, int entry) {
    int list = list_of(f, entry), before = place_for(f, entry);
    int after = before >= 0 ? f->after[before] : f->first[list];
    f->before[entry] = before;
    f->after[entry] = after;
    *(before >= 0 ? &f->after[before] : &f->first[list]) = entry;
    *(after >= 0 ? &f->before[after] : &f->last[list]) = entry;
    f->count++;
}

void z3d_in_flight_remove(z3d_in_flight *f, int entry) {
    int list = list_of(f, entry), before = f->before[entry], after = f->after[entry];
    *(before >= 0 ? &f->after[before] : &f->first[list]) = after;
    *(after >= 0 ? &f->before[after] : &f->last[list]) = before;
    f->before[entry] = ABSENT;
    f->count--;
}

static bool overlap(const z3d_instruction *a, const z3d_instruction *b) {
    return a->opcode == b->opcode && a->group == b->group && a->first < b->first + b->count &&
           b->first < a->first + a->count;
}

/* What is in flight does not overlap, or it had been refused: a neighbour overlaps, or none. */
int z3d_in_flight_overlap(const z3d_in_flight *f, int entry) {
    const z3d_instruction *instruction = f->program->instruction;
    int before = place_for(f, entry);
    int after = before >= 0 ? f->after[before] : f->first[list_of(f, entry)];
    if (before >= 0 && overlap(&instruction[before], &instruction[entry])) return before;
    return after >= 0 && overlap(&instruction[after], &instruction[entry]) ? after : -1;
}

static bool same_operands(const z3d_instruction *a, const z3d_instruction *b, bool buffers) {
    bool same = a->opcode == b->opcode && a->unit == b->unit && a->micro == b->micro &&
                a->group == b->group && a->axes == b->axes && a->rows == b->rows &&
                a->first == b->first && a->count == b->count;
    for (int s = 0; s < Z3D_SLOT_COUNT && same && buffers; s++) same = a->buffer[s] == b->buffer[s];
    return same;
}

int z3d_in_flight_find(const z3d_in_flight *f, int wait, bool buffers) {
    const z3d_instruction *instruction = f->program->instruction;
    for (int at = f->first[list_of(f, wait)]; at >= 0; at = f->after[at]) {
        if (instruction[at].first > instruction[wait].first) return -1;
        if (same_operands(&instruction[at], &instruction[wait], buffers)) return at;
    }
    return -1;
}

int z3d_in_flight_first(const z3d_in_flight *f) {
    for (int i = 0; i < f->program->num_instructions; i++)
        if (f->before[i] != ABSENT) return i;
    return -1;
}
