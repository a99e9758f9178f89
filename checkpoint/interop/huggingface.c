/* Reads Hugging Face's folders: config.json, and the list of files with tensors. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/interop/interop.h"
#include "src/model/interop.h"

/* ---- other folders ---- */

static bool has_file(const char *folder, const char *name) {
    bool there;
    return z3d_io_has(folder, name, &there) == Z3D_OK && there;
}

static bool has_gguf(const char *folder) {
    DIR *list = opendir(folder);
    bool found = false;
    for (struct dirent *entry; list && !found && (entry = readdir(list));)
        found = z3d_ends_with(entry->d_name, ".gguf");
    if (list) closedir(list);
    return found;
}

/* Refuses a folder without config.json: says what the folder is, and what to do. */
static z3d_status refuse_other_folder(const char *folder) {
    const char *what = NULL;
    if (has_file(folder, "config.json")) return Z3D_OK;
    if (has_file(folder, "adapter_config.json"))
        what = "it has an adapter (adapter_config.json), not a model: import the adapter's base "
               "model, and begin a run of that model with this folder as lora.init_from";
    else if (has_file(folder, "params.json"))
        what =
            "it has Meta's own format (params.json): convert it with transformers' "
            "convert_llama_weights_to_hf.py, or take the model's folder in Hugging Face's format";
    else if (has_gguf(folder))
        what = Z3D_GGUF_IS_NOT_READ;
    return what ? Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "%s: %s", folder, what) : Z3D_OK;
}

enum { MAX_CONFIG = 1 << 20, MAX_INDEX = 1 << 26, MAX_SHARDS = 4096 };

/* ---- config.json ---- */

/* The tensors of a quantized model are codes, not weights. */
static z3d_status refuse_quantized(const z3d_json *root, const char *path) {
    const z3d_json *m = z3d_json_member(root, "quantization_config"), *method;
    char text[Z3D_SHOWN + 1];
    if (z3d_json_is_none(m)) return Z3D_OK;
    method = z3d_json_member(m, "quant_method");
    return Z3D_ERROR(
        Z3D_ERR_UNSUPPORTED,
        "%s: quantization_config: the weights are quantized (%s); import the model that they were "
        "made from, or save it in fp32, bf16 or fp16 with transformers' model.dequantize()",
        path,
        method && method->type == Z3D_JSON_STRING ? z3d_shown(method->text, text)
                                                  : "by a method that is not named");
}

/* Reads the model's type, then its sizes, whose names depend on the type. A file without a type but
 * with GPT-2's keys is a GPT-2: the first GPT-2 files had no type. */
static z3d_status read_model(const z3d_json *root, const char *path, z3d_config *config) {
    const z3d_json *m = z3d_json_member(root, "model_type");
    char text[Z3D_SHOWN + 1], assignment[Z3D_SHOWN + 16], names[256];
    if (root->type != Z3D_JSON_OBJECT)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s: expected a JSON object {...}", path);
    if (!m && !z3d_json_member(root, "n_embd"))
        return Z3D_ERROR(Z3D_ERR_DATA, "%s: \"model_type\" is missing; these are supported: %s",
                         path, z3d_model_types_of_huggingface(names, sizeof names));
    const char *name = !m ? "gpt2" : m->type == Z3D_JSON_STRING ? m->text : "(not a string)";
    const z3d_model_type *type = z3d_model_type_of_huggingface(name);
    if (!type)
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "%s: model_type %s is not supported; these are: %s",
                         path, z3d_shown(name, text),
                         z3d_model_types_of_huggingface(names, sizeof names));
    Z3D_TRY(refuse_quantized(root, path));
    snprintf(assignment, sizeof assignment, "model.type=%s", type->name);
    Z3D_TRY(z3d_config_override(config, assignment));
    z3d_problems problems = {.where = path};
    type->interop->read(root, config, &problems);
    return z3d_problems_end(&problems);
}

static z3d_status read_config(const char *folder, z3d_config *config) {
    char *path;
    z3d_json *root;
    Z3D_TRY(z3d_join_path(folder, "config.json", &path));
    z3d_status status = z3d_json_read(path, MAX_CONFIG, &root);
    if (status == Z3D_OK) status = read_model(root, path, config);
    z3d_json_free(root);
    free(path);
    return status;
}

/* ---- the files with tensors ---- */

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Lists the file names in the index; each must be a file in the index's folder. */
static void list_shards(const z3d_json *map, const char **name, size_t *count,
                        z3d_problems *problems) {
    char shown[Z3D_SHOWN + 1];
    for (const z3d_json *m = map->first; m; m = m->next)
        if (m->type != Z3D_JSON_STRING || !*m->text || *m->text == '.' || strchr(m->text, '/'))
            z3d_problems_add(problems, Z3D_ERROR(Z3D_ERR_DATA,
                                                 "\"weight_map\": tensor %s: expected the name of "
                                                 "a file in this folder",
                                                 z3d_shown(m->key, shown)));
        else
            name[(*count)++] = m->text;
}

static z3d_status add_shard(z3d_interop *f, const char *folder, const char *name) {
    char *path;
    if (f->num_files == MAX_SHARDS)
        return Z3D_ERROR(Z3D_ERR_DATA, "\"weight_map\" names more than %d files", MAX_SHARDS);
    Z3D_TRY(z3d_join_path(folder, name, &path));
    z3d_status status = z3d_interop_add_file(f, path);
    free(path);
    return status;
}

/* Adds each file that the index names, once. */
static z3d_status add_shards(z3d_interop *f, const char *folder, const char *index,
                             const z3d_json *map) {
    const char **name;
    size_t count = 0;
    z3d_problems problems = {.where = index};
    if (map->count == 0)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s: \"weight_map\" names no tensor", index);
    Z3D_TRY(z3d_new((size_t)map->count, sizeof *name, "the list of files", &name));
    list_shards(map, name, &count, &problems);
    if (count) qsort(name, count, sizeof *name, by_text);
    for (size_t i = 0; i < count && problems.count <= MAX_SHARDS; i++)
        if (i == 0 || strcmp(name[i], name[i - 1]) != 0)
            z3d_problems_add(&problems, add_shard(f, folder, name[i]));
    free(name);
    return z3d_problems_end(&problems);
}

static z3d_status read_index(z3d_interop *f, const char *folder, const char *index) {
    const z3d_json *map;
    Z3D_TRY(z3d_json_read(index, MAX_INDEX, &f->index));
    z3d_status status = z3d_json_get(f->index, "weight_map", Z3D_JSON_OBJECT, &map);
    if (status != Z3D_OK) return z3d_error_context(status, "%s", index);
    return add_shards(f, folder, index, map);
}

/* model.safetensors, or the shards that model.safetensors.index.json names. */
static z3d_status add_files(z3d_interop *f, const char *folder) {
    static const char whole[] = "model.safetensors", index[] = "model.safetensors.index.json";
    bool has_whole, has_index;
    char *path;
    Z3D_TRY(z3d_io_has(folder, whole, &has_whole));
    Z3D_TRY(z3d_io_has(folder, index, &has_index));
    if (!has_whole && !has_index)
        return Z3D_ERROR(Z3D_ERR_IO,
                         "%s: it has neither model.safetensors nor model.safetensors.index.json "
                         "(PyTorch's .bin files are not read: save the model with "
                         "safe_serialization=True)",
                         folder);
    Z3D_TRY(z3d_join_path(folder, has_whole ? whole : index, &path));
    z3d_status status = has_whole ? z3d_interop_add_file(f, path) : read_index(f, folder, path);
    free(path);
    return status;
}

z3d_status z3d_huggingface_open(const char *folder, z3d_interop *f) {
    f->turned = true;
    Z3D_TRY(refuse_other_folder(folder));
    Z3D_TRY(read_config(folder, f->config));
    Z3D_TRY(add_files(f, folder));
    Z3D_TRY(z3d_interop_make_model(f));
    return z3d_safetensors_read(f);
}
