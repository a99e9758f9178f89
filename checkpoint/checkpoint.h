/* checkpoint: sharded HDF5 checkpoints. Each rank writes the shard that it owns to its own file; a
 * manifest, renamed last, makes the files a checkpoint. A checkpoint of any topology, ZeRO stage
 * and precision loads on any other; each rank reads the blocks that it needs.
 *
 *   a run            z3d_store_open, z3d_store_resume; z3d_store_save at some steps and
 *                    z3d_store_poll after every step; z3d_store_close
 *   only weights     z3d_checkpoint_load_weights
 *   one tensor       z3d_checkpoint_open, _open_base, _find, _whole, _read, _close
 *
 * This folder may call zero/ and the floors below. Only io.c changes a disk; format.c writes and
 * manifest.c reads the description of a checkpoint; shard.c writes tensors, reader.c reads them.
 * interop/ calls this folder, which calls nothing of interop/. Start reading at
 * docs/checkpoint-format.md, then save.c.
 *
 * "Collective; agreed" means: all ranks of the world make the call, and all return the same status.
 * Every function that allocates may also return ERR_MEMORY. */
#ifndef ZERO3D_CHECKPOINT_CHECKPOINT_H
#define ZERO3D_CHECKPOINT_CHECKPOINT_H

#include "parallel/parallel.h"
#include "src/base/base.h"
#include "src/base/config.h"
#include "src/model/unit.h"
#include "zero/zero.h"

struct z3d_io_hook; /* io.h: for tests */

/* A run's validation losses so far. */
typedef struct z3d_evaluations {
    int64_t best_step; /* step of the lowest loss; 0: none yet */
    double best_loss;
    int64_t since; /* number of validations after best_step */
    int64_t data;  /* digest of the samples that were evaluated; 0: unknown */
    bool due;      /* a stop came before this step's validation */
} z3d_evaluations;

/* The base of a run: the checkpoint whose weights it began with. The run's checkpoints leave out
 * frozen parameters that the base has. Texts are malloc'ed; NULL: unknown. */
typedef struct z3d_base {
    char *folder;    /* NULL: the run's checkpoints leave nothing out */
    char *path;      /* the path as the user wrote it */
    char *source;    /* the path from which the base was imported */
    char digest[33]; /* of its shards, hexadecimal; "": unknown */
} z3d_base;

void z3d_base_free(z3d_base *base);

/* The contents of a checkpoint except its tensors. */
typedef struct z3d_checkpoint_info {
    z3d_engine_state engine;
    int64_t samples;      /* training samples used so far: the next step's first sample */
    int64_t train_tokens; /* tokens in the training data's files */
    z3d_evaluations evaluations;
    z3d_base base;
    int tensor_size, data_size, pipeline_size, zero_stage;
    z3d_dtype dtype;
    char *config;    /* the resolved configuration, YAML */
    char *program;   /* "zero3d 0.1.0" */
    char *libraries; /* "HDF5 1.10.8, ..." */
    char *imported;  /* the path from which it was imported; NULL: a run saved it */
} z3d_checkpoint_info;

/* How thoroughly a checkpoint is checked before it is used. */
typedef enum z3d_checkpoint_verify {
    Z3D_VERIFY_FULL, /* every byte of every file against its digest */
    Z3D_VERIFY_READ, /* only the blocks that are read */
    Z3D_VERIFY_SIZES /* only that the files exist and have their lengths */
} z3d_checkpoint_verify;

/* ---- one checkpoint, read-only; nothing here is collective ---- */

typedef struct z3d_checkpoint z3d_checkpoint;

/* Reads the description of the checkpoint in `folder` and checks its digests. Errors: ERR_IO (no
 * checkpoint, or a file that cannot be read now), ERR_DATA (damaged: which file and how),
 * ERR_UNSUPPORTED (a newer format). */
z3d_status z3d_checkpoint_open(const char *folder, z3d_checkpoint **out);
/* Finds the base of a checkpoint that leaves out frozen parameters, and compares its digest. Call
 * it before tensors are checked or read. base: the path where the base is now; NULL or "": the path
 * in the manifest. Errors: ERR_IO if the base is gone or has changed; ERR_CONFIG if a base is given
 * but the checkpoint leaves nothing out. */
z3d_status z3d_checkpoint_open_base(z3d_checkpoint *checkpoint, const char *base);
void z3d_checkpoint_close(z3d_checkpoint *checkpoint);
const z3d_checkpoint_info *z3d_checkpoint_get_info(const z3d_checkpoint *checkpoint);
const char *z3d_checkpoint_folder(const z3d_checkpoint *checkpoint);

/* From now on, checks and exports report to `progress`, which must outlive the checkpoint. */
void z3d_checkpoint_watch(z3d_checkpoint *checkpoint, z3d_progress *progress);
/* NULL: they report to nobody. */
z3d_progress *z3d_checkpoint_progress(const z3d_checkpoint *checkpoint);

/* Checks part `part` of `parts` of the files, and adds to *bytes_read if it is not NULL and no file
 * is missing. It leaves out the blocks that hold tensors of `read_kinds`: for a caller that reads
 * all of these tensors, because reading checks them. Errors: ERR_DATA with the file, the rank that
 * wrote it and the dataset; ERR_IO. */
z3d_status z3d_checkpoint_check(const z3d_checkpoint *checkpoint, z3d_checkpoint_verify verify,
                                unsigned read_kinds, int part, int parts, int64_t *bytes_read);

/* A logical parameter. */
typedef struct z3d_tensor {
    char group[Z3D_NAME], name[Z3D_NAME]; /* "block.0", "attn.c_attn.weight" */
    int dims;
    int64_t shape[Z3D_MAX_DIMS];
    int split_dim; /* -1: none */
    bool frozen;   /* it has no optimizer tensors */
    /* Products of the dimensions: before split_dim (or 0), that dimension, after it. */
    int64_t outer, global, inner;
} z3d_tensor;

int z3d_checkpoint_num_tensors(const z3d_checkpoint *checkpoint);
/* index: from 0 to the number of tensors - 1. The tensor lives as long as the checkpoint. */
const z3d_tensor *z3d_checkpoint_tensor(const z3d_checkpoint *checkpoint, int index);
/* The set of kinds of tensors that it has, a bit each; an imported checkpoint has only parameters.
 */
unsigned z3d_checkpoint_kinds(const z3d_checkpoint *checkpoint);
/* The kinds out of `kinds` that one tensor has. */
static inline unsigned z3d_tensor_kinds(const z3d_tensor *tensor, unsigned kinds) {
    return tensor->frozen ? kinds & Z3D_KIND(PARAMETER) : kinds;
}
/* ERR_USAGE unless it has an average of the parameters, for --ema. */
z3d_status z3d_checkpoint_need_average(const z3d_checkpoint *checkpoint);
int z3d_checkpoint_find(const z3d_checkpoint *checkpoint, const char *group,
                        const char *name); /* its index; -1: none */
/* *out becomes the slice that is the whole tensor: first 0, count its elements. */
void z3d_checkpoint_whole(const z3d_checkpoint *checkpoint, int tensor, z3d_part *out);
/* Reads elements first .. first + count - 1 of a slice of a tensor, in the order of z3d_part, as
 * fp32 (the slice's own first and count are ignored). kind: the parameter (its fp32 master copy) or
 * a tensor of the optimizer. Errors: ERR_USAGE (no such tensor, kind or slice), ERR_DATA (damaged),
 * ERR_IO. */
z3d_status z3d_checkpoint_read(z3d_checkpoint *checkpoint, z3d_tensor_kind kind, int tensor,
                               const z3d_part *slice, int64_t first, int64_t count, float *out);
/* Reads check the digests of blocks, except with Z3D_VERIFY_SIZES. The default checks them. */
void z3d_checkpoint_set_verify(z3d_checkpoint *checkpoint, z3d_checkpoint_verify verify);
/* Bytes that z3d_checkpoint_read and loads have read so far. */
int64_t z3d_checkpoint_bytes_read(const z3d_checkpoint *checkpoint);

/* Bytes of values that the rank of `mesh` writes in a save, and reads to resume on the same
 * topology. HDF5's metadata and the index come on top (at most 4096 bytes per tensor and state).
 * trained: frozen parameters are not saved. Pure. Errors: ERR_CONFIG. */
z3d_status z3d_checkpoint_bytes(const z3d_model *model, const z3d_mesh *mesh,
                                const z3d_program_config *config, bool trained, double *saved,
                                double *loaded);

/* ---- other programs' models: weights only; nothing here is collective ---- */

typedef enum z3d_interop_format {
    Z3D_INTEROP_HUGGINGFACE, /* a folder with model.safetensors and config.json */
    Z3D_INTEROP_LLMC         /* a file: magic 20240326, version 3 (fp32) or 5 (bf16) */
} z3d_interop_format;

/* "set": z3d_checkpoint_export sets this field. */
typedef struct z3d_export {
    z3d_interop_format format;
    z3d_dtype dtype;      /* values are rounded to it: fp32, bf16, or (Hugging Face only) fp16 */
    bool own_dtype;       /* dtype is not given: set to checkpoint.export.dtype */
    bool allow_nonfinite; /* writes infinities and NaNs; else they are an error */
    bool force;           /* llm.c's file may replace a file that is not llm.c's */
    bool ema;             /* writes the average of the parameters in place of the parameters */
    bool merged;          /* adds adapters to their layers' weights */
    bool adapter;         /* set: a PEFT folder of the adapter was written */
    const char *to;       /* the folder, or llm.c's file */
    /* Hugging Face only: the tokenizer's files. vocab NULL: the folder `tokenizer` next to an
     * imported checkpoint; else the files of the checkpoint's configuration (data.vocab and
     * data.merges; a `bytes` run with 257 ids makes its own). vocab "none": no tokenizer. */
    const char *vocab, *merges;
    const char *base;  /* see z3d_checkpoint_open_base */
    int64_t max_shard; /* Hugging Face: the most bytes of tensors in a file; 0: 5 GB */
    bool tokenizer;    /* set: a tokenizer was written */
    int shards;        /* set: Hugging Face's files with tensors */
} z3d_export;

/* Writes a checkpoint for other programs, in a fixed amount of memory. Equal states give bitwise
 * equal files. Errors: ERR_DATA if the tensors are not those of the configuration's model;
 * ERR_USAGE for another type, or if the checkpoint has no average; ERR_UNSUPPORTED if the other
 * program has no such model; ERR_IO (if a file of the tokenizer does not exist, nothing is
 * written); ERR_NUMERIC if values are infinite or NaN, or become infinite in the written type: with
 * their number and the first tensor, and the files are removed. */
z3d_status z3d_checkpoint_export(z3d_checkpoint *checkpoint, z3d_export *what);

typedef struct z3d_import {
    const char *from;       /* a Hugging Face folder or a file of llm.c, fp32 or 16-bit */
    const char *to;         /* a folder without checkpoints: TO/step-00000000 is made */
    const char *program;    /* "zero3d 0.1.0" */
    z3d_progress *progress; /* NULL: none */
    /* The tokenizer's files; NULL: those in `from`, if any. They are copied to TO/tokenizer, which
     * becomes data.vocab. */
    const char *vocab, *merges; /* vocab "none": no tokenizer */
    bool allow_nonfinite;       /* accepts infinities and NaNs; else they are an error */
    int64_t vocab_size; /* model.vocab_size of a run that begins with it; 0: the model's own */
    /* Whether zero3d can use a tokenizer for a model of so many token ids. If it fails, the import
     * fails with its message. NULL: no check. */
    z3d_status (*check_tokenizer)(z3d_tokenizer_kind kind, const char *vocab, int64_t vocab_size);
} z3d_import;

/* Makes a checkpoint of one shard, without optimizer states, for checkpoint.init_from and
 * generation, in a fixed amount of memory. *folder becomes its path, malloc'ed. Errors: ERR_IO,
 * ERR_DATA (with file and tensor), ERR_UNSUPPORTED (the model computes something else than ours),
 * ERR_NUMERIC (values are not finite), ERR_USAGE (vocab_size is smaller than the model's). */
z3d_status z3d_checkpoint_import(const z3d_import *import, char **folder);

/* ---- the checkpoints of a folder ---- */

/* The steps of the checkpoints in a folder (of subfolders with a manifest), ascending. *steps is
 * malloc'ed. A folder that does not exist has none. Errors: ERR_IO. */
z3d_status z3d_checkpoint_list(const char *dir, int64_t **steps, int *count);
/* The checkpoint that a user's path means: the path itself, or the latest checkpoint in it. *out is
 * malloc'ed. Errors: ERR_IO. */
z3d_status z3d_checkpoint_resolve(const char *path, char **out);
/* Returns the error for a folder without a manifest: it does not exist, it is empty, a save did not
 * finish, or it is something else. Always ERR_IO (or ERR_MEMORY). */
z3d_status z3d_checkpoint_none(const char *folder);
/* *out becomes DIR/step-00000020, malloc'ed. */
z3d_status z3d_checkpoint_path(const char *dir, int64_t step, char **out);

/* ---- a run's checkpoints ---- */

/* The name of the link, in a folder of checkpoints, to the one of the lowest validation loss. */
#define Z3D_BEST "best"

typedef struct z3d_store z3d_store;

typedef struct z3d_store_config {
    z3d_world *world;
    const z3d_mesh *mesh;
    const z3d_model *model;
    z3d_engine *engine;
    const char *dir;
    int64_t keep;      /* number of complete checkpoints to keep; 0: all */
    bool keep_best;    /* also keeps the one of the lowest validation loss, with a link DIR/best */
    bool asynchronous; /* saves run beside training */
    bool begins;       /* the run begins with a checkpoint's weights: saves may have a base */
    const char *program; /* "zero3d 0.1.0" */
    z3d_dtype dtype;
    int zero_stage;
    const char *base; /* of the checkpoint to resume from; see z3d_checkpoint_open_base */
    /* Called on rank 0, in the thread that writes, just before a checkpoint exists: syncs files
     * that must not be older than the checkpoint. NULL: none. */
    z3d_status (*before_commit)(void *context);
    void *commit_context;
    const struct z3d_io_hook *hook; /* for tests; else NULL */
} z3d_store_config;

/* Host memory in bytes for the copy of an asynchronous save on the rank of `mesh`: 4 bytes for each
 * element that the rank writes. trained: frozen parameters are not saved. Pure. Errors: ERR_CONFIG.
 */
z3d_status z3d_checkpoint_snapshot_bytes(const z3d_model *model, const z3d_mesh *mesh,
                                         const z3d_program_config *config, bool trained,
                                         int64_t *bytes);

/* Takes the folder for this run: creates it, locks it, removes the remains of unfinished saves and
 * removals, and logs what it removes. Errors: ERR_IO, also if another job holds the lock.
 * Collective; agreed. */
z3d_status z3d_store_open(const z3d_store_config *config, z3d_store **out);
/* Waits until this rank's writes have ended, unlocks the folder and frees the store. Before it,
 * finish a save in flight with z3d_store_poll. Not collective. NULL is allowed. */
void z3d_store_close(z3d_store *store);

/* Saves the engine's state as DIR/step-N (N: the engine's step). Synchronous: the checkpoint is
 * durable on return; agreed. Asynchronous: on return the state is copied, and this rank has waited
 * neither for another rank nor for a disk, except to finish an earlier save; z3d_store_poll returns
 * failures, also of the copy.
 *
 * Only info's samples, train_tokens, evaluations, base and config are used; config NULL gives
 * ERR_MEMORY. With a base, frozen parameters are left out. Collective. Errors: ERR_IO; too little
 * space is an error before anything is written. After a failure the last checkpoint is unchanged.
 */
z3d_status z3d_store_save(z3d_store *store, const z3d_checkpoint_info *info);
/* At the start of a run: makes DIR/best and the older checkpoints as the last save should have left
 * them. best: the step of the lowest validation loss, 0: none. Without keep_best it removes a link
 * of that name. Errors: ERR_IO, with keep_best also if DIR/best is no link of ours. Collective;
 * agreed. */
z3d_status z3d_store_take_best(z3d_store *store, int64_t best);
/* Whether saves that begin from now on keep all older checkpoints. */
void z3d_store_keep_all(z3d_store *store, bool on);
/* Advances a save in flight; call it after every step. wait: until no save is in flight. *step
 * becomes the step whose checkpoint became durable in this call, else -1. Costs next to nothing
 * without a save in flight. Errors: those of z3d_store_save. Collective; agreed. */
z3d_status z3d_store_poll(z3d_store *store, bool wait, int64_t *step);
/* Address and bytes of the copy for asynchronous saves; NULL, 0: saves are synchronous. */
const void *z3d_store_snapshot(const z3d_store *store, int64_t *bytes);
/* The step of the latest durable checkpoint, -1: none. */
int64_t z3d_store_newest(const z3d_store *store);
/* Seconds until the last save was durable, and seconds that the run waited for it. */
void z3d_store_seconds(const z3d_store *store, double *whole, double *stalled);

/* Loads the latest intact checkpoint into the engine. It reports a damaged checkpoint, tries the
 * one before it, and after success renames the damaged ones to step-N.damaged. *step: the step of
 * the loaded one, -1 if the folder has no checkpoint. `accept` may refuse a checkpoint before it is
 * loaded; its failure is final. Errors: ERR_DATA if no checkpoint is intact; those of
 * z3d_checkpoint_load_all. Collective; agreed. */
typedef z3d_status (*z3d_checkpoint_accept)(void *context, const z3d_checkpoint_info *info);
z3d_status z3d_store_resume(z3d_store *store, z3d_checkpoint_verify verify,
                            z3d_checkpoint_accept accept, void *context, z3d_checkpoint_info *info,
                            int64_t *step);

/* Loads a checkpoint of the same model into the engine: each rank loads its own part of every
 * tensor, and, unless weights_only, of the optimizer's tensors, and the step's counters. Each rank
 * checks its share of the files as `verify` says. base: see z3d_checkpoint_open_base.
 *
 * weights_only: a new run begins. Its model may have more token ids than the checkpoint: the new
 * rows become the mean of the others, and rank 0 logs it. It may also have new adapters.
 *
 * info, if not NULL, gets the numbers and the base of the run that resumes or begins; its other
 * texts are NULL. Errors: ERR_CONFIG if the models differ (with the first tensor) or the
 * optimizers; ERR_DATA, ERR_IO. Collective; agreed. */
z3d_status z3d_checkpoint_load_all(z3d_world *world, const char *folder, const char *base,
                                   const z3d_model *model, z3d_engine *engine,
                                   z3d_checkpoint_verify verify, bool weights_only,
                                   z3d_checkpoint_accept accept, void *context,
                                   z3d_checkpoint_info *info);
/* Loads the weights only, for a model that is not trained and has the checkpoint's token ids.
 * average: loads the average of the parameters in their place. Errors: the same, and ERR_USAGE if
 * the checkpoint has no average. Collective; agreed. */
z3d_status z3d_checkpoint_load_weights(z3d_world *world, const char *folder, const char *base,
                                       const z3d_model *model, z3d_engine *engine,
                                       z3d_checkpoint_verify verify, bool average,
                                       z3d_checkpoint_info *info);

/* Loads the adapters and modules of a PEFT folder into the model's trained parameters. base: the
 * run's base. Errors: ERR_CONFIG if the run's section `lora` describes another adapter, or if the
 * adapter has another base; ERR_UNSUPPORTED (DoRA and the like), ERR_DATA, ERR_IO. Collective;
 * agreed. */
z3d_status z3d_adapter_load(z3d_world *world, const char *folder, const z3d_base *base,
                            const z3d_config *config, const z3d_model *model, z3d_engine *engine);

#endif
