/* Sums for people. */
#include <string.h>

#include "zero/numerics.h"

/* A sum of more than CHAIN + 1 operands shows the first FIRST_SHOWN ones and the last. */
enum { FIRST_SHOWN = 3, CHAIN = 5 };

typedef struct printer {
    const z3d_terms *terms;
    const z3d_numerics *of;
    int group;
    bool names; /* several kinds of units take part: each is named */
    z3d_string *out;
} printer;

static const z3d_term *at(const printer *p, int64_t id) {
    return &p->terms->term[id];
}

/* The second operand of an addition is the sum so far if only that one is a sum. */
static bool sum_is_second(const printer *p, const z3d_term *term) {
    return term->kind == Z3D_TERM_ADD && z3d_term_adds(at(p, term->b)) &&
           !z3d_term_adds(at(p, term->a));
}

static int64_t sum_so_far(const printer *p, const z3d_term *term) {
    return sum_is_second(p, term) ? term->b : term->a;
}

static int64_t added(const printer *p, const z3d_term *term) {
    return sum_is_second(p, term) ? term->a : term->b;
}

static bool uses(const z3d_unit *unit, int group) {
    for (int s = 0; s < unit->num_groups; s++)
        if (unit->group[s] == group) return true;
    return false;
}

static const char *unit_name(const printer *p, int64_t part) {
    const z3d_model *model = p->of->model;
    int u = 0;
    while (u < model->num_units - 1 &&
           (!uses(&model->unit[u], p->group) || z3d_unit_part(model, p->group, u) != part))
        u++;
    return model->unit[u].name;
}

static bool has_several_parts(const z3d_model *model, int group) {
    for (int u = 0; u < model->num_units; u++)
        if (uses(&model->unit[u], group) && z3d_unit_part(model, group, u) > 0) return true;
    return false;
}

static void print(const printer *p, int64_t id, bool inside);

/* The addition that is k before the last one. */
static const z3d_term *link_at(const printer *p, const z3d_term *chain, int k) {
    for (; k > 0; k--) chain = at(p, sum_so_far(p, chain));
    return chain;
}

static void print_chain(const printer *p, const z3d_term *chain) {
    int links = 0;
    const z3d_term *first = chain;
    for (; z3d_term_adds(at(p, sum_so_far(p, first))); first = at(p, sum_so_far(p, first))) links++;
    print(p, sum_so_far(p, first), true);
    for (int k = links; k >= 0; k--) {
        const z3d_term *link = link_at(p, chain, k);
        if (links >= CHAIN && k == links - FIRST_SHOWN + 1) {
            z3d_string_append(p->out, " ...");
            k = 0;
            link = chain;
        }
        z3d_string_append(p->out, link->kind == Z3D_TERM_INTO ? " += " : " + ");
        print(p, added(p, link), true);
    }
}

static void print_over(const printer *p, const char *name, z3d_axes axes, const z3d_term *term,
                       bool inside) {
    if (z3d_mesh_size(&p->of->mesh, axes) == 1) {
        print(p, term->a, inside);
        return;
    }
    z3d_string_append(p->out, "%s", name);
    if (term->c != Z3D_F32) z3d_string_append(p->out, " in %s", z3d_dtype_name((z3d_dtype)term->c));
    z3d_string_append(p->out, "(");
    print(p, term->a, false);
    z3d_string_append(p->out, ")");
}

static void print(const printer *p, int64_t id, bool inside) {
    const z3d_term *term = at(p, id);
    switch (term->kind) {
    case Z3D_TERM_PART:
        if (p->names) z3d_string_append(p->out, "%s ", unit_name(p, term->a));
        z3d_string_append(p->out, "m%lld", (long long)term->b);
        break;
    case Z3D_TERM_REDUCE:
        print_over(p, "reduce_scatter", term->b ? (z3d_axes)term->b : Z3D_ROLE_ROWS, term, inside);
        break;
    case Z3D_TERM_COPIES:
        print_over(p, "all_reduce", Z3D_ROLE_NODES, term, inside);
        break;
    case Z3D_TERM_TENSOR:
        print_over(p, "all_reduce", Z3D_ROLE_REPLICAS, term, inside);
        break;
    case Z3D_TERM_ADD:
    case Z3D_TERM_INTO:
        if (inside) z3d_string_append(p->out, "(");
        print_chain(p, term);
        if (inside) z3d_string_append(p->out, ")");
        break;
    default: /* one configuration's terms have no other kinds */
        break;
    }
}

void z3d_numerics_print(const z3d_terms *terms, const z3d_numerics *of, int group,
                        z3d_string *out) {
    const printer p = {terms, of, group, has_several_parts(of->model, group), out};
    print(&p, group < 0 ? of->loss : of->gradient[group], false);
}
