/* Divides the parameter groups of a model's description into uniform ones: a group, which is
 * gathered, reduced and stepped as a whole, is then trained or frozen as a whole. A uniform group
 * stays unchanged. In any other group the trained parameters keep its name and its slot in the
 * units; the frozen ones become a new group after it. Both have the same home, so checkpoints and
 * initial values do not depend on which parameters are frozen. */
#include <stdio.h>
#include <stdlib.h>

#include "src/model/unit.h"

static bool is_mixed(const z3d_parameter_group *group) {
    int frozen = 0;
    for (int i = 0; i < group->num_parameters; i++) frozen += group->parameter[i].frozen;
    return frozen > 0 && frozen < group->num_parameters;
}

static z3d_status check_joined(const z3d_parameter_group *group) {
    for (int i = 1; i < group->num_parameters; i++) {
        const z3d_parameter *p = &group->parameter[i], *before = p - 1;
        if (!p->joined || p->frozen == before->frozen) continue;
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "%s.%s is frozen, but %s is trained, and one product reads both; freeze "
                         "both or neither",
                         z3d_parameter_home(group, i), p->frozen ? p->name : before->name,
                         p->frozen ? before->name : p->name);
    }
    return Z3D_OK;
}

/* Takes the trained or the frozen parameters of a group. */
static void take_part(const z3d_parameter_group *group, bool frozen, z3d_parameter **next,
                      z3d_parameter_group *out) {
    const bool mixed = is_mixed(group);
    *out = (z3d_parameter_group){.frozen = frozen, .parameter = *next};
    snprintf(out->name, sizeof out->name, mixed && frozen ? "%.40s.frozen" : "%s", group->name);
    for (int i = 0; i < group->num_parameters; i++) {
        if (group->parameter[i].frozen != frozen) continue;
        z3d_parameter *p = &out->parameter[out->num_parameters++];
        *p = group->parameter[i];
        if (mixed) snprintf(p->home, sizeof p->home, "%s", z3d_parameter_home(group, i));
    }
    out->room = out->num_parameters;
    *next += out->num_parameters;
}

/* The unit's slots stay; frozen parts get the slots after them. first[g]: the first of the groups
 * that group g becomes. */
static z3d_status divide_unit(const z3d_model *model, const int *first, z3d_unit *unit,
                              z3d_place **next) {
    const int slots = unit->num_groups;
    for (int s = 0; s < slots; s++) {
        const z3d_parameter_group *group = &model->group[unit->group[s]];
        int trained = 0, frozen = 0;
        unit->group[s] = first[unit->group[s]];
        if (!is_mixed(group)) continue;
        if (unit->num_groups == Z3D_MAX_UNIT_GROUPS)
            return Z3D_ERROR(Z3D_ERR_CONFIG,
                             "unit %s has more than %d parameter groups, now that trained and "
                             "frozen parameters are groups of their own",
                             unit->name, Z3D_MAX_UNIT_GROUPS);
        unit->place[s] = *next;
        for (int i = 0; i < group->num_parameters; i++)
            *(*next)++ = group->parameter[i].frozen ? (z3d_place){unit->num_groups, frozen++}
                                                    : (z3d_place){s, trained++};
        unit->group[unit->num_groups++] = unit->group[s] + 1;
    }
    return Z3D_OK;
}

static z3d_status divide_units(z3d_model *model, const int *first) {
    size_t places = 0;
    for (int u = 0; u < model->num_units; u++)
        for (int s = 0; s < model->unit[u].num_groups; s++) {
            const z3d_parameter_group *group = &model->group[model->unit[u].group[s]];
            if (is_mixed(group)) places += (size_t)group->num_parameters;
        }
    if (places == 0) return Z3D_OK;
    Z3D_TRY(z3d_new(places, sizeof *model->place, "a model's parameters", &model->place));
    z3d_place *next = model->place;
    for (int u = 0; u < model->num_units; u++)
        Z3D_TRY(divide_unit(model, first, &model->unit[u], &next));
    return Z3D_OK;
}

static z3d_status divide_groups(z3d_model *model, const int *first, int count) {
    z3d_parameter_group *divided;
    z3d_parameter *parameter, *next;
    size_t parameters = 0;
    for (int g = 0; g < model->num_groups; g++)
        parameters += (size_t)model->group[g].num_parameters;
    Z3D_TRY(z3d_new(parameters, sizeof *parameter, "a model's parameters", &parameter));
    const z3d_status status =
        z3d_new((size_t)count, sizeof *divided, "a model's parameter groups", &divided);
    if (status != Z3D_OK) {
        free(parameter);
        return status;
    }
    next = parameter;
    for (int g = 0; g < model->num_groups; g++) {
        const z3d_parameter_group *group = &model->group[g];
        const bool frozen = group->parameter[0].frozen, mixed = is_mixed(group);
        take_part(group, mixed ? false : frozen, &next, &divided[first[g]]);
        if (mixed) take_part(group, true, &next, &divided[first[g] + 1]);
    }
    free(model->group);
    free(model->parameter);
    model->group = divided;
    model->parameter = parameter;
    model->num_groups = count;
    return Z3D_OK;
}

z3d_status z3d_model_divide(z3d_model *model) {
    int *first, count = 0;
    for (int g = 0; g < model->num_groups; g++) Z3D_TRY(check_joined(&model->group[g]));
    Z3D_TRY(
        z3d_new((size_t)model->num_groups, sizeof *first, "a model's parameter groups", &first));
    for (int g = 0; g < model->num_groups; g++) {
        first[g] = count;
        count += is_mixed(&model->group[g]) ? 2 : 1;
    }
    z3d_status status = divide_units(model, first);
    if (status == Z3D_OK) status = divide_groups(model, first, count);
    free(first);
    return status;
}

int z3d_model_first_trained(const z3d_model *model) {
    bool frozen = false;
    int first = model->num_units;
    for (int u = model->num_units - 1; u >= 0; u--)
        for (int s = 0; s < model->unit[u].num_groups; s++) {
            if (model->group[model->unit[u].group[s]].frozen)
                frozen = true;
            else
                first = u;
        }
    return frozen ? first : 0;
}
