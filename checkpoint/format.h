/* Private to checkpoint/: the contents of a checkpoint's files (docs/checkpoint-format.md) as
 * structs, written and read. */
#ifndef ZERO3D_CHECKPOINT_FORMAT_H
#define ZERO3D_CHECKPOINT_FORMAT_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/io.h"

/* Z3D_BASE_VERSION: of a checkpoint that leaves out what its base has. */
enum { Z3D_FORMAT_VERSION = 1, Z3D_BASE_VERSION = 2, Z3D_BLOCK_BYTES = 1 << 20 };

#define Z3D_MANIFEST "manifest.json"
#define Z3D_VIRTUAL_FILE "checkpoint.h5"

/* A logical parameter. */
typedef struct z3d_tensor {
    char group[Z3D_NAME], name[Z3D_NAME];
    int dims;
    int64_t shape[Z3D_MAX_DIMS];
    int split_dim; /* -1: none */
    bool frozen;   /* it has no optimizer tensors */
    int64_t outer, global, inner;
} z3d_tensor;

/* Where a model's parameter is among its tensors: `tile` parameters before it are tiles of the same
 * one. */
typedef struct z3d_home {
    int tensor, tile;
} z3d_home;

/* One dataset of one shard: elements first .. first + count - 1 of the slice [outer, rows, inner]
 * that begins at row row_first. */
typedef struct z3d_extent {
    int tensor, kind;
    int tile, group, parameter; /* of the model that is saved; 0 in what was read */
    int64_t snapshot;           /* its place in an asynchronous save's copy, elements */
    int64_t row_first, rows, first, count;
    int64_t offset; /* of its first byte in the file */
} z3d_extent;

typedef struct z3d_shard {
    char name[32];  /* "shard-00003.h5" */
    char index[32]; /* "shard-00003.json" */
    char *folder;   /* of the base's shards, which only a reader adds; NULL: the checkpoint's own */
    int64_t size;
    int64_t num_blocks;
    z3d_digest *block; /* of each Z3D_BLOCK_BYTES of the file */
    int num_extents;
    z3d_extent *extent;
} z3d_shard;

typedef struct z3d_file_entry {
    char name[32];
    int64_t size;
    z3d_digest digest;
} z3d_file_entry;

/* Everything but the tensors' values. */
typedef struct z3d_manifest {
    z3d_checkpoint_info info; /* its texts are owned */
    int num_tensors, num_shards, num_files;
    z3d_tensor *tensor;
    z3d_shard *shard;
    z3d_file_entry *file; /* small files that have one digest: indexes, checkpoint.h5 */
} z3d_manifest;

void z3d_manifest_free(z3d_manifest *manifest);
/* The kinds of tensors that the shards hold. */
unsigned z3d_manifest_kinds(const z3d_manifest *manifest);
/* Those of `kinds` that the tensor has. */
static inline unsigned z3d_tensor_kinds(const z3d_tensor *tensor, unsigned kinds) {
    return tensor->frozen ? kinds & Z3D_KIND(PARAMETER) : kinds;
}
/* Those that the checkpoint's own shards hold. */
static inline unsigned z3d_saved_kinds(const z3d_manifest *manifest, const z3d_tensor *tensor,
                                       unsigned kinds) {
    return tensor->frozen && manifest->info.base.folder ? 0 : z3d_tensor_kinds(tensor, kinds);
}
/* The tensors of a model, in order of groups and parameters; tiles are one tensor. */
z3d_status z3d_tensors_of(const z3d_model *model, z3d_tensor **out, int *count);
/* Of each parameter, in order of groups. */
z3d_status z3d_homes_of(const z3d_model *model, z3d_home **out);
int z3d_count_parameters(const z3d_model *model);
/* Whether a name has no control characters: a manifest with others is refused. */
bool z3d_name_is_plain(const char *name);
/* Number of elements of the whole tensor. */
int64_t z3d_tensor_elements(const z3d_tensor *tensor);

/* The texts of manifest.json and of a shard's index. */
z3d_status z3d_manifest_write(const z3d_manifest *manifest, z3d_string *out);
z3d_status z3d_index_write(const z3d_shard *shard, z3d_string *out);
/* Whether `folder` has a manifest, which makes it a checkpoint. ERR_IO: it cannot be told. */
z3d_status z3d_manifest_exists(const char *folder, bool *exists);
/* ERR_IO where the folder has the name of another step than its manifest says. */
z3d_status z3d_folder_check_step(const char *folder, int64_t step);
/* Reads manifest.json (its digest is checked) and the indexes (sizes and digests are checked) of a
 * checkpoint's folder. Nothing in them is believed: every number is in range afterwards. ERR_DATA
 * naming the file (damage); ERR_IO: no manifest, a file that cannot be read now, or
 * a folder with another step's name; ERR_UNSUPPORTED: a newer version. */
z3d_status z3d_manifest_read(const char *folder, z3d_manifest *out);
/* manifest.json only: no shards' datasets. */
z3d_status z3d_manifest_read_head(const char *folder, z3d_manifest *out);

/* ---- base.c ---- */

/* Adds the shards of the base in `folder` (NULL or "": where it was), which checkpoint `name`
 * needs. ERR_IO: it is gone or has changed. */
z3d_status z3d_manifest_add_base(z3d_manifest *manifest, const char *name, const char *folder);
/* What a run that begins with the weights of a checkpoint has as its base. */
z3d_status z3d_checkpoint_find_base(const z3d_checkpoint *checkpoint, const z3d_model *model,
                                    z3d_base *out);
z3d_status z3d_base_of(const z3d_checkpoint *checkpoint, const z3d_manifest *manifest,
                       const z3d_model *model, z3d_base *out);
/* Of the checkpoint's own shards: equal weights that were imported twice have one digest. */
z3d_status z3d_manifest_digest(const z3d_manifest *manifest, char text[Z3D_DIGEST_TEXT]);
z3d_status z3d_base_copy(const z3d_base *from, z3d_base *out);
/* A failure that the base's files are to blame for: the checkpoint itself is not damaged. */
z3d_status z3d_base_failed(z3d_status status);

/* Elements first .. first + count - 1 of a slice of a tensor's state, as of z3d_checkpoint_read. */
typedef struct z3d_wanted {
    z3d_tensor_kind kind;
    int tensor;
    z3d_part slice;
    int64_t first, count;
} z3d_wanted;

/* Values of a range, in order: its elements first .. first + count - 1. */
typedef z3d_status (*z3d_wanted_values)(void *context, int range, int64_t first, int64_t count,
                                        const float *values);
/* Reads many ranges in order, the files ahead of `take` by a thread of its own, through a fixed
 * amount of memory. `ranks` read, each about as much of these tensors: where each block is needed
 * by one of them only, the page cache does not keep it. Errors as of z3d_checkpoint_read; those of
 * `take`. */
z3d_status z3d_checkpoint_read_all(z3d_checkpoint *checkpoint, const z3d_wanted *range, int count,
                                   int ranks, z3d_wanted_values take, void *context);

/* z3d_world_agree; the watchdog hears that this rank stands in a wait meanwhile, and where: `what`
 * ("checkpoint: writing shards", up to 60 bytes). It is this rank's place afterwards. */
z3d_status z3d_checkpoint_agree(z3d_world *world, const char *what, z3d_status mine);

#endif
