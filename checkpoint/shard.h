/* Private to checkpoint/: writes one rank's tensors as one HDF5 file.
 *
 * HDF5 makes the file's metadata in memory (a sparse memory file that holds no tensor); tensors are
 * contiguous at offsets that HDF5 returns. We then write the file on the disk from front to back:
 * HDF5 never touches the disk, and io.h's hook sees every write. */
#ifndef ZERO3D_CHECKPOINT_SHARD_H
#define ZERO3D_CHECKPOINT_SHARD_H

#include "checkpoint/format.h"

/* Values of an extent: `count` elements from its element `at` on. */
typedef z3d_status (*z3d_values)(void *context, const z3d_extent *extent, int64_t at, int64_t count,
                                 float *out);

/* A shard that can be written: its extents with their places, and the memory file with the
 * metadata. */
typedef struct z3d_image {
    z3d_shard shard;
    int fd;
} z3d_image;

/* What the rank of `mesh` writes of a model: its own shard of every tensor of its pipeline stage,
 * kind by kind. What all tensor ranks hold, tensor rank 0 writes; what two stages hold, the first
 * one. config: which stage has what; NULL: there is one. trained: without what is frozen. Offsets
 * are not set. Pure. */
z3d_status z3d_shard_plan(const z3d_model *model, const z3d_mesh *mesh,
                          const z3d_program_config *config, unsigned kinds, bool trained,
                          int *count, z3d_extent **out);
/* Makes the metadata and sets offsets and size. Takes ownership of `extent`. Uses HDF5: from one
 * thread of a process at a time. */
z3d_status z3d_image_make(const z3d_tensor *tensor, int rank, int64_t step, int count,
                          z3d_extent *extent, z3d_image *out);
void z3d_image_free(z3d_image *image);
/* Writes FOLDER/shard-N.h5 and then its index, both durable. *entry describes the index. */
z3d_status z3d_image_write(z3d_image *image, const struct z3d_io_hook *hook, const char *folder,
                           z3d_values values, void *context, z3d_file_entry *entry);

/* Tries to write FOLDER/checkpoint.h5: one virtual dataset per tensor and state over the shards'
 * datasets. manifest->shard have extents. */
z3d_status z3d_virtual_write(const z3d_manifest *manifest, const struct z3d_io_hook *hook,
                             const char *folder, z3d_file_entry *entry);

/* hdf5.c: what shard.c and virtual.c share. Handles are hid_t, kept as int64_t here. */
#include <hdf5.h>
/* A new, empty HDF5 file in memory, and its properties: the same input gives the same bytes. */
z3d_status z3d_hdf5_create(int *fd, hid_t *file);
/* "/parameter/block.0/attn.c_attn.weight", of a further tile
 * "/parameter/block.0/mlp.c_fc.weight.1"; the groups on the way are made. */
z3d_status z3d_hdf5_dataset(hid_t file, const z3d_tensor *tensor, int kind, int tile, hid_t space,
                            hid_t list, hid_t *out);
z3d_status z3d_hdf5_path(const z3d_tensor *tensor, int kind, int tile, char *out, size_t size);
z3d_status z3d_hdf5_attribute(hid_t object, const char *name, const int64_t *values, int count);
z3d_status z3d_hdf5_text_attribute(hid_t object, const char *name, const char *text);
z3d_status z3d_hdf5_failed(const char *what);

#endif
