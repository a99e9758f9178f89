/* Writes a checkpoint's parameters for Hugging Face: model.safetensors, or shards and their index.
 * GPT-2's Conv1D weights are [in, out] there and [out, in] here, so they are transposed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/interop/interop.h"
#include "src/model/interop.h"
#include "src/model/lora.h"

typedef struct exported {
    z3d_view view;
    int tensor, shard;
    int64_t bytes;
    int64_t begin; /* in its file's data */
} exported;

typedef struct output {
    z3d_checkpoint *checkpoint;
    z3d_export_files *files;
    int count, shards;
    exported *tensor; /* in the checkpoint's order until the shards are filled, then by name */
    int shard;        /* the one that is written */
} output;

static int by_name(const void *a, const void *b) {
    return strcmp(((const exported *)a)->view.name, ((const exported *)b)->view.name);
}

/* ---- one file ---- */

/* Names are sorted, the data has their order and no holes, and spaces pad the header to a multiple
 * of 8: equal states give equal files. */
static void write_header(const output *o, z3d_string *out) {
    int64_t at = 0;
    z3d_string_append(out, "{\"__metadata__\":{\"format\":\"pt\"");
    if (o->files->base && *o->files->base)
        z3d_string_append(out, ",\"" Z3D_ADAPTER_BASE "\":\"%s\"", o->files->base);
    z3d_string_append(out, "}");
    for (int i = 0; i < o->count; i++) {
        exported *t = &o->tensor[i];
        if (t->shard != o->shard) continue;
        int64_t first = t->view.turned ? t->view.columns : t->view.rows;
        int64_t second = t->view.turned ? t->view.rows : t->view.columns;
        t->begin = at;
        at += t->bytes;
        z3d_string_append(out, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->view.name,
                          z3d_safetensors_types[o->files->values.dtype]);
        if (t->view.rows) z3d_string_append(out, "%lld,", (long long)first);
        z3d_string_append(out, "%lld],\"data_offsets\":[%lld,%lld]}", (long long)second,
                          (long long)t->begin, (long long)at);
    }
    z3d_string_append(out, "}");
    while (out->length % 8 != 0 && !out->failed) z3d_string_append(out, " ");
}

static z3d_status write_shard(void *context, int fd, const char *path) {
    const output *o = context;
    z3d_string header = {0};
    uint8_t length[8];
    write_header(o, &header);
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)(header.length >> (8 * i));
    z3d_status status = header.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a header")
                                      : z3d_io_write(NULL, fd, path, length, 8, 0, -1);
    if (status == Z3D_OK)
        status = z3d_io_write(NULL, fd, path, header.text, (int64_t)header.length, 8, -1);
    for (int i = 0; i < o->count && status == Z3D_OK; i++) {
        const exported *t = &o->tensor[i];
        if (t->shard == o->shard)
            status = z3d_export_tensor(o->checkpoint, t->tensor, &t->view, &o->files->values, fd,
                                       path, 8 + (int64_t)header.length + t->begin, &o->files->bad);
    }
    z3d_string_free(&header);
    return status;
}

/* ---- all files ---- */

static bool takes(const output *o, const z3d_tensor *tensor) {
    return o->files->adapter ? z3d_tensor_is_trained(o->files->adapter, tensor)
                             : !z3d_is_adapter(tensor->name);
}

/* Turns a name into the name in an adapter's file. */
static z3d_status wrap_name(const output *o, z3d_view *view) {
    const z3d_view own = *view;
    const int length =
        snprintf(view->name, sizeof view->name, "%s%s", o->files->type->interop->adapter, own.name);
    if (length < (int)sizeof view->name) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "tensor %s: its name is too long", own.name);
}

static z3d_status list_tensors(output *o) {
    const int all = z3d_checkpoint_num_tensors(o->checkpoint);
    Z3D_TRY(z3d_new((size_t)all + 1, sizeof *o->tensor, "the list of tensors", &o->tensor));
    for (int i = 0; i < all; i++) {
        exported *t = &o->tensor[o->count];
        const z3d_tensor *own = z3d_checkpoint_tensor(o->checkpoint, i);
        if (!takes(o, own)) continue;
        o->files->type->interop->view(own->group, own->name, own->dims, own->shape, &t->view);
        if (o->files->adapter) Z3D_TRY(wrap_name(o, &t->view));
        t->tensor = i;
        o->count++;
        t->bytes = z3d_bytes_of(o->files->values.dtype,
                                (t->view.rows ? t->view.rows : 1) * t->view.columns);
    }
    return Z3D_OK;
}

/* Distributes the tensors: a shard is full if the next tensor would make it larger than `most`. */
static void fill_shards(output *o, int64_t most) {
    int64_t bytes = 0;
    o->shards = 1;
    for (int i = 0; i < o->count; i++) {
        if (bytes > 0 && bytes + o->tensor[i].bytes > most) {
            o->shards++;
            bytes = 0;
        }
        bytes += o->tensor[i].bytes;
        o->tensor[i].shard = o->shards - 1;
    }
    qsort(o->tensor, (size_t)o->count, sizeof *o->tensor, by_name);
}

static void shard_name(const output *o, int shard, char *out, size_t size) {
    if (o->shards == 1)
        snprintf(out, size, "%smodel.safetensors", o->files->adapter ? "adapter_" : "");
    else
        snprintf(out, size, "model-%05d-of-%05d.safetensors", shard + 1, o->shards);
}

static z3d_status write_index(const output *o, const char *folder) {
    z3d_string text = {0};
    char name[64];
    int64_t bytes = 0;
    for (int i = 0; i < o->count; i++) bytes += o->tensor[i].bytes;
    z3d_string_append(&text,
                      "{\n  \"metadata\": {\n    \"total_size\": %lld\n  },\n  \"weight_map\": {\n",
                      (long long)bytes);
    for (int i = 0; i < o->count; i++) {
        shard_name(o, o->tensor[i].shard, name, sizeof name);
        z3d_string_append(&text, "    \"%s\": \"%s\"%s\n", o->tensor[i].view.name, name,
                          i + 1 < o->count ? "," : "");
    }
    z3d_string_append(&text, "  }\n}\n");
    z3d_status status = text.failed
                            ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for an index")
                            : z3d_io_write_file(NULL, folder, "model.safetensors.index.json",
                                                text.text, (int64_t)text.length);
    z3d_string_free(&text);
    return status;
}

static z3d_status write_shards(output *o, const char *folder) {
    char name[64];
    for (o->shard = 0; o->shard < o->shards; o->shard++) {
        char *path;
        shard_name(o, o->shard, name, sizeof name);
        Z3D_TRY(z3d_join_path(folder, name, &path));
        z3d_status status = z3d_export_write(write_shard, o, path);
        free(path);
        if (status != Z3D_OK) return status;
    }
    return o->shards > 1 ? write_index(o, folder) : Z3D_OK;
}

z3d_status z3d_safetensors_write(z3d_checkpoint *c, z3d_export_files *files) {
    output o = {.checkpoint = c, .files = files};
    z3d_status status = list_tensors(&o);
    if (status == Z3D_OK) {
        fill_shards(&o, files->max_shard);
        files->shards = o.shards;
        status = write_shards(&o, files->folder);
    }
    free(o.tensor);
    return status;
}
