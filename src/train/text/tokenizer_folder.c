/* Creates the tokenizer of a model's folder, as an import does. */
#include <stdlib.h>
#include <unistd.h>

#include "src/train/text/bpe.h"
#include "src/train/tokenizer.h"

static bool has_file(const char *folder, const char *name) {
    char *path;
    const bool there = z3d_join_path(folder, name, &path) == Z3D_OK && access(path, F_OK) == 0;
    free(path);
    return there;
}

/* For an imported model or a run, whose configuration names the tokenizer. */
static z3d_status create_configured(const char *folder, const z3d_special *special,
                                    z3d_tokenizer **out) {
    z3d_config *config;
    char *path = NULL;
    Z3D_TRY(z3d_config_create(&config));
    z3d_status status = z3d_join_path(folder, "config.yaml", &path);
    if (status == Z3D_OK) status = z3d_config_read_file(config, path);
    if (status == Z3D_OK) {
        if (special) config->data_special = (int)*special;
        status = z3d_tokenizer_of_config(config, out);
        if (status != Z3D_OK) status = z3d_error_context(status, "%s", path);
    }
    free(path);
    z3d_config_destroy(config);
    return status;
}

/* The kind gpt2 if config.json says so, or if the folder has only vocab.json and merges.txt. */
static z3d_status find_kind(const char *folder, z3d_tokenizer_kind *out) {
    char *inside;
    z3d_json *config;
    Z3D_TRY(z3d_join_path(folder, "", &inside));
    z3d_status status = z3d_read_json_beside(inside, "config.json", &config);
    free(inside);
    Z3D_TRY(status);
    const bool gpt2 = config ? z3d_json_is_text(z3d_json_member(config, "model_type"), "gpt2")
                             : !has_file(folder, "tokenizer.json");
    z3d_json_free(config);
    *out = gpt2 ? Z3D_TOKENIZER_GPT2 : Z3D_TOKENIZER_HUGGINGFACE;
    return Z3D_OK;
}

z3d_status z3d_tokenizer_of_folder(const char *folder, const z3d_special *special,
                                   z3d_tokenizer **out) {
    z3d_tokenizer_kind kind;
    *out = NULL;
    if (has_file(folder, "config.yaml")) return create_configured(folder, special, out);
    if (!has_file(folder, "tokenizer.json") && !has_file(folder, "vocab.json"))
        return Z3D_ERROR(Z3D_ERR_DATA,
                         "%s has no tokenizer: expected the folder of a model, with tokenizer.json "
                         "or vocab.json and merges.txt, or one that was imported",
                         folder);
    Z3D_TRY(find_kind(folder, &kind));
    Z3D_TRY(z3d_tokenizer_create(kind, folder, NULL, out));
    const z3d_status status =
        z3d_tokenizer_set_special(*out, special ? *special : Z3D_SPECIAL_AUTO);
    if (status == Z3D_OK) return Z3D_OK;
    z3d_tokenizer_destroy(*out);
    *out = NULL;
    return status;
}
