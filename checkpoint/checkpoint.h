/* checkpoint: sharded HDF5 checkpoints. Each rank writes what it owns to its own file; a manifest,
 * renamed last, makes the files a checkpoint. Any topology, ZeRO stage and precision loads any
 * other's; each rank reads the blocks that it needs. May call zero/ and the floors below. Files:
 * only io.c changes a disk; format.c writes and manifest.c reads the description of a checkpoint;
 * shard.c writes tensors, reader.c reads them, base.c finds those that another checkpoint has;
 * folder.c handles a folder of checkpoints, store.c a
 * run's; save.c and load.c move an engine's state; import.c and export.c handle other programs'
 * files (interop.h). Start reading at docs/checkpoint-format.md, then save.c. */
#ifndef ZERO3D_CHECKPOINT_CHECKPOINT_H
#define ZERO3D_CHECKPOINT_CHECKPOINT_H

#include "parallel/parallel.h"
#include "src/base/base.h"
#include "src/base/config.h"
#include "src/model/unit.h"
#include "zero/zero.h"

struct z3d_io_hook; /* io.h: for tests */

/* What a run's validation losses have said so far. */
typedef struct z3d_evaluations {
    int64_t best_step; /* of the lowest one; 0: none yet */
    double best_loss;
    int64_t since; /* number of those behind it */
    int64_t data;  /* digest of what was evaluated; 0: unknown */
    bool due;      /* a stop came before this step's validation */
} z3d_evaluations;

/* The checkpoint whose weights a run began with. Its frozen parameters are not saved again. Texts
 * are malloc'ed; NULL: unknown. */
typedef struct z3d_base {
    char *folder;    /* NULL: nothing is left out of the run's checkpoints */
    char *path;      /* as the run's user wrote it */
    char *source;    /* what it was imported from */
    char digest[33]; /* of its shards, hexadecimal; "": unknown */
} z3d_base;

void z3d_base_free(z3d_base *base);

/* What a checkpoint contains beside its tensors. */
typedef struct z3d_checkpoint_info {
    z3d_engine_state engine;
    int64_t samples;      /* training samples used so far: the next step's first sample */
    int64_t train_tokens; /* in the training data's files */
    z3d_evaluations evaluations;
    z3d_base base;
    int tensor_size, data_size, pipeline_size, zero_stage;
    z3d_dtype dtype;
    char *config;    /* the resolved configuration, YAML */
    char *program;   /* "zero3d 0.1.0" */
    char *libraries; /* "HDF5 1.10.8, ..." */
    char *imported;  /* the path that it was imported from; NULL: a run saved it */
} z3d_checkpoint_info;

/* How thoroughly a checkpoint is checked before it is used. */
typedef enum z3d_checkpoint_verify {
    Z3D_VERIFY_FULL, /* every byte of every file against its digest */
    Z3D_VERIFY_READ, /* the bytes that are read */
    Z3D_VERIFY_SIZES /* the files exist and have their lengths */
} z3d_checkpoint_verify;

/* ---- one checkpoint, read-only; nothing here is collective ---- */

typedef struct z3d_checkpoint z3d_checkpoint;

/* Reads the description of the checkpoint in `folder` and checks its digests. Errors: ERR_IO,
 * ERR_DATA (not a checkpoint; damaged: which file and how), ERR_UNSUPPORTED (written by a newer
 * version). */
z3d_status z3d_checkpoint_open(const char *folder, z3d_checkpoint **out);
/* Before its tensors are checked or read: finds the base, of a checkpoint that leaves out what is
 * frozen, and compares the digests. base: where it is now; NULL or "": where it was. ERR_IO: it is
 * gone or has changed. ERR_CONFIG: a base is given, but the checkpoint leaves out nothing. */
z3d_status z3d_checkpoint_open_base(z3d_checkpoint *checkpoint, const char *base);
void z3d_checkpoint_close(z3d_checkpoint *checkpoint);
const z3d_checkpoint_info *z3d_checkpoint_get_info(const z3d_checkpoint *checkpoint);
const char *z3d_checkpoint_folder(const z3d_checkpoint *checkpoint);

/* Checks and exports of this checkpoint are watched from now on. `progress` outlives it. */
void z3d_checkpoint_watch(z3d_checkpoint *checkpoint, z3d_progress *progress);
/* NULL: not watched. */
z3d_progress *z3d_checkpoint_progress(const z3d_checkpoint *checkpoint);

/* Checks part `part` of `parts` of the files. ERR_DATA names the file, the rank that wrote it and
 * the dataset. Adds to *bytes_read, if not NULL. */
z3d_status z3d_checkpoint_check(const z3d_checkpoint *checkpoint, z3d_checkpoint_verify verify,
                                int part, int parts, int64_t *bytes_read);
/* The same without the blocks that hold values of these kinds of tensors: for callers that
 * read all of these, because reading checks them. */
z3d_status z3d_checkpoint_check_rest(const z3d_checkpoint *checkpoint, z3d_checkpoint_verify verify,
                                     unsigned kinds, int part, int parts, int64_t *bytes_read);

int z3d_checkpoint_num_tensors(const z3d_checkpoint *checkpoint);
/* "block.0", "attn.c_attn.weight" and the logical shape of tensor `index`. */
void z3d_checkpoint_tensor(const z3d_checkpoint *checkpoint, int index, const char **group,
                           const char **name, int *dims, const int64_t **shape);
/* The kinds of tensors that it has; an imported checkpoint has only parameters. */
unsigned z3d_checkpoint_kinds(const z3d_checkpoint *checkpoint);
/* Those of one tensor: a frozen one has no optimizer tensors. */
unsigned z3d_checkpoint_kinds_of(const z3d_checkpoint *checkpoint, int tensor);
/* ERR_USAGE unless it has an average of the parameters, for --ema. */
z3d_status z3d_checkpoint_need_average(const z3d_checkpoint *checkpoint);
int z3d_checkpoint_find(const z3d_checkpoint *checkpoint, const char *group,
                        const char *name); /* -1: not there */
/* The slice that is the whole of a tensor: first 0, count its elements. */
void z3d_checkpoint_whole(const z3d_checkpoint *checkpoint, int tensor, z3d_part *out);
/* Reads `count` elements from `first` on of a slice of a tensor, flattened as z3d_part says (its
 * own first and count are ignored), as fp32. kind: parameter (the fp32 master copy) or a
 * tensor of the optimizer. */
z3d_status z3d_checkpoint_read(z3d_checkpoint *checkpoint, z3d_tensor_kind kind, int tensor,
                               const z3d_part *slice, int64_t first, int64_t count, float *out);
/* Whether reads check the blocks' digests (the default), and the bytes read so far. */
void z3d_checkpoint_set_verify(z3d_checkpoint *checkpoint, z3d_checkpoint_verify verify);
int64_t z3d_checkpoint_bytes_read(const z3d_checkpoint *checkpoint);

/* Bytes of values that the rank of `mesh` writes in a save, and reads to resume on the same
 * topology. trained: what is frozen is not saved. Without what HDF5 and the index add (at most 4096
 * bytes per tensor and state). Pure. Errors: ERR_CONFIG, ERR_MEMORY. */
z3d_status z3d_checkpoint_bytes(const z3d_model *model, const z3d_mesh *mesh,
                                const z3d_program_config *config, bool trained, double *saved,
                                double *loaded);

/* ---- other programs' GPT-2: weights only; nothing here is collective ---- */

typedef enum z3d_interop_format {
    Z3D_INTEROP_HUGGINGFACE, /* a folder with model.safetensors and config.json */
    Z3D_INTEROP_LLMC         /* a file: magic 20240326, version 3 (fp32) or 5 (bf16) */
} z3d_interop_format;

typedef struct z3d_export {
    z3d_interop_format format;
    z3d_dtype dtype;      /* values are rounded to it: fp32, bf16, or (Hugging Face only) fp16 */
    bool own_dtype;       /* dtype is not given: set to checkpoint.export.dtype */
    bool allow_nonfinite; /* writes infinities and NaNs; else they are an error */
    bool force;           /* llm.c's file replaces one that is none of llm.c's */
    bool ema;             /* the average of the parameters in their place */
    bool merged;          /* adapters become a part of their layers' weights */
    bool adapter;         /* set: PEFT's folder of an adapter was written */
    const char *to;       /* the folder, or llm.c's file */
    /* Hugging Face only: the tokenizer's files. vocab NULL: the folder `tokenizer` beside an
     * imported checkpoint; else those of the checkpoint's configuration (data.vocab and
     * data.merges; else, of a `bytes` run with 257 ids, its own); "none": no tokenizer. */
    const char *vocab, *merges;
    const char *base;  /* as of z3d_checkpoint_open_base */
    int64_t max_shard; /* bytes of tensors in a file of Hugging Face's; 0: 5 GB */
    bool tokenizer;    /* set: whether there was one */
    int shards;        /* set: files of Hugging Face's with tensors */
} z3d_export;

/* Writes a checkpoint for other programs, in a fixed amount of memory. Equal states give bitwise
 * equal files. ERR_DATA if its tensors are not those of its configuration's model, ERR_USAGE for
 * other types, or without an average, ERR_UNSUPPORTED (the other program has no such model), ERR_IO
 * (if a file of the tokenizer does not exist, nothing is written), ERR_NUMERIC (a value is not
 * finite, or not in the type that is written: how many, and the first tensor; nothing stays). */
z3d_status z3d_checkpoint_export(z3d_checkpoint *checkpoint, z3d_export *what);

typedef struct z3d_import {
    const char *from;       /* a folder of Hugging Face's or a file of llm.c's, fp32 or 16-bit */
    const char *to;         /* a folder without checkpoints: TO/step-00000000 is made */
    const char *program;    /* "zero3d 0.1.0" */
    z3d_progress *progress; /* NULL: not watched */
    /* The tokenizer's files; NULL: those in `from`, if any. They are copied to TO/tokenizer, which
     * becomes data.vocab. */
    const char *vocab, *merges; /* vocab "none": no tokenizer */
    bool allow_nonfinite;       /* takes infinities and NaNs; else they are an error */
    int64_t vocab_size; /* model.vocab_size of a run that begins with it; 0: the model's own */
    /* Whether the program can use a tokenizer for a model of that many token ids; what the error
     * says is said, and nothing is imported. NULL: nobody asks. */
    z3d_status (*check_tokenizer)(z3d_tokenizer_kind kind, const char *vocab, int64_t vocab_size);
} z3d_import;

/* Makes a checkpoint of one shard, without optimizer states, for checkpoint.init_from and
 * generation. Needs a fixed amount of memory. *folder is its path, malloc'ed. ERR_IO, ERR_DATA
 * (file and tensor named), ERR_UNSUPPORTED (a model that computes something else), ERR_NUMERIC (a
 * value is not finite), ERR_USAGE (a smaller vocabulary). */
z3d_status z3d_checkpoint_import(const z3d_import *import, char **folder);

/* ---- the checkpoints of a folder ---- */

/* Steps of the checkpoints in a folder (those with a manifest), ascending. *steps is malloc'ed. A
 * folder that does not exist has none. */
z3d_status z3d_checkpoint_list(const char *dir, int64_t **steps, int *count);
/* The checkpoint that a user's path means: itself, or the latest one in that folder of checkpoints.
 * malloc'ed. */
z3d_status z3d_checkpoint_resolve(const char *path, char **out);
/* The error that says why a folder without a manifest is not a checkpoint: it does not exist, it is
 * empty, a save did not finish, or it is something else. */
z3d_status z3d_checkpoint_none(const char *folder);
/* DIR/step-00000020, malloc'ed. */
z3d_status z3d_checkpoint_path(const char *dir, int64_t step, char **out);

/* ---- a run's checkpoints ---- */

/* Of the link in a folder of checkpoints to that of the lowest validation loss. */
#define Z3D_BEST "best"

typedef struct z3d_store z3d_store;

typedef struct z3d_store_config {
    z3d_world *world;
    const z3d_mesh *mesh;
    const z3d_model *model;
    z3d_engine *engine;
    const char *dir;
    int64_t keep;        /* number of complete checkpoints to keep; 0: all */
    bool keep_best;      /* and that of the lowest validation loss, to which DIR/best is a link */
    bool asynchronous;   /* saves run beside training */
    bool begins;         /* with a checkpoint's weights: saves will likely have a base */
    const char *program; /* "zero3d 0.1.0" */
    z3d_dtype dtype;
    int zero_stage;
    const char *base; /* of checkpoints that are resumed from; as of z3d_checkpoint_open_base */
    /* Called on rank 0, before a checkpoint exists, in the thread that writes it: brings to the
     * disk what must not be older than the checkpoint. NULL: nothing. */
    z3d_status (*before_commit)(void *context);
    void *commit_context;
    const struct z3d_io_hook *hook; /* NULL, but in tests */
} z3d_store_config;

/* Bytes of host memory that the copy of an asynchronous save takes on the rank of `mesh`: 4
 * for each element that it writes. trained: without what is frozen. ERR_MEMORY. Not collective. */
z3d_status z3d_checkpoint_snapshot_bytes(const z3d_model *model, const z3d_mesh *mesh,
                                         const z3d_program_config *config, bool trained,
                                         int64_t *bytes);

/* Takes the folder for this run: creates it, locks it (ERR_IO if another job holds it), removes
 * what unfinished saves and removals left, and says so. Collective; agreed. */
z3d_status z3d_store_open(const z3d_store_config *config, z3d_store **out);
/* Waits until this rank's writes have ended. Finish a save in flight with z3d_store_poll before.
 * Not collective. */
void z3d_store_close(z3d_store *store);

/* Saves the engine's state as DIR/step-N (N: the engine's step). Synchronous: durable on return,
 * agreed. Asynchronous: the state is copied on return (a save that is still in flight is finished
 * before), and no rank has waited for another one or for a disk; z3d_store_poll returns failures,
 * also of the copy. Only info's samples, train_tokens, evaluations, base and config are used
 * (config NULL: there was no memory for it, ERR_MEMORY). With a base, what is frozen is left out.
 * Collective. ERR_IO: too little space is an error before anything is written; the last checkpoint
 * is unchanged. */
z3d_status z3d_store_save(z3d_store *store, const z3d_checkpoint_info *info);
/* At a start, when the step of the lowest validation loss is known (0: none): DIR/best and the
 * older checkpoints become what the last save should have left. Without keep_best a link of that
 * name is removed. ERR_IO, with keep_best, where anything else has it. Collective; agreed. */
z3d_status z3d_store_take_best(z3d_store *store, int64_t best);
/* Whether saves that begin from now on keep all older checkpoints. */
void z3d_store_keep_all(z3d_store *store, bool on);
/* Advances an asynchronous save; call it after every step. *step becomes the step that became
 * durable with this call, else -1. wait: until none is in flight. Cheap if none is. Collective;
 * agreed. */
z3d_status z3d_store_poll(z3d_store *store, bool wait, int64_t *step);
/* Address and bytes of the copy for asynchronous saves; NULL, 0: saves are synchronous. */
const void *z3d_store_snapshot(const z3d_store *store, int64_t *bytes);
/* The latest durable step, -1: none. */
int64_t z3d_store_newest(const z3d_store *store);
/* Seconds until the last save was durable, and seconds that the run waited for it. */
void z3d_store_seconds(const z3d_store *store, double *whole, double *stalled);

/* Loads the latest intact checkpoint into the engine. A damaged one is reported, renamed to
 * step-N.damaged, and the one before is tried. *step: the step of the loaded one, -1 if there is no
 * checkpoint. ERR_DATA if there are some but none is intact. `accept` may refuse one before it is
 * loaded (its failure is final). Collective; agreed. */
typedef z3d_status (*z3d_checkpoint_accept)(void *context, const z3d_checkpoint_info *info);
z3d_status z3d_store_resume(z3d_store *store, z3d_checkpoint_verify verify,
                            z3d_checkpoint_accept accept, void *context, z3d_checkpoint_info *info,
                            int64_t *step);

/* Sets the engine's state on all ranks from a checkpoint of the same model: their own parts of
 * every tensor, and (unless weights_only) the optimizer's tensors and the step's counters. Checks
 * as `verify` says; each rank checks its share. base: as of z3d_checkpoint_open_base. info (if not
 * NULL) gets the numbers and the base of the run that goes on or begins, no other texts.
 * weights_only: the model may have more token ids; their rows become the mean of the others, and
 * rank 0 says so. ERR_CONFIG if the models differ, with the first tensor that does, or the
 * optimizers' tensors; ERR_DATA, ERR_IO. Collective; agreed. */
z3d_status z3d_checkpoint_load_all(z3d_world *world, const char *folder, const char *base,
                                   const z3d_model *model, z3d_engine *engine,
                                   z3d_checkpoint_verify verify, bool weights_only,
                                   z3d_checkpoint_accept accept, void *context,
                                   z3d_checkpoint_info *info);
/* The same of the weights only, for a model that is not trained: it has the checkpoint's token ids.
 * average: of the parameters, in their place. ERR_USAGE: the checkpoint has none. */
z3d_status z3d_checkpoint_load_weights(z3d_world *world, const char *folder, const char *base,
                                       const z3d_model *model, z3d_engine *engine,
                                       z3d_checkpoint_verify verify, bool average,
                                       z3d_checkpoint_info *info);

/* The adapters and modules of PEFT's folder become the model's that are trained. base: the run's.
 * ERR_CONFIG where the run's section `lora` says another adapter, or the adapter has another base,
 * ERR_UNSUPPORTED (DoRA and the like), ERR_DATA, ERR_IO. Collective; agreed. */
z3d_status z3d_adapter_load(z3d_world *world, const char *folder, const z3d_base *base,
                            const z3d_config *config, const z3d_model *model, z3d_engine *engine);

#endif
