/* The configuration's patterns of parameter names: optimizer.param_groups puts parameters into
 * groups, training.freeze freezes them. */
#include <stdio.h>
#include <string.h>

#include "src/base/param_groups.h"
#include "src/model/model.h"

typedef char parameter_name[2 * Z3D_NAME];

/* "block.0.ln_1.bias", the same with and without tiles. */
static void name_of(const z3d_parameter_group *group, int parameter, parameter_name out) {
    snprintf(out, sizeof(parameter_name), "%s.%s", z3d_parameter_home(group, parameter),
             group->parameter[parameter].name);
}

/* Whether parameters match: they get into an optimizer group, or (0) are frozen. A parameter stays
 * in the first group that matches it. */
static bool mark(z3d_model *model, const char *pattern, int optimizer_group) {
    bool found = false;
    parameter_name name;
    for (int g = 0; g < model->num_groups; g++)
        for (int i = 0; i < model->group[g].num_parameters; i++) {
            z3d_parameter *p = &model->group[g].parameter[i];
            name_of(&model->group[g], i, name);
            if (!z3d_pattern_matches(pattern, name)) continue;
            found = true;
            if (optimizer_group == 0) p->frozen = true;
            if (p->optimizer_group == 0) p->optimizer_group = optimizer_group;
        }
    return found;
}

/* Appends where to find the names. */
static void append_names(const z3d_model *model, z3d_string *wrong) {
    const z3d_parameter_group *last = &model->group[model->num_groups - 1];
    parameter_name first, end;
    name_of(&model->group[0], 0, first);
    name_of(last, last->num_parameters - 1, end);
    z3d_string_append(wrong, "; names are %s ... %s (zero3d checkpoint show)", first, end);
}

static void append_unknown(const char *pattern, z3d_string *wrong) {
    z3d_string_append(wrong, "%s'%s'", wrong->length ? ", " : "no parameter is called ", pattern);
}

void z3d_model_set_optimizer_groups(const z3d_config *config, z3d_model *model, z3d_string *wrong) {
    const z3d_data_list *list = &config->optimizer_param_groups;
    for (int i = 0; i < list->count; i++) {
        const char *at = list->path[i];
        char pattern[Z3D_PATTERN];
        while (z3d_param_group_next(&at, pattern))
            if (!mark(model, pattern, i + 1)) append_unknown(pattern, wrong);
    }
    if (wrong->length > 0) append_names(model, wrong);
}

void z3d_model_set_frozen(const z3d_config *config, z3d_model *model, z3d_string *wrong) {
    const z3d_data_list *list = &config->training_freeze;
    for (int i = 0; i < list->count; i++)
        /* A pattern that is longer than any name matches nothing. */
        if (strlen(list->path[i]) >= Z3D_PATTERN || !mark(model, list->path[i], 0))
            append_unknown(list->path[i], wrong);
    if (wrong->length > 0)
        append_names(model, wrong);
    else if (list->count > 0 && z3d_model_trained_count(model) == 0)
        z3d_string_append(wrong, "it freezes all parameters; leave some to train");
}
