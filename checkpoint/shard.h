/* Private to checkpoint/: writes one rank's tensors as one HDF5 file.
 *
 * HDF5 makes the file's metadata in memory, in a sparse file without the tensors, and returns the
 * offset of each tensor, which is contiguous. Then we write the file to the disk from front to
 * back: HDF5 never touches the disk, and io.h's hook sees every write. */
#ifndef ZERO3D_CHECKPOINT_SHARD_H
#define ZERO3D_CHECKPOINT_SHARD_H

#include "checkpoint/format.h"

/* Copies `count` elements of an extent, from its element `at` on, to out. */
typedef z3d_status (*z3d_values)(void *context, const z3d_extent *extent, int64_t at, int64_t count,
                                 float *out);

/* A shard before it is written: its extents with their offsets, and the memory file with the
 * metadata. */
typedef struct z3d_image {
    z3d_shard shard;
    int fd;
} z3d_image;

/* The extents that the rank of `mesh` writes of a model: its own shard of every tensor of its
 * pipeline stage, one kind after the other. If all tensor ranks hold a tensor, tensor rank 0 writes
 * it; if two pipeline stages hold it, the first stage. config: the cut into pipeline stages; NULL:
 * one stage. trained: leaves out frozen parameters. Offsets are not set. *out is malloc'ed. Pure.
 * Errors: ERR_CONFIG, ERR_MEMORY. */
z3d_status z3d_shard_plan(const z3d_model *model, const z3d_mesh *mesh,
                          const z3d_program_config *config, unsigned kinds, bool trained,
                          int *count, z3d_extent **out);
/* Makes the metadata, and sets the extents' offsets and the file's size. Takes ownership of
 * `extent`. Only one thread of a process at a time may call it (HDF5). Errors: ERR_INTERNAL (HDF5),
 * ERR_IO, ERR_MEMORY. */
z3d_status z3d_image_make(const z3d_tensor *tensor, int rank, int64_t step, int count,
                          z3d_extent *extent, z3d_image *out);
void z3d_image_free(z3d_image *image);
/* Writes FOLDER/shard-N.h5, then its index, both durably. *entry describes the index. Errors:
 * ERR_IO, ERR_MEMORY, those of `values`. */
z3d_status z3d_image_write(z3d_image *image, const struct z3d_io_hook *hook, const char *folder,
                           z3d_values values, void *context, z3d_file_entry *entry);

/* Writes FOLDER/checkpoint.h5: for each tensor and state a virtual dataset made of the shards'
 * datasets. The manifest's shards must have extents. *entry describes the file. Errors:
 * ERR_INTERNAL (HDF5), ERR_IO, ERR_MEMORY. */
z3d_status z3d_virtual_write(const z3d_manifest *manifest, const struct z3d_io_hook *hook,
                             const char *folder, z3d_file_entry *entry);

/* ---- hdf5.c, for shard.c and virtual.c; errors: ERR_INTERNAL ---- */

#include <hdf5.h>
/* Makes an empty HDF5 file in memory. It holds no times: equal content gives equal bytes. */
z3d_status z3d_hdf5_create(int *fd, hid_t *file);
/* Makes the dataset of a tensor (one tile of it), and the groups of its path. */
z3d_status z3d_hdf5_dataset(hid_t file, const z3d_tensor *tensor, int kind, int tile, hid_t space,
                            hid_t list, hid_t *out);
/* Its path: "/parameter/block.0/mlp.c_fc.weight"; of tile 1 "/parameter/block.0/mlp.c_fc.weight.1".
 */
z3d_status z3d_hdf5_path(const z3d_tensor *tensor, int kind, int tile, char *out, size_t size);
z3d_status z3d_hdf5_attribute(hid_t object, const char *name, const int64_t *values, int count);
z3d_status z3d_hdf5_text_attribute(hid_t object, const char *name, const char *text);
/* The error "HDF5 failed to WHAT". */
z3d_status z3d_hdf5_failed(const char *what);

#endif
