/* To Hugging Face's GPT-2: model.safetensors and config.json, from any checkpoint of a GPT. Names
 * are GPT-2's; its Conv1D weights are [in, out], ours [out, in], so they are transposed on the way.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/format.h"

typedef struct exported {
    char name[2 * Z3D_NAME + 8];
    int tensor;
    bool transposed;
    int64_t rows, columns; /* of ours; a vector has rows 0 */
    int64_t begin, end;    /* in the file's data */
} exported;

/* "block.3" and "attn.c_attn.weight" become "h.3.attn.c_attn.weight". */
static void hugging_face_name(const char *group, const char *name, char *out, size_t size) {
    if (strncmp(group, "block.", 6) == 0)
        snprintf(out, size, "h.%s.%s", group + 6, name);
    else
        snprintf(out, size, "%s.%s", group, name);
}

static bool is_conv1d(const char *name) {
    size_t length = strlen(name);
    return (strncmp(name, "attn.", 5) == 0 || strncmp(name, "mlp.", 4) == 0) && length > 7 &&
           strcmp(name + length - 7, ".weight") == 0;
}

/* Output features are attention's first three dimensions of four, else the first. */
static void describe(const z3d_checkpoint *c, int index, exported *out) {
    const char *group, *name;
    const int64_t *shape;
    int dims, outputs = 1;
    z3d_part whole;
    z3d_checkpoint_tensor(c, index, &group, &name, &dims, &shape);
    z3d_checkpoint_whole(c, index, &whole);
    *out = (exported){.tensor = index, .transposed = is_conv1d(name)};
    hugging_face_name(group, name, out->name, sizeof out->name);
    out->columns = whole.count;
    size_t length = strlen(name);
    if (length < 6 || strcmp(name + length - 6, "weight") != 0 || dims < 2) return;
    if (dims == 4) outputs = 3;
    out->rows = 1;
    for (int d = 0; d < outputs; d++) out->rows *= shape[d];
    out->columns = whole.count / out->rows;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const exported *)a)->name, ((const exported *)b)->name);
}

/* Names sorted, data in that order without holes, the header padded with spaces to a multiple of 8:
 * one state has one file. */
static void write_header(exported *tensors, int count, z3d_string *out) {
    int64_t at = 0;
    qsort(tensors, (size_t)count, sizeof *tensors, by_name);
    z3d_string_append(out, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int i = 0; i < count; i++) {
        exported *t = &tensors[i];
        int64_t first = t->transposed ? t->columns : t->rows;
        int64_t second = t->transposed ? t->rows : t->columns;
        t->begin = at;
        t->end = at += (t->rows ? t->rows : 1) * t->columns * 4;
        z3d_string_append(out, ",\"%s\":{\"dtype\":\"F32\",\"shape\":[", t->name);
        if (t->rows) z3d_string_append(out, "%lld,", (long long)first);
        z3d_string_append(out, "%lld],\"data_offsets\":[%lld,%lld]}",
                          (long long)(t->rows ? second : t->columns), (long long)t->begin,
                          (long long)t->end);
    }
    z3d_string_append(out, "}");
    while (out->length % 8 != 0 && !out->failed) z3d_string_append(out, " ");
}

static void transpose(const float *in, int64_t rows, int64_t columns, float *out) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < columns; k++) out[k * rows + r] = in[r * columns + k];
}

static z3d_status write_tensor(z3d_checkpoint *c, const exported *t, int fd, const char *path,
                               int64_t base) {
    float *values = NULL, *turned = NULL;
    z3d_part whole;
    z3d_checkpoint_whole(c, t->tensor, &whole);
    z3d_status status = z3d_new((size_t)whole.count, sizeof *values, "a tensor", &values);
    if (status == Z3D_OK)
        status =
            z3d_checkpoint_read(c, Z3D_TENSOR_PARAMETER, t->tensor, &whole, 0, whole.count, values);
    if (status == Z3D_OK && t->transposed)
        status = z3d_new((size_t)whole.count, sizeof *turned, "a tensor", &turned);
    if (status == Z3D_OK && t->transposed) transpose(values, t->rows, t->columns, turned);
    if (status == Z3D_OK)
        status = z3d_io_write(NULL, fd, path, turned ? turned : values, whole.count * 4,
                              base + t->begin);
    free(values);
    free(turned);
    return status;
}

static z3d_status write_model(z3d_checkpoint *c, exported *tensors, int count, const char *folder) {
    z3d_string header = {0};
    char *path = NULL, *part = NULL;
    uint8_t length[8];
    int fd = -1;
    write_header(tensors, count, &header);
    z3d_status status = header.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a header")
                                      : z3d_io_join(folder, "model.safetensors", &path);
    if (status == Z3D_OK) status = z3d_io_join(folder, "model.safetensors.part", &part);
    if (status == Z3D_OK) status = z3d_io_create(NULL, part, &fd);
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)(header.length >> (8 * i));
    if (status == Z3D_OK) status = z3d_io_write(NULL, fd, part, length, 8, 0);
    if (status == Z3D_OK)
        status = z3d_io_write(NULL, fd, part, header.text, (int64_t)header.length, 8);
    for (int i = 0; i < count && status == Z3D_OK; i++)
        status = write_tensor(c, &tensors[i], fd, part, 8 + (int64_t)header.length);
    if (status == Z3D_OK) status = z3d_io_sync(NULL, fd, part);
    if (fd >= 0) z3d_io_close(fd, part, &status);
    if (status == Z3D_OK) status = z3d_io_rename(NULL, part, path);
    z3d_string_free(&header);
    free(path);
    free(part);
    return status;
}

/* The sizes are the tensors' own; heads are attention's second dimension. */
static z3d_status write_config(const z3d_checkpoint *c, const char *folder) {
    int wte = z3d_checkpoint_find(c, "wte", "weight"),
        wpe = z3d_checkpoint_find(c, "wpe", "weight");
    int attention = z3d_checkpoint_find(c, "block.0", "attn.c_attn.weight"), dims, layers = 0;
    const char *group, *name;
    const int64_t *table, *places, *heads;
    char block[32];
    z3d_string text = {0};
    if (wte < 0 || wpe < 0 || attention < 0)
        return Z3D_ERROR(Z3D_ERR_DATA, "the checkpoint is of no GPT-2: it lacks wte/weight, "
                                       "wpe/weight or block.0/attn.c_attn.weight");
    z3d_checkpoint_tensor(c, wte, &group, &name, &dims, &table);
    z3d_checkpoint_tensor(c, wpe, &group, &name, &dims, &places);
    z3d_checkpoint_tensor(c, attention, &group, &name, &dims, &heads);
    if (dims != 4) return Z3D_ERROR(Z3D_ERR_DATA, "the checkpoint is of no GPT-2 of ours");
    do {
        snprintf(block, sizeof block, "block.%d", ++layers);
    } while (z3d_checkpoint_find(c, block, "ln_1.weight") >= 0);
    z3d_string_append(
        &text,
        "{\n  \"architectures\": [\"GPT2LMHeadModel\"],\n  \"model_type\": \"gpt2\",\n"
        "  \"activation_function\": \"gelu_new\",\n  \"layer_norm_epsilon\": 1e-05,\n"
        "  \"n_layer\": %d,\n  \"n_head\": %lld,\n  \"n_embd\": %lld,\n"
        "  \"n_positions\": %lld,\n  \"n_ctx\": %lld,\n  \"vocab_size\": %lld,\n"
        "  \"tie_word_embeddings\": true,\n  \"torch_dtype\": \"float32\"\n}\n",
        layers, (long long)heads[1], (long long)table[1], (long long)places[0],
        (long long)places[0], (long long)table[0]);
    z3d_status status = text.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for config.json")
                                    : z3d_io_write_file(NULL, folder, "config.json", text.text,
                                                        (int64_t)text.length);
    z3d_string_free(&text);
    return status;
}

z3d_status z3d_checkpoint_export(z3d_checkpoint *c, const char *folder) {
    int count = z3d_checkpoint_num_tensors(c);
    exported *tensors;
    Z3D_TRY(z3d_make_folders(folder));
    Z3D_TRY(write_config(c, folder));
    Z3D_TRY(z3d_new((size_t)count + 1, sizeof *tensors, "the list of tensors", &tensors));
    for (int i = 0; i < count; i++) describe(c, i, &tensors[i]);
    z3d_status status = write_model(c, tensors, count, folder);
    free(tensors);
    return status;
}
