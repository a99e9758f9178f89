/* The tape: a growing list of events. */
#include "src/device/sim/tape.h"

#include <stdlib.h>

z3d_status z3d_tape_create(z3d_tape **out) {
    return z3d_new(1, sizeof **out, "a tape", out);
}

void z3d_tape_destroy(z3d_tape *tape) {
    if (!tape) return;
    free(tape->event);
    free(tape);
}

void z3d_tape_clear(z3d_tape *tape) {
    tape->count = 0;
}

z3d_status z3d_tape_append(z3d_tape *tape, const z3d_event *event) {
    if (tape->count == tape->capacity) {
        int64_t capacity = tape->capacity ? 2 * tape->capacity : 1024;
        z3d_event *bigger = realloc(tape->event, (size_t)capacity * sizeof *bigger);
        if (!bigger) return Z3D_ERROR(Z3D_ERR_MEMORY, "a tape of %lld events", (long long)capacity);
        tape->event = bigger;
        tape->capacity = capacity;
    }
    tape->event[tape->count++] = *event;
    return Z3D_OK;
}
