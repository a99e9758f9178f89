/* Exports a GPT's checkpoint to other programs' files: Hugging Face's model.safetensors and
 * config.json, and llm.c's. Hugging Face's Conv1D weights are [in, out], ours [out, in], so they
 * are transposed. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/interop.h"
#include "src/base/config.h"

/* ---- Hugging Face ---- */

typedef struct exported {
    z3d_view view;
    int tensor;
    int64_t begin; /* in the file's data */
} exported;

static int by_name(const void *a, const void *b) {
    return strcmp(((const exported *)a)->view.name, ((const exported *)b)->view.name);
}

/* Names sorted, data in that order without holes, the header padded with spaces to a multiple of 8:
 * one state has one file. */
static void write_header(exported *tensors, int count, z3d_dtype dtype, z3d_string *out) {
    static const char *const types[] = {[Z3D_F32] = "F32", [Z3D_BF16] = "BF16", [Z3D_F16] = "F16"};
    int64_t at = 0;
    qsort(tensors, (size_t)count, sizeof *tensors, by_name);
    z3d_string_append(out, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int i = 0; i < count; i++) {
        const z3d_view *v = &tensors[i].view;
        int64_t first = v->turned ? v->columns : v->rows;
        int64_t second = v->turned ? v->rows : v->columns;
        tensors[i].begin = at;
        at += (v->rows ? v->rows : 1) * v->columns * (int64_t)z3d_dtype_size(dtype);
        z3d_string_append(out, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", v->name, types[dtype]);
        if (v->rows) z3d_string_append(out, "%lld,", (long long)first);
        z3d_string_append(out, "%lld],\"data_offsets\":[%lld,%lld]}", (long long)second,
                          (long long)tensors[i].begin, (long long)at);
    }
    z3d_string_append(out, "}");
    while (out->length % 8 != 0 && !out->failed) z3d_string_append(out, " ");
}

static z3d_status write_safetensors(z3d_checkpoint *c, exported *tensors, int count,
                                    z3d_dtype dtype, int fd, const char *path) {
    z3d_string header = {0};
    uint8_t length[8];
    write_header(tensors, count, dtype, &header);
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)(header.length >> (8 * i));
    z3d_status status = header.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a header")
                                      : z3d_io_write(NULL, fd, path, length, 8, 0, -1);
    if (status == Z3D_OK)
        status = z3d_io_write(NULL, fd, path, header.text, (int64_t)header.length, 8, -1);
    for (int i = 0; i < count && status == Z3D_OK; i++)
        status = z3d_export_tensor(c, tensors[i].tensor, &tensors[i].view, tensors[i].view.turned,
                                   dtype, fd, path, 8 + (int64_t)header.length + tensors[i].begin);
    z3d_string_free(&header);
    return status;
}

static z3d_status write_model(z3d_checkpoint *c, const z3d_config *config, z3d_dtype dtype, int fd,
                              const char *path) {
    int count = z3d_checkpoint_num_tensors(c);
    exported *tensors;
    const z3d_model_type *type;
    Z3D_TRY(z3d_model_type_of(config, &type));
    Z3D_TRY(z3d_new((size_t)count + 1, sizeof *tensors, "the list of tensors", &tensors));
    for (int i = 0; i < count; i++) {
        const char *group, *name;
        const int64_t *shape;
        int dims;
        z3d_checkpoint_tensor(c, i, &group, &name, &dims, &shape);
        type->interop->view(group, name, dims, shape, &tensors[i].view);
        tensors[i].tensor = i;
    }
    z3d_status status = write_safetensors(c, tensors, count, dtype, fd, path);
    free(tensors);
    return status;
}

/* "50256", or null. */
static void append_id(z3d_string *text, const char *key, int64_t id) {
    z3d_string_append(text, "  \"%s\": ", key);
    z3d_string_append(text, id < 0 ? "null,\n" : "%lld,\n", (long long)id);
}

static z3d_status write_config(const z3d_config *config, z3d_dtype dtype,
                               const z3d_tokenizer_files *tokenizer, const char *folder) {
    static const char *const types[] = {
        [Z3D_F32] = "float32", [Z3D_BF16] = "bfloat16", [Z3D_F16] = "float16"};
    /* Left out, transformers takes GPT-2's. */
    int64_t standard = config->model_vocab_size > 50256 ? 50256 : -1;
    const z3d_model_type *type;
    z3d_string text = {0};
    Z3D_TRY(z3d_model_type_of(config, &type));
    z3d_string_append(&text, "{\n%s", type->interop->begin);
    append_id(&text, "bos_token_id", tokenizer->known ? tokenizer->bos : standard);
    append_id(&text, "eos_token_id", tokenizer->known ? tokenizer->eos : standard);
    type->interop->append_sizes(config, &text);
    z3d_string_append(&text, "  \"torch_dtype\": \"%s\"\n}\n", types[dtype]);
    z3d_status status = text.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for config.json")
                                    : z3d_io_write_file(NULL, folder, "config.json", text.text,
                                                        (int64_t)text.length);
    z3d_string_free(&text);
    return status;
}

/* ---- its tokenizer ---- */

/* DIR/tokenizer beside DIR/step-N, where an import put it; NULL: not there. */
static z3d_status find_kept(const z3d_checkpoint *c, char **out) {
    char *parent = NULL;
    bool there = false;
    *out = NULL;
    z3d_status status = z3d_io_join(z3d_checkpoint_folder(c), "../tokenizer", &parent);
    if (status == Z3D_OK) status = z3d_io_exists(parent, &there);
    if (status == Z3D_OK && there)
        *out = parent;
    else
        free(parent);
    return status;
}

/* As the configuration says. */
static z3d_status read_configured(const z3d_checkpoint *c, const z3d_config *config,
                                  z3d_tokenizer_files *out) {
    const char *vocab = config->data_vocab;
    bool named = vocab && *vocab, there = false;
    char *kept = NULL;
    if (config->data_tokenizer == Z3D_TOKENIZER_BYTES) {
        enum { BYTES_VOCABULARY = 257 };
        if (config->model_vocab_size == BYTES_VOCABULARY) z3d_tokenizer_files_of_bytes(out);
        return Z3D_OK;
    }
    if (named) Z3D_TRY(z3d_io_exists(vocab, &there));
    if (there) return z3d_tokenizer_files_read(vocab, config->data_merges, out);
    Z3D_TRY(find_kept(c, &kept));
    z3d_status status = Z3D_OK;
    if (kept)
        status = z3d_tokenizer_files_read(kept, NULL, out);
    else if (named)
        status = Z3D_ERROR(Z3D_ERR_IO,
                           "%s: the checkpoint's tokenizer (data.vocab) is not there; give --vocab "
                           "PATH, or --vocab none to export without a tokenizer",
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
        status = read_configured(c, config, out);
    }
    if (status == Z3D_OK && out->known)
        status = z3d_tokenizer_files_complete(out, config->model_seq_length);
    return status;
}

/* ---- both ---- */

/* PATH.part, synced and renamed when it is whole. */
static z3d_status write_file(z3d_checkpoint *c, const z3d_config *config, z3d_interop_format format,
                             z3d_dtype dtype, const char *path) {
    z3d_string part = {0};
    int fd = -1;
    struct stat there;
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode))
        return Z3D_ERROR(Z3D_ERR_IO, "%s: it exists and is not a regular file; give another name",
                         path);
    z3d_string_append(&part, "%s.part", path);
    z3d_status status = part.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a file's name")
                                    : z3d_io_create(NULL, part.text, &fd);
    if (status == Z3D_OK)
        status = format == Z3D_INTEROP_LLMC ? z3d_llmc_write(c, config, dtype, fd, part.text)
                                            : write_model(c, config, dtype, fd, part.text);
    if (status == Z3D_OK) status = z3d_io_sync(NULL, fd, part.text);
    if (fd >= 0) z3d_io_close(fd, part.text, &status);
    if (status == Z3D_OK) status = z3d_io_rename(NULL, part.text, path);
    if (status != Z3D_OK && fd >= 0) (void)unlink(part.text);
    z3d_string_free(&part);
    return status;
}

/* Files of another model beside these would be read together with them. */
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

static z3d_status write_folder(z3d_checkpoint *c, const z3d_config *config, z3d_export *what) {
    z3d_tokenizer_files tokenizer = {0};
    char *path = NULL;
    Z3D_TRY(check_new_folder(what->to));
    z3d_status status = read_tokenizer(c, config, what, &tokenizer);
    if (status == Z3D_OK) status = z3d_make_folders(what->to);
    if (status == Z3D_OK) status = z3d_io_join(what->to, "model.safetensors", &path);
    if (status == Z3D_OK) status = write_file(c, config, what->format, what->dtype, path);
    /* Last: a folder that has config.json is whole. */
    if (status == Z3D_OK && tokenizer.known)
        status = z3d_tokenizer_files_write(&tokenizer, false, what->to);
    if (status == Z3D_OK) status = write_config(config, what->dtype, &tokenizer, what->to);
    what->tokenizer = tokenizer.known;
    free(path);
    z3d_tokenizer_files_free(&tokenizer);
    return status;
}

static const int64_t *find_shape(void *checkpoint, const char *group, const char *name, int *dims) {
    const char *unused_group, *unused_name;
    const int64_t *shape;
    int tensor = z3d_checkpoint_find(checkpoint, group, name);
    if (tensor < 0) return NULL;
    z3d_checkpoint_tensor(checkpoint, tensor, &unused_group, &unused_name, dims, &shape);
    return shape;
}

/* The checkpoint's configuration, with the sizes that its tensors have. Its text must be readable
 * where the tokenizer follows from it. */
static z3d_status read_config(z3d_checkpoint *c, bool whole, z3d_config *out) {
    const char *text = z3d_checkpoint_get_info(c)->config;
    const z3d_model_type *type;
    z3d_status status =
        z3d_config_read_text(out, text, strlen(text), "the checkpoint's configuration");
    if (whole) Z3D_TRY(status);
    Z3D_TRY(z3d_model_type_of(out, &type));
    if (!type->interop)
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "model.type %s cannot be exported", type->name);
    return type->interop->read_shapes(&(z3d_shapes){c, find_shape}, out);
}

z3d_status z3d_checkpoint_export(z3d_checkpoint *c, z3d_export *what) {
    z3d_config *config;
    bool llmc = what->format == Z3D_INTEROP_LLMC;
    if (what->dtype != Z3D_F32 && what->dtype != Z3D_BF16 && (what->dtype != Z3D_F16 || llmc))
        return Z3D_ERROR(Z3D_ERR_USAGE, "%s has no type %s; use %s",
                         llmc ? "llm.c's format" : "an export", z3d_dtype_name(what->dtype),
                         llmc ? "fp32 or bf16" : "fp32, bf16 or fp16");
    what->tokenizer = false;
    Z3D_TRY(z3d_config_create(&config));
    z3d_status status = read_config(c, !llmc && !what->vocab, config);
    if (status == Z3D_OK)
        status = llmc ? write_file(c, config, what->format, what->dtype, what->to)
                      : write_folder(c, config, what);
    z3d_config_destroy(config);
    return status;
}
