/* The texts of the side channel: who died where, who waits for whom. */
#include <stdio.h>
#include <string.h>

#include "parallel/side/side.h"

enum { MAX_LINES = 40, MAX_NAMED = 4 };

void z3d_report_position(struct z3d_side *side, int rank, z3d_position *out) {
    if (side->slot_of[rank] >= 0)
        z3d_position_read(&side->slots[side->slot_of[rank]], out);
    else
        *out = side->seen[rank].place;
}

void z3d_report_death(struct z3d_side *side, int rank, bool silent, char line[Z3D_LINE_BYTES]) {
    z3d_position place;
    z3d_report_position(side, rank, &place);
    const bool told = place.since != 0;
    snprintf(line, Z3D_LINE_BYTES, "zero3d: rank %d (host %s, pid %d) %s %s%s; ending the run\n",
             rank, side->peer[rank].host, (int)side->peer[rank].pid,
             silent ? "does not answer" : "died",
             told ? "in " : "before it reported what it was doing", told ? place.text : "");
}

static bool same_position(const z3d_position *a, const z3d_position *b) {
    return a->waiting == b->waiting && strcmp(a->text, b->text) == 0;
}

/* The same position and the same pending I/O. */
static bool same(const z3d_seen *a, const z3d_seen *b) {
    return same_position(&a->place, &b->place) && strcmp(a->pending.text, b->pending.text) == 0;
}

static const char *doing(const z3d_position *place) {
    return place->since == 0 ? "(not reported yet)" : place->text;
}

static int seconds_since(double since) {
    return since == 0 ? 0 : (int)(z3d_now() - since);
}

/* "rank 5's disk has not answered for 31 s: checkpoint: fsync of X (in step 12: ...)". The table
 * shows the ranks that wait for it. */
static void dead_disk(struct z3d_side *side, int rank, z3d_string *out) {
    const z3d_seen *seen = &side->seen[rank];
    z3d_string_append(
        out, "zero3d: watchdog: rank %d's disk has not answered for %d s: %s (in %s)\n", rank,
        seconds_since(seen->pending.since), seen->pending.text, doing(&seen->place));
}

static void append_other(struct z3d_side *side, int rank, bool silent, z3d_string *out) {
    const z3d_position place = side->seen[rank].place;
    if (side->seen[rank].said_bye)
        z3d_string_append(out, "; rank %d has ended", rank);
    else if (silent)
        z3d_string_append(out, "; rank %d does not answer; it was last in %s", rank, doing(&place));
    else if (place.waiting)
        z3d_string_append(out, "; rank %d waits in %s", rank, doing(&place));
    else
        z3d_string_append(out, "; rank %d is still in %s", rank, doing(&place));
}

/* "rank 5 has waited 31 s in X; rank 6 is still in Y". Ranks that wait, too, come last: in a
 * pipeline all ranks wait at different positions, for the one rank that does not wait. */
static void waiting(struct z3d_side *side, int stuck, z3d_string *out) {
    const z3d_position mine = side->seen[stuck].place;
    z3d_string_append(out, "zero3d: watchdog: rank %d has waited %d s in %s", stuck,
                      seconds_since(mine.since), doing(&mine));
    int named = 0, missing = 0;
    for (int waits = 0; waits < 2; waits++)
        for (int rank = 0; rank < side->size; rank++) {
            const z3d_seen *seen = &side->seen[rank];
            bool silent = !seen->answered && rank != side->rank;
            if (rank == stuck || (same_position(&seen->place, &mine) && !silent)) continue;
            if ((seen->place.waiting && !silent && !seen->said_bye) != waits) continue;
            missing++;
            if (named == MAX_NAMED) continue;
            named++;
            append_other(side, rank, silent, out);
        }
    if (missing > named) z3d_string_append(out, "; and %d more ranks", missing - named);
    z3d_string_append(out, "\n");
}

/* "0-3, 5": all ranks at this position. */
static void append_ranks(struct z3d_side *side, const z3d_seen *where, z3d_string *out) {
    int begun = -1;
    const char *comma = "";
    for (int rank = 0; rank <= side->size; rank++) {
        bool here = rank < side->size && same(&side->seen[rank], where);
        if (here && begun < 0) begun = rank;
        if (!here && begun >= 0) {
            z3d_string_append(out, "%s%d", comma, begun);
            if (begun < rank - 1) z3d_string_append(out, "-%d", rank - 1);
            comma = ", ";
            begun = -1;
        }
    }
}

/* One line for each position, with its ranks. */
static void table(struct z3d_side *side, z3d_string *out) {
    int lines = 0;
    for (int rank = 0; rank < side->size && lines < MAX_LINES; rank++) {
        const z3d_seen *seen = &side->seen[rank];
        bool told = false;
        for (int other = 0; other < rank && !told; other++) told = same(&side->seen[other], seen);
        if (told) continue;
        lines++;
        z3d_string_append(out, "zero3d:   ranks ");
        append_ranks(side, seen, out);
        z3d_string_append(out, ": %s %s (%d s)", seen->place.waiting ? "waiting in" : "in",
                          doing(&seen->place), seconds_since(seen->place.since));
        if (seen->pending.since > 0)
            z3d_string_append(out, "; disk: %s (%d s)", seen->pending.text,
                              seconds_since(seen->pending.since));
        z3d_string_append(out, "\n");
    }
    if (lines == MAX_LINES) z3d_string_append(out, "zero3d:   and more\n");
}

void z3d_report_stuck(struct z3d_side *side, z3d_string *out) {
    int dead = -1;
    for (int rank = side->size - 1; rank >= 0; rank--)
        if (z3d_too_long(side, side->seen[rank].pending.since)) dead = rank;
    if (dead >= 0)
        dead_disk(side, dead, out);
    else
        waiting(side, side->collecting - 1, out);
    table(side, out);
}
