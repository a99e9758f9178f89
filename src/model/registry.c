/* The models that the program knows. */
#include <stdio.h>
#include <string.h>

#include "src/model/gpt/gpt.h"
#include "src/model/llama/llama.h"
#include "src/model/lora.h"

static const z3d_model_type *const types[] = {&z3d_gpt_type, &z3d_llama_type};

static const z3d_model_type *type_named(const char *name) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i]->name, name) == 0) return types[i];
    return NULL;
}

/* "gpt2 or ..." */
static const char *type_names(char *buf, size_t size) {
    size_t length = 0;
    for (size_t i = 0; i < sizeof types / sizeof *types && length < size; i++)
        length +=
            (size_t)snprintf(buf + length, size - length, "%s%s", i ? " or " : "", types[i]->name);
    return buf;
}

const z3d_model_type *z3d_model_type_of_huggingface(const char *name) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (const char *const *own = types[i]->interop->names; *own; own++)
            if (strcmp(*own, name) == 0) return types[i];
    return NULL;
}

const char *z3d_model_types_of_huggingface(char *buf, size_t size) {
    size_t length = 0;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (const char *const *own = types[i]->interop->names; *own && length < size; own++)
            length +=
                (size_t)snprintf(buf + length, size - length, "%s%s", length ? ", " : "", *own);
    return buf;
}

/* The error for an unknown model.type. */
static void refusal(const z3d_config *config, char *out, size_t size) {
    char names[256];
    snprintf(out, size, "'%.100s' is not a model that this program knows; write %s",
             config->model_type, type_names(names, sizeof names));
}

z3d_status z3d_model_type_of(const z3d_config *config, const z3d_model_type **out) {
    char text[512];
    *out = type_named(config->model_type);
    if (*out) return Z3D_OK;
    refusal(config, text, sizeof text);
    return Z3D_ERROR(Z3D_ERR_CONFIG, "model.type: %s", text);
}

/* Completes a model: applies the lists of patterns and the section `lora` to its parameters, then
 * divides its groups into uniform ones. Appends an error to *wrong and returns its key. */
static const char *finish(const z3d_config *config, const z3d_model_type *type, z3d_model *model,
                          z3d_string *wrong) {
    static const char groups[] = "optimizer.param_groups", freeze[] = "training.freeze",
                      saved[] = "lora.modules_to_save";
    z3d_model_set_optimizer_groups(config, model, wrong);
    if (wrong->length > 0) return groups;
    z3d_lora_freeze(config, type->interop, model, wrong);
    if (wrong->length > 0) return saved;
    z3d_model_set_frozen(config, model, wrong);
    if (wrong->length == 0 && z3d_model_divide(model) != Z3D_OK)
        z3d_string_append(wrong, "%s", z3d_error_message());
    if (wrong->length == 0) z3d_model_count_trained_flops(model);
    return config->training_freeze.count > 0 ? freeze : saved;
}

z3d_status z3d_model_from_config(const z3d_config *config, z3d_model **out) {
    const z3d_model_type *type;
    *out = NULL;
    Z3D_TRY(z3d_model_type_of(config, &type));
    Z3D_TRY(type->create(config, out));
    z3d_string wrong = {0};
    const char *key = finish(config, type, *out, &wrong);
    if (wrong.length == 0) return Z3D_OK;
    z3d_model_destroy(*out);
    *out = NULL;
    z3d_status status = z3d_config_error(config, key, "%s", wrong.text);
    z3d_string_free(&wrong);
    return status;
}

z3d_status z3d_model_sizes_of(const z3d_config *config, z3d_model_sizes *out) {
    const z3d_model_type *type;
    Z3D_TRY(z3d_model_type_of(config, &type));
    type->sizes(config, out);
    return Z3D_OK;
}

static bool has_key(const z3d_model_type *type, const char *key) {
    for (const char *const *own = type->keys; *own; own++)
        if (strcmp(*own, key) == 0) return true;
    return false;
}

/* Reports keys that only other models have. */
static void check_others(const z3d_model_type *type, const z3d_config_judge *judge) {
    char because[64];
    snprintf(because, sizeof because, "with model.type %s", type->name);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (const char *const *key = types[i]->keys; *key; key++)
            if (!has_key(type, *key)) judge->idle(judge->context, *key, "model.type", because);
}

/* Checks that need the model itself, for the names of its parameters. A model that is refused has
 * no names. */
static void check_patterns(const z3d_model_type *type, const z3d_config *config,
                           const z3d_config_judge *judge) {
    z3d_model *model;
    z3d_string wrong = {0};
    if (config->optimizer_param_groups.count + config->training_freeze.count + config->lora_r ==
            0 ||
        config->parallel_tensor_model_parallel_size < 1 || type->create(config, &model) != Z3D_OK)
        return;
    z3d_lora_check_model(config, model, judge);
    const char *key = finish(config, type, model, &wrong);
    if (wrong.length > 0) judge->complain(judge->context, key, wrong.text);
    z3d_string_free(&wrong);
    z3d_model_destroy(model);
}

static void check(const z3d_config *config, const z3d_config_judge *judge) {
    char text[512];
    const z3d_model_type *type = type_named(config->model_type);
    if (type) {
        check_others(type, judge);
        type->check(config, judge);
        check_patterns(type, config, judge);
    } else {
        refusal(config, text, sizeof text);
        judge->complain(judge->context, "model.type", text);
    }
}

static z3d_model_sizes sizes_or_none(const z3d_config *config) {
    z3d_model_sizes sizes = {0};
    const z3d_model_type *type = type_named(config->model_type);
    if (type) type->sizes(config, &sizes);
    return sizes;
}

static int64_t width(const z3d_config *config) {
    return sizes_or_none(config).width;
}

static int64_t units(const z3d_config *config) {
    return sizes_or_none(config).units;
}

const z3d_config_rules z3d_model_rules = {.check = check, .width = width, .units = units};
