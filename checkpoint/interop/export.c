/* Exports a checkpoint to other programs' files: a Hugging Face folder with config.json and the
 * tokenizer, or llm.c's file. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/interop/interop.h"
#include "src/model/lora.h"

/* ---- Hugging Face ---- */

/* "50256", or null. */
static const char *id_text(int64_t id, char out[32]) {
    snprintf(out, 32, id < 0 ? "null" : "%lld", (long long)id);
    return out;
}

static z3d_status write_config(const z3d_model_type *type, const z3d_config *config,
                               z3d_dtype dtype, const z3d_tokenizer_files *tokenizer,
                               const char *folder) {
    static const char *const types[] = {
        [Z3D_F32] = "float32", [Z3D_BF16] = "bfloat16", [Z3D_F16] = "float16"};
    /* Without these keys transformers would use its own ids. */
    int64_t standard = type->interop->end_of_text;
    z3d_string text = {0};
    char id[32];
    if (standard >= config->model_vocab_size) standard = -1;
    z3d_string_append(&text, "{\n");
    z3d_status status = type->interop->append_config(config, &text);
    bool listed = tokenizer->known && tokenizer->eos >= 0;
    z3d_string_append(&text, "  \"bos_token_id\": %s,\n",
                      id_text(tokenizer->known ? tokenizer->bos : standard, id));
    z3d_string_append(&text, "  \"eos_token_id\": %s,\n",
                      listed ? tokenizer->ends.text
                             : id_text(tokenizer->known ? -1 : standard, id));
    if (tokenizer->known && tokenizer->pad >= 0)
        z3d_string_append(&text, "  \"pad_token_id\": %lld,\n", (long long)tokenizer->pad);
    z3d_string_append(&text, "  \"torch_dtype\": \"%s\"\n}\n", types[dtype]);
    if (status == Z3D_OK && text.failed)
        status = Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for config.json");
    if (status == Z3D_OK)
        status = z3d_io_write_file(NULL, folder, "config.json", text.text, (int64_t)text.length);
    z3d_string_free(&text);
    return status;
}

/* ---- the tokenizer ---- */

/* The folder DIR/tokenizer next to DIR/step-N, which an import makes; NULL: none. */
static z3d_status find_kept(const char *folder, char **out) {
    char *parent = NULL;
    bool there = false;
    *out = NULL;
    if (!folder) return Z3D_OK;
    z3d_status status = z3d_join_path(folder, "../tokenizer", &parent);
    if (status == Z3D_OK) status = z3d_io_exists(parent, &there);
    if (status == Z3D_OK && there)
        *out = parent;
    else
        free(parent);
    return status;
}

/* Reads the tokenizer of the checkpoint's configuration. An imported tokenizer next to the
 * checkpoint comes first; if data.vocab no longer exists, the one next to the base is used. needed:
 * no tokenizer is an error. */
static z3d_status read_configured(const z3d_checkpoint *c, const z3d_config *config, bool needed,
                                  z3d_tokenizer_files *out) {
    const char *vocab = config->data_vocab;
    bool named = vocab && *vocab, there = false;
    char *kept = NULL;
    if (config->data_tokenizer == Z3D_TOKENIZER_BYTES) {
        enum { BYTES_VOCABULARY = 257 };
        if (config->model_vocab_size == BYTES_VOCABULARY) z3d_tokenizer_files_of_bytes(out);
        return Z3D_OK;
    }
    Z3D_TRY(find_kept(z3d_checkpoint_folder(c), &kept));
    z3d_status status = !kept && named ? z3d_io_exists(vocab, &there) : Z3D_OK;
    if (status == Z3D_OK && !kept && named && !there)
        status = find_kept(z3d_checkpoint_get_info(c)->base.folder, &kept);
    if (status == Z3D_OK && kept)
        status = z3d_tokenizer_files_read(kept, NULL, out);
    else if (status == Z3D_OK && there)
        status = z3d_tokenizer_files_read(vocab, config->data_merges, out);
    else if (status == Z3D_OK && named && needed)
        status = Z3D_ERROR(Z3D_ERR_IO,
                           "%s: the checkpoint's tokenizer (data.vocab) does not exist; give "
                           "--vocab PATH, or --vocab none to export without a tokenizer",
                           vocab);
    free(kept);
    return status;
}

static z3d_status read_tokenizer(const z3d_checkpoint *c, const z3d_config *config,
                                 const z3d_export *what, z3d_tokenizer_files *out) {
    z3d_status status = Z3D_OK;
    if (what->vocab && strcmp(what->vocab, "none") == 0) return Z3D_OK;
    if (what->vocab) {
        status = z3d_tokenizer_files_read(what->vocab, what->merges, out);
        if (status == Z3D_OK && !out->known)
            status = Z3D_ERROR(Z3D_ERR_IO,
                               "%s: it has no tokenizer: expected vocab.json and merges.txt, or "
                               "tokenizer.json",
                               what->vocab);
    } else {
        status = read_configured(c, config, !what->adapter, out);
    }
    if (status == Z3D_OK && out->known)
        status = z3d_tokenizer_files_complete(out, z3d_positions_of(config));
    return status;
}

/* ---- both ---- */

z3d_status z3d_export_write(z3d_export_writer writer, void *context, const char *path) {
    char *part;
    int fd = -1;
    struct stat there;
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode))
        return Z3D_ERROR(Z3D_ERR_IO, "%s: it exists and is not a regular file; give another name",
                         path);
    Z3D_TRY(z3d_io_part(path, &part));
    z3d_status status = z3d_io_create(NULL, part, &fd);
    if (status == Z3D_OK) status = writer(context, fd, part);
    if (status == Z3D_OK) status = z3d_io_sync(NULL, fd, part);
    if (fd >= 0) z3d_io_close(fd, part, &status);
    if (status == Z3D_OK) status = z3d_io_rename(NULL, part, path);
    if (status != Z3D_OK && fd >= 0) (void)unlink(part);
    free(part);
    return status;
}

static z3d_export_values values_of(const z3d_config *config, const z3d_export *what) {
    return (z3d_export_values){what->ema ? Z3D_TENSOR_EMA : Z3D_TENSOR_PARAMETER,
                               what->merged ? z3d_lora_scale(config) : 0, what->dtype};
}

typedef struct llmc_output {
    z3d_checkpoint *checkpoint;
    const z3d_config *config;
    z3d_export *what;
} llmc_output;

static z3d_status write_llmc(void *context, int fd, const char *path) {
    const llmc_output *o = context;
    z3d_nonfinite bad = {0};
    const z3d_export_values values = values_of(o->config, o->what);
    Z3D_TRY(z3d_llmc_write(o->checkpoint, o->config, &values, fd, path, &bad));
    return z3d_nonfinite_judge(&bad, o->what->allow_nonfinite, o->what->to, o->what->dtype);
}

/* Refuses a folder that is not empty: other programs would read files of another model together
 * with ours. */
static z3d_status check_new_folder(const char *folder) {
    DIR *list = opendir(folder);
    bool empty = true;
    if (!list && errno == ENOENT) return Z3D_OK;
    if (!list && errno == ENOTDIR)
        return Z3D_ERROR(Z3D_ERR_IO, "%s is a file, or is inside one: expected a folder", folder);
    if (!list)
        return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot list the folder: %s", folder, strerror(errno));
    for (struct dirent *entry; empty && (entry = readdir(list));)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    closedir(list);
    if (empty) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_IO,
                     "%s is not empty, and an export does not replace files: give another folder, "
                     "or remove this one first",
                     folder);
}

/* Removes the folder if its values are refused. */
static z3d_status judge_values(const z3d_nonfinite *bad, const z3d_export *what) {
    const z3d_status status =
        z3d_nonfinite_judge(bad, what->allow_nonfinite, what->to, what->dtype);
    if (status == Z3D_OK) return Z3D_OK;
    const z3d_kept_error refusal = z3d_error_keep(status);
    (void)z3d_io_remove_tree(NULL, what->to, NULL);
    return Z3D_ERROR(status, "%s", refusal.message);
}

static int64_t most_bytes(const z3d_export *what) {
    enum { GIGABYTE = 1000000000, STANDARD_SHARD = 5 };
    if (what->adapter) return INT64_MAX;
    return what->max_shard ? what->max_shard : STANDARD_SHARD * (int64_t)GIGABYTE;
}

/* Writes the whole model, or a PEFT folder: the trained parameters, the base's name and digest. */
static z3d_status write_folder(z3d_checkpoint *c, const z3d_config *config, z3d_export *what) {
    const z3d_base *base = &z3d_checkpoint_get_info(c)->base;
    z3d_export_files files = {.values = values_of(config, what),
                              .max_shard = most_bytes(what),
                              .base = what->adapter ? base->digest : NULL,
                              .folder = what->to};
    z3d_tokenizer_files tokenizer = {0};
    z3d_model *model = NULL;
    Z3D_TRY(z3d_model_type_of(config, &files.type));
    Z3D_TRY(check_new_folder(what->to));
    z3d_status status = read_tokenizer(c, config, what, &tokenizer);
    if (status == Z3D_OK && what->adapter) status = z3d_model_from_config(config, &model);
    files.adapter = model;
    if (status == Z3D_OK) status = z3d_make_folders(what->to);
    if (status == Z3D_OK) status = z3d_safetensors_write(c, &files);
    if (!what->adapter) what->shards = files.shards;
    if (status == Z3D_OK) status = judge_values(&files.bad, what);
    if (status == Z3D_OK && tokenizer.known)
        status = z3d_tokenizer_files_write(&tokenizer, false, what->to);
    /* config.json or adapter_config.json comes last: a folder with it is complete. */
    if (status == Z3D_OK && what->adapter)
        status = z3d_adapter_write_config(files.type, config, model, base->source, what->to);
    else if (status == Z3D_OK)
        status = write_config(files.type, config, what->dtype, &tokenizer, what->to);
    what->tokenizer = tokenizer.known;
    z3d_tokenizer_files_free(&tokenizer);
    z3d_model_destroy(model);
    return status;
}

static z3d_status write_llmc_file(z3d_checkpoint *c, const z3d_config *config, z3d_export *what) {
    llmc_output output = {c, config, what};
    Z3D_TRY(z3d_llmc_check(config));
    const char *const inputs[] = {z3d_checkpoint_folder(c)};
    const bool own = z3d_llmc_is_file(what->to);
    Z3D_TRY(z3d_output_is_no_input(what->to, own, inputs, 1));
    Z3D_TRY(z3d_output_check(what->to, "checkpoint of llm.c", own, what->force));
    return z3d_export_write(write_llmc, &output, what->to);
}

static const int64_t *find_shape(void *checkpoint, const char *group, const char *name, int *dims) {
    const int index = z3d_checkpoint_find(checkpoint, group, name);
    if (index < 0) return NULL;
    const z3d_tensor *tensor = z3d_checkpoint_tensor(checkpoint, index);
    *dims = tensor->dims;
    return tensor->shape;
}

/* The checkpoint's configuration, with the sizes of its tensors. whole: its text must be valid,
 * because the tokenizer is taken from it. */
static z3d_status read_config(z3d_checkpoint *c, bool whole, z3d_config *out) {
    const char *text = z3d_checkpoint_get_info(c)->config;
    const z3d_model_type *type;
    z3d_status status =
        z3d_config_read_text(out, text, strlen(text), "the checkpoint's configuration");
    if (whole) Z3D_TRY(status);
    Z3D_TRY(z3d_model_type_of(out, &type));
    return type->interop->read_shapes(&(z3d_shapes){c, find_shape}, out);
}

static void begin_progress(const z3d_checkpoint *c) {
    int64_t bytes = 0;
    for (int i = 0; i < z3d_checkpoint_num_tensors(c); i++)
        bytes += z3d_tensor_elements(z3d_checkpoint_tensor(c, i)) * (int64_t)sizeof(float);
    z3d_progress_begin(z3d_checkpoint_progress(c), bytes);
}

/* Chooses and checks the written type. If llm.c lacks the checkpoint's own type, it is fp32. */
static z3d_status find_dtype(const z3d_config *config, z3d_export *what) {
    static const z3d_dtype types[] = {Z3D_F32, Z3D_BF16, Z3D_F16};
    const bool llmc = what->format == Z3D_INTEROP_LLMC;
    if (what->own_dtype) what->dtype = types[config->checkpoint_export_dtype];
    if (what->own_dtype && what->adapter) what->dtype = Z3D_F32;
    if (what->own_dtype && llmc && what->dtype == Z3D_F16) what->dtype = Z3D_F32;
    if (what->dtype != Z3D_F32 && what->dtype != Z3D_BF16 && (what->dtype != Z3D_F16 || llmc))
        return Z3D_ERROR(Z3D_ERR_USAGE, "%s has no type %s; use %s",
                         llmc ? "llm.c's format" : "an export", z3d_dtype_name(what->dtype),
                         llmc ? "fp32 or bf16" : "fp32, bf16 or fp16");
    return Z3D_OK;
}

/* Chooses whether a run's adapters are written alone, or added to their layers' weights. */
static z3d_status choose_adapters(const z3d_config *config, z3d_export *what) {
    const bool llmc = what->format == Z3D_INTEROP_LLMC;
    if (what->merged && config->lora_r == 0)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--merged has no effect: the checkpoint has no adapters");
    if (llmc && config->lora_r > 0 && !what->merged)
        return Z3D_ERROR(Z3D_ERR_USAGE, "llm.c has no adapters; give --merged");
    what->adapter = config->lora_r > 0 && !what->merged;
    if (what->adapter && (what->base || what->max_shard))
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "--%s has no effect on an adapter; --merged exports the whole model",
                         what->base ? "base" : "max-shard-size");
    return Z3D_OK;
}

z3d_status z3d_checkpoint_export(z3d_checkpoint *c, z3d_export *what) {
    z3d_config *config;
    bool llmc = what->format == Z3D_INTEROP_LLMC;
    what->tokenizer = false;
    what->shards = 0;
    if (what->ema) Z3D_TRY(z3d_checkpoint_need_average(c));
    begin_progress(c);
    Z3D_TRY(z3d_config_create(&config));
    z3d_status status = read_config(c, !llmc && !what->vocab, config);
    if (status == Z3D_OK) status = choose_adapters(config, what);
    if (status == Z3D_OK && !what->adapter) status = z3d_checkpoint_open_base(c, what->base);
    if (status == Z3D_OK) status = find_dtype(config, what);
    if (status == Z3D_OK)
        status = llmc ? write_llmc_file(c, config, what) : write_folder(c, config, what);
    z3d_config_destroy(config);
    return status;
}
