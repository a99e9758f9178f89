/* PEFT's folders of an adapter: adapter_config.json and adapter_model.safetensors. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/interop/interop.h"
#include "src/model/interop.h"
#include "src/model/lora.h"

static const char config_file[] = "adapter_config.json";

/* ---- reading ---- */

static z3d_status differs(const char *key, const char *theirs, const char *ours) {
    return Z3D_ERROR(Z3D_ERR_CONFIG, "%s is %s in the adapter and %s in this run; write lora.%s=%s",
                     key, theirs, ours, key, theirs);
}

/* Compares a number with the run's. missing: the number if the key is missing. */
static z3d_status check_number(const z3d_json *root, const char *key, double missing, double ours) {
    double value = missing;
    char a[40], b[40];
    if (z3d_json_member(root, key)) Z3D_TRY(z3d_json_get_float(root, key, &value));
    if (value == ours) return Z3D_OK;
    return differs(key, z3d_format_number(value, a, sizeof a),
                   z3d_format_number(ours, b, sizeof b));
}

/* Whether a key of adapter_config.json is read here, or does not change what an adapter computes.
 * The names of tensors tell which layers have adapters. */
static bool is_known(const char *key) {
    return z3d_has_word(
        "auto_mapping base_model_name_or_path bias ensure_weight_tying exclude_modules "
        "fan_in_fan_out inference_mode init_lora_weights layers_pattern layers_to_transform "
        "lora_alpha lora_dropout megatron_core modules_to_save peft_type peft_version "
        "qalora_group_size r revision target_modules task_type use_rslora",
        key);
}

/* Other initial values, such as PiSSA's, also change the base's weights. */
static z3d_status check_start(const z3d_json *start) {
    if (z3d_json_is_none(start) || start->type == Z3D_JSON_BOOL ||
        z3d_json_is_text(start, "gaussian") || z3d_json_is_text(start, "orthogonal"))
        return Z3D_OK;
    return Z3D_ERROR(
        Z3D_ERR_UNSUPPORTED,
        "init_lora_weights is not true, false, gaussian or orthogonal: other values change the "
        "base's weights, too; in PEFT, save the adapter with "
        "path_initial_model_for_weight_conversion");
}

/* All other keys, such as use_dora, must be off. */
static z3d_status check_plain(const z3d_json *root) {
    const z3d_json *bias = z3d_json_member(root, "bias");
    char text[Z3D_SHOWN + 1];
    for (const z3d_json *m = root->first; m; m = m->next) {
        const bool empty = m->type >= Z3D_JSON_ARRAY && m->count == 0;
        const bool off = m->type == Z3D_JSON_NULL || (m->type == Z3D_JSON_BOOL && !m->truth);
        if (!is_known(m->key) && !empty && !off)
            return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                             "%s is not supported; train an adapter without it",
                             z3d_shown(m->key, text));
    }
    if (!z3d_json_is_text(z3d_json_member(root, "peft_type"), "LORA"))
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "peft_type is not LORA; only LoRA is supported");
    Z3D_TRY(check_start(z3d_json_member(root, "init_lora_weights")));
    if (!z3d_json_is_none(bias) && !z3d_json_is_text(bias, "none"))
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "bias is not none; only none is supported");
    return Z3D_OK;
}

static z3d_status compare_config(const z3d_json *root, const z3d_config *c) {
    const bool rslora = z3d_json_flag(root, "use_rslora", false);
    if (root->type != Z3D_JSON_OBJECT)
        return Z3D_ERROR(Z3D_ERR_DATA, "expected a JSON object {...}");
    Z3D_TRY(check_plain(root));
    Z3D_TRY(check_number(root, "r", 8, (double)c->lora_r));
    Z3D_TRY(check_number(root, "lora_alpha", 8, c->lora_lora_alpha));
    if (rslora == c->lora_use_rslora) return Z3D_OK;
    return differs("use_rslora", rslora ? "true" : "false", c->lora_use_rslora ? "true" : "false");
}

/* Refuses a run's folder or checkpoint. */
static z3d_status refuse_run(const char *folder) {
    char *inside;
    int64_t *steps = NULL;
    int count = 0;
    bool itself;
    Z3D_TRY(z3d_io_has(folder, Z3D_MANIFEST, &itself));
    Z3D_TRY(z3d_join_path(folder, "checkpoints", &inside));
    z3d_status status = Z3D_OK;
    const char *const places[] = {folder, inside};
    for (int i = 0; i < 2 && !itself && count == 0 && status == Z3D_OK; i++) {
        status = z3d_checkpoint_list(places[i], &steps, &count);
        free(steps);
        if (count > 0) folder = places[i];
    }
    if (status == Z3D_OK && (itself || count > 0))
        status =
            Z3D_ERROR(Z3D_ERR_CONFIG,
                      "%s has a run's checkpoints, not PEFT's folder of an adapter; begin with "
                      "base and adapter: checkpoint.init_from=%s, or make PEFT's folder: zero3d "
                      "checkpoint export %s FOLDER",
                      folder, folder, folder);
    free(inside);
    return status;
}

/* ---- the adapter's base ---- */

/* The last part of a path, or of a name of Hugging Face's hub. */
static const char *last_of(const char *name) {
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

/* A folder that PEFT wrote has only the base's name, which may be another name of the same base: a
 * warning. */
static void compare_names(const z3d_interop *f, const z3d_base *base) {
    char shown[Z3D_SHOWN + 1];
    const char *name = f->base_name;
    if (*f->base || !name || !base->source || strcmp(last_of(name), last_of(base->source)) == 0)
        return;
    z3d_log(Z3D_LOG_WARN,
            "%s: the adapter was trained on %s (base_model_name_or_path), and this run's base was "
            "imported from %s: only the shapes are known to fit",
            f->path, z3d_shown(name, shown), base->source);
}

/* A folder that zero3d wrote has the base's digest. */
static z3d_status compare_bases(const z3d_interop *f, const z3d_base *base) {
    if (!*f->base || strcmp(f->base, base->digest) == 0) return Z3D_OK;
    if (!*base->digest)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "%s: the adapter was trained on a base with the digest %s, and this run "
                         "begins with random weights; set checkpoint.init_from to that base",
                         f->path, f->base);
    return Z3D_ERROR(Z3D_ERR_CONFIG,
                     "%s: the adapter has another base: it was trained on a base with the digest "
                     "%s, and %s has %s; set checkpoint.init_from to the adapter's base",
                     f->path, f->base, base->path ? base->path : "this run's", base->digest);
}

static z3d_status keep_name(const z3d_json *root, z3d_interop *f) {
    const z3d_json *name = z3d_json_member(root, "base_model_name_or_path");
    if (!name || name->type != Z3D_JSON_STRING) return Z3D_OK;
    f->base_name = strdup(name->text);
    return f->base_name ? Z3D_OK : Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a base's name");
}

static z3d_status check_config(z3d_interop *f, const char *folder, const z3d_config *config) {
    enum { MAX_CONFIG = 1 << 20 };
    char *path;
    z3d_json *root;
    Z3D_TRY(z3d_join_path(folder, config_file, &path));
    z3d_status status = z3d_json_read(path, MAX_CONFIG, &root);
    if (status == Z3D_OK) {
        status = compare_config(root, config);
        if (status == Z3D_OK) status = keep_name(root, f);
        if (status != Z3D_OK) status = z3d_error_context(status, "%s", path);
    }
    z3d_json_free(root);
    free(path);
    return status;
}

bool z3d_tensor_is_trained(const z3d_model *model, const z3d_tensor *t) {
    int group, parameter;
    return z3d_find_parameter(model, t, &group, &parameter) &&
           !model->group[group].parameter[parameter].frozen;
}

/* Lists the trained tensors: an adapter's file has these. */
static z3d_status list_tensors(z3d_interop *f, const z3d_model *model) {
    int all;
    Z3D_TRY(z3d_tensors_of(model, &f->tensor, &all));
    for (int i = 0; i < all; i++)
        if (z3d_tensor_is_trained(model, &f->tensor[i])) f->tensor[f->count++] = f->tensor[i];
    return z3d_interop_list(f);
}

static z3d_status open_folder(z3d_interop *f, const char *folder, const z3d_base *base,
                              const z3d_config *config, const z3d_model *model) {
    char *path;
    f->path = strdup(folder);
    if (!f->path) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a file's name");
    f->turned = f->wrapped = true;
    Z3D_TRY(z3d_config_create(&f->config));
    f->config->model_num_layers = config->model_num_layers;
    Z3D_TRY(z3d_model_type_of(config, &f->type));
    Z3D_TRY(refuse_run(folder));
    Z3D_TRY(check_config(f, folder, config));
    Z3D_TRY(list_tensors(f, model));
    Z3D_TRY(z3d_join_path(folder, "adapter_model.safetensors", &path));
    z3d_status status = z3d_interop_add_file(f, path);
    free(path);
    if (status == Z3D_OK) status = z3d_safetensors_read(f);
    /* Another base explains tensors that do not fit: its message comes first. */
    Z3D_TRY(compare_bases(f, base));
    return status;
}

static z3d_status set_tensor(const z3d_interop *f, int tensor, const z3d_model *model,
                             z3d_engine *engine) {
    const int64_t count = z3d_tensor_elements(&f->tensor[tensor]);
    int group, parameter;
    float *values;
    Z3D_REQUIRE(z3d_find_parameter(model, &f->tensor[tensor], &group, &parameter),
                "no parameter of tensor %s", f->tensor[tensor].name);
    Z3D_TRY(z3d_new((size_t)count, sizeof *values, "an adapter's tensor", &values));
    z3d_status status = z3d_interop_read(f, tensor, 0, count, values);
    if (status == Z3D_OK)
        status = z3d_engine_set(engine, Z3D_TENSOR_PARAMETER, group, parameter, values);
    free(values);
    return status;
}

z3d_status z3d_adapter_load(z3d_world *world, const char *folder, const z3d_base *base,
                            const z3d_config *config, const z3d_model *model, z3d_engine *engine) {
    z3d_interop f = {0};
    z3d_status status = open_folder(&f, folder, base, config, model);
    if (status == Z3D_OK && z3d_world_rank(world) == 0) compare_names(&f, base);
    for (int i = 0; i < f.count && status == Z3D_OK; i++) status = set_tensor(&f, i, model, engine);
    z3d_interop_close(&f);
    return z3d_checkpoint_agree(world, "adapter: reading", status);
}

/* ---- writing ---- */

static void append_list(z3d_string *out, const char *key, const char *const *names, int count) {
    z3d_string_append(out, "  \"%s\": %s", key, count ? "[" : "null");
    for (int i = 0; i < count; i++) {
        z3d_string_append(out, "%s", i ? ", " : "");
        z3d_string_append_json(out, names[i]);
    }
    z3d_string_append(out, "%s,\n", count ? "]" : "");
}

/* target_modules of the first block (all blocks are alike), and fan_in_fan_out: whether the weights
 * are [in, out] in Hugging Face's files. */
static void append_targets(z3d_string *out, const z3d_model_type *type, const z3d_model *model) {
    int count = 0;
    z3d_view view = {0};
    z3d_string_append(out, "  \"target_modules\": [");
    for (int g = 0; count == 0 && g < model->num_groups; g++)
        for (int i = 0; i < model->group[g].num_parameters; i++) {
            const z3d_parameter *p = &model->group[g].parameter[i];
            if (!p->adapter || !z3d_ends_with(p->name, Z3D_LORA_A)) continue;
            z3d_string_append(out, "%s", count++ ? ", " : "");
            z3d_string_append_json_bytes(out, p->name, strlen(p->name) - strlen(Z3D_LORA_A));
        }
    z3d_string_append(out, "],\n");
    for (int k = 0; k < model->num_groups && !view.turned; k++)
        for (int i = 0; i < model->group[k].num_parameters && !view.turned; i++) {
            const z3d_parameter *p = &model->group[k].parameter[i];
            type->interop->view(z3d_parameter_home(&model->group[k], i), p->name, p->dims, p->shape,
                                &view);
        }
    z3d_string_append(out, "  \"fan_in_fan_out\": %s,\n", view.turned ? "true" : "false");
}

z3d_status z3d_adapter_write_config(const z3d_model_type *type, const z3d_config *c,
                                    const z3d_model *model, const char *source,
                                    const char *folder) {
    z3d_string text = {0};
    z3d_string_append(&text, "{\n  \"peft_type\": \"LORA\",\n  \"task_type\": \"CAUSAL_LM\",\n"
                             "  \"base_model_name_or_path\": ");
    if (source)
        z3d_string_append_json(&text, source);
    else
        z3d_string_append(&text, "null");
    z3d_string_append(&text, ",\n  \"bias\": \"none\",\n"
                             "  \"inference_mode\": true,\n  \"init_lora_weights\": true,\n"
                             "  \"use_dora\": false,\n");
    append_targets(&text, type, model);
    append_list(&text, "modules_to_save", c->lora_modules_to_save.path,
                c->lora_modules_to_save.count);
    z3d_string_append(&text, "  \"lora_alpha\": ");
    z3d_string_append_number(&text, c->lora_lora_alpha);
    z3d_string_append(&text, ",\n  \"lora_dropout\": ");
    z3d_string_append_number(&text, c->lora_lora_dropout);
    z3d_string_append(&text, ",\n  \"use_rslora\": %s,\n  \"r\": %lld\n}\n",
                      c->lora_use_rslora ? "true" : "false", (long long)c->lora_r);
    z3d_status status =
        text.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for %s", config_file)
                    : z3d_io_write_file(NULL, folder, config_file, text.text, (int64_t)text.length);
    z3d_string_free(&text);
    return status;
}
