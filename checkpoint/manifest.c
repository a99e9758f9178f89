/* Reads the manifest and the indexes of a checkpoint. It checks digests first, and the range of
 * every number before its use. */
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/format.h"

enum { MAX_TEXT = 1 << 30, MAX_PATH = 4096 };
#define FIRST_LINE "{\"xxh3_128\":\""
enum { FIRST_LINE_BYTES = sizeof FIRST_LINE - 1 + 32 + 3 }; /* ", and newline */

/* ---- small pieces ---- */

static z3d_status copy_text(const z3d_json *object, const char *key, char **out) {
    const char *text;
    Z3D_TRY(z3d_json_get_text(object, key, &text));
    *out = strdup(text);
    return *out ? Z3D_OK : Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for \"%s\"", key);
}

/* A name that messages may show: not empty, not too long, without control characters. */
static z3d_status get_name(const z3d_json *object, const char *key, size_t size, const char **out) {
    Z3D_TRY(z3d_json_get_text(object, key, out));
    if (!**out || strlen(*out) >= size)
        return Z3D_ERROR(Z3D_ERR_DATA, "\"%s\": \"%.60s\" is empty or too long", key, *out);
    if (z3d_name_is_plain(*out)) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_DATA, "\"%s\": the name has a control character", key);
}

static z3d_status copy_name(const z3d_json *object, const char *key, char *out, size_t size) {
    const char *text;
    Z3D_TRY(get_name(object, key, size, &text));
    snprintf(out, size, "%s", text);
    return Z3D_OK;
}

/* If the member is missing, *out stays NULL. */
static z3d_status copy_path(const z3d_json *object, const char *key, char **out) {
    const char *text;
    if (z3d_json_is_none(z3d_json_member(object, key))) return Z3D_OK;
    Z3D_TRY(get_name(object, key, MAX_PATH, &text));
    *out = strdup(text);
    return *out ? Z3D_OK : Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for \"%s\"", key);
}

/* A file's name: it must stay within the checkpoint's folder. */
static z3d_status copy_file_name(const z3d_json *object, const char *key, char *out, size_t size) {
    Z3D_TRY(copy_name(object, key, out, size));
    if (strchr(out, '/') || out[0] == '.')
        return Z3D_ERROR(Z3D_ERR_DATA, "\"%s\": \"%s\" is not a plain file name", key, out);
    return Z3D_OK;
}

static z3d_status get_small(const z3d_json *object, const char *key, int *out) {
    int64_t value;
    Z3D_TRY(z3d_json_get_int(object, key, &value));
    if (value > 1 << 30)
        return Z3D_ERROR(Z3D_ERR_DATA, "\"%s\": %lld is too large", key, (long long)value);
    *out = (int)value;
    return Z3D_OK;
}

/* A number of steps or samples, so small that later additions cannot overflow. */
static z3d_status get_count(const z3d_json *object, const char *key, int64_t *out) {
    Z3D_TRY(z3d_json_get_int(object, key, out));
    if (*out > INT64_MAX / 4)
        return Z3D_ERROR(Z3D_ERR_DATA, "\"%s\": %lld is too large", key, (long long)*out);
    return Z3D_OK;
}

static z3d_status get_array(const z3d_json *object, const char *key, size_t element,
                            const z3d_json **array, void *out, int *count) {
    Z3D_TRY(z3d_json_get(object, key, Z3D_JSON_ARRAY, array));
    if ((*array)->count > 1 << 28) return Z3D_ERROR(Z3D_ERR_DATA, "\"%s\" is too long", key);
    *count = (int)(*array)->count;
    return z3d_new((size_t)*count + 1, element, key, out);
}

static z3d_status read_text(const char *folder, const char *name, char **text, size_t *length) {
    char *path;
    int fd = -1;
    int64_t size = 0;
    *text = NULL;
    Z3D_TRY(z3d_join_path(folder, name, &path));
    z3d_status status = z3d_io_open(path, &fd, &size);
    if (status == Z3D_OK && size > MAX_TEXT)
        status =
            Z3D_ERROR(Z3D_ERR_DATA, "%s: damaged: %lld bytes are too many", path, (long long)size);
    if (status == Z3D_OK) status = z3d_new((size_t)size + 1, 1, path, text);
    if (status == Z3D_OK) status = z3d_io_read(fd, path, *text, size, 0);
    if (fd >= 0) close(fd);
    if (status != Z3D_OK) free(*text);
    *length = (size_t)size;
    free(path);
    return status;
}

/* ---- the manifest ---- */

static z3d_status read_dtype(const z3d_json *root, z3d_dtype *out) {
    const char *name;
    Z3D_TRY(z3d_json_get_text(root, "dtype", &name));
    for (int d = 0; d < Z3D_DTYPE_COUNT; d++)
        if (strcmp(name, z3d_dtype_name((z3d_dtype)d)) == 0) {
            *out = (z3d_dtype)d;
            return Z3D_OK;
        }
    return Z3D_ERROR(Z3D_ERR_DATA, "\"dtype\": \"%.20s\" is not a known type", name);
}

/* If the member is missing, no update waits. */
static z3d_status read_pending(const z3d_json *root, z3d_pending_update *out) {
    const z3d_json *pending = z3d_json_member(root, "pending");
    double rate, factor;
    if (z3d_json_is_none(pending)) return Z3D_OK;
    Z3D_TRY(get_count(pending, "optimizer_step", &out->optimizer_step));
    Z3D_TRY(z3d_json_get_float(pending, "learning_rate", &rate));
    Z3D_TRY(z3d_json_get_float(pending, "gradient_factor", &factor));
    if (!(rate >= 0 && rate <= (double)FLT_MAX && factor >= 0 && factor <= (double)FLT_MAX) ||
        out->optimizer_step < 1)
        return Z3D_ERROR(Z3D_ERR_DATA, "\"pending\": no step has such an update");
    out->waits = true;
    out->learning_rate = (float)rate;
    out->gradient_factor = (float)factor;
    return Z3D_OK;
}

/* If the member is missing, there is no validation loss yet. */
static z3d_status read_evaluations(const z3d_json *root, z3d_evaluations *out) {
    const z3d_json *evaluations = z3d_json_member(root, "evaluations");
    if (z3d_json_is_none(evaluations)) return Z3D_OK;
    Z3D_TRY(get_count(evaluations, "best_step", &out->best_step));
    Z3D_TRY(z3d_json_get_float(evaluations, "best_loss", &out->best_loss));
    Z3D_TRY(get_count(evaluations, "since", &out->since));
    out->due = z3d_json_flag(evaluations, "due", false);
    return z3d_json_is_none(z3d_json_member(evaluations, "data"))
               ? Z3D_OK
               : get_count(evaluations, "data", &out->data);
}

/* If the member is missing, the checkpoint leaves nothing out. */
static z3d_status read_base(const z3d_json *root, z3d_base *out) {
    const z3d_json *base = z3d_json_member(root, "base");
    const char *digest;
    z3d_digest unused;
    if (z3d_json_is_none(base)) return Z3D_OK;
    Z3D_TRY(z3d_json_get_text(base, "xxh3_128", &digest));
    if (!z3d_digest_parse(digest, &unused))
        return Z3D_ERROR(Z3D_ERR_DATA, "\"base\": its digest is not valid");
    snprintf(out->digest, sizeof out->digest, "%s", digest);
    Z3D_TRY(copy_path(base, "folder", &out->folder));
    Z3D_TRY(copy_path(base, "path", &out->path));
    Z3D_TRY(copy_path(base, "imported_from", &out->source));
    return out->folder ? Z3D_OK : Z3D_ERROR(Z3D_ERR_DATA, "\"base\": \"folder\" is missing");
}

static z3d_status read_info(const z3d_json *root, z3d_checkpoint_info *info) {
    z3d_engine_state *e = &info->engine;
    const z3d_json *scale, *topology;
    double value;
    Z3D_TRY(get_count(root, "step", &e->step));
    Z3D_TRY(get_count(root, "optimizer_step", &e->optimizer_step));
    Z3D_TRY(get_count(root, "skipped_in_a_row", &e->skipped_in_a_row));
    Z3D_TRY(z3d_json_get(root, "loss_scale", Z3D_JSON_OBJECT, &scale));
    Z3D_TRY(z3d_json_get_float(scale, "scale", &value));
    if (!(value <= (double)FLT_MAX && (float)value > 0))
        return Z3D_ERROR(Z3D_ERR_DATA, "\"scale\": %g is not a valid loss scale", value);
    e->loss_scale = (float)value;
    Z3D_TRY(get_count(scale, "good_steps", &e->good_steps));
    Z3D_TRY(get_count(scale, "hysteresis_left", &e->hysteresis_left));
    Z3D_TRY(read_pending(root, &e->pending));
    Z3D_TRY(get_count(root, "samples", &info->samples));
    Z3D_TRY(get_count(root, "train_tokens", &info->train_tokens));
    Z3D_TRY(read_evaluations(root, &info->evaluations));
    Z3D_TRY(read_base(root, &info->base));
    Z3D_TRY(copy_path(root, "imported_from", &info->imported));
    Z3D_TRY(z3d_json_get(root, "topology", Z3D_JSON_OBJECT, &topology));
    Z3D_TRY(get_small(topology, "tensor", &info->tensor_size));
    Z3D_TRY(get_small(topology, "data", &info->data_size));
    Z3D_TRY(get_small(topology, "pipeline", &info->pipeline_size));
    Z3D_TRY(get_small(topology, "zero_stage", &info->zero_stage));
    Z3D_TRY(read_dtype(root, &info->dtype));
    Z3D_TRY(copy_text(root, "program", &info->program));
    Z3D_TRY(copy_text(root, "libraries", &info->libraries));
    return copy_text(root, "config", &info->config);
}

/* Sets outer, global and inner, and checks that the tensor's bytes fit an int64. */
static z3d_status fold_shape(z3d_tensor *t) {
    int middle = t->split_dim < 0 ? 0 : t->split_dim;
    int64_t all = 4;
    t->outer = t->inner = t->global = 1;
    for (int d = 0; d < t->dims; d++) {
        if (t->shape[d] < 1 || !z3d_mul_i64(all, t->shape[d], &all))
            return Z3D_ERROR(Z3D_ERR_DATA, "tensor %s/%s: impossible shape", t->group, t->name);
        *(d < middle ? &t->outer : d > middle ? &t->inner : &t->global) *= t->shape[d];
    }
    return Z3D_OK;
}

static z3d_status read_tensor(const z3d_json *object, z3d_tensor *t) {
    const z3d_json *shape, *split;
    int64_t dim;
    Z3D_TRY(copy_name(object, "group", t->group, sizeof t->group));
    Z3D_TRY(copy_name(object, "name", t->name, sizeof t->name));
    Z3D_TRY(z3d_json_get(object, "shape", Z3D_JSON_ARRAY, &shape));
    Z3D_TRY(z3d_json_get(object, "split", Z3D_JSON_NUMBER, &split));
    if (shape->count < 1 || shape->count > Z3D_MAX_DIMS)
        return Z3D_ERROR(Z3D_ERR_DATA, "tensor %s/%s has %lld dimensions", t->group, t->name,
                         (long long)shape->count);
    for (const z3d_json *d = shape->first; d; d = d->next)
        if (!z3d_json_int(d, &t->shape[t->dims++]))
            return Z3D_ERROR(Z3D_ERR_DATA, "tensor %s/%s: impossible shape", t->group, t->name);
    t->split_dim = -1;
    if (strcmp(split->text, "-1") != 0) {
        if (!z3d_json_int(split, &dim) || dim >= t->dims)
            return Z3D_ERROR(Z3D_ERR_DATA, "tensor %s/%s: \"split\" is not one of its dimensions",
                             t->group, t->name);
        t->split_dim = (int)dim;
    }
    t->frozen = z3d_json_flag(object, "frozen", false);
    return fold_shape(t);
}

static z3d_status read_files(const z3d_json *root, z3d_manifest *out) {
    const z3d_json *array;
    const char *digest;
    int at = 0;
    Z3D_TRY(get_array(root, "shards", sizeof *out->shard, &array, &out->shard, &out->num_shards));
    for (const z3d_json *f = array->first; f; f = f->next, at++) {
        Z3D_TRY(copy_file_name(f, "name", out->shard[at].name, sizeof out->shard[at].name));
        Z3D_TRY(copy_file_name(f, "index", out->shard[at].index, sizeof out->shard[at].index));
        Z3D_TRY(z3d_json_get_int(f, "size", &out->shard[at].size));
    }
    Z3D_TRY(get_array(root, "files", sizeof *out->file, &array, &out->file, &out->num_files));
    at = 0;
    for (const z3d_json *f = array->first; f; f = f->next, at++) {
        Z3D_TRY(copy_file_name(f, "name", out->file[at].name, sizeof out->file[at].name));
        Z3D_TRY(z3d_json_get_int(f, "size", &out->file[at].size));
        Z3D_TRY(z3d_json_get_text(f, "xxh3_128", &digest));
        if (!z3d_digest_parse(digest, &out->file[at].digest))
            return Z3D_ERROR(Z3D_ERR_DATA, "file %s: its digest is not valid", out->file[at].name);
    }
    return Z3D_OK;
}

static z3d_status read_root(const z3d_json *root, z3d_manifest *out) {
    const char *format;
    int64_t version;
    const z3d_json *array;
    int at = 0;
    Z3D_TRY(z3d_json_get_text(root, "format", &format));
    if (strcmp(format, "zero3d checkpoint") != 0)
        return Z3D_ERROR(Z3D_ERR_DATA, "\"format\" is \"%.40s\": not a zero3d checkpoint", format);
    Z3D_TRY(z3d_json_get_int(root, "version", &version));
    if (version != Z3D_FORMAT_VERSION && version != Z3D_BASE_VERSION)
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                         "written in format version %lld; this program reads versions %d and %d",
                         (long long)version, Z3D_FORMAT_VERSION, Z3D_BASE_VERSION);
    Z3D_TRY(read_info(root, &out->info));
    Z3D_TRY(
        get_array(root, "tensors", sizeof *out->tensor, &array, &out->tensor, &out->num_tensors));
    for (const z3d_json *t = array->first; t; t = t->next)
        Z3D_TRY(read_tensor(t, &out->tensor[at++]));
    return read_files(root, out);
}

/* Checks the first line, `{"xxh3_128":"DIGEST",`: the digest of all bytes after the line. */
static z3d_status check_text(const char *text, size_t length) {
    char digits[33] = "";
    z3d_digest said;
    if (length > FIRST_LINE_BYTES) memcpy(digits, text + sizeof FIRST_LINE - 1, 32);
    if (length <= FIRST_LINE_BYTES || memcmp(text, FIRST_LINE, sizeof FIRST_LINE - 1) != 0 ||
        memcmp(text + FIRST_LINE_BYTES - 3, "\",\n", 3) != 0 || !z3d_digest_parse(digits, &said))
        return Z3D_ERROR(Z3D_ERR_DATA, "damaged: it does not begin with its digest");
    z3d_digest is = z3d_digest_of(text + FIRST_LINE_BYTES, (int64_t)(length - FIRST_LINE_BYTES));
    if (!z3d_digest_equal(is, said))
        return Z3D_ERROR(Z3D_ERR_DATA, "damaged: it does not match its digest");
    return Z3D_OK;
}

/* Without the indexes: shards have no datasets. */
static z3d_status read_head(const char *folder, z3d_manifest *out) {
    char *text = NULL;
    size_t length = 0;
    z3d_json *root = NULL;
    bool exists;
    *out = (z3d_manifest){0};
    z3d_status status = z3d_io_has(folder, Z3D_MANIFEST, &exists);
    if (status != Z3D_OK) return status;
    if (!exists) return z3d_checkpoint_none(folder);
    Z3D_TRY(read_text(folder, Z3D_MANIFEST, &text, &length));
    Z3D_TRY_GOTO(status, check_text(text, length), end);
    Z3D_TRY_GOTO(status, z3d_json_parse(text, length, "JSON", &root), end);
    status = read_root(root, out);
end:
    z3d_json_free(root);
    free(text);
    if (status != Z3D_OK) {
        z3d_manifest_free(out);
        z3d_error_context(status, "%s/%s", folder, Z3D_MANIFEST);
    }
    return status;
}

/* ---- the indexes ---- */

static z3d_status read_blocks(const z3d_json *root, z3d_shard *shard) {
    const z3d_json *array;
    int count = 0;
    int64_t block = 0;
    Z3D_TRY(z3d_json_get_int(root, "block", &block));
    Z3D_TRY(get_array(root, "blocks", sizeof *shard->block, &array, &shard->block, &count));
    shard->num_blocks = count;
    int64_t wanted = shard->size / Z3D_BLOCK_BYTES + (shard->size % Z3D_BLOCK_BYTES != 0);
    if (block != Z3D_BLOCK_BYTES || count != wanted)
        return Z3D_ERROR(Z3D_ERR_DATA, "%d digests of blocks of %lld bytes, expected %lld of %d",
                         count, (long long)block, (long long)wanted, Z3D_BLOCK_BYTES);
    z3d_digest *to = shard->block;
    for (const z3d_json *b = array->first; b; b = b->next)
        if (b->type != Z3D_JSON_STRING || !z3d_digest_parse(b->text, to++))
            return Z3D_ERROR(Z3D_ERR_DATA, "the digest of a block is not valid");
    return Z3D_OK;
}

static bool possible(const z3d_extent *e, const z3d_tensor *t, int64_t size) {
    if (e->rows > t->global || e->row_first > t->global - e->rows) return false;
    int64_t slice = t->outer * e->rows * t->inner; /* at most the tensor's elements, which fit */
    if (e->count > slice || e->first > slice - e->count) return false;
    return e->offset % 4 == 0 && e->count * 4 <= size && e->offset <= size - e->count * 4;
}

static z3d_status read_extent(const z3d_json *object, const z3d_manifest *manifest, int64_t size,
                              z3d_extent *e) {
    const z3d_json *rows;
    const char *kind;
    Z3D_TRY(get_small(object, "tensor", &e->tensor));
    Z3D_TRY(z3d_json_get_text(object, "kind", &kind));
    Z3D_TRY(z3d_json_get(object, "rows", Z3D_JSON_ARRAY, &rows));
    Z3D_TRY(z3d_json_get_int(object, "first", &e->first));
    Z3D_TRY(z3d_json_get_int(object, "count", &e->count));
    Z3D_TRY(z3d_json_get_int(object, "offset", &e->offset));
    for (e->kind = 0; e->kind < Z3D_STATE_KINDS; e->kind++)
        if (strcmp(kind, z3d_tensor_kind_name(e->kind)) == 0) break;
    if (e->kind == Z3D_STATE_KINDS || e->tensor >= manifest->num_tensors || rows->count != 2 ||
        !z3d_json_int(rows->first, &e->row_first) || !z3d_json_int(rows->first->next, &e->rows) ||
        !possible(e, &manifest->tensor[e->tensor], size))
        return Z3D_ERROR(Z3D_ERR_DATA, "a dataset lies outside its tensor or its file");
    return Z3D_OK;
}

static z3d_status read_index_root(const z3d_json *root, const z3d_manifest *manifest,
                                  z3d_shard *shard) {
    const char *name;
    int64_t size;
    const z3d_json *array;
    int at = 0;
    Z3D_TRY(z3d_json_get_text(root, "file", &name));
    Z3D_TRY(z3d_json_get_int(root, "size", &size));
    if (strcmp(name, shard->name) != 0 || size != shard->size)
        return Z3D_ERROR(Z3D_ERR_DATA, "describes %.40s of %lld bytes, expected %s of %lld bytes",
                         name, (long long)size, shard->name, (long long)shard->size);
    Z3D_TRY(read_blocks(root, shard));
    Z3D_TRY(get_array(root, "datasets", sizeof *shard->extent, &array, &shard->extent,
                      &shard->num_extents));
    for (const z3d_json *e = array->first; e; e = e->next)
        Z3D_TRY(read_extent(e, manifest, shard->size, &shard->extent[at++]));
    return Z3D_OK;
}

static const z3d_file_entry *find_file(const z3d_manifest *manifest, const char *name) {
    for (int i = 0; i < manifest->num_files; i++)
        if (strcmp(manifest->file[i].name, name) == 0) return &manifest->file[i];
    return NULL;
}

static z3d_status read_index(const char *folder, const z3d_manifest *manifest, z3d_shard *shard) {
    char *text = NULL;
    size_t length = 0;
    z3d_json *root = NULL;
    const z3d_file_entry *entry = find_file(manifest, shard->index);
    z3d_status status;
    if (!entry)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s/%s: has no digest for %s", folder, Z3D_MANIFEST,
                         shard->index);
    Z3D_TRY(read_text(folder, shard->index, &text, &length));
    if ((int64_t)length != entry->size)
        status = Z3D_ERROR(Z3D_ERR_DATA, "damaged: %lld bytes long, expected %lld",
                           (long long)length, (long long)entry->size);
    else if (!z3d_digest_equal(z3d_digest_of(text, (int64_t)length), entry->digest))
        status = Z3D_ERROR(Z3D_ERR_DATA, "damaged: it does not match its digest");
    else
        status = z3d_json_parse(text, length, "JSON", &root);
    if (status == Z3D_OK) status = read_index_root(root, manifest, shard);
    if (status != Z3D_OK) z3d_error_context(status, "%s/%s", folder, shard->index);
    z3d_json_free(root);
    free(text);
    return status;
}

/* count: elements of a tensor's state in all datasets together. It must be the tensor's number of
 * elements, or 0 if the state is not saved. */
static z3d_status check_count(const z3d_manifest *m, int tensor, int kind, int64_t count) {
    const z3d_tensor *t = &m->tensor[tensor];
    const bool saved = z3d_saved_kinds(m, t, 1U << kind) != 0;
    int64_t wanted = saved ? z3d_tensor_elements(t) : 0;
    if (count == wanted) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_DATA, "its shards hold %lld elements of /%s/%s/%s, expected %lld",
                     (long long)count, z3d_tensor_kind_name(kind), t->group, t->name,
                     (long long)wanted);
}

/* No digest notices a shard or a dataset that is missing from the lists or listed twice; the number
 * of elements does. The reader finds out later which element is missing. */
static z3d_status check_counts(const z3d_manifest *m) {
    int64_t *count;
    unsigned kinds = Z3D_KIND(PARAMETER) | z3d_manifest_kinds(m);
    if (m->info.engine.pending.waits) kinds |= Z3D_KIND(PENDING);
    z3d_status status = Z3D_OK;
    Z3D_TRY(z3d_new((size_t)m->num_tensors * Z3D_STATE_KINDS + 1, sizeof *count,
                    "the elements of all datasets", &count));
    for (int s = 0; s < m->num_shards; s++)
        for (int i = 0; i < m->shard[s].num_extents && status == Z3D_OK; i++) {
            const z3d_extent *e = &m->shard[s].extent[i];
            int64_t *sum = &count[e->tensor * Z3D_STATE_KINDS + e->kind];
            *sum += e->count; /* no overflow: both are at most the tensor's elements */
            if (*sum > z3d_tensor_elements(&m->tensor[e->tensor]))
                status = check_count(m, e->tensor, e->kind, *sum);
        }
    for (int t = 0; t < m->num_tensors; t++)
        for (int k = 0; k < Z3D_STATE_KINDS && status == Z3D_OK; k++)
            if (z3d_tensor_kinds(&m->tensor[t], kinds) >> k & 1)
                status = check_count(m, t, k, count[t * Z3D_STATE_KINDS + k]);
    free(count);
    return status;
}

z3d_status z3d_manifest_read(const char *folder, z3d_manifest *out) {
    Z3D_TRY(read_head(folder, out));
    z3d_status status = z3d_folder_check_step(folder, out->info.engine.step);
    for (int i = 0; i < out->num_shards && status == Z3D_OK; i++) {
        status = read_index(folder, out, &out->shard[i]);
        if (status != Z3D_OK) z3d_error_context(status, "rank %d's shard", i);
    }
    if (status == Z3D_OK) {
        status = check_counts(out);
        if (status != Z3D_OK) z3d_error_context(status, "%s/%s", folder, Z3D_MANIFEST);
    }
    if (status != Z3D_OK) z3d_manifest_free(out);
    return status;
}
