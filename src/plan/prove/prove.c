/* Plans both configurations, compares them, and writes the result. */
#include "src/plan/prove/internal.h"

static void describe(const z3d_plan *plan, const char *name, char letter, z3d_string *out) {
    const z3d_program_config *p = &plan->program_config;
    const z3d_mesh *mesh = &plan->mesh;
    const int ranks = z3d_mesh_size(mesh, Z3D_AXES_WORLD);
    z3d_string_append(out, "%c: %s: %d rank%s (%s), ZeRO-%d, %d micro-batch%s of %lld sample%s, %s",
                      letter, name, ranks, z3d_plural(ranks), z3d_mesh_name(mesh).text, p->stage,
                      p->accumulation, p->accumulation == 1 ? "" : "es",
                      (long long)z3d_samples_in_all(p, mesh),
                      z3d_plural(z3d_samples_in_all(p, mesh)), z3d_dtype_name(p->dtype));
    if (p->grad_dtype != p->dtype)
        z3d_string_append(out, ", gradients in %s", z3d_dtype_name(p->grad_dtype));
    if (p->wire != Z3D_F32) z3d_string_append(out, ", %s on the wire", z3d_dtype_name(p->wire));
    z3d_string_append(out, "\n");
}

/* The norm changes parameters only with clipping. */
static void conclude(const z3d_comparison *c, z3d_proof *proof) {
    proof->parameters = !c->steps && !(c->norm && c->config[0]->gradient_clipping > 0);
    proof->losses = proof->parameters && !c->loss;
    proof->norms = proof->parameters && !c->norm;
    proof->open = !z3d_proof_is_equal(proof) && !c->differences.length;
}

static void append_findings(const z3d_comparison *c, const z3d_proof *proof, z3d_string *out) {
    if (z3d_proof_is_equal(proof))
        z3d_string_append(out, "equal to the bit: losses, gradient norms and parameters of every "
                               "step\n");
    if (c->differences.length)
        z3d_string_append(out, "not equal. These differ:\n%s", c->differences.text);
    if (c->unproved.length)
        z3d_string_append(out, "%s:\n%s", proof->open ? "not proved" : "\nNot proved, either",
                          c->unproved.text);
    if (c->apart)
        z3d_string_append(
            out, "\nEvery sum depends on a key named here, so no more sums are compared.\n");
    if (proof->parameters && !z3d_proof_is_equal(proof))
        z3d_string_append(out, "\nStill equal to the bit: parameters%s%s of every step.\n",
                          proof->losses ? ", losses" : "", proof->norms ? ", gradient norms" : "");
}

static void write_text(const z3d_comparison *c, const z3d_prove_side *const side[2],
                       z3d_proof *proof) {
    z3d_string *out = &proof->text;
    for (int i = 0; i < 2; i++) describe(c->plan[i], side[i]->name, (char)('A' + i), out);
    z3d_string_append(out, "\n");
    append_findings(c, proof, out);
    if (c->prints_sums)
        z3d_string_append(out, "\nm0: the result of micro-batch 0. x += y: the backward of y "
                               "adds to x. x + y: added afterwards.\n");
    if (c->differences.failed || c->unproved.failed) out->failed = true;
}

static z3d_status compare(z3d_comparison *c, const z3d_prove_side *const side[2],
                          z3d_proof *proof) {
    for (int i = 0; i < 2; i++) {
        c->config[i] = side[i]->config;
        if (c->config[i]->parallel_collective_algorithm == Z3D_ALGORITHM_AUTO &&
            c->config[i]->parallel_ranks_per_node == Z3D_AUTO)
            return z3d_config_error(side[i]->config, "parallel.collective_algorithm",
                                    "auto depends on the nodes; set parallel.ranks_per_node, or "
                                    "write ring or hierarchical");
        z3d_status status = z3d_plan_create(side[i]->config, side[i]->ranks, 0, &c->plan[i]);
        if (status == Z3D_ERR_CONFIG) return status; /* the message names the file */
        if (status != Z3D_OK) return z3d_error_context(status, "%s", side[i]->name);
        side[i]->config->data_types_grad_accum_dtype = z3d_config_grad_accum(side[i]->config);
    }
    z3d_prove_keys(c);
    if (!c->apart) Z3D_TRY(z3d_prove_sums(c));
    conclude(c, proof);
    write_text(c, side, proof);
    return proof->text.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory for the comparison")
                              : Z3D_OK;
}

z3d_status z3d_prove(const z3d_prove_side *a, const z3d_prove_side *b, z3d_proof *proof) {
    z3d_comparison c = {.apart = false};
    *proof = (z3d_proof){.open = false};
    z3d_status status = compare(&c, (const z3d_prove_side *const[]){a, b}, proof);
    for (int i = 0; i < 2; i++) {
        z3d_numerics_release(&c.numerics[i]);
        z3d_plan_destroy(c.plan[i]);
    }
    z3d_terms_release(&c.terms);
    z3d_string_free(&c.differences);
    z3d_string_free(&c.unproved);
    return status;
}
