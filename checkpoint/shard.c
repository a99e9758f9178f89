/* One rank's file: its parts of tensors, HDF5's metadata, and the write to the disk. */
#include "checkpoint/shard.h"
#include "zero/program/layout.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BOUNCE_BYTES = 4 * Z3D_BLOCK_BYTES };

/* ---- the parts of tensors ---- */

static void plan_datasets(const z3d_model *model, const z3d_layout *layout, const z3d_home *home,
                          int kind, bool trained, int *count, z3d_extent *out) {
    for (int g = 0; g < model->num_groups; g++)
        for (int i = 0; i < model->group[g].num_parameters; i++, home++) {
            z3d_part part;
            z3d_layout_part(layout, model, g, i, false, &part);
            bool others = model->group[g].parameter[i].split_dim < 0 && layout->tensor_index > 0;
            if (layout->group[g].frozen && (trained || kind != Z3D_TENSOR_PARAMETER)) continue;
            if (part.count == 0 || others || !layout->group[g].counts) continue;
            out[(*count)++] = (z3d_extent){.tensor = home->tensor,
                                           .kind = kind,
                                           .tile = home->tile,
                                           .group = g,
                                           .parameter = i,
                                           .row_first = part.offset,
                                           .rows = part.valid,
                                           .first = part.first,
                                           .count = part.count};
        }
}

z3d_status z3d_shard_plan(const z3d_model *model, const z3d_mesh *mesh,
                          const z3d_program_config *config, unsigned kinds, bool trained,
                          int *count, z3d_extent **out) {
    z3d_layout *layout;
    z3d_home *home = NULL;
    size_t parameters = (size_t)z3d_count_parameters(model);
    *out = NULL;
    *count = 0;
    Z3D_TRY(z3d_layout_create(model, mesh, config, &layout));
    z3d_status status = z3d_homes_of(model, &home);
    if (status == Z3D_OK)
        status = z3d_new(parameters * Z3D_STATE_KINDS + 1, sizeof **out, "a shard's datasets", out);
    for (int kind = 0; kind < Z3D_STATE_KINDS && status == Z3D_OK; kind++)
        if (kinds >> kind & 1) plan_datasets(model, layout, home, kind, trained, count, *out);
    free(home);
    z3d_layout_destroy(layout);
    return status;
}

z3d_status z3d_checkpoint_snapshot_bytes(const z3d_model *model, const z3d_mesh *mesh,
                                         const z3d_program_config *config, bool trained,
                                         int64_t *bytes) {
    z3d_extent *extent;
    int count;
    *bytes = 0;
    Z3D_TRY(z3d_shard_plan(model, mesh, config, z3d_state_kinds(config), trained, &count, &extent));
    for (int i = 0; i < count; i++) *bytes += extent[i].count * (int64_t)sizeof(float);
    free(extent);
    return Z3D_OK;
}

z3d_status z3d_checkpoint_bytes(const z3d_model *model, const z3d_mesh *mesh,
                                const z3d_program_config *config, bool trained, double *saved,
                                double *loaded) {
    z3d_layout *layout;
    int64_t written;
    *saved = *loaded = 0;
    Z3D_TRY(z3d_checkpoint_snapshot_bytes(model, mesh, config, trained, &written));
    *saved = (double)written;
    int all = z3d_count_kinds(z3d_state_kinds(config));
    Z3D_TRY(z3d_layout_create(model, mesh, config, &layout));
    for (int g = 0; g < model->num_groups; g++) {
        bool all_rows = z3d_state_is_whole(layout, g, Z3D_STATE_OPTIMIZER);
        int states = layout->group[g].frozen ? 1 : all;
        for (int i = 0; i < model->group[g].num_parameters; i++) {
            z3d_part part;
            z3d_layout_part(layout, model, g, i, all_rows, &part);
            *loaded += (double)part.count * (states * sizeof(float));
        }
    }
    z3d_layout_destroy(layout);
    return Z3D_OK;
}

/* ---- metadata ---- */

/* Adds a dataset: HDF5 gives it a place in the file, but writes no values. */
static z3d_status add_dataset(hid_t file, const z3d_tensor *tensor, z3d_extent *extent) {
    hsize_t count = (hsize_t)extent->count;
    int64_t rows[] = {extent->row_first, extent->rows};
    int64_t split = tensor->split_dim;
    hid_t list = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, &count, NULL);
    hid_t dataset = -1;
    z3d_status status = Z3D_OK;
    if (list < 0 || space < 0 || H5Pset_layout(list, H5D_CONTIGUOUS) < 0 ||
        H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY) < 0 ||
        H5Pset_fill_time(list, H5D_FILL_TIME_NEVER) < 0 || H5Pset_obj_track_times(list, false) < 0)
        status = z3d_hdf5_failed("set a dataset's properties");
    if (status == Z3D_OK)
        status = z3d_hdf5_dataset(file, tensor, extent->kind, extent->tile, space, list, &dataset);
    if (status == Z3D_OK)
        status = z3d_hdf5_attribute(dataset, "shape", tensor->shape, tensor->dims);
    if (status == Z3D_OK) status = z3d_hdf5_attribute(dataset, "split", &split, 1);
    if (status == Z3D_OK) status = z3d_hdf5_attribute(dataset, "rows", rows, 2);
    if (status == Z3D_OK) status = z3d_hdf5_attribute(dataset, "first", &extent->first, 1);
    if (status == Z3D_OK) {
        haddr_t at = H5Dget_offset(dataset);
        if (at == HADDR_UNDEF || at % sizeof(float) != 0)
            status = z3d_hdf5_failed("place a dataset in the file");
        extent->offset = (int64_t)at;
    }
    if (dataset >= 0) H5Dclose(dataset);
    if (space >= 0) H5Sclose(space);
    if (list >= 0) H5Pclose(list);
    return status;
}

static int by_offset(const void *a, const void *b) {
    const z3d_extent *x = a, *y = b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static z3d_status describe(hid_t file, const z3d_tensor *tensor, int rank, int64_t step,
                           z3d_shard *shard) {
    int64_t number = rank;
    Z3D_TRY(z3d_hdf5_text_attribute(file, "format", "zero3d checkpoint shard"));
    Z3D_TRY(z3d_hdf5_attribute(file, "rank", &number, 1));
    Z3D_TRY(z3d_hdf5_attribute(file, "step", &step, 1));
    for (int i = 0; i < shard->num_extents; i++)
        Z3D_TRY(add_dataset(file, &tensor[shard->extent[i].tensor], &shard->extent[i]));
    return Z3D_OK;
}

/* HDF5 crashes if a file in memory cannot grow: checks the limit before. */
static z3d_status check_file_limit(const z3d_shard *shard) {
    enum { METADATA = 4096 }; /* the most bytes of metadata of a dataset */
    struct rlimit limit;
    rlim_t bytes = METADATA;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return Z3D_OK;
    for (int i = 0; i < shard->num_extents; i++)
        bytes += (rlim_t)shard->extent[i].count * sizeof(float) + METADATA;
    if (bytes <= limit.rlim_cur) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_IO, "%s: %s: up to %llu bytes, the limit is %llu; raise ulimit -f",
                     shard->name, strerror(EFBIG), (unsigned long long)bytes,
                     (unsigned long long)limit.rlim_cur);
}

z3d_status z3d_image_make(const z3d_tensor *tensor, int rank, int64_t step, int count,
                          z3d_extent *extent, z3d_image *out) {
    hid_t file = -1;
    struct stat info;
    *out = (z3d_image){.shard = {.num_extents = count, .extent = extent}, .fd = -1};
    z3d_shard *shard = &out->shard;
    snprintf(shard->name, sizeof shard->name, "shard-%05d.h5", rank);
    snprintf(shard->index, sizeof shard->index, "shard-%05d.json", rank);
    z3d_status status = check_file_limit(shard);
    if (status == Z3D_OK) status = z3d_hdf5_create(&out->fd, &file);
    if (status == Z3D_OK) status = describe(file, tensor, rank, step, shard);
    if (file >= 0 && H5Fclose(file) < 0 && status == Z3D_OK)
        status = z3d_hdf5_failed("close the file in memory");
    if (status == Z3D_OK && fstat(out->fd, &info) != 0)
        status =
            Z3D_ERROR(Z3D_ERR_IO, "the file in memory: cannot get its size: %s", strerror(errno));
    if (status == Z3D_OK) {
        shard->size = info.st_size;
        shard->num_blocks = (shard->size + Z3D_BLOCK_BYTES - 1) / Z3D_BLOCK_BYTES;
        status = z3d_new((size_t)shard->num_blocks + 1, sizeof *shard->block, "digests of blocks",
                         &shard->block);
    }
    if (status == Z3D_OK)
        qsort(shard->extent, (size_t)count, sizeof *shard->extent, by_offset);
    else
        z3d_image_free(out);
    return status;
}

void z3d_image_free(z3d_image *image) {
    if (image->fd > 0) close(image->fd);
    free(image->shard.block);
    free(image->shard.extent);
    *image = (z3d_image){.fd = -1};
}

/* ---- the stream ---- */

typedef struct stream {
    z3d_image *image;
    z3d_values values;
    void *context;
    int next; /* first extent that is not written completely */
    char *bounce;
} stream;

/* Fills the bounce buffer with bytes [from, to) of the file: tensors at their offsets, metadata
 * between them. */
static z3d_status fill(stream *s, int64_t from, int64_t to) {
    const z3d_shard *shard = &s->image->shard;
    for (int64_t at = from; at < to;) {
        while (s->next < shard->num_extents &&
               shard->extent[s->next].offset + shard->extent[s->next].count * 4 <= at)
            s->next++;
        const z3d_extent *e = s->next < shard->num_extents ? &shard->extent[s->next] : NULL;
        int64_t end = to;
        if (e && at >= e->offset) {
            if (e->offset + e->count * 4 < end) end = e->offset + e->count * 4;
            Z3D_TRY(s->values(s->context, e, (at - e->offset) / 4, (end - at) / 4,
                              (float *)(s->bounce + (at - from))));
        } else {
            if (e && e->offset < end) end = e->offset;
            Z3D_TRY(z3d_io_read(s->image->fd, "the file in memory", s->bounce + (at - from),
                                end - at, at));
        }
        at = end;
    }
    return Z3D_OK;
}

static z3d_status write_all(stream *s, const z3d_io_hook *hook, int fd, const char *path) {
    z3d_shard *shard = &s->image->shard;
    for (int64_t from = 0; from < shard->size; from += BOUNCE_BYTES) {
        int64_t to = shard->size - from < BOUNCE_BYTES ? shard->size : from + BOUNCE_BYTES;
        Z3D_TRY(fill(s, from, to));
        for (int64_t at = from; at < to; at += Z3D_BLOCK_BYTES)
            shard->block[at / Z3D_BLOCK_BYTES] = z3d_digest_of(
                s->bounce + (at - from), to - at < Z3D_BLOCK_BYTES ? to - at : Z3D_BLOCK_BYTES);
        Z3D_TRY(z3d_io_write(hook, fd, path, s->bounce, to - from, from, shard->size));
    }
    return z3d_io_sync(hook, fd, path);
}

static z3d_status write_shard(stream *s, const z3d_io_hook *hook, const char *folder) {
    char *path = NULL, *part = NULL;
    int fd = -1;
    z3d_status status = z3d_join_path(folder, s->image->shard.name, &path);
    if (status == Z3D_OK) status = z3d_io_part(path, &part);
    if (status == Z3D_OK) status = z3d_io_create(hook, part, &fd);
    if (status == Z3D_OK) status = write_all(s, hook, fd, part);
    if (fd >= 0) z3d_io_close(fd, part, &status);
    if (status == Z3D_OK) status = z3d_io_rename(hook, part, path);
    free(path);
    free(part);
    return status;
}

z3d_status z3d_image_write(z3d_image *image, const z3d_io_hook *hook, const char *folder,
                           z3d_values values, void *context, z3d_file_entry *entry) {
    stream s = {.image = image, .values = values, .context = context};
    z3d_string index = {0};
    s.bounce = aligned_alloc(4096, BOUNCE_BYTES);
    if (!s.bounce) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a buffer of 4 MiB");
    z3d_status status = write_shard(&s, hook, folder);
    if (status == Z3D_OK) status = z3d_index_write(&image->shard, &index);
    if (status == Z3D_OK) {
        /* This also syncs the folder, and so the shard's name. */
        status =
            z3d_io_write_file(hook, folder, image->shard.index, index.text, (int64_t)index.length);
        snprintf(entry->name, sizeof entry->name, "%s", image->shard.index);
        entry->size = (int64_t)index.length;
        entry->digest = z3d_digest_of(index.text, (int64_t)index.length);
    }
    z3d_string_free(&index);
    free(s.bounce);
    return status;
}
