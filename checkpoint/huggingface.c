/* Reads Hugging Face's GPT-2: config.json and the header of model.safetensors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/foreign.h"

enum { MAX_CONFIG = 1 << 20, MAX_HEADER = 1 << 26 };

/* ---- config.json ---- */

static bool is_number(const z3d_json *value, double number) {
    return value->type == Z3D_JSON_NUMBER && strtod(value->text, NULL) == number;
}

static bool is_text(const z3d_json *value, const char *text) {
    return value->type == Z3D_JSON_STRING && strcmp(value->text, text) == 0;
}

/* What another value of would be another computation than ours. Missing ones have GPT-2's value. */
static z3d_status check_kind(const z3d_json *root, int64_t hidden) {
    static const struct {
        const char *key;
        bool wanted;
    } flags[] = {{"scale_attn_weights", true},
                 {"scale_attn_by_inverse_layer_idx", false},
                 {"add_cross_attention", false},
                 {"tie_word_embeddings", true}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        const z3d_json *m = z3d_json_member(root, flags[i].key);
        if (m && (m->type != Z3D_JSON_BOOL || m->truth != flags[i].wanted))
            return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "\"%s\" must be %s", flags[i].key,
                             flags[i].wanted ? "true" : "false");
    }
    const z3d_json *m = z3d_json_member(root, "model_type");
    if (m && !is_text(m, "gpt2"))
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "\"model_type\" must be \"gpt2\"");
    m = z3d_json_member(root, "activation_function");
    if (m && !is_text(m, "gelu_new") && !is_text(m, "gelu_pytorch_tanh"))
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "\"activation_function\" must be \"gelu_new\"");
    m = z3d_json_member(root, "layer_norm_epsilon");
    if (m && !is_number(m, 1e-5))
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "\"layer_norm_epsilon\" must be 1e-5");
    m = z3d_json_member(root, "n_inner");
    if (m && m->type != Z3D_JSON_NULL && !is_number(m, 4 * (double)hidden))
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "\"n_inner\" must be null or 4 times \"n_embd\"");
    return Z3D_OK;
}

static z3d_status read_sizes(const z3d_json *root, z3d_gpt_config *gpt) {
    Z3D_TRY(z3d_json_get_int(root, "n_layer", &gpt->num_layers));
    Z3D_TRY(z3d_json_get_int(root, "n_head", &gpt->num_heads));
    Z3D_TRY(z3d_json_get_int(root, "n_embd", &gpt->hidden_size));
    Z3D_TRY(z3d_json_get_int(root, "n_positions", &gpt->seq_length));
    Z3D_TRY(z3d_json_get_int(root, "vocab_size", &gpt->vocab_size));
    return check_kind(root, gpt->hidden_size);
}

static z3d_status read_config(const char *folder, z3d_gpt_config *gpt) {
    char *path, *text = NULL;
    size_t length;
    z3d_json *root = NULL;
    Z3D_TRY(z3d_io_join(folder, "config.json", &path));
    z3d_status status = z3d_read_file(path, MAX_CONFIG, &text, &length);
    if (status == Z3D_OK) {
        status = z3d_json_parse(text, length, path, &root);
        if (status == Z3D_OK) {
            status = read_sizes(root, gpt);
            if (status != Z3D_OK) z3d_error_context(status, "%s", path);
        }
    }
    z3d_json_free(root);
    free(text);
    free(path);
    return status;
}

/* ---- model.safetensors ---- */

/* The header's tensors are looked up among ours by name. */
typedef struct listed {
    const char *name;
    int tensor;
} listed;

typedef struct header {
    z3d_foreign *f;
    listed *by_name;          /* [count], sorted */
    int64_t data;             /* where the tensors begin in the file */
    const z3d_json *own_head; /* "lm_head.weight" */
} header;

static int compare_names(const void *a, const void *b) {
    return strcmp(((const listed *)a)->name, ((const listed *)b)->name);
}

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), wanted = strlen(end);
    return length >= wanted && strcmp(text + length - wanted, end) == 0;
}

enum { SHOWN = 100 };

/* A name from the file, fit for a message. */
static const char *shown(const char *name, char out[SHOWN + 1]) {
    size_t i = 0;
    for (; name[i] && i < SHOWN; i++)
        out[i] = (char)(name[i] < ' ' || name[i] > '~' ? '?' : name[i]);
    out[i] = '\0';
    return out;
}

static bool read_dtype(const z3d_json *entry, z3d_dtype *out) {
    static const struct {
        const char *name;
        z3d_dtype dtype;
    } types[] = {{"F32", Z3D_F32}, {"F16", Z3D_F16}, {"BF16", Z3D_BF16}};
    const z3d_json *dtype = z3d_json_member(entry, "dtype");
    for (size_t i = 0; dtype && i < sizeof types / sizeof *types; i++)
        if (is_text(dtype, types[i].name)) {
            *out = types[i].dtype;
            return true;
        }
    return false;
}

static bool has_shape(const z3d_json *shape, int64_t first, int64_t second) {
    int64_t a, b;
    if (!shape || shape->type != Z3D_JSON_ARRAY || shape->count != (second ? 2 : 1)) return false;
    return z3d_json_int(shape->first, &a) && a == first &&
           (!second || (z3d_json_int(shape->first->next, &b) && b == second));
}

/* Where an entry's values lie, for a tensor of ours that it must fit. */
static z3d_status read_entry(const header *h, const z3d_json *entry, int tensor, z3d_place *out) {
    const z3d_foreign *f = h->f;
    const z3d_view *v = &f->view[tensor];
    char text[SHOWN + 1];
    int64_t first = v->rows ? v->rows : v->columns, second = v->rows ? v->columns : 0, begin, end;
    if (v->conv1d) first = v->columns, second = v->rows;
    if (!read_dtype(entry, &out->dtype))
        return Z3D_ERROR(Z3D_ERR_DATA, "%s: tensor %s: F32, F16 or BF16 is wanted", f->path,
                         shown(entry->key, text));
    if (!has_shape(z3d_json_member(entry, "shape"), first, second))
        return second ? Z3D_ERROR(Z3D_ERR_DATA,
                                  "%s: tensor %s has another shape than config.json says: "
                                  "[%lld, %lld] is wanted",
                                  f->path, shown(entry->key, text), (long long)first,
                                  (long long)second)
                      : Z3D_ERROR(Z3D_ERR_DATA,
                                  "%s: tensor %s has another shape than config.json says: "
                                  "[%lld] is wanted",
                                  f->path, shown(entry->key, text), (long long)first);
    const z3d_json *range = z3d_json_member(entry, "data_offsets");
    int64_t bytes = first * (second ? second : 1) * (int64_t)z3d_dtype_size(out->dtype);
    if (!range || range->type != Z3D_JSON_ARRAY || range->count != 2 ||
        !z3d_json_int(range->first, &begin) || !z3d_json_int(range->first->next, &end) ||
        begin > end || end - begin != bytes || end > f->bytes - h->data)
        return Z3D_ERROR(Z3D_ERR_DATA,
                         "%s: tensor %s: its \"data_offsets\" are not those of %lld bytes of "
                         "the file",
                         f->path, shown(entry->key, text), (long long)bytes);
    out->offset = h->data + begin;
    out->found = true;
    return Z3D_OK;
}

static z3d_status add_entry(header *h, const z3d_json *entry) {
    static const char prefix[] = "transformer.";
    const char *name = entry->key;
    char text[SHOWN + 1];
    if (strcmp(name, "__metadata__") == 0) return Z3D_OK;
    if (strcmp(name, "lm_head.weight") == 0) {
        h->own_head = entry;
        return Z3D_OK;
    }
    if (strncmp(name, prefix, sizeof prefix - 1) == 0) name += sizeof prefix - 1;
    /* Masks that older versions saved. */
    if (strncmp(name, "h.", 2) == 0 &&
        (ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias")))
        return Z3D_OK;
    listed wanted = {name, 0};
    const listed *found =
        bsearch(&wanted, h->by_name, (size_t)h->f->count, sizeof wanted, compare_names);
    if (!found)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s: tensor %s is none of a GPT-2 of %lld layers",
                         h->f->path, shown(entry->key, text), (long long)h->f->gpt.num_layers);
    z3d_place *place = &h->f->place[found->tensor];
    if (place->found)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s: tensor %s is there twice", h->f->path,
                         shown(name, text));
    return read_entry(h, entry, found->tensor, place);
}

/* A head of its own must be the token table again: ours are tied. */
static z3d_status check_head(const header *h) {
    enum { CHUNK = 4096 };
    const z3d_foreign *f = h->f;
    float a[CHUNK], b[CHUNK];
    z3d_place head = {0};
    int table = 0;
    if (!h->own_head) return Z3D_OK;
    while (strcmp(f->view[table].name, "wte.weight") != 0) table++;
    Z3D_TRY(read_entry(h, h->own_head, table, &head));
    int64_t count = z3d_tensor_elements(&f->tensor[table]);
    for (int64_t at = 0; at < count; at += CHUNK) {
        int64_t some = count - at < CHUNK ? count - at : CHUNK;
        int64_t offset = at * (int64_t)z3d_dtype_size(head.dtype);
        Z3D_TRY(z3d_foreign_read_run(f, head.dtype, head.offset + offset, some, a));
        Z3D_TRY(z3d_foreign_read(f, table, at, some, b));
        if (memcmp(a, b, (size_t)some * sizeof *a) != 0)
            return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                             "%s: tensor lm_head.weight is not wte.weight again: a head of its "
                             "own is not supported",
                             f->path);
    }
    return Z3D_OK;
}

static z3d_status add_entries(header *h, const z3d_json *root) {
    z3d_foreign *f = h->f;
    if (root->type != Z3D_JSON_OBJECT)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s: its header is no JSON object", f->path);
    Z3D_TRY(z3d_new((size_t)f->count, sizeof *h->by_name, "the list of names", &h->by_name));
    for (int i = 0; i < f->count; i++) h->by_name[i] = (listed){f->view[i].name, i};
    qsort(h->by_name, (size_t)f->count, sizeof *h->by_name, compare_names);
    for (const z3d_json *entry = root->first; entry; entry = entry->next)
        Z3D_TRY(add_entry(h, entry));
    for (int i = 0; i < f->count; i++)
        if (!f->place[i].found)
            return Z3D_ERROR(Z3D_ERR_DATA, "%s: tensor %s is missing", f->path, f->view[i].name);
    return check_head(h);
}

/* The file: 8 bytes, little-endian, how long the header is; the header; the tensors. */
static z3d_status read_header(z3d_foreign *f) {
    uint8_t bytes[8] = {0};
    uint64_t length = 0;
    char *text = NULL;
    z3d_json *root = NULL;
    header h = {.f = f};
    Z3D_TRY(z3d_io_read(f->fd, f->path, bytes, 8, 0));
    for (int i = 0; i < 8; i++) length |= (uint64_t)bytes[i] << (8 * i);
    if (length > MAX_HEADER || (int64_t)length > f->bytes - 8)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s: is no safetensors file: its header would be %llu bytes",
                         f->path, (unsigned long long)length);
    h.data = 8 + (int64_t)length;
    Z3D_TRY(z3d_new(length + 1, 1, "a header", &text));
    z3d_status status = z3d_io_read(f->fd, f->path, text, (int64_t)length, 8);
    if (status == Z3D_OK) status = z3d_json_parse(text, length, f->path, &root);
    if (status == Z3D_OK) status = add_entries(&h, root);
    z3d_json_free(root);
    free(h.by_name);
    free(text);
    return status;
}

z3d_status z3d_huggingface_open(const char *folder, z3d_foreign *f) {
    f->conv1d = true;
    Z3D_TRY(read_config(folder, &f->gpt));
    Z3D_TRY(z3d_io_join(folder, "model.safetensors", &f->path));
    Z3D_TRY(z3d_foreign_open_file(f));
    Z3D_TRY(z3d_foreign_make_model(f));
    return read_header(f);
}
