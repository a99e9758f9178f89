#include "src/base/pipeline_schedules.h"

#include <stdio.h>
#include <string.h>

enum { ROUND, V };

static const z3d_schedule_row table[] = {
#define X(NAME, name, least, most, chunks, rounds, halves, places, all, bubble)                    \
    {name, least, most, chunks, rounds, halves, places == V, all, bubble},
    Z3D_SCHEDULE_MAP(X)
#undef X
};

const z3d_schedule_row *z3d_schedule_row_of(z3d_schedule_kind kind) {
    return &table[kind];
}

const char *z3d_schedule_name(z3d_schedule_kind kind) {
    return (unsigned)kind < Z3D_SCHEDULE_COUNT ? table[kind].name : "?";
}

bool z3d_schedule_has_chunks(z3d_schedule_kind kind, int64_t each) {
    return each >= table[kind].least && each <= table[kind].most;
}

int64_t z3d_schedule_round(z3d_schedule_kind kind, int64_t stages) {
    return table[kind].rounds ? stages : 1;
}

z3d_schedule_kind z3d_schedule_of_key(int64_t value, int64_t each) {
    int kind = 0;
    if (value > 0) return (z3d_schedule_kind)(value - 1);
    while (kind < Z3D_SCHEDULE_FILE && !z3d_schedule_has_chunks((z3d_schedule_kind)kind, each))
        kind++;
    return (z3d_schedule_kind)kind;
}

z3d_schedule_text z3d_schedule_chunks_text(z3d_schedule_kind kind) {
    z3d_schedule_text out;
    const z3d_schedule_row *row = &table[kind];
    snprintf(out.text, sizeof out.text, "%s has %s chunk%s per pipeline stage", row->name,
             row->chunks, row->most == 1 ? "" : "s");
    return out;
}

z3d_schedule_text z3d_schedule_round_text(z3d_schedule_kind kind, int64_t stages) {
    z3d_schedule_text out;
    snprintf(out.text, sizeof out.text,
             "%s on %lld pipeline stages needs a multiple of %lld micro-batches", table[kind].name,
             (long long)stages, (long long)z3d_schedule_round(kind, stages));
    return out;
}

z3d_schedule_text z3d_schedule_choices(int64_t each, bool whole) {
    z3d_schedule_text out = {""};
    const char *fits[Z3D_SCHEDULE_COUNT];
    int count = 0;
    for (int kind = 0; kind < Z3D_SCHEDULE_FILE; kind++)
        if ((each == 0 || z3d_schedule_has_chunks((z3d_schedule_kind)kind, each)) &&
            !(whole && table[kind].halves))
            fits[count++] = table[kind].name;
    for (int i = 0; i < count; i++) {
        const size_t at = strlen(out.text);
        const char *before = i == 0 ? "" : i + 1 < count ? ", " : " or ";
        snprintf(out.text + at, sizeof out.text - at, "%s%s", before, fits[i]);
    }
    return out;
}
