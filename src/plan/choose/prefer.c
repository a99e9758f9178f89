/* plan --fit and --recommend: the order of candidates. Predictions are too inexact to order two
 * candidates that differ by 2 %, so the simpler one comes first. */
#include "src/plan/choose/ways.h"

bool z3d_row_is_tight(const z3d_fit_row *row) {
    return row->memory.free < 0.1 * row->memory.capacity;
}

int z3d_row_mechanisms(const z3d_fit_row *row) {
    const z3d_fit_layout *l = &row->layout;
    const int stage = l->data > 1 || row->tiers.optimizer ? row->stage : 0;
    return (l->tensor > 1) + (l->tensor > 1 && l->sequence_parallel) + (l->pipeline > 1) +
           (l->chunks > 1) + stage + (row->granularity != Z3D_GRANULARITY_NONE) + row->partition +
           row->offload + (l->cut != Z3D_CUT_NONE) + row->tiers.optimizer + row->tiers.parameters;
}

/* Whether a comes before b, if both are equally fast. */
static bool is_better(const z3d_fit_row *a, const z3d_fit_row *b) {
    const bool tight[2] = {z3d_row_is_tight(a), z3d_row_is_tight(b)};
    if (tight[0] != tight[1]) return tight[1];
    const int more = z3d_row_mechanisms(a) - z3d_row_mechanisms(b);
    if (more != 0) return more < 0;
    return a->memory.free > b->memory.free;
}

void z3d_rows_order(z3d_fit_row *row, int count) {
    for (int first = 0; first < count; first++) {
        int best = first;
        double fastest = row[first].seconds;
        for (int i = first + 1; i < count; i++)
            if (row[i].seconds < fastest) fastest = row[i].seconds;
        for (int i = first; i < count; i++) {
            const bool now = row[best].seconds <= Z3D_EQUALLY_FAST * fastest;
            if (row[i].seconds > Z3D_EQUALLY_FAST * fastest) continue;
            if (!now || is_better(&row[i], &row[best])) best = i;
        }
        const z3d_fit_row moved = row[best];
        for (int i = best; i > first; i--) row[i] = row[i - 1];
        row[first] = moved;
    }
}
