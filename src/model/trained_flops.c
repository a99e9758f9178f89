/* The FLOPs of a model of which only a part is trained. The models' formulas count a step that
 * trains all parameters: per token, a matrix with P elements takes 2 P forward, 2 P for its input's
 * gradient and 2 P for its own gradient. */
#include "src/model/interop.h"
#include "src/model/transformer.h"

/* Elements of the matrices that a unit multiplies with: frozen ones, or adapters. */
static double matrix_elements(const z3d_model *model, const z3d_unit *unit, bool adapters) {
    double sum = 0;
    if (unit->kind == Z3D_KIND_EMBEDDING)
        return 0; /* it reads rows of a table and multiplies nothing */
    for (int s = 0; s < unit->num_groups; s++) {
        const z3d_parameter_group *group = &model->group[unit->group[s]];
        for (int i = 0; i < group->num_parameters; i++) {
            const z3d_parameter *p = &group->parameter[i];
            const bool matrix = p->dims > 1 && z3d_ends_with(p->name, "weight");
            if (!matrix || (adapters ? !p->adapter : !p->frozen)) continue;
            sum += (double)z3d_parameter_elements(p);
        }
    }
    return sum;
}

void z3d_model_count_trained_flops(z3d_model *model) {
    z3d_model_flops *flops = &model->facts.flops;
    const int first = z3d_model_first_trained(model);
    for (int u = 0; u < model->num_units; u++) {
        const z3d_unit *unit = &model->unit[u];
        const double frozen = matrix_elements(model, unit, false);
        const double added = 6 * matrix_elements(model, unit, true);
        const double attention = unit->kind == Z3D_KIND_BLOCK ? flops->attention : 0;
        /* Units before the first trained parameter have no backward and no recompute. */
        const double backward = u < first ? 4 * frozen + 2 * attention : 2 * frozen;
        flops->step += added - backward;
        flops->recomputed_step += added - backward - (u < first ? 2 * frozen + attention : 0);
    }
}
