/* The section `lora` of the configuration; its keys have PEFT's names and meanings. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/model/interop.h"
#include "src/model/limits.h"
#include "src/model/lora.h"

static const char rank_key[] = "lora.r", targets_key[] = "lora.target_modules",
                  saved_key[] = "lora.modules_to_save", dropout_key[] = "lora.lora_dropout";

/* "c_proj" and "attn.c_proj" both match "h.0.attn.c_proj". */
static bool matches(const char *target, const char *module) {
    const size_t length = strlen(module), wanted = strlen(target);
    return z3d_ends_with(module, target) &&
           (length == wanted || module[length - wanted - 1] == '.');
}

/* Bits of the modules that match a target. */
static unsigned bits_of(const char *target, const z3d_lora_module *modules) {
    const bool all = strcmp(target, "all-linear") == 0;
    unsigned bits = 0;
    for (int i = 0; modules[i].name; i++)
        if (all || matches(target, modules[i].name)) bits |= 1U << i;
    return bits;
}

double z3d_lora_scale(const z3d_config *c) {
    const double r = (double)c->lora_r;
    if (c->lora_r == 0) return 0;
    return c->lora_lora_alpha / (c->lora_use_rslora ? sqrt(r) : r);
}

z3d_lora z3d_lora_of(const z3d_config *c, const z3d_lora_module *modules) {
    const z3d_data_list *targets = &c->lora_target_modules;
    z3d_lora lora = {
        .rank = c->lora_r, .scale = z3d_lora_scale(c), .dropout = c->lora_lora_dropout};
    for (int i = 0; i < targets->count; i++) lora.targets |= bits_of(targets->path[i], modules);
    for (int i = 0; modules[i].name && targets->count == 0; i++)
        if (modules[i].usual) lora.targets |= 1U << i;
    return lora;
}

/* ---- checks that need no model ---- */

/* tied: the head is the token table. */
static void check_target(const char *target, const z3d_lora_module *modules, bool tied,
                         const z3d_config_judge *judge) {
    static const char *const others[] = {"wpe", "wte", "embed_tokens", "lm_head"};
    z3d_string names = {0};
    if (bits_of(target, modules)) return;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (matches(others[i], target)) {
            z3d_limits_complain(judge, targets_key,
                                "'%s': adapters of embeddings and of the head are not supported%s",
                                others[i],
                                tied && i > 0 ? ", and this model's head is its token table, which "
                                                "lora.modules_to_save does not train; leave it out"
                                              : "; lora.modules_to_save trains them whole");
            return;
        }
    for (int i = 0; modules[i].name; i++)
        z3d_string_append(&names, "%s%s", i ? ", " : "", modules[i].name);
    z3d_limits_complain(judge, targets_key,
                        "'%.60s' is no layer of this model; write all-linear, or some of these: %s",
                        target, names.failed ? "" : names.text);
    z3d_string_free(&names);
}

static void refuse_all_but_rank(const z3d_config_judge *judge) {
#define X(field, path, ...)                                                                        \
    if (strcmp(path, rank_key) != 0)                                                               \
        judge->idle(judge->context, path, rank_key, "while lora.r is 0");
    Z3D_CONFIG_LORA_KEYS(X)
#undef X
}

void z3d_lora_check(const z3d_config *c, const z3d_lora_module *modules, bool tied,
                    const z3d_config_judge *judge) {
    if (c->lora_r == 0) {
        refuse_all_but_rank(judge);
        return;
    }
    if (c->training_freeze.count > 0)
        z3d_limits_complain(judge, "training.freeze",
                            "a run with adapters trains adapters and %s only; leave it out "
                            "(%s says which layers have adapters)",
                            saved_key, targets_key);
    if (c->model_tiling > 1)
        z3d_limits_complain(judge, rank_key,
                            "adapters are not supported with model.tiling; set model.tiling to 1");
    for (int i = 0; i < c->lora_target_modules.count; i++)
        check_target(c->lora_target_modules.path[i], modules, tied, judge);
}

/* ---- what is trained ---- */

/* A parameter's module in Hugging Face's files: "h.0.ln_1". */
static void module_of(const z3d_model_interop *interop, const z3d_parameter_group *group,
                      int parameter, z3d_view *out) {
    const z3d_parameter *p = &group->parameter[parameter];
    interop->view(z3d_parameter_home(group, parameter), p->name, p->dims, p->shape, out);
    *strrchr(out->name, '.') = '\0';
}

static bool has_adapter(const z3d_parameter_group *group, int parameter) {
    const char *name = group->parameter[parameter].name, *end = strrchr(name, '.');
    char adapter[Z3D_NAME];
    snprintf(adapter, sizeof adapter, "%.*s" Z3D_LORA_A, end ? (int)(end - name) : 0, name);
    for (int i = 0; i < group->num_parameters; i++)
        if (strcmp(group->parameter[i].name, adapter) == 0) return true;
    return false;
}

/* Whether the group is a token table that the head uses too. */
static bool is_tied(const z3d_model *model, int group) {
    int users = 0;
    for (int u = 0; u < model->num_units; u++)
        for (int s = 0; s < model->unit[u].num_groups; s++)
            users += model->unit[u].group[s] == group;
    return users > 1;
}

/* Marks the parameters of modules called `name` as trained; returns their number. As in PEFT a name
 * means all modules whose names end with it. Appends an error for a module that a PEFT folder
 * cannot store. */
static int train_module(z3d_model *model, const z3d_model_interop *interop, const char *name,
                        z3d_string *wrong) {
    int found = 0;
    z3d_view view;
    for (int g = 0; g < model->num_groups; g++)
        for (int i = 0; i < model->group[g].num_parameters; i++) {
            module_of(interop, &model->group[g], i, &view);
            if (model->group[g].parameter[i].adapter || !z3d_ends_with(view.name, name)) continue;
            const char *why = is_tied(model, g) ? "is tied to the head, and PEFT keeps two tables"
                              : has_adapter(&model->group[g], i) ? "has an adapter, too"
                                                                 : NULL;
            if (why && wrong->length == 0)
                z3d_string_append(wrong, "%s %s; leave it out", view.name, why);
            model->group[g].parameter[i].frozen = false;
            found++;
        }
    return found;
}

void z3d_lora_freeze(const z3d_config *config, const z3d_model_interop *interop, z3d_model *model,
                     z3d_string *wrong) {
    const z3d_data_list *saved = &config->lora_modules_to_save;
    z3d_view first, last;
    if (config->lora_r == 0) return;
    for (int g = 0; g < model->num_groups; g++)
        for (int i = 0; i < model->group[g].num_parameters; i++)
            model->group[g].parameter[i].frozen = !model->group[g].parameter[i].adapter;
    for (int i = 0; i < saved->count; i++) {
        if (train_module(model, interop, saved->path[i], wrong) > 0) continue;
        module_of(interop, &model->group[0], 0, &first);
        module_of(interop, &model->group[model->num_groups - 1], 0, &last);
        z3d_string_append(wrong, "%s'%.60s' is no module of this model; names are %s ... %s",
                          wrong->length ? "; " : "", saved->path[i], first.name, last.name);
    }
}

/* ---- checks that need the model ---- */

static int64_t width_of(const z3d_parameter *p, int64_t rank) {
    return z3d_parameter_elements(p) / rank;
}

/* All blocks are alike, so the first one is checked. */
static const z3d_parameter_group *first_with_adapters(const z3d_model *model) {
    for (int g = 0; g < model->num_groups; g++)
        for (int i = 0; i < model->group[g].num_parameters; i++)
            if (model->group[g].parameter[i].adapter) return &model->group[g];
    return NULL;
}

void z3d_lora_check_model(const z3d_config *config, const z3d_model *model,
                          const z3d_config_judge *judge) {
    const z3d_parameter_group *group = first_with_adapters(model);
    const int64_t rank = config->lora_r;
    const z3d_parameter *narrow = NULL;
    bool drops = false;
    for (int i = 0; group && i < group->num_parameters; i++) {
        const z3d_parameter *p = &group->parameter[i];
        const int module = (int)strlen(p->name) - (int)strlen(Z3D_LORA_A);
        if (!p->adapter) continue;
        if (!narrow || width_of(p, rank) < width_of(narrow, rank)) narrow = p;
        /* A tensor rank has a part of the columns, and dropout counts them from 0 on every rank. */
        if (model->tensor_size == 1 || config->lora_lora_dropout == 0 || p->split_dim < 0 ||
            !z3d_ends_with(p->name, Z3D_LORA_A))
            continue;
        if (!drops)
            z3d_limits_complain(judge, dropout_key,
                                "it is not supported for %.*s, whose inputs tensor ranks share; "
                                "write 0, or leave that module out of lora.target_modules",
                                module, p->name);
        drops = true;
    }
    if (narrow && rank > width_of(narrow, rank))
        z3d_limits_complain(judge, rank_key, "%lld is above a width of %.*s; write at most %lld",
                            (long long)rank, (int)strlen(narrow->name) - (int)strlen(Z3D_LORA_A),
                            narrow->name, (long long)width_of(narrow, rank));
}

bool z3d_is_adapter(const char *name) {
    return z3d_ends_with(name, Z3D_LORA_A) || z3d_ends_with(name, Z3D_LORA_B);
}
