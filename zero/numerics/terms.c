/* Sums as expressions, in a hash table: each exists once. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/rng.h"
#include "zero/numerics.h"

static uint64_t hash(const z3d_term *t) {
    const int64_t words[] = {t->kind, t->a, t->b, t->c};
    return z3d_hash(0, words, sizeof words);
}

static bool equal(const z3d_term *x, const z3d_term *y) {
    return x->kind == y->kind && x->a == y->a && x->b == y->b && x->c == y->c;
}

/* The term's place, or the free place for it. */
static int *find(const z3d_terms *terms, const z3d_term *term) {
    uint64_t last = (uint64_t)terms->places - 1, at = hash(term) & last;
    while (terms->place[at] >= 0 && !equal(&terms->term[terms->place[at]], term))
        at = (at + 1) & last;
    return &terms->place[at];
}

/* Makes room for one more term; at most half of the places are taken. After a failure nothing may
 * be added: the places are still those of fewer terms. */
static z3d_status grow(z3d_terms *terms) {
    int *place;
    if (terms->count < terms->capacity) return Z3D_OK;
    if (terms->capacity > INT_MAX / 8)
        return Z3D_ERROR(Z3D_ERR_MEMORY, "%d sums are too many to compare", terms->count);
    Z3D_TRY(z3d_grow(terms->count, &terms->capacity, sizeof *terms->term, "sums", &terms->term));
    Z3D_TRY(z3d_new(2 * (size_t)terms->capacity, sizeof *place, "sums", &place));
    free(terms->place);
    terms->place = place;
    terms->places = 2 * (int)terms->capacity;
    memset(place, 0xff, (size_t)terms->places * sizeof *place);
    for (int i = 0; i < terms->count; i++) *find(terms, &terms->term[i]) = i;
    return Z3D_OK;
}

int z3d_terms_find(z3d_terms *terms, z3d_term term) {
    if (term.kind == Z3D_TERM_ADD && term.a > term.b) {
        int64_t a = term.a;
        term.a = term.b;
        term.b = a;
    }
    if (terms->status == Z3D_OK) terms->status = grow(terms);
    if (terms->status != Z3D_OK) return 0;
    int *place = find(terms, &term);
    if (*place < 0) {
        *place = terms->count;
        terms->term[terms->count++] = term;
    }
    return *place;
}

void z3d_terms_release(z3d_terms *terms) {
    free(terms->term);
    free(terms->place);
    *terms = (z3d_terms){0};
}
