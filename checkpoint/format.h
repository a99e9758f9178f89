/* Private to checkpoint/: the contents of a checkpoint's files (docs/checkpoint-format.md) as
 * structs, written and read. */
#ifndef ZERO3D_CHECKPOINT_FORMAT_H
#define ZERO3D_CHECKPOINT_FORMAT_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/io.h"

/* Z3D_BASE_VERSION is the version of a checkpoint that leaves out parameters that its base has. */
enum { Z3D_FORMAT_VERSION = 1, Z3D_BASE_VERSION = 2, Z3D_BLOCK_BYTES = 1 << 20 };

#define Z3D_MANIFEST "manifest.json"
#define Z3D_VIRTUAL_FILE "checkpoint.h5"

/* The tensor of a model's parameter. A tensor with model.tiling has several parameters, its tiles;
 * this one is number `tile`. */
typedef struct z3d_home {
    int tensor, tile;
} z3d_home;

/* One dataset of one shard: elements first .. first + count - 1 of the slice [outer, rows, inner]
 * that begins at row row_first. */
typedef struct z3d_extent {
    int tensor, kind;
    int tile, group, parameter; /* of the model that is saved; 0 in a manifest that was read */
    int64_t snapshot;           /* first element in an asynchronous save's copy */
    int64_t row_first, rows, first, count;
    int64_t offset; /* of the first byte in the file */
} z3d_extent;

typedef struct z3d_shard {
    char name[32];  /* "shard-00003.h5" */
    char index[32]; /* "shard-00003.json" */
    char *folder;   /* a shard of the base (only a reader adds these); NULL: the checkpoint's own */
    int64_t size;
    int64_t num_blocks;
    z3d_digest *block; /* digest of each Z3D_BLOCK_BYTES of the file */
    int num_extents;
    z3d_extent *extent;
} z3d_shard;

typedef struct z3d_file_entry {
    char name[32];
    int64_t size;
    z3d_digest digest;
} z3d_file_entry;

/* A checkpoint without its tensors' values. */
typedef struct z3d_manifest {
    z3d_checkpoint_info info; /* the manifest owns its texts */
    int num_tensors, num_shards, num_files;
    z3d_tensor *tensor;
    z3d_shard *shard;
    z3d_file_entry *file; /* small files, with one digest each: indexes, checkpoint.h5 */
} z3d_manifest;

void z3d_manifest_free(z3d_manifest *manifest);
/* The kinds of tensors that the shards hold. */
unsigned z3d_manifest_kinds(const z3d_manifest *manifest);
/* The kinds out of `kinds` that the checkpoint's own shards hold of the tensor. */
static inline unsigned z3d_saved_kinds(const z3d_manifest *manifest, const z3d_tensor *tensor,
                                       unsigned kinds) {
    return tensor->frozen && manifest->info.base.folder ? 0 : z3d_tensor_kinds(tensor, kinds);
}
/* The tensors of a model, in the order of groups and parameters; all tiles of a tensor are one
 * tensor. *out is malloc'ed. */
z3d_status z3d_tensors_of(const z3d_model *model, z3d_tensor **out, int *count);
/* The home of each parameter, in the same order. *out is malloc'ed. */
z3d_status z3d_homes_of(const z3d_model *model, z3d_home **out);
/* The index of the tensor with these names; -1: none. */
int z3d_find_tensor(const z3d_tensor *tensor, int count, const char *group, const char *name);
/* Finds the model's parameter of a tensor, or of its first tile; false: it has none. */
bool z3d_find_parameter(const z3d_model *model, const z3d_tensor *tensor, int *group,
                        int *parameter);
int z3d_count_parameters(const z3d_model *model);
/* Whether a name has no control characters: a manifest with other names is refused. */
bool z3d_name_is_plain(const char *name);
/* Number of elements of the whole tensor. */
int64_t z3d_tensor_elements(const z3d_tensor *tensor);

/* Append the text of manifest.json, or of a shard's index. */
z3d_status z3d_manifest_write(const z3d_manifest *manifest, z3d_string *out);
z3d_status z3d_index_write(const z3d_shard *shard, z3d_string *out);
/* ERR_IO if the folder's name is that of another step. */
z3d_status z3d_folder_check_step(const char *folder, int64_t step);
/* Reads manifest.json and the indexes of a checkpoint's folder, checks sizes and digests, and
 * checks that every number is in range. Errors: ERR_DATA with the file (damage); ERR_IO (no
 * manifest, a file that cannot be read now, or a folder with another step's name); ERR_UNSUPPORTED
 * (a newer format). */
z3d_status z3d_manifest_read(const char *folder, z3d_manifest *out);

/* ---- base.c ---- */

/* Adds the shards of the base to the manifest of checkpoint `name`. folder: where the base is; NULL
 * or "": the place in the manifest. Errors: ERR_IO if the base is gone or has changed. */
z3d_status z3d_manifest_add_base(z3d_manifest *manifest, const char *name, const char *folder);
/* The base of a run that begins with the weights of this checkpoint. */
z3d_status z3d_checkpoint_find_base(const z3d_checkpoint *checkpoint, const z3d_model *model,
                                    z3d_base *out);
/* The digest of the checkpoint's own shards. Two imports of equal weights have one digest. */
z3d_status z3d_manifest_digest(const z3d_manifest *manifest, char text[Z3D_DIGEST_TEXT]);
z3d_status z3d_base_copy(const z3d_base *from, z3d_base *out);
/* Turns ERR_DATA of the base's files into ERR_IO: the checkpoint itself is not damaged. */
z3d_status z3d_base_failed(z3d_status status);

/* ---- reader.c ---- */

/* The manifest of an open checkpoint, which lives as long. */
const z3d_manifest *z3d_checkpoint_manifest(const z3d_checkpoint *checkpoint);
/* The parameter's tensor; -1: none. */
int z3d_checkpoint_find_parameter(const z3d_checkpoint *checkpoint,
                                  const z3d_parameter_group *group, int parameter);
/* Whether a parameter is a token table with more rows than the checkpoint's. */
bool z3d_has_new_rows(const z3d_checkpoint *checkpoint, const z3d_parameter_group *group,
                      int parameter);

/* The kind to read for `kind` of a tensor: a frozen parameter is its own average. */
static inline z3d_tensor_kind z3d_value_kind(const z3d_tensor *tensor, z3d_tensor_kind kind) {
    return tensor->frozen ? Z3D_TENSOR_PARAMETER : kind;
}

/* A range: elements first .. first + count - 1 of a slice, as in z3d_checkpoint_read. */
typedef struct z3d_wanted {
    z3d_tensor_kind kind;
    int tensor;
    z3d_part slice;
    int64_t first, count;
} z3d_wanted;

/* Takes elements first .. first + count - 1 of range number `range`. */
typedef z3d_status (*z3d_wanted_values)(void *context, int range, int64_t first, int64_t count,
                                        const float *values);
/* Reads many ranges and gives their elements to `take`, in order. A thread of its own reads the
 * files ahead, into a fixed amount of memory. ranks: so many ranks call this, each for about as
 * much of these tensors; if each block is needed by one rank only, its pages leave the page cache.
 * Errors: those of z3d_checkpoint_read and of `take`. Not collective. */
z3d_status z3d_checkpoint_read_all(z3d_checkpoint *checkpoint, const z3d_wanted *range, int count,
                                   int ranks, z3d_wanted_values take, void *context);

/* ---- new_rows.c: rows of token ids that a model has and the checkpoint lacks ---- */

/* Cuts the new rows off a slice of such a table. */
void z3d_without_new_rows(const z3d_checkpoint *checkpoint, int tensor, z3d_part *slice);
/* Sets each new row to the mean of the checkpoint's rows and logs it. Rank 0 adds the rows in fp64
 * in their order: equal bits on any topology. Errors: those of z3d_checkpoint_read. Collective;
 * agreed. */
z3d_status z3d_fill_new_rows(z3d_world *world, z3d_checkpoint *checkpoint, const z3d_model *model,
                             z3d_engine *engine);

/* ---- load.c ---- */

/* z3d_world_agree with positions for the watchdog: during the call this rank waits at `what`
 * ("checkpoint: writing shards", up to 60 bytes), after it the rank is at `what`. Collective over
 * the world. */
z3d_status z3d_checkpoint_agree(z3d_world *world, const char *what, z3d_status mine);

#endif
