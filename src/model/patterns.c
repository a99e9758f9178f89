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

/* A parameter stays in the first group that matches it. */
static int set_group(z3d_model *model, const char *pattern, int index) {
    int found = 0;
    parameter_name name;
    for (int g = 0; g < model->num_groups; g++)
        for (int i = 0; i < model->group[g].num_parameters; i++) {
            int *own = &model->group[g].parameter[i].optimizer_group;
            name_of(&model->group[g], i, name);
            if (!z3d_pattern_matches(pattern, name)) continue;
            found++;
            if (*own == 0) *own = index;
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
            if (set_group(model, pattern, i + 1) == 0) append_unknown(pattern, wrong);
    }
    if (wrong->length > 0) append_names(model, wrong);
}

static int freeze(z3d_model *model, const char *pattern) {
    int found = 0;
    parameter_name name;
    if (strlen(pattern) >= Z3D_PATTERN) return 0; /* longer than any name */
    for (int g = 0; g < model->num_groups; g++)
        for (int i = 0; i < model->group[g].num_parameters; i++) {
            name_of(&model->group[g], i, name);
            if (!z3d_pattern_matches(pattern, name)) continue;
            found++;
            model->group[g].parameter[i].frozen = true;
        }
    return found;
}

void z3d_model_set_frozen(const z3d_config *config, z3d_model *model, z3d_string *wrong) {
    const z3d_data_list *list = &config->training_freeze;
    for (int i = 0; i < list->count; i++)
        if (freeze(model, list->path[i]) == 0) append_unknown(list->path[i], wrong);
    if (wrong->length > 0)
        append_names(model, wrong);
    else if (list->count > 0 && z3d_model_trained_count(model) == 0)
        z3d_string_append(wrong, "it freezes all parameters; leave some to train");
}
