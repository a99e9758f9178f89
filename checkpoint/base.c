/* The base of a checkpoint: the other checkpoint that has the frozen parameters, which this one
 * leaves out. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/format.h"

#define WHERE_IT_IS                                                                                \
    "write where it is now: checkpoint.base=PATH (of zero3d checkpoint: --base PATH)"

void z3d_base_free(z3d_base *base) {
    free(base->folder);
    free(base->path);
    free(base->source);
    *base = (z3d_base){0};
}

z3d_status z3d_base_copy(const z3d_base *from, z3d_base *out) {
    *out = (z3d_base){.folder = from->folder ? strdup(from->folder) : NULL,
                      .path = from->path ? strdup(from->path) : NULL,
                      .source = from->source ? strdup(from->source) : NULL};
    memcpy(out->digest, from->digest, sizeof out->digest);
    if (!out->folder == !from->folder && !out->path == !from->path && !out->source == !from->source)
        return Z3D_OK;
    z3d_base_free(out);
    return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a folder's name");
}

/* Appends the digest of an index. The index has the digests of its shard's blocks and the places of
 * all datasets, so its digest stands for the shard. */
static void append_index(const z3d_manifest *m, const char *index, z3d_string *out) {
    char digest[Z3D_DIGEST_TEXT];
    for (int f = 0; f < m->num_files; f++)
        if (strcmp(m->file[f].name, index) == 0)
            z3d_string_append(out, "%s\n", z3d_digest_text(m->file[f].digest, digest));
}

z3d_status z3d_manifest_digest(const z3d_manifest *m, char text[Z3D_DIGEST_TEXT]) {
    z3d_string all = {0};
    if (m->info.base.folder) z3d_string_append(&all, "%s\n", m->info.base.digest);
    for (int t = 0; t < m->num_tensors; t++) {
        z3d_string_append(&all, "%s/%s", m->tensor[t].group, m->tensor[t].name);
        for (int d = 0; d < m->tensor[t].dims; d++)
            z3d_string_append(&all, " %lld", (long long)m->tensor[t].shape[d]);
        z3d_string_append(&all, "\n");
    }
    for (int s = 0; s < m->num_shards; s++)
        if (!m->shard[s].folder) append_index(m, m->shard[s].index, &all);
    z3d_status status =
        all.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a base's digest") : Z3D_OK;
    if (status == Z3D_OK) z3d_digest_text(z3d_digest_of(all.text, (int64_t)all.length), text);
    z3d_string_free(&all);
    return status;
}

static bool is_utf8(const char *text) {
    size_t left = strlen(text), length = 1;
    for (; left > 0 && length > 0; text += length, left -= length)
        length = z3d_utf8_length(text, left);
    return left == 0;
}

/* The full path of a folder; NULL: it does not exist, or a manifest cannot hold its name. */
static char *full_path(const char *folder) {
    char *whole = realpath(folder, NULL);
    if (!whole || (z3d_name_is_plain(whole) && is_utf8(whole))) return whole;
    free(whole);
    return NULL;
}

/* ---- the base of a new run ---- */

/* Whether the checkpoint has all parameters that the model freezes; if the checkpoint has a base,
 * whether that base has them. False if the model freezes none. */
static bool has_all(const z3d_checkpoint *c, const z3d_model *model) {
    const z3d_manifest *m = z3d_checkpoint_manifest(c);
    bool any = false;
    for (int g = 0; g < model->num_groups; g++)
        for (int i = 0; i < model->group[g].num_parameters && model->group[g].frozen; i++) {
            const int tensor = z3d_checkpoint_find_parameter(c, &model->group[g], i);
            any = true;
            if (tensor < 0 || z3d_has_new_rows(c, &model->group[g], i) ||
                (m->info.base.folder && !m->tensor[tensor].frozen))
                return false;
        }
    return any;
}

z3d_status z3d_checkpoint_find_base(const z3d_checkpoint *c, const z3d_model *model,
                                    z3d_base *out) {
    const z3d_manifest *m = z3d_checkpoint_manifest(c);
    const z3d_base own = {.folder = (char *)z3d_checkpoint_folder(c), .source = m->info.imported};
    const bool all = has_all(c, model);
    Z3D_TRY(z3d_base_copy(m->info.base.folder ? &m->info.base : &own, out));
    char *whole = all ? full_path(out->folder) : NULL;
    free(out->folder);
    out->folder = whole;
    /* The base's digest does not cover parameters that the checkpoint trained itself. */
    return m->info.base.folder && all ? Z3D_OK : z3d_manifest_digest(m, out->digest);
}

/* ---- reading ---- */

/* The checkpoint that a path means (itself, or the latest one in it); NULL: none. */
static z3d_status look(const char *path, char **out) {
    bool there = false;
    Z3D_TRY(z3d_checkpoint_resolve(path, out));
    z3d_status status = z3d_io_has(*out, Z3D_MANIFEST, &there);
    if (there) return Z3D_OK;
    free(*out);
    *out = NULL;
    return status;
}

static z3d_status find_folder(const z3d_manifest *m, const char *name, const char *given,
                              char **out) {
    const z3d_base *base = &m->info.base;
    *out = NULL;
    if (given && *given) {
        Z3D_TRY(look(given, out));
        return *out ? Z3D_OK : z3d_checkpoint_none(given);
    }
    Z3D_TRY(look(base->folder, out));
    if (!*out && base->path) Z3D_TRY(look(base->path, out));
    if (*out) return Z3D_OK;
    return Z3D_ERROR(
        Z3D_ERR_IO,
        "%s: its base is gone: the frozen parameters were in %s (digest %s); " WHERE_IT_IS, name,
        base->folder, base->digest);
}

static z3d_status compare_digests(const z3d_manifest *m, const char *name, const char *folder,
                                  const z3d_manifest *base) {
    char is[Z3D_DIGEST_TEXT];
    Z3D_TRY(z3d_manifest_digest(base, is));
    if (base->info.base.folder)
        return Z3D_ERROR(Z3D_ERR_IO, "%s: it leaves out frozen parameters, so it is no base",
                         folder);
    if (strcmp(is, m->info.base.digest) == 0) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_IO,
                     "%s: its base has changed: %s has the digest %s, and the run began with %s; "
                     "if that base is elsewhere, " WHERE_IT_IS,
                     name, folder, is, m->info.base.digest);
}

/* place[i]: our frozen tensor for tensor i of the base; -1: not needed. */
static z3d_status match_tensors(const z3d_manifest *m, const char *folder, const z3d_manifest *base,
                                int *place) {
    for (int i = 0; i < base->num_tensors; i++) place[i] = -1;
    for (int i = 0; i < m->num_tensors; i++) {
        const z3d_tensor *t = &m->tensor[i];
        if (!t->frozen) continue;
        const int at = z3d_find_tensor(base->tensor, base->num_tensors, t->group, t->name);
        const z3d_tensor *other = at < 0 ? NULL : &base->tensor[at];
        if (!other || other->outer != t->outer || other->global != t->global ||
            other->inner != t->inner)
            return Z3D_ERROR(Z3D_ERR_IO, "%s: it has no tensor %s/%s of the checkpoint's shape",
                             folder, t->group, t->name);
        place[at] = i;
    }
    return Z3D_OK;
}

/* Moves a shard of the base into *out, with only the datasets that are needed. */
static z3d_status take_shard(z3d_shard *from, const char *folder, const int *place,
                             z3d_shard *out) {
    int count = 0;
    char *copy = strdup(folder);
    if (!copy) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a folder's name");
    for (int i = 0; i < from->num_extents; i++) {
        z3d_extent e = from->extent[i];
        if (e.kind != Z3D_TENSOR_PARAMETER || place[e.tensor] < 0) continue;
        e.tensor = place[e.tensor];
        from->extent[count++] = e;
    }
    *out = *from;
    out->folder = copy;
    out->num_extents = count;
    *from = (z3d_shard){0};
    return Z3D_OK;
}

static z3d_status take_shards(z3d_manifest *m, const char *folder, z3d_manifest *base) {
    int *place = NULL;
    const size_t all = (size_t)m->num_shards + (size_t)base->num_shards;
    z3d_shard *grown = realloc(m->shard, (all + 1) * sizeof *grown);
    if (!grown) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the list of shards");
    m->shard = grown;
    Z3D_TRY(z3d_new((size_t)base->num_tensors + 1, sizeof *place, "the list of tensors", &place));
    z3d_status status = match_tensors(m, folder, base, place);
    for (int s = 0; s < base->num_shards && status == Z3D_OK; s++) {
        status = take_shard(&base->shard[s], folder, place, &m->shard[m->num_shards]);
        m->num_shards += status == Z3D_OK;
    }
    free(place);
    return status;
}

/* Later checkpoints of this run look for the base where it was found now. */
static void keep_place(z3d_base *base, const char *given, const char *folder) {
    char *whole = full_path(folder), *path = given && *given ? strdup(given) : NULL;
    if (whole) {
        free(base->folder);
        base->folder = whole;
    }
    if (path) {
        free(base->path);
        base->path = path;
    }
}

z3d_status z3d_base_failed(z3d_status status) {
    return status == Z3D_ERR_DATA ? Z3D_ERR_IO : status;
}

z3d_status z3d_manifest_add_base(z3d_manifest *m, const char *name, const char *given) {
    z3d_manifest base = {0};
    char *folder;
    z3d_status status = find_folder(m, name, given, &folder);
    if (status == Z3D_OK) status = z3d_manifest_read(folder, &base);
    if (status == Z3D_OK) status = compare_digests(m, name, folder, &base);
    if (status == Z3D_OK) status = take_shards(m, folder, &base);
    if (status == Z3D_OK) keep_place(&m->info.base, given, folder);
    z3d_manifest_free(&base);
    free(folder);
    return z3d_base_failed(status);
}
