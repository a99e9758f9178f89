/* Writes the description of a checkpoint: the manifest and the shards' indexes, as JSON. */
#include "checkpoint/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

unsigned z3d_manifest_kinds(const z3d_manifest *manifest) {
    unsigned kinds = 0;
    for (int s = 0; s < manifest->num_shards; s++)
        for (int i = 0; i < manifest->shard[s].num_extents; i++)
            kinds |= 1U << manifest->shard[s].extent[i].kind;
    return kinds;
}

void z3d_manifest_free(z3d_manifest *manifest) {
    for (int i = 0; i < manifest->num_shards && manifest->shard; i++) {
        free(manifest->shard[i].folder);
        free(manifest->shard[i].block);
        free(manifest->shard[i].extent);
    }
    free(manifest->shard);
    free(manifest->tensor);
    free(manifest->file);
    free(manifest->info.config);
    free(manifest->info.program);
    free(manifest->info.libraries);
    free(manifest->info.imported);
    z3d_base_free(&manifest->info.base);
    *manifest = (z3d_manifest){0};
}

/* ---- tensors ---- */

int64_t z3d_tensor_elements(const z3d_tensor *tensor) {
    return tensor->outer * tensor->global * tensor->inner;
}

int z3d_find_tensor(const z3d_tensor *tensor, int count, const char *group, const char *name) {
    for (int i = 0; i < count; i++)
        if (strcmp(tensor[i].group, group) == 0 && strcmp(tensor[i].name, name) == 0) return i;
    return -1;
}

bool z3d_find_parameter(const z3d_model *model, const z3d_tensor *tensor, int *group,
                        int *parameter) {
    for (int g = 0; g < model->num_groups; g++)
        for (int i = 0; i < model->group[g].num_parameters; i++) {
            *group = g, *parameter = i;
            if (strcmp(z3d_parameter_home(&model->group[g], i), tensor->group) == 0 &&
                strcmp(model->group[g].parameter[i].name, tensor->name) == 0)
                return true;
        }
    return false;
}

int z3d_count_parameters(const z3d_model *model) {
    int count = 0;
    for (int g = 0; g < model->num_groups; g++) count += model->group[g].num_parameters;
    return count;
}

/* Parameter i of group g is a tile. Returns the home of the tile before it, which is in an earlier
 * group; NULL: it is the first tile. `home` is the home of group g's first parameter. */
static const z3d_home *tile_before(const z3d_model *model, int g, int i, const z3d_home *home) {
    const char *group = z3d_parameter_home(&model->group[g], i);
    const char *name = model->group[g].parameter[i].name;
    for (int before = g - 1; before >= 0; before--) {
        const z3d_parameter_group *other = &model->group[before];
        home -= other->num_parameters;
        if (strcmp(z3d_parameter_home(other, 0), group) != 0) return NULL;
        for (int k = 0; k < other->num_parameters; k++)
            if (strcmp(other->parameter[k].name, name) == 0) return &home[k];
    }
    return NULL;
}

z3d_status z3d_homes_of(const z3d_model *model, z3d_home **out) {
    int tensors = 0;
    size_t parameters = (size_t)z3d_count_parameters(model);
    Z3D_TRY(z3d_new(parameters + 1, sizeof **out, "the list of parameters", out));
    z3d_home *home = *out;
    for (int g = 0; g < model->num_groups; home += model->group[g++].num_parameters)
        for (int i = 0; i < model->group[g].num_parameters; i++) {
            bool tile = model->group[g].parameter[i].tile_count > 0;
            const z3d_home *before = tile ? tile_before(model, g, i, home) : NULL;
            if (before)
                home[i] = (z3d_home){before->tensor, before->tile + 1};
            else
                home[i] = (z3d_home){tensors++, 0};
        }
    return Z3D_OK;
}

static void describe_tensor(const z3d_parameter_group *group, int parameter, z3d_tensor *out) {
    const z3d_parameter *p = &group->parameter[parameter];
    int middle = p->split_dim < 0 ? 0 : p->split_dim;
    *out = (z3d_tensor){
        .dims = p->dims, .split_dim = p->split_dim, .frozen = p->frozen, .outer = 1, .inner = 1};
    snprintf(out->group, sizeof out->group, "%s", z3d_parameter_home(group, parameter));
    memcpy(out->name, p->name, sizeof out->name);
    memcpy(out->shape, p->shape, sizeof out->shape);
    for (int d = 0; d < middle; d++) out->outer *= p->shape[d];
    for (int d = middle + 1; d < p->dims; d++) out->inner *= p->shape[d];
    out->global = p->shape[middle];
}

z3d_status z3d_tensors_of(const z3d_model *model, z3d_tensor **out, int *count) {
    z3d_home *home;
    *count = 0;
    Z3D_TRY(z3d_homes_of(model, &home));
    z3d_status status =
        z3d_new((size_t)z3d_count_parameters(model), sizeof **out, "the list of tensors", out);
    for (int g = 0, at = 0; g < model->num_groups && status == Z3D_OK; g++)
        for (int i = 0; i < model->group[g].num_parameters; i++, at++)
            if (home[at].tile == 0) describe_tensor(&model->group[g], i, &(*out)[(*count)++]);
    free(home);
    return status;
}

/* ---- JSON ---- */

static void append_digest(z3d_string *out, z3d_digest digest) {
    char text[Z3D_DIGEST_TEXT];
    z3d_string_append(out, "\"%s\"", z3d_digest_text(digest, text));
}

z3d_status z3d_index_write(const z3d_shard *shard, z3d_string *out) {
    z3d_string_append(out, "{\"file\":\"%s\",\"size\":%lld,\"block\":%d,\n\"blocks\":[",
                      shard->name, (long long)shard->size, Z3D_BLOCK_BYTES);
    for (int64_t i = 0; i < shard->num_blocks; i++) {
        if (i) z3d_string_append(out, ",\n");
        append_digest(out, shard->block[i]);
    }
    z3d_string_append(out, "],\n\"datasets\":[");
    for (int i = 0; i < shard->num_extents; i++) {
        const z3d_extent *e = &shard->extent[i];
        z3d_string_append(out,
                          "%s{\"tensor\":%d,\"kind\":\"%s\",\"rows\":[%lld,%lld],\"first\":%lld,"
                          "\"count\":%lld,\"offset\":%lld}",
                          i ? ",\n" : "", e->tensor, z3d_tensor_kind_name(e->kind),
                          (long long)e->row_first, (long long)e->rows, (long long)e->first,
                          (long long)e->count, (long long)e->offset);
    }
    z3d_string_append(out, "]}\n");
    return out->failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the index of %s", shard->name)
                       : Z3D_OK;
}

static void append_pending(const z3d_pending_update *pending, z3d_string *out) {
    if (!pending->waits) return;
    z3d_string_append(out, "\"pending\":{\"optimizer_step\":%lld,\"learning_rate\":",
                      (long long)pending->optimizer_step);
    z3d_string_append_number(out, (double)pending->learning_rate);
    z3d_string_append(out, ",\"gradient_factor\":");
    z3d_string_append_number(out, (double)pending->gradient_factor);
    z3d_string_append(out, "},\n");
}

static void append_evaluations(const z3d_evaluations *evaluations, z3d_string *out) {
    if (evaluations->best_step == 0 && evaluations->since == 0 && !evaluations->due) return;
    z3d_string_append(out, "\"evaluations\":{\"best_step\":%lld,\"best_loss\":",
                      (long long)evaluations->best_step);
    z3d_string_append_number(out, evaluations->best_loss);
    z3d_string_append(out, ",\"since\":%lld,\"data\":%lld%s},\n", (long long)evaluations->since,
                      (long long)evaluations->data, evaluations->due ? ",\"due\":true" : "");
}

bool z3d_name_is_plain(const char *name) {
    while (*name && (unsigned char)*name >= ' ' && *name != 127) name++;
    return !*name;
}

/* Appends ,"KEY":"TEXT"; nothing if there is no text, or a reader would refuse it. */
static void append_text(z3d_string *out, const char *key, const char *text) {
    if (!text || !z3d_name_is_plain(text)) return;
    z3d_string_append(out, ",\"%s\":", key);
    z3d_string_append_json(out, text);
}

static void append_base(const z3d_base *base, z3d_string *out) {
    if (!base->folder) return;
    z3d_string_append(out, "\"base\":{\"xxh3_128\":\"%s\"", base->digest);
    append_text(out, "folder", base->folder);
    append_text(out, "path", base->path);
    append_text(out, "imported_from", base->source);
    z3d_string_append(out, "},\n");
}

static void append_info(const z3d_checkpoint_info *info, z3d_string *out) {
    const z3d_engine_state *e = &info->engine;
    z3d_string_append(out, "\"format\":\"zero3d checkpoint\",\"version\":%d,\n",
                      info->base.folder ? Z3D_BASE_VERSION : Z3D_FORMAT_VERSION);
    z3d_string_append(out, "\"step\":%lld,\"optimizer_step\":%lld,\"skipped_in_a_row\":%lld,\n",
                      (long long)e->step, (long long)e->optimizer_step,
                      (long long)e->skipped_in_a_row);
    z3d_string_append(out, "\"loss_scale\":{\"scale\":");
    z3d_string_append_number(out, (double)e->loss_scale);
    z3d_string_append(out, ",\"good_steps\":%lld,\"hysteresis_left\":%lld},\n",
                      (long long)e->good_steps, (long long)e->hysteresis_left);
    append_pending(&e->pending, out);
    z3d_string_append(out, "\"samples\":%lld,\"train_tokens\":%lld,\n", (long long)info->samples,
                      (long long)info->train_tokens);
    append_evaluations(&info->evaluations, out);
    append_base(&info->base, out);
    z3d_string_append(out,
                      "\"topology\":{\"tensor\":%d,\"data\":%d,\"pipeline\":%d,\"zero_stage\":%d},"
                      "\"dtype\":\"%s\",\n",
                      info->tensor_size, info->data_size, info->pipeline_size, info->zero_stage,
                      z3d_dtype_name(info->dtype));
    z3d_string_append(out, "\"program\":");
    z3d_string_append_json(out, info->program);
    z3d_string_append(out, ",\"libraries\":");
    z3d_string_append_json(out, info->libraries);
    append_text(out, "imported_from", info->imported);
    z3d_string_append(out, ",\n\"config\":");
    z3d_string_append_json(out, info->config);
    z3d_string_append(out, ",\n");
}

static void append_tensors(const z3d_manifest *manifest, z3d_string *out) {
    z3d_string_append(out, "\"tensors\":[");
    for (int i = 0; i < manifest->num_tensors; i++) {
        const z3d_tensor *t = &manifest->tensor[i];
        z3d_string_append(out, "%s{\"group\":", i ? ",\n" : "");
        z3d_string_append_json(out, t->group);
        z3d_string_append(out, ",\"name\":");
        z3d_string_append_json(out, t->name);
        z3d_string_append(out, ",\"shape\":[");
        for (int d = 0; d < t->dims; d++)
            z3d_string_append(out, "%s%lld", d ? "," : "", (long long)t->shape[d]);
        z3d_string_append(out, "],\"split\":%d%s}", t->split_dim,
                          t->frozen ? ",\"frozen\":true" : "");
    }
    z3d_string_append(out, "],\n");
}

static void append_files(const z3d_manifest *manifest, z3d_string *out) {
    z3d_string_append(out, "\"shards\":[");
    for (int i = 0; i < manifest->num_shards; i++)
        z3d_string_append(out, "%s{\"name\":\"%s\",\"size\":%lld,\"index\":\"%s\"}", i ? ",\n" : "",
                          manifest->shard[i].name, (long long)manifest->shard[i].size,
                          manifest->shard[i].index);
    z3d_string_append(out, "],\n\"files\":[");
    for (int i = 0; i < manifest->num_files; i++) {
        const z3d_file_entry *f = &manifest->file[i];
        z3d_string_append(out, "%s{\"name\":\"%s\",\"size\":%lld,\"xxh3_128\":", i ? ",\n" : "",
                          f->name, (long long)f->size);
        append_digest(out, f->digest);
        z3d_string_append(out, "}");
    }
    z3d_string_append(out, "]}\n");
}

z3d_status z3d_manifest_write(const z3d_manifest *manifest, z3d_string *out) {
    z3d_string body = {0};
    append_info(&manifest->info, &body);
    append_tensors(manifest, &body);
    append_files(manifest, &body);
    /* The first line holds the digest of all bytes after it. */
    z3d_string_append(out, "{\"xxh3_128\":");
    append_digest(out, z3d_digest_of(body.text, (int64_t)body.length));
    z3d_string_append(out, ",\n");
    z3d_string_append_bytes(out, body.text ? body.text : "", body.length);
    bool failed = body.failed || out->failed;
    z3d_string_free(&body);
    return failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the manifest's text") : Z3D_OK;
}
