/* Compares the sums of both programs, and prints the order of each side. */
#include <stdlib.h>

#include "src/plan/prove/internal.h"
#include "zero/program/layout.h"

/* fp64 adds numbers with few digits without rounding. */
#define MAY_ROUND_ALIKE ": fp64 sums, whose orders may round alike"

/* Appends "2 data ranks, 1 sample each". */
static void print_ranks(const z3d_numerics *n, z3d_string *out) {
    const int size = z3d_mesh_size(&n->mesh, Z3D_ROLE_SAMPLES);
    int64_t least = INT64_MAX, most = 0;
    for (int d = 0; d < size; d++) {
        z3d_mesh at = n->mesh;
        at.rank = z3d_mesh_member(&at, Z3D_ROLE_SAMPLES, 0, d);
        int64_t samples = z3d_samples_of(&n->config, &at);
        if (samples < least) least = samples;
        if (samples > most) most = samples;
    }
    z3d_string_append(out, "%d data rank%s, ", size, z3d_plural(size));
    if (least < most) z3d_string_append(out, "%lld to ", (long long)least);
    z3d_string_append(out, "%lld sample%s%s", (long long)most, z3d_plural(most),
                      size > 1 ? " each" : "");
}

/* Prints each side's order of a sum; group -1: the loss. */
static void print_sums(z3d_comparison *c, const char *what, int group, z3d_string *out) {
    c->prints_sums = true;
    z3d_string_append(out, "  %s\n", what);
    for (int side = 0; side < 2; side++) {
        z3d_string_append(out, "    %c: ", 'A' + side);
        print_ranks(&c->numerics[side], out);
        z3d_string_append(out, ": ");
        z3d_numerics_print(&c->terms, &c->numerics[side], group, out);
        z3d_string_append(out, "\n");
    }
}

/* Whether two groups have the same sums on both sides, and the same agreement. */
static bool is_like(const z3d_comparison *c, const z3d_agreement *agreement, int g, int other) {
    return c->numerics[0].gradient[g] == c->numerics[0].gradient[other] &&
           c->numerics[1].gradient[g] == c->numerics[1].gradient[other] &&
           agreement[g] == agreement[other];
}

static bool is_first(const z3d_comparison *c, const z3d_agreement *agreement, int g) {
    for (int before = 0; before < g; before++)
        if (is_like(c, agreement, before, g)) return false;
    return true;
}

/* Appends "gradients of wpe, block.0 to block.11, ln_f". */
static void name_groups(const z3d_comparison *c, const z3d_agreement *agreement, int g,
                        z3d_string *out) {
    const z3d_model *model = c->plan[0]->model;
    const char *comma = "gradients of ";
    for (int first = g; first < model->num_groups; first++) {
        if (!is_like(c, agreement, g, first)) continue;
        int last = first;
        while (last + 1 < model->num_groups && is_like(c, agreement, g, last + 1)) last++;
        z3d_string_append(out, "%s%s", comma, model->group[first].name);
        if (last > first) z3d_string_append(out, " to %s", model->group[last].name);
        comma = ", ";
        first = last;
    }
}

static void print_gradients(z3d_comparison *c, const z3d_agreement *agreement) {
    for (int g = 0; g < c->plan[0]->model->num_groups; g++) {
        z3d_string what = {0};
        bool alike = agreement[g] == Z3D_SUMS_ALIKE;
        if (agreement[g] == Z3D_SUMS_EQUAL || !is_first(c, agreement, g)) continue;
        c->steps = true;
        name_groups(c, agreement, g, &what);
        if (alike)
            z3d_string_append(&what, ": the library's product may round x += y like x + y, or not");
        print_sums(c, what.text ? what.text : "gradients", g,
                   alike ? &c->unproved : &c->differences);
        z3d_string_free(&what);
    }
}

static z3d_status compare_gradients(z3d_comparison *c) {
    const int groups = c->plan[0]->model->num_groups;
    z3d_agreement *agreement;
    z3d_status status = Z3D_OK;
    Z3D_TRY(z3d_new((size_t)groups, sizeof *agreement, "sums", &agreement));
    for (int g = 0; g < groups && status == Z3D_OK; g++)
        status = z3d_numerics_compare_gradient(&c->terms, &c->numerics[0], &c->numerics[1], g,
                                               &agreement[g]);
    if (status == Z3D_OK) print_gradients(c, agreement);
    free(agreement);
    return status;
}

static void compare_norm(z3d_comparison *c) {
    z3d_string *out = &c->unproved;
    c->norm = !z3d_numerics_same_norm(&c->numerics[0], &c->numerics[1]);
    if (!c->norm) return;
    z3d_string_append(out, "  gradient norm" MAY_ROUND_ALIKE "\n");
    for (int side = 0; side < 2; side++) {
        const int shards = c->numerics[side].layout->group[0].rows;
        z3d_string_append(out, "    %c: squares in %d shard%s of each group, then over ranks\n",
                          'A' + side, shards, z3d_plural(shards));
    }
}

z3d_status z3d_prove_sums(z3d_comparison *c) {
    bool same;
    for (int side = 0; side < 2; side++)
        Z3D_TRY(z3d_numerics_read(&c->terms, c->plan[side]->model, &c->plan[side]->mesh,
                                  &c->plan[side]->program_config, &c->numerics[side]));
    Z3D_TRY(compare_gradients(c));
    Z3D_TRY(z3d_numerics_same_loss(&c->terms, &c->numerics[0], &c->numerics[1], &same));
    c->loss = !same;
    if (!same) print_sums(c, "loss" MAY_ROUND_ALIKE, -1, &c->unproved);
    compare_norm(c);
    return Z3D_OK;
}
