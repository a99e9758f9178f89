/* Compares the sums of both programs, and says how each side adds them. */
#include "src/plan/prove/internal.h"

/* "2 data ranks, 1 sample each: " */
static void print_ranks(const z3d_numerics *n, z3d_string *out) {
    const int size = z3d_mesh_size(&n->mesh, Z3D_AXES_DATA);
    int64_t least = INT64_MAX, most = 0;
    for (int d = 0; d < size; d++) {
        z3d_mesh at = n->mesh;
        at.rank = z3d_mesh_member(&at, Z3D_AXES_DATA, 0, d);
        int64_t samples = z3d_samples_of(&n->config, &at);
        if (samples < least) least = samples;
        if (samples > most) most = samples;
    }
    z3d_string_append(out, "%d data rank%s, ", size, size == 1 ? "" : "s");
    if (least < most) z3d_string_append(out, "%lld to ", (long long)least);
    z3d_string_append(out, "%lld sample%s%s", (long long)most, most == 1 ? "" : "s",
                      size > 1 ? " each" : "");
}

static void print_sums(z3d_comparison *c, const char *what, const int term[2]) {
    z3d_string *out = &c->differences;
    z3d_string_append(out, "  %s\n", what);
    for (int side = 0; side < 2; side++) {
        z3d_string_append(out, "    %c: ", 'A' + side);
        print_ranks(&c->numerics[side], out);
        z3d_string_append(out, ": ");
        z3d_numerics_print(&c->terms, &c->numerics[side], term[side], out);
        z3d_string_append(out, "\n");
    }
}

static z3d_status is_same(z3d_comparison *c, int group, bool *same) {
    return z3d_numerics_same_gradient(&c->terms, &c->numerics[0], &c->numerics[1], group, same);
}

/* Whether group g's sums are those of the group before it, in both. */
static bool continues(const z3d_comparison *c, int g) {
    return c->numerics[0].gradient[g] == c->numerics[0].gradient[g - 1] &&
           c->numerics[1].gradient[g] == c->numerics[1].gradient[g - 1];
}

/* Neighbours with equal sums are one line. */
static z3d_status compare_gradients(z3d_comparison *c) {
    const z3d_model *model = c->plan[0]->model;
    for (int g = 0, first = 0; g < model->num_groups; g = first) {
        bool same;
        z3d_string what = {0};
        Z3D_TRY(is_same(c, g, &same));
        for (first = g + 1; first < model->num_groups && continues(c, first); first++) {
            bool next;
            Z3D_TRY(is_same(c, first, &next));
            if (next != same) break;
        }
        if (same) continue;
        c->gradient = true;
        z3d_string_append(&what, "gradients of %s", model->group[g].name);
        if (first > g + 1) z3d_string_append(&what, " to %s", model->group[first - 1].name);
        print_sums(c, what.text ? what.text : "gradients",
                   (const int[]){c->numerics[0].gradient[g], c->numerics[1].gradient[g]});
        z3d_string_free(&what);
    }
    return Z3D_OK;
}

static void compare_norm(z3d_comparison *c) {
    z3d_string *out = &c->differences;
    c->norm = !z3d_numerics_same_norm(&c->numerics[0], &c->numerics[1]);
    if (!c->norm) return;
    z3d_string_append(out, "  gradient norm\n");
    for (int side = 0; side < 2; side++) {
        const z3d_mesh *mesh = &c->numerics[side].mesh;
        z3d_string_append(out, "    %c: squares of shards of 1/%d, then over %d ranks\n",
                          'A' + side, z3d_mesh_size(mesh, Z3D_AXES_DATA),
                          z3d_mesh_size(mesh, Z3D_AXES_WORLD));
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
    if (!same) print_sums(c, "loss", (const int[]){c->numerics[0].loss, c->numerics[1].loss});
    compare_norm(c);
    return Z3D_OK;
}
