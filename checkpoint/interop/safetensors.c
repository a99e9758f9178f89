/* Reads the headers of safetensors files: the offset of each tensor of a model. As the
 * specification says, the tensors fill the file: no overlap, no hole, nothing after the last one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/interop/interop.h"

enum { MAX_HEADER = 1 << 26 };

const char *const z3d_safetensors_types[Z3D_SAFETENSORS_TYPES] = {
    [Z3D_F32] = "F32", [Z3D_BF16] = "BF16", [Z3D_F16] = "F16"};

/* A name of ours, for the search of the header's tensors. */
typedef struct listed {
    const char *name;
    int tensor;
} listed;

/* The bytes of one tensor, ours or not, counted from the end of the header. */
typedef struct span {
    const char *name;
    int64_t begin, end;
} span;

typedef struct reader {
    z3d_interop *f;
    int wrong;               /* entries of an adapter that do not fit */
    listed *by_name;         /* [count], sorted */
    z3d_interop_source head; /* the place of the head, if it is a copy of the token table */
    z3d_problems problems;
    /* Of the current file. */
    int file;
    int64_t data, room; /* first byte of the tensors, and their bytes */
} reader;

static int compare_names(const void *a, const void *b) {
    return strcmp(((const listed *)a)->name, ((const listed *)b)->name);
}

/* Cuts the model's prefix off a name: names with and without it mean the same tensor. */
static const char *without_prefix(const z3d_model_interop *model, const char *name) {
    size_t length = strlen(model->prefix);
    return strncmp(name, model->prefix, length) == 0 ? name + length : name;
}

/* ---- one entry ---- */

static bool read_dtype(const z3d_json *entry, z3d_dtype *out) {
    const z3d_json *name = z3d_json_member(entry, "dtype");
    for (int d = 0; d < Z3D_SAFETENSORS_TYPES; d++)
        if (z3d_json_is_text(name, z3d_safetensors_types[d])) {
            *out = (z3d_dtype)d;
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

static z3d_status refuse_shape(const reader *r, const char *name, int64_t first, int64_t second) {
    char text[Z3D_SHOWN + 1], more[32] = "";
    if (second) snprintf(more, sizeof more, ", %lld", (long long)second);
    return Z3D_ERROR(Z3D_ERR_DATA, "tensor %s: its shape does not fit %s: expected [%lld%s]%s",
                     z3d_shown(name, text), r->f->wrapped ? "the run's model" : "config.json",
                     (long long)first, more,
                     r->f->wrapped ? "; the adapter is for a model of other sizes" : "");
}

/* The error for a tensor of an adapter's file that the run does not train. */
static z3d_status refuse_untrained(const reader *r, const char *name) {
    char text[Z3D_SHOWN + 1];
    return Z3D_ERROR(Z3D_ERR_DATA,
                     "tensor %s is not trained in this run, but %s%s is; the adapter is for "
                     "another model, or for other lora.target_modules or lora.modules_to_save",
                     z3d_shown(name, text), r->f->type->interop->adapter, r->f->view[0].name);
}

/* Reads the place of an entry's values; the entry must fit our tensor. */
static z3d_status read_entry(const reader *r, const z3d_json *entry, const span *bytes, int tensor,
                             z3d_interop_source *out) {
    const z3d_view *v = &r->f->view[tensor];
    char text[Z3D_SHOWN + 1];
    int64_t first = v->rows ? v->rows : v->columns, second = v->rows ? v->columns : 0;
    if (v->turned) first = v->columns, second = v->rows;
    if (!read_dtype(entry, &out->dtype))
        return Z3D_ERROR(Z3D_ERR_DATA, "tensor %s: expected dtype F32, F16 or BF16",
                         z3d_shown(entry->key, text));
    if (!has_shape(z3d_json_member(entry, "shape"), first, second))
        return refuse_shape(r, entry->key, first, second);
    int64_t wanted = z3d_bytes_of(out->dtype, first * (second ? second : 1));
    if (bytes->end - bytes->begin != wanted)
        return Z3D_ERROR(Z3D_ERR_DATA,
                         "tensor %s: \"data_offsets\" [%lld, %lld] are %lld bytes; its dtype "
                         "and shape need %lld",
                         z3d_shown(entry->key, text), (long long)bytes->begin,
                         (long long)bytes->end, (long long)(bytes->end - bytes->begin),
                         (long long)wanted);
    out->offset = r->data + bytes->begin;
    return Z3D_OK;
}

static z3d_status read_span(const reader *r, const z3d_json *entry, span *out) {
    const z3d_json *range = z3d_json_member(entry, "data_offsets");
    char text[Z3D_SHOWN + 1];
    out->name = entry->key;
    if (!range || range->type != Z3D_JSON_ARRAY || range->count != 2 ||
        !z3d_json_int(range->first, &out->begin) || !z3d_json_int(range->first->next, &out->end) ||
        out->begin > out->end)
        return Z3D_ERROR(Z3D_ERR_DATA, "tensor %s: expected \"data_offsets\": [BEGIN, END]",
                         z3d_shown(entry->key, text));
    if (out->end <= r->room) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_DATA,
                     "tensor %s: \"data_offsets\" [%lld, %lld] end after the file's %lld "
                     "bytes of tensors; the file is cut off or damaged",
                     z3d_shown(entry->key, text), (long long)out->begin, (long long)out->end,
                     (long long)r->room);
}

/* The place to fill in for a tensor with this name, and the tensor of ours that it must fit; NULL:
 * the model has no such tensor. */
static z3d_interop_source *place_of(reader *r, const char *name, int *tensor) {
    const z3d_model_interop *model = r->f->type->interop;
    listed wanted = {name, 0}, copied = {model->copied, 0};
    size_t count = (size_t)r->f->count;
    const listed *found = bsearch(&wanted, r->by_name, count, sizeof wanted, compare_names);
    bool copy = !found && strcmp(name, model->copy) == 0;
    if (copy) found = bsearch(&copied, r->by_name, count, sizeof copied, compare_names);
    if (!found) return NULL;
    *tensor = found->tensor;
    return copy ? &r->head : &r->f->place[found->tensor];
}

static z3d_status add_entry(reader *r, const z3d_json *entry, const span *bytes) {
    static const char wrapper[] = "base_model.model.";
    const z3d_model_interop *model = r->f->type->interop;
    const bool wrapped = r->f->wrapped && strncmp(entry->key, wrapper, strlen(wrapper)) == 0;
    const char *name = without_prefix(model, entry->key + (wrapped ? strlen(wrapper) : 0));
    char text[Z3D_SHOWN + 1];
    int tensor;
    if (model->ignores(name)) return Z3D_OK;
    z3d_interop_source *place = place_of(r, name, &tensor);
    if (!place && r->f->wrapped) return refuse_untrained(r, entry->key);
    if (!place)
        return Z3D_ERROR(Z3D_ERR_DATA, "tensor %s does not belong to a %s of %lld layers",
                         z3d_shown(entry->key, text), model->title,
                         (long long)r->f->config->model_num_layers);
    if (place->found)
        return Z3D_ERROR(Z3D_ERR_DATA, "tensor %s appears twice", z3d_shown(name, text));
    place->found = true;
    place->file = r->file;
    return read_entry(r, entry, bytes, tensor, place);
}

/* ---- one file ---- */

static int compare_spans(const void *a, const void *b) {
    const span *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* Sorts the spans and checks that they fill the file. */
static z3d_status check_spans(span *spans, size_t count, int64_t room) {
    char a[Z3D_SHOWN + 1], b[Z3D_SHOWN + 1];
    int64_t at = 0;
    if (count) qsort(spans, count, sizeof *spans, compare_spans);
    for (size_t i = 0; i < count; at = spans[i++].end) {
        if (spans[i].begin < at)
            return Z3D_ERROR(Z3D_ERR_DATA,
                             "tensor %s (bytes %lld to %lld) overlaps tensor %s (bytes %lld to "
                             "%lld)",
                             z3d_shown(spans[i].name, a), (long long)spans[i].begin,
                             (long long)spans[i].end, z3d_shown(spans[i - 1].name, b),
                             (long long)spans[i - 1].begin, (long long)spans[i - 1].end);
        if (spans[i].begin > at)
            return Z3D_ERROR(Z3D_ERR_DATA,
                             "bytes %lld to %lld, before tensor %s, belong to no tensor",
                             (long long)at, (long long)spans[i].begin, z3d_shown(spans[i].name, a));
    }
    if (at == room) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_DATA,
                     "%lld bytes follow the last tensor, which ends at byte %lld of %lld",
                     (long long)(room - at), (long long)at, (long long)room);
}

static void read_metadata(z3d_interop *f, const z3d_json *metadata) {
    const char *base = z3d_json_text(metadata, Z3D_ADAPTER_BASE);
    z3d_digest unused;
    if (z3d_digest_parse(base, &unused)) snprintf(f->base, sizeof f->base, "%s", base);
}

/* Adds a problem. If several tensors of an adapter are wrong, they have one cause: only the first
 * is reported. */
static void add_problem(reader *r, z3d_status status) {
    if (status != Z3D_OK && r->f->wrapped && r->wrong++ > 0) return;
    z3d_problems_add(&r->problems, status);
}

static z3d_status add_entries(reader *r, const char *path, const z3d_json *root) {
    span *spans;
    size_t count = 0;
    int problems = r->problems.count;
    if (root->type != Z3D_JSON_OBJECT)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s: its header is not a JSON object", path);
    Z3D_TRY(z3d_new((size_t)root->count + 1, sizeof *spans, "the list of tensors", &spans));
    r->problems.where = path;
    for (const z3d_json *entry = root->first; entry; entry = entry->next) {
        if (strcmp(entry->key, "__metadata__") == 0) {
            read_metadata(r->f, entry);
            continue;
        }
        z3d_status status = read_span(r, entry, &spans[count]);
        if (status == Z3D_OK) status = add_entry(r, entry, &spans[count++]);
        add_problem(r, status);
    }
    r->problems.where = NULL;
    z3d_status status = r->problems.count == problems ? check_spans(spans, count, r->room) : Z3D_OK;
    free(spans);
    return status == Z3D_OK ? Z3D_OK : z3d_error_context(status, "%s", path);
}

/* A file has 8 bytes with the header's length (little-endian), the header, and the tensors. */
static z3d_status read_file(reader *r) {
    const z3d_interop_file *file = &r->f->file[r->file];
    uint8_t bytes[8] = {0};
    uint64_t length = 0;
    char *text = NULL;
    z3d_json *root = NULL;
    Z3D_TRY(z3d_io_read(file->fd, file->path, bytes, 8, 0));
    for (int i = 0; i < 8; i++) length |= (uint64_t)bytes[i] << (8 * i);
    if (length > MAX_HEADER || (int64_t)length > file->bytes - 8)
        return Z3D_ERROR(Z3D_ERR_DATA,
                         "%s: not a safetensors file: its header would have %llu bytes", file->path,
                         (unsigned long long)length);
    r->data = 8 + (int64_t)length;
    r->room = file->bytes - r->data;
    Z3D_TRY(z3d_new(length + 1, 1, "a header", &text));
    z3d_status status = z3d_io_read(file->fd, file->path, text, (int64_t)length, 8);
    if (status == Z3D_OK) status = z3d_json_parse(text, length, file->path, &root);
    if (status == Z3D_OK) status = add_entries(r, file->path, root);
    z3d_json_free(root);
    free(text);
    return status;
}

/* ---- all files ---- */

/* If the model has tied embeddings, a head in the files must equal the token table. */
static z3d_status check_head(const reader *r) {
    enum { CHUNK = 4096 };
    const z3d_interop *f = r->f;
    const z3d_model_interop *model = f->type->interop;
    float a[CHUNK], b[CHUNK];
    int table = 0;
    if (!r->head.found) return Z3D_OK;
    while (strcmp(without_prefix(model, f->view[table].name), model->copied) != 0) table++;
    int64_t count = z3d_tensor_elements(&f->tensor[table]);
    for (int64_t at = 0; at < count; at += CHUNK) {
        int64_t some = count - at < CHUNK ? count - at : CHUNK;
        Z3D_TRY(z3d_interop_read_run(f, &r->head, at, some, a));
        Z3D_TRY(z3d_interop_read(f, table, at, some, b));
        if (memcmp(a, b, (size_t)some * sizeof *a) != 0)
            return Z3D_ERROR(
                Z3D_ERR_UNSUPPORTED,
                "%s: tensor %s differs from %s, but config.json says that they are the same "
                "(tie_word_embeddings)",
                f->file[r->head.file].path, model->copy, model->copied);
    }
    return Z3D_OK;
}

/* Tied embeddings may be saved under the head's name alone. */
static void borrow_head(reader *r) {
    const z3d_interop *f = r->f;
    int table = 0;
    if (!r->head.found) return;
    while (strcmp(without_prefix(f->type->interop, f->view[table].name), f->type->interop->copied))
        table++;
    z3d_interop_source *own = &f->place[table];
    if (!own->found || (own->file == r->head.file && own->offset == r->head.offset)) *own = r->head;
}

static void find_missing(reader *r) {
    const z3d_interop *f = r->f;
    for (int i = 0; i < f->count; i++)
        if (!f->place[i].found)
            add_problem(r, Z3D_ERROR(Z3D_ERR_DATA, "%s: tensor %s is missing%s",
                                     f->num_files == 1 ? f->file[0].path : f->path, f->view[i].name,
                                     f->wrapped ? "; the run trains it (lora.target_modules, "
                                                  "lora.modules_to_save), but the adapter does not"
                                                : ""));
}

/* A tensor in the index must be in the file that the index names. */
static void check_entries(reader *r) {
    const z3d_interop *f = r->f;
    const z3d_json *map = z3d_json_member(f->index, "weight_map");
    char tensor_text[Z3D_SHOWN + 1], file_text[Z3D_SHOWN + 1];
    for (const z3d_json *m = map ? map->first : NULL; m; m = m->next) {
        const char *name = without_prefix(f->type->interop, m->key);
        int tensor;
        z3d_interop_source *place = place_of(r, name, &tensor);
        if (place) place->indexed = true;
        const char *path = place && place->found ? f->file[place->file].path : "/";
        if (f->type->interop->ignores(name)) continue;
        if (strcmp(strrchr(path, '/') + 1, m->text) != 0)
            z3d_problems_add(
                &r->problems,
                Z3D_ERROR(Z3D_ERR_DATA, "%s/model.safetensors.index.json: tensor %s is not in %s",
                          f->path, z3d_shown(m->key, tensor_text), z3d_shown(m->text, file_text)));
    }
}

/* The index must have all our tensors, because other programs find them by it. */
static void check_index(reader *r) {
    const z3d_interop *f = r->f;
    if (!f->index) return;
    check_entries(r);
    borrow_head(r);
    for (int i = 0; i < f->count; i++)
        if (!f->place[i].indexed)
            z3d_problems_add(&r->problems,
                             Z3D_ERROR(Z3D_ERR_DATA,
                                       "%s/model.safetensors.index.json: \"weight_map\" does not "
                                       "name tensor %s",
                                       f->path, f->view[i].name));
}

/* Reports all errors, one line each, but no error that is the consequence of another one. */
static z3d_status read_files(reader *r) {
    bool readable = true;
    for (; r->file < r->f->num_files; r->file++) {
        z3d_status status = read_file(r);
        readable &= status == Z3D_OK;
        z3d_problems_add(&r->problems, status);
    }
    if (readable) {
        borrow_head(r);
        find_missing(r);
    }
    if (r->problems.count == 0) check_index(r);
    if (r->problems.count == 0) z3d_problems_add(&r->problems, check_head(r));
    return z3d_problems_end(&r->problems);
}

z3d_status z3d_safetensors_read(z3d_interop *f) {
    reader r = {.f = f};
    Z3D_TRY(z3d_new((size_t)f->count, sizeof *r.by_name, "the list of names", &r.by_name));
    for (int i = 0; i < f->count; i++)
        r.by_name[i] = (listed){without_prefix(f->type->interop, f->view[i].name), i};
    qsort(r.by_name, (size_t)f->count, sizeof *r.by_name, compare_names);
    z3d_status status = read_files(&r);
    free(r.by_name);
    return status;
}
