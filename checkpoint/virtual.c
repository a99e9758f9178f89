/* Writes checkpoint.h5: each whole tensor under its name, as a virtual dataset over the shards'
 * datasets. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "checkpoint/shard.h"

/* One dataset of a shard, which becomes a part of a virtual dataset. */
typedef struct mapping {
    hid_t list, space; /* of the virtual dataset */
    const z3d_tensor *tensor;
    const z3d_extent *extent;
    const char *file, *path;
} mapping;

/* Maps the box `start`, `count` of the tensor to the source's elements from `at` on. */
static z3d_status map_box(const mapping *m, const hsize_t *start, const hsize_t *count,
                          int64_t at) {
    hsize_t whole = (hsize_t)m->extent->count, first = (hsize_t)at, elements = 1;
    for (int d = 0; d < m->tensor->dims; d++) elements *= count[d];
    hid_t source = H5Screate_simple(1, &whole, NULL);
    bool good = source >= 0 &&
                H5Sselect_hyperslab(m->space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0 &&
                H5Sselect_hyperslab(source, H5S_SELECT_SET, &first, NULL, &elements, NULL) >= 0 &&
                H5Pset_virtual(m->list, m->space, m->file, m->path, source) >= 0;
    if (source >= 0) H5Sclose(source);
    return good ? Z3D_OK : z3d_hdf5_failed("map a part of a tensor");
}

/* Maps elements [first, first + count) of the row-major tensor as boxes. At dimension d the whole
 * sub-tensors are one box; the incomplete ones at both ends are split further. */
static z3d_status map_range(const mapping *m, int d, hsize_t *start, int64_t first, int64_t count,
                            int64_t *at) {
    const z3d_tensor *t = m->tensor;
    int64_t below = 1;
    for (int k = d + 1; k < t->dims; k++) below *= t->shape[k];
    while (count > 0) {
        int64_t index = first / below, rest = first % below;
        if (rest == 0 && count >= below) {
            hsize_t size[Z3D_MAX_DIMS];
            for (int k = 0; k < t->dims; k++) size[k] = k < d ? 1 : (hsize_t)t->shape[k];
            size[d] = (hsize_t)(count / below);
            start[d] = (hsize_t)index;
            for (int k = d + 1; k < t->dims; k++) start[k] = 0;
            Z3D_TRY(map_box(m, start, size, *at));
            int64_t done = count / below * below;
            *at += done, first += done, count -= done;
            continue;
        }
        int64_t part = below - rest < count ? below - rest : count;
        start[d] = (hsize_t)index;
        Z3D_TRY(map_range(m, d + 1, start, rest, part, at));
        first += part, count -= part;
    }
    return Z3D_OK;
}

/* The extent is a range of the slice [outer, rows, inner]. If the slice has a part of dimension 1,
 * its whole planes form one box of the logical shape. */
static z3d_status map_extent(const mapping *m) {
    const z3d_tensor *t = m->tensor;
    const z3d_extent *e = m->extent;
    hsize_t start[Z3D_MAX_DIMS] = {0}, size[Z3D_MAX_DIMS];
    int64_t plane = e->rows * t->inner, at = 0;
    if (e->rows == t->global) return map_range(m, 0, start, e->first, e->count, &at);
    while (at < e->count) {
        int64_t o = (e->first + at) / plane, rest = (e->first + at) % plane;
        int64_t left = e->count - at, planes = left / plane;
        if (rest == 0 && planes > 0 && t->split_dim == 1) {
            for (int k = 0; k < t->dims; k++) start[k] = 0, size[k] = (hsize_t)t->shape[k];
            start[0] = (hsize_t)o, size[0] = (hsize_t)planes;
            start[1] = (hsize_t)e->row_first, size[1] = (hsize_t)e->rows;
            Z3D_TRY(map_box(m, start, size, at));
            at += planes * plane;
            continue;
        }
        int64_t part = plane - rest < left ? plane - rest : left;
        int64_t first = (o * t->global + e->row_first) * t->inner + rest;
        Z3D_TRY(map_range(m, 0, start, first, part, &at));
    }
    return Z3D_OK;
}

static z3d_status map_tensor(const z3d_manifest *manifest, int tensor, int kind, hid_t list,
                             hid_t space) {
    char path[160];
    for (int s = 0; s < manifest->num_shards; s++) {
        const z3d_shard *shard = &manifest->shard[s];
        for (int i = 0; i < shard->num_extents; i++) {
            const z3d_extent *e = &shard->extent[i];
            if (e->tensor != tensor || e->kind != kind) continue;
            Z3D_TRY(z3d_hdf5_path(&manifest->tensor[tensor], kind, e->tile, path, sizeof path));
            mapping m = {list, space, &manifest->tensor[tensor], e, shard->name, path};
            Z3D_TRY(map_extent(&m));
        }
    }
    return Z3D_OK;
}

static z3d_status add_tensor(hid_t file, const z3d_manifest *manifest, int tensor, int kind) {
    const z3d_tensor *t = &manifest->tensor[tensor];
    hsize_t shape[Z3D_MAX_DIMS];
    for (int d = 0; d < t->dims; d++) shape[d] = (hsize_t)t->shape[d];
    hid_t list = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(t->dims, shape, NULL);
    hid_t dataset = -1;
    z3d_status status = Z3D_OK;
    const float missing = NAN; /* values of a missing shard: zeros could look valid */
    if (list < 0 || space < 0 || H5Pset_obj_track_times(list, false) < 0 ||
        H5Pset_fill_value(list, H5T_NATIVE_FLOAT, &missing) < 0)
        status = z3d_hdf5_failed("set a dataset's properties");
    if (status == Z3D_OK) status = map_tensor(manifest, tensor, kind, list, space);
    if (status == Z3D_OK) {
        H5Sselect_all(space);
        status = z3d_hdf5_dataset(file, t, kind, 0, space, list, &dataset);
    }
    if (dataset >= 0) H5Dclose(dataset);
    if (space >= 0) H5Sclose(space);
    if (list >= 0) H5Pclose(list);
    return status;
}

static z3d_status describe(hid_t file, const z3d_manifest *manifest) {
    Z3D_TRY(z3d_hdf5_text_attribute(file, "format", "zero3d checkpoint"));
    Z3D_TRY(z3d_hdf5_attribute(file, "step", &manifest->info.engine.step, 1));
    unsigned kinds = z3d_manifest_kinds(manifest);
    for (int kind = 0; kind < Z3D_STATE_KINDS; kind++) {
        for (int t = 0; t < manifest->num_tensors; t++)
            if (z3d_saved_kinds(manifest, &manifest->tensor[t], kinds) >> kind & 1)
                Z3D_TRY(add_tensor(file, manifest, t, kind));
    }
    return Z3D_OK;
}

z3d_status z3d_virtual_write(const z3d_manifest *manifest, const z3d_io_hook *hook,
                             const char *folder, z3d_file_entry *entry) {
    int fd;
    hid_t file;
    char *bytes = NULL;
    Z3D_TRY(z3d_hdf5_create(&fd, &file));
    z3d_status status = describe(file, manifest);
    if (H5Fclose(file) < 0 && status == Z3D_OK) status = z3d_hdf5_failed("close a file in memory");
    int64_t size = lseek(fd, 0, SEEK_END);
    if (status == Z3D_OK) status = z3d_new((size_t)size + 1, 1, Z3D_VIRTUAL_FILE, &bytes);
    if (status == Z3D_OK) status = z3d_io_read(fd, "a file in memory", bytes, size, 0);
    if (status == Z3D_OK) status = z3d_io_write_file(hook, folder, Z3D_VIRTUAL_FILE, bytes, size);
    if (status == Z3D_OK) {
        *entry = (z3d_file_entry){.size = size, .digest = z3d_digest_of(bytes, size)};
        snprintf(entry->name, sizeof entry->name, "%s", Z3D_VIRTUAL_FILE);
    }
    free(bytes);
    close(fd);
    return status;
}
