/* llm.c's GPT-2 checkpoint: a header of 256 int32 (magic, version, positions, vocabulary, layers,
 * heads, channels, padded vocabulary), then the tensors. A tensor of the blocks has the values of
 * all layers, one layer after the other. Matrices are [out, in]. All values have one type: fp32 in
 * version 3, bf16 in version 5. */
#include <stdio.h>
#include <string.h>

#include "checkpoint/interop/interop.h"

enum { MAGIC = 20240326, HEADER = 256, MULTIPLE = 128, VERSION_FP32 = 3, VERSION_BF16 = 5 };

/* Our names in llm.c's order. A name of the blocks is repeated for each layer before the next name.
 */
static const struct {
    const char *group; /* NULL: each block's */
    const char *name;
} order[] = {{"wte", "weight"},
             {"wpe", "weight"},
             {NULL, "ln_1.weight"},
             {NULL, "ln_1.bias"},
             {NULL, "attn.c_attn.weight"},
             {NULL, "attn.c_attn.bias"},
             {NULL, "attn.c_proj.weight"},
             {NULL, "attn.c_proj.bias"},
             {NULL, "ln_2.weight"},
             {NULL, "ln_2.bias"},
             {NULL, "mlp.c_fc.weight"},
             {NULL, "mlp.c_fc.bias"},
             {NULL, "mlp.c_proj.weight"},
             {NULL, "mlp.c_proj.bias"},
             {"ln_f", "weight"},
             {"ln_f", "bias"}};
enum { ENTRIES = sizeof order / sizeof *order };

/* The group of entry `i` of the order for a layer; false: the entry has no such layer. */
static bool group_of(int i, int64_t layer, int64_t layers, char *out, size_t size) {
    if (order[i].group)
        snprintf(out, size, "%s", order[i].group);
    else
        snprintf(out, size, "block.%lld", (long long)layer);
    return layer < (order[i].group ? 1 : layers);
}

/* ---- reading ---- */

/* Searches from tensor `from` on: a block's tensors follow those of the previous block. A search
 * from the first one would take minutes for a small file of ten thousand layers. */
static int find(const z3d_interop *f, const char *group, const char *name, int from) {
    const int at = z3d_find_tensor(f->tensor + from, f->count - from, group, name);
    return at < 0 ? z3d_find_tensor(f->tensor, from, group, name) : from + at;
}

static z3d_status place_tensors(z3d_interop *f, z3d_dtype dtype, int64_t padded) {
    int64_t at = HEADER * 4;
    char group[Z3D_NAME];
    int tensor = 0;
    for (int i = 0; i < ENTRIES; i++)
        for (int64_t l = 0; group_of(i, l, f->config->model_num_layers, group, sizeof group); l++) {
            tensor = find(f, group, order[i].name, tensor);
            Z3D_REQUIRE(tensor >= 0, "no tensor %s/%s in a GPT-2", group, order[i].name);
            f->place[tensor] = (z3d_interop_source){.found = true, .dtype = dtype, .offset = at};
            at += z3d_bytes_of(dtype, i == 0 ? padded * f->config->model_hidden_size
                                             : z3d_tensor_elements(&f->tensor[tensor]));
        }
    if (at == f->bytes) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_DATA, "%s: the file has %lld bytes; its header describes %lld",
                     f->path, (long long)f->bytes, (long long)at);
}

bool z3d_llmc_is_file(const char *path) {
    const int32_t magic = MAGIC;
    return z3d_file_begins(path, &magic, sizeof magic);
}

z3d_status z3d_llmc_open(z3d_interop *f) {
    int32_t header[HEADER];
    if (f->bytes < (int64_t)sizeof header)
        return Z3D_ERROR(Z3D_ERR_DATA,
                         "%s: expected a folder with config.json and model.safetensors, or a "
                         "checkpoint file of llm.c",
                         f->path);
    Z3D_TRY(z3d_io_read(f->file[0].fd, f->path, header, sizeof header, 0));
    if (memcmp(header, "GGUF", 4) == 0)
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "%s: %s", f->path, Z3D_GGUF_IS_NOT_READ);
    if (header[0] != MAGIC)
        return Z3D_ERROR(
            Z3D_ERR_DATA,
            "%s: not a checkpoint of llm.c: it begins with %d, expected %d (to import a "
            "Hugging Face model, give its folder)",
            f->path, header[0], MAGIC);
    if (header[1] != VERSION_FP32 && header[1] != VERSION_BF16)
        return Z3D_ERROR(
            Z3D_ERR_UNSUPPORTED,
            "%s: llm.c checkpoint version %d is not supported; use 3 (fp32) or 5 (bf16)", f->path,
            header[1]);
    f->config->model_seq_length = header[2];
    f->config->model_vocab_size = header[3];
    f->config->model_num_layers = header[4];
    f->config->model_num_attention_heads = header[5];
    f->config->model_hidden_size = header[6];
    Z3D_TRY(z3d_interop_make_model(f));
    if (header[7] < header[3])
        return Z3D_ERROR(Z3D_ERR_DATA,
                         "%s: the padded vocabulary (%d) is smaller than the vocabulary (%d)",
                         f->path, header[7], header[3]);
    return place_tensors(f, header[1] == VERSION_FP32 ? Z3D_F32 : Z3D_BF16, header[7]);
}

/* ---- writing ---- */

z3d_status z3d_llmc_check(const z3d_config *config) {
    if (strcmp(config->model_type, "gpt2") == 0) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                     "llm.c has no %s, only GPT-2; export with --format huggingface",
                     config->model_type);
}

z3d_status z3d_llmc_write(z3d_checkpoint *c, const z3d_config *config,
                          const z3d_export_values *values, int fd, const char *path,
                          z3d_nonfinite *bad) {
    const z3d_dtype dtype = values->dtype;
    int64_t padded = z3d_round_up(config->model_vocab_size, MULTIPLE), at = HEADER * 4;
    int32_t header[HEADER] = {MAGIC,
                              dtype == Z3D_F32 ? VERSION_FP32 : VERSION_BF16,
                              (int32_t)config->model_seq_length,
                              (int32_t)config->model_vocab_size,
                              (int32_t)config->model_num_layers,
                              (int32_t)config->model_num_attention_heads,
                              (int32_t)config->model_hidden_size,
                              (int32_t)padded};
    char group[Z3D_NAME];
    const z3d_model_type *type;
    Z3D_TRY(z3d_model_type_of(config, &type));
    Z3D_TRY(z3d_io_write(NULL, fd, path, header, sizeof header, 0, -1));
    for (int i = 0; i < ENTRIES; i++)
        for (int64_t l = 0; group_of(i, l, config->model_num_layers, group, sizeof group); l++) {
            const int tensor = z3d_checkpoint_find(c, group, order[i].name);
            z3d_view view;
            if (tensor < 0)
                return Z3D_ERROR(Z3D_ERR_DATA,
                                 "the checkpoint is not a GPT-2: it has no tensor %s/%s", group,
                                 order[i].name);
            const z3d_tensor *t = z3d_checkpoint_tensor(c, tensor);
            type->interop->view(group, order[i].name, t->dims, t->shape, &view);
            view.turned = false;
            Z3D_TRY(z3d_export_tensor(c, tensor, &view, values, fd, path, at, bad));
            /* Padded rows stay a hole in the file, which reads as zeros. */
            const int64_t rows = i == 0 ? padded : view.rows ? view.rows : 1;
            at += z3d_bytes_of(dtype, rows * view.columns);
        }
    return Z3D_OK;
}
