/* Compares sums of two configurations as whole terms. If these or the samples of data ranks
 * differ, it compares elements: terms of micro-batches become terms of their samples. */
#include <stdlib.h>

#include "zero/numerics.h"
#include "zero/program/buffers.h"
#include "zero/program/layout.h"

/* A term. Its elements are in rows of `shard` elements, from row `first_row` on. */
typedef struct sum {
    const z3d_numerics *of;
    int term;
    int64_t shard, first_row;
} sum;

/* Evaluates terms of one configuration for an element of one row. */
typedef struct evaluation {
    z3d_terms *terms;
    const z3d_numerics *of;
    int root;
    bool loosely;      /* additions inside a backward count as additions after it */
    bool *needed;      /* by term up to the root */
    int *local, *over; /* by term: its value on one data rank, -1: none; over all of them */
} evaluation;

static int data_size(const z3d_numerics *n) {
    return z3d_mesh_size(&n->mesh, Z3D_ROLE_SAMPLES);
}

static z3d_mesh data_rank(const z3d_numerics *n, int index) {
    z3d_mesh mesh = n->mesh;
    mesh.rank = z3d_mesh_member(&mesh, Z3D_ROLE_SAMPLES, 0, index);
    return mesh;
}

static bool has_operand(const z3d_term *term) {
    return z3d_term_adds(term) || term->kind == Z3D_TERM_REDUCE || term->kind == Z3D_TERM_TENSOR ||
           term->kind == Z3D_TERM_COPIES;
}

static void mark_needed(evaluation *e) {
    e->needed[e->root] = true;
    for (int id = e->root; id >= 0; id--) {
        const z3d_term *term = &e->terms->term[id];
        if (!e->needed[id]) continue;
        if (has_operand(term)) e->needed[term->a] = true;
        if (z3d_term_adds(term)) e->needed[term->b] = true;
    }
}

static z3d_status begin(z3d_terms *terms, const sum *of, bool loosely, evaluation *out) {
    size_t count = (size_t)of->term + 1;
    *out = (evaluation){.terms = terms, .of = of->of, .root = of->term, .loosely = loosely};
    Z3D_TRY(z3d_new(count, sizeof *out->needed, "sums", &out->needed));
    Z3D_TRY(z3d_new(count, sizeof *out->local, "sums", &out->local));
    Z3D_TRY(z3d_new(count, sizeof *out->over, "sums", &out->over));
    mark_needed(out);
    return Z3D_OK;
}

static void end(evaluation *e) {
    free(e->needed);
    free(e->local);
    free(e->over);
}

/* The samples of a micro-batch on a data rank. */
static int share_of(evaluation *e, z3d_term part, int rank) {
    const z3d_program_config *config = &e->of->config;
    const z3d_mesh mesh = data_rank(e->of, rank);
    int64_t first = part.b * z3d_samples_in_all(config, &mesh) + z3d_samples_before(config, &mesh);
    return z3d_terms_find(e->terms,
                          (z3d_term){Z3D_TERM_SHARE, part.a, first, z3d_samples_of(config, &mesh)});
}

/* A term of evaluated operands; -1: an operand is missing. */
static int combine(evaluation *e, z3d_term term, const int *value) {
    int a = value[term.a], b = z3d_term_adds(&term) ? value[term.b] : 0;
    if (e->loosely && term.kind == Z3D_TERM_INTO) term.kind = Z3D_TERM_ADD;
    return a < 0 || b < 0 ? -1 : z3d_terms_find(e->terms, (z3d_term){term.kind, a, b, term.c});
}

static void evaluate_on(evaluation *e, int rank) {
    for (int id = 0; id <= e->root; id++) {
        const z3d_term term = e->terms->term[id];
        if (!e->needed[id]) continue;
        e->local[id] = term.kind == Z3D_TERM_PART ? share_of(e, term, rank)
                       : z3d_term_adds(&term)     ? combine(e, term, e->local)
                                                  : -1;
    }
}

/* Adds the operand of the k-th member after the row's owner to a sum over all members. The sum
 * begins at k = 1 and ends with the owner's; if operands are rounded on the wire, it begins with
 * the owner's. */
static void add_member(evaluation *e, int id, int k) {
    const z3d_term term = e->terms->term[id];
    const int first = term.c == Z3D_F32 ? 1 : 0, size = data_size(e->of);
    int mine = e->local[term.a];
    if (k < first || k >= first + size) return;
    if (first == 0 && k > 0)
        mine = z3d_terms_find(e->terms, (z3d_term){Z3D_TERM_ROUND, mine, 0, term.c});
    e->over[id] = k == first
                      ? mine
                      : z3d_terms_find(e->terms, (z3d_term){Z3D_TERM_ADD, e->over[id], mine, 0});
}

/* The sum for elements of row `row`. */
static int evaluate(evaluation *e, int row) {
    const int size = data_size(e->of);
    for (int k = 0; k <= size; k++) {
        evaluate_on(e, (row + k) % size);
        for (int id = 0; id <= e->root; id++)
            if (e->needed[id] && e->terms->term[id].kind == Z3D_TERM_REDUCE) add_member(e, id, k);
    }
    for (int id = 0; id <= e->root; id++) {
        const z3d_term term = e->terms->term[id];
        if (!e->needed[id] || term.kind == Z3D_TERM_REDUCE) continue;
        e->over[id] = has_operand(&term) ? combine(e, term, e->over) : -1;
    }
    return e->over[e->root];
}

/* Whether data ranks have the same samples in both. */
static bool same_shares(const z3d_numerics *a, const z3d_numerics *b) {
    bool same = data_size(a) == data_size(b);
    for (int d = 0; d < data_size(a) && same; d++) {
        const z3d_mesh x = data_rank(a, d), y = data_rank(b, d);
        same = z3d_samples_before(&a->config, &x) == z3d_samples_before(&b->config, &y) &&
               z3d_samples_of(&a->config, &x) == z3d_samples_of(&b->config, &y);
    }
    return same;
}

static int64_t smaller(int64_t x, int64_t y) {
    return x < y ? x : y;
}

static int row_of(const sum *s, int64_t element) {
    return (int)(s->first_row + element / s->shard);
}

static int64_t end_of_row(const sum *s, int64_t element) {
    return (element / s->shard + 1) * s->shard;
}

/* Compares one element of each run that is in one row of `a` and one of `b`, until two differ. */
static z3d_status compare_rows(evaluation e[2], const sum *a, const sum *b, int64_t elements,
                               bool *same) {
    int64_t at = 0;
    for (*same = true; *same && at < elements;) {
        int x = evaluate(&e[0], row_of(a, at)), y = evaluate(&e[1], row_of(b, at));
        Z3D_TRY(e->terms->status);
        *same = x == y && x >= 0;
        at = smaller(end_of_row(a, at), end_of_row(b, at));
    }
    return Z3D_OK;
}

static int nodes_of(const z3d_numerics *n) {
    return z3d_mesh_size(&n->mesh, Z3D_ROLE_NODES);
}

/* Sums inside nodes and then over nodes are compared only as whole terms. */
static bool adds_in_parts(const z3d_numerics *n) {
    return n->config.sharding != Z3D_SHARDING_FLAT && nodes_of(n) > 1;
}

static z3d_status compare(z3d_terms *terms, const sum *a, const sum *b, int64_t elements,
                          bool loosely, bool *same) {
    evaluation e[2] = {{0}, {0}};
    const bool in_parts = adds_in_parts(a->of) || adds_in_parts(b->of);
    *same = a->term == b->term && same_shares(a->of, b->of) &&
            (!in_parts || nodes_of(a->of) == nodes_of(b->of));
    if (*same || in_parts) return Z3D_OK;
    z3d_status status = begin(terms, a, loosely, &e[0]);
    if (status == Z3D_OK) status = begin(terms, b, loosely, &e[1]);
    if (status == Z3D_OK) status = compare_rows(e, a, b, elements, same);
    end(&e[0]);
    end(&e[1]);
    return status;
}

/* In a sum over more than two tensor ranks the shard decides which addend is the first. If addends
 * are rounded on the wire, it also decides which one is not rounded. */
static bool tensor_sums_agree(const z3d_numerics *a, const z3d_numerics *b, int group) {
    const bool rounds = a->config.wire != Z3D_F32 || b->config.wire != Z3D_F32;
    return a->layout->tensor_size <= (rounds ? 1 : 2) || data_size(a) == data_size(b) ||
           a->layout->group[group].replica_axes == Z3D_AXES_NONE;
}

z3d_status z3d_numerics_compare_gradient(z3d_terms *terms, const z3d_numerics *a,
                                         const z3d_numerics *b, int group, z3d_agreement *out) {
    const z3d_group_layout *x = &a->layout->group[group], *y = &b->layout->group[group];
    const sum here = {a, a->gradient[group], x->shard, 0};
    const sum there = {b, b->gradient[group], y->shard, 0};
    bool same = false, alike = false;
    *out = x->frozen ? Z3D_SUMS_EQUAL : Z3D_SUMS_DIFFERENT;
    if (x->frozen) return Z3D_OK; /* no gradient */
    if (!tensor_sums_agree(a, b, group)) return Z3D_OK;
    Z3D_TRY(compare(terms, &here, &there, x->elements, false, &same));
    if (!same && a->config.grad_dtype == Z3D_F32)
        Z3D_TRY(compare(terms, &here, &there, x->elements, true, &alike));
    if (same || alike) *out = same ? Z3D_SUMS_EQUAL : Z3D_SUMS_ALIKE;
    return Z3D_OK;
}

/* ---- the control vector: losses and squares of all ranks ---- */

/* Whether both add the numbers of `ranks` ranks in the same order; other ranks have zeros. A long
 * vector has a row for each rank of the world; an element's row decides its first addend. */
static bool same_control_order(const z3d_numerics *a, const z3d_numerics *b, int64_t ranks) {
    int64_t bytes = z3d_control_capacity(a->layout) * (int64_t)sizeof(double);
    bool same_world = true;
    for (int axis = 0; axis < Z3D_AXIS_COUNT; axis++)
        same_world = same_world && a->mesh.size[axis] == b->mesh.size[axis];
    return bytes <= Z3D_SMALL_BYTES || ranks <= 2 || same_world;
}

/* Losses are added in the order of the data ranks: that is the order of the last row. */
static sum loss_of(const z3d_numerics *n) {
    return (sum){n, n->loss, 1, data_size(n) - 1};
}

z3d_status z3d_numerics_same_loss(z3d_terms *terms, const z3d_numerics *a, const z3d_numerics *b,
                                  bool *same) {
    const sum here = loss_of(a), there = loss_of(b);
    int64_t ranks = data_size(a) > data_size(b) ? data_size(a) : data_size(b);
    *same = false;
    if (!same_control_order(a, b, ranks)) return Z3D_OK;
    return compare(terms, &here, &there, 1, false, same);
}

/* A shard's squares are one sum for each of its ranges. */
bool z3d_numerics_same_norm(const z3d_numerics *a, const z3d_numerics *b) {
    bool same = a->model->num_groups == b->model->num_groups;
    for (int g = 0; g < a->model->num_groups && same; g++) {
        const z3d_group_layout *x = &a->layout->group[g], *y = &b->layout->group[g];
        same = x->frozen || (x->elements == y->elements &&
                             (x->shard == y->shard || smaller(x->shard, y->shard) >= x->elements));
    }
    const z3d_axes holders = Z3D_ROLE_PARTS | Z3D_ROLE_ROWS;
    int64_t ranks = z3d_mesh_size(&a->mesh, holders), others = z3d_mesh_size(&b->mesh, holders);
    return same && same_control_order(a, b, ranks > others ? ranks : others);
}
