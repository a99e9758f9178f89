/* Imports another program's model as a checkpoint of one shard: parameters only, step 0. Values
 * pass from file to file through the shard writer's buffer. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/interop/interop.h"
#include "checkpoint/store.h"

static const char config_file[] = "config.yaml";

#define TOKENIZER_FOLDER "tokenizer"
#define FIRST_STEP "step-00000000" /* as z3d_checkpoint_path names step 0 */

/* ---- the configuration ---- */

/* Writes the model's configuration. has_tokenizer: data.vocab names the tokenizer's folder relative
 * to the configuration, so both may move together. Else generation will ask for a tokenizer. */
static z3d_status describe_model(const z3d_model_type *type, bool has_tokenizer, z3d_config *config,
                                 char **out) {
    z3d_string text = {0};
    config->data_tokenizer = type->interop->tokenizer;
    if (has_tokenizer) Z3D_TRY(z3d_config_override(config, "data.vocab=" TOKENIZER_FOLDER));
    Z3D_TRY(z3d_config_check(config, &z3d_model_rules));
    z3d_config_write(config, &text);
    *out = text.text; /* owned by the manifest, also after a failure */
    return text.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the configuration's text")
                       : Z3D_OK;
}

/* ---- the tokenizer ---- */

/* Token ids of the runs that will begin with the model. */
static int64_t ids_of(const z3d_import *import, const z3d_interop *f) {
    return import->vocab_size ? import->vocab_size : f->config->model_vocab_size;
}

static z3d_status check_vocab_size(const z3d_import *import, const z3d_interop *f) {
    const int64_t own = f->config->model_vocab_size;
    char assignment[64];
    if (!import->vocab_size) return Z3D_OK;
    snprintf(assignment, sizeof assignment, "model.vocab_size=%lld", (long long)import->vocab_size);
    const z3d_status status = z3d_config_override(f->config, assignment);
    f->config->model_vocab_size = own;
    if (status != Z3D_OK) return z3d_error_context(status, "--vocab-size");
    if (import->vocab_size >= own) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_USAGE,
                     "--vocab-size %lld: the model has %lld token ids, and none can be left out; "
                     "expected %lld or more",
                     (long long)import->vocab_size, (long long)own, (long long)own);
}

/* Checks that generation can use the tokenizer; else removes its copy in `folder`. A tokenizer of
 * the model's own folder is checked there, so that messages name the user's files. */
static z3d_status check_tokenizer(const z3d_import *import, const z3d_interop *f,
                                  const char *folder) {
    const char *vocab = import->vocab ? folder : import->from;
    if (!import->check_tokenizer) return Z3D_OK;
    const z3d_status status =
        import->check_tokenizer(f->type->interop->tokenizer, vocab, ids_of(import, f));
    if (status == Z3D_OK || status == Z3D_ERR_MEMORY) return status;
    const z3d_kept_error refusal = z3d_error_keep(status);
    (void)z3d_io_remove_tree(NULL, folder, NULL);
    return Z3D_ERROR(
        status, "%s%s; --vocab none imports the model without a tokenizer", refusal.message,
        status == Z3D_ERR_CONFIG && import->vocab
            ? "; if tokens were added to it, --vocab-size N gives the model rows of them"
            : "");
}

/* Copies the tokenizer next to the checkpoint, since the model's own folder may move or go.
 * *folder: the copy; NULL: no tokenizer. */
static z3d_status keep_tokenizer(const z3d_import *import, const z3d_interop *f, char **folder) {
    const bool huggingface = f->turned;
    z3d_tokenizer_files files = {0};
    z3d_status status = Z3D_OK;
    *folder = NULL;
    if (import->vocab && strcmp(import->vocab, "none") == 0) return Z3D_OK;
    if (import->vocab || huggingface)
        status = z3d_tokenizer_files_read(import->vocab ? import->vocab : import->from,
                                          import->merges, &files);
    if (status == Z3D_OK && import->vocab && !files.known)
        status = Z3D_ERROR(Z3D_ERR_IO,
                           "%s: it has no tokenizer: expected vocab.json and merges.txt, or "
                           "tokenizer.json",
                           import->vocab);
    if (status == Z3D_OK && huggingface && import->vocab)
        status = z3d_tokenizer_files_read_config(import->from, &files);
    if (status == Z3D_OK && files.known) {
        status = z3d_join_path(import->to, TOKENIZER_FOLDER, folder);
        if (status == Z3D_OK) status = z3d_io_make_folder(NULL, *folder);
        if (status == Z3D_OK) status = z3d_tokenizer_files_write(&files, true, *folder);
        if (status == Z3D_OK) status = check_tokenizer(import, f, *folder);
    }
    z3d_tokenizer_files_free(&files);
    return status;
}

/* ---- the checkpoint ---- */

typedef struct values {
    const z3d_import *import;
    z3d_interop *from;
    z3d_nonfinite bad;
} values;

static z3d_status interop_values(void *context, const z3d_extent *e, int64_t at, int64_t count,
                                 float *out) {
    values *v = context;
    int64_t bad = 0;
    Z3D_TRY(z3d_interop_read(v->from, e->tensor, e->first + at, count, out));
    for (int64_t i = 0; i < count; i++) bad += !isfinite(out[i]);
    z3d_nonfinite_add(&v->bad, v->from->view[e->tensor].name, bad);
    z3d_progress_add(v->import->progress, count * (int64_t)sizeof *out);
    return Z3D_OK;
}

static z3d_status describe(const z3d_import *import, const z3d_interop *f, z3d_manifest *m) {
    m->info = (z3d_checkpoint_info){.engine = {.loss_scale = 1},
                                    .tensor_size = 1,
                                    .data_size = 1,
                                    .pipeline_size = 1,
                                    .dtype = Z3D_F32};
    m->info.program = strdup(import->program);
    m->info.imported = realpath(import->from, NULL);
    Z3D_TRY(z3d_libraries(&m->info.libraries));
    if (!m->info.program || !m->info.imported)
        return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a checkpoint's texts");
    char *tokenizer;
    z3d_status status = keep_tokenizer(import, f, &tokenizer);
    if (status == Z3D_OK)
        status = describe_model(f->type, tokenizer != NULL, f->config, &m->info.config);
    free(tokenizer);
    Z3D_TRY(status);
    Z3D_TRY(z3d_tensors_of(f->model, &m->tensor, &m->num_tensors));
    Z3D_TRY(z3d_new(1, sizeof *m->shard, "the list of shards", &m->shard));
    return z3d_new(2, sizeof *m->file, "the list of files", &m->file);
}

/* The type of all tensors in the files; fp32 if they differ. */
static z3d_dtype dtype_of(const z3d_interop *f) {
    for (int i = 1; i < f->count; i++)
        if (f->place[i].dtype != f->place[0].dtype) return Z3D_F32;
    return f->place[0].dtype;
}

/* A later export has the type of the imported files. */
static z3d_status keep_dtype(const z3d_interop *f) {
    char assignment[64];
    snprintf(assignment, sizeof assignment, "checkpoint.export.dtype=%s",
             z3d_dtype_name(dtype_of(f)));
    return z3d_config_override(f->config, assignment);
}

/* Makes the only shard, with all parameters. */
static z3d_status make_image(const z3d_interop *f, const z3d_manifest *m, z3d_image *image) {
    z3d_mesh alone;
    z3d_extent *extent;
    int count;
    Z3D_TRY(z3d_mesh_make(1, 1, 1, 0, &alone));
    Z3D_TRY(z3d_shard_plan(f->model, &alone, NULL, Z3D_KIND(PARAMETER), false, &count, &extent));
    return z3d_image_make(m->tensor, 0, 0, count, extent, image);
}

static z3d_status write_checkpoint(values *v, z3d_manifest *m, z3d_image *image,
                                   const char *folder) {
    const z3d_import *import = v->import;
    Z3D_TRY(z3d_space_check(import->to, &image->shard.size, 1));
    z3d_progress_begin(import->progress, image->shard.size);
    Z3D_TRY(z3d_step_folder_make(NULL, folder));
    Z3D_TRY(z3d_io_sync_folder(NULL, import->to));
    z3d_status status = z3d_image_write(image, NULL, folder, interop_values, v, &m->file[0]);
    m->shard[0] = image->shard; /* now the manifest owns it */
    image->shard = (z3d_shard){0};
    m->num_shards = m->num_files = 1;
    if (status == Z3D_OK)
        status =
            z3d_nonfinite_judge(&v->bad, import->allow_nonfinite, v->from->path, dtype_of(v->from));
    if (status == Z3D_OK) status = z3d_commit(m, NULL, folder);
    if (status != Z3D_OK) (void)z3d_io_remove_tree(NULL, folder, NULL);
    return status;
}

/* Writes DIR/config.yaml for a run that trains the model further: it begins with the model's
 * weights, and has values for fine-tuning. */
static z3d_status write_config(z3d_config *config, int64_t vocab_size, const char *dir) {
    static const char *const values[] = {("checkpoint.init_from=" FIRST_STEP), /* relative to DIR */
                                         "optimizer.params.lr=5e-5", "gradient_clipping=1"};
    z3d_string text = {0};
    config->model_vocab_size = vocab_size;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        Z3D_TRY(z3d_config_override(config, values[i]));
    z3d_config_write(config, &text);
    z3d_status status =
        text.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the configuration's text")
                    : z3d_io_write_file(NULL, dir, config_file, text.text, (int64_t)text.length);
    z3d_string_free(&text);
    return status;
}

static z3d_status import_locked(const z3d_import *import, z3d_interop *f, const char *folder) {
    z3d_manifest m = {0};
    z3d_image image = {.fd = -1};
    values v = {.import = import, .from = f};
    z3d_status status = keep_dtype(f);
    if (status == Z3D_OK) status = describe(import, f, &m);
    if (status == Z3D_OK) status = make_image(f, &m, &image);
    if (status == Z3D_OK) status = write_checkpoint(&v, &m, &image, folder);
    if (status == Z3D_OK) status = write_config(f->config, ids_of(import, f), import->to);
    z3d_image_free(&image);
    z3d_manifest_free(&m);
    return status;
}

/* Refuses a folder with an older import or a run: its latest checkpoint would be used in place of
 * the imported one. */
static z3d_status check_empty(const char *dir) {
    int64_t *steps;
    int count;
    bool there;
    Z3D_TRY(z3d_checkpoint_list(dir, &steps, &count));
    free(steps);
    Z3D_TRY(z3d_io_has(dir, config_file, &there));
    if (count == 0 && !there) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_IO, "%s: it already has %s; import into a new folder", dir,
                     count > 0 ? "checkpoints" : config_file);
}

z3d_status z3d_checkpoint_import(const z3d_import *import, char **folder) {
    z3d_interop f;
    int lock = -1;
    *folder = NULL;
    z3d_status status = z3d_interop_open(import->from, &f);
    if (status == Z3D_OK) status = check_vocab_size(import, &f);
    if (status == Z3D_OK) status = z3d_make_folders(import->to);
    if (status == Z3D_OK) status = z3d_folder_lock_take(import->to, &z3d_checkpoint_lock, &lock);
    if (status == Z3D_OK) status = check_empty(import->to);
    if (status == Z3D_OK) status = z3d_checkpoint_path(import->to, 0, folder);
    if (status == Z3D_OK) status = import_locked(import, &f, *folder);
    z3d_folder_lock_release(&lock);
    z3d_interop_close(&f);
    return status;
}
