/* The sentences of the side channel: who died where, who waits for whom. */
#include <string.h>

#include "parallel/side/side.h"

enum { MAX_LINES = 40, MAX_NAMED = 4 };

void z3d_report_place(struct z3d_side *side, int rank, z3d_place *out) {
    if (side->slot_of[rank] >= 0)
        z3d_place_read(&side->slots[side->slot_of[rank]], out);
    else
        *out = side->seen[rank].place;
}

void z3d_report_death(struct z3d_side *side, int rank, bool silent, z3d_string *out) {
    z3d_place place;
    z3d_report_place(side, rank, &place);
    z3d_string_append(out, "zero3d: rank %d (host %s, pid %d) %s ", rank, side->peer[rank].host,
                      (int)side->peer[rank].pid, silent ? "does not answer" : "died");
    if (place.since == 0)
        z3d_string_append(out, "before it said what it was doing");
    else
        z3d_string_append(out, "in %s", place.text);
    z3d_string_append(out, "; ending the run\n");
}

static bool same_place(const z3d_place *a, const z3d_place *b) {
    return a->waiting == b->waiting && strcmp(a->text, b->text) == 0;
}

static const char *doing(const z3d_place *place) {
    return place->since == 0 ? "(nothing said yet)" : place->text;
}

static int seconds_in(const z3d_place *place) {
    return place->since == 0 ? 0 : (int)(z3d_now() - place->since);
}

/* "rank 5 waits 31 s in X; rank 6 is still in Y" */
static void headline(struct z3d_side *side, int stuck, z3d_string *out) {
    const z3d_place mine = side->seen[stuck].place;
    z3d_string_append(out, "zero3d: watchdog: rank %d waits %d s in %s", stuck, seconds_in(&mine),
                      doing(&mine));
    int named = 0, missing = 0;
    for (int rank = 0; rank < side->size; rank++) {
        const z3d_place place = side->seen[rank].place;
        bool silent = !side->seen[rank].answered && rank != side->rank;
        if (rank == stuck || (same_place(&place, &mine) && !silent)) continue;
        missing++;
        if (named == MAX_NAMED) continue;
        named++;
        if (side->seen[rank].said_bye)
            z3d_string_append(out, "; rank %d has ended", rank);
        else if (silent)
            z3d_string_append(out, "; rank %d does not answer, it was last in %s", rank,
                              doing(&place));
        else if (place.waiting)
            z3d_string_append(out, "; rank %d waits in %s", rank, doing(&place));
        else
            z3d_string_append(out, "; rank %d is still in %s", rank, doing(&place));
    }
    if (missing > named) z3d_string_append(out, "; %d more elsewhere", missing - named);
    z3d_string_append(out, "\n");
}

/* "0-3, 5": all ranks that are in this place. */
static void append_ranks(struct z3d_side *side, const z3d_place *where, z3d_string *out) {
    int begun = -1;
    const char *comma = "";
    for (int rank = 0; rank <= side->size; rank++) {
        bool here = rank < side->size && same_place(&side->seen[rank].place, where);
        if (here && begun < 0) begun = rank;
        if (!here && begun >= 0) {
            z3d_string_append(out, "%s%d", comma, begun);
            if (begun < rank - 1) z3d_string_append(out, "-%d", rank - 1);
            comma = ", ";
            begun = -1;
        }
    }
}

/* One line for each place and the ranks that are there. */
static void table(struct z3d_side *side, z3d_string *out) {
    int lines = 0;
    for (int rank = 0; rank < side->size && lines < MAX_LINES; rank++) {
        const z3d_place *place = &side->seen[rank].place;
        bool told = false;
        for (int other = 0; other < rank && !told; other++)
            told = same_place(&side->seen[other].place, place);
        if (told) continue;
        lines++;
        z3d_string_append(out, "zero3d:   ranks ");
        append_ranks(side, place, out);
        z3d_string_append(out, ": %s %s (%d s)\n", place->waiting ? "waiting in" : "in",
                          doing(place), seconds_in(place));
    }
    if (lines == MAX_LINES) z3d_string_append(out, "zero3d:   ...\n");
}

void z3d_report_stuck(struct z3d_side *side, z3d_string *out) {
    for (int rank = 0; rank < side->size; rank++)
        z3d_report_place(side, rank, &side->seen[rank].place);
    headline(side, side->collecting - 1, out);
    table(side, out);
}
