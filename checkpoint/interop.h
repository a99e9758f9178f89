/* Private to checkpoint/: models in other programs' files. Read (interop.c, huggingface.c,
 * safetensors.c, llmc.c) for import.c; written by export.c, export_safetensors.c and llmc.c;
 * tokenizer_files.c copies and writes the tokenizer. */
#ifndef ZERO3D_CHECKPOINT_INTEROP_H
#define ZERO3D_CHECKPOINT_INTEROP_H

#include "checkpoint/format.h"
#include "src/model/model.h"

/* ---- files to import ---- */

typedef struct z3d_interop_source {
    bool found;      /* in some file, right or wrong */
    z3d_dtype dtype; /* fp32, bf16 or fp16 */
    bool indexed;    /* in the index of the files */
    int file;        /* the file that has it */
    int64_t offset;  /* of its first byte in that file */
} z3d_interop_source;

typedef struct z3d_interop_file {
    char *path;
    int fd;
    int64_t bytes;
} z3d_interop_file;

typedef struct z3d_interop {
    char *path; /* of the model, for messages: the file, or the folder */
    int num_files;
    z3d_interop_file *file;     /* those with tensors */
    int64_t bytes;              /* of all files */
    bool turned;                /* matrices with view.turned are [in, out] in them */
    bool wrapped;               /* all names have PEFT's prefix in front */
    char base[Z3D_DIGEST_TEXT]; /* digest of an adapter's base; "": unknown */
    char *base_name;            /* as PEFT knows it; NULL: it does not */
    z3d_json *index;            /* of the shards; NULL: there is none */
    z3d_config *config;         /* its model.* are the file's */
    const z3d_model_type *type;
    z3d_model *model;
    int count;
    z3d_tensor *tensor; /* of the model */
    z3d_view *view;
    z3d_interop_source *place;
} z3d_interop;

/* `from`: a folder of Hugging Face's (config.json, and model.safetensors or its shards), or llm.c's
 * checkpoint. Only what describes the tensors is read. ERR_IO, ERR_DATA (file and tensor named),
 * ERR_UNSUPPORTED (a model that computes something else than ours); of a folder all errors of one
 * kind at once, one line each. Close also after a failure. */
z3d_status z3d_interop_open(const char *from, z3d_interop *out);
void z3d_interop_close(z3d_interop *interop);
/* Elements first .. first + count - 1 of a tensor as ours has them (row-major [out, in]), as fp32.
 * Uses a fixed amount of memory. */
z3d_status z3d_interop_read(const z3d_interop *interop, int tensor, int64_t first, int64_t count,
                            float *out);

/* What the readers share: opens a file and appends it; checks config's sizes and makes the model
 * and its lists. */
z3d_status z3d_interop_add_file(z3d_interop *interop, const char *path);
z3d_status z3d_interop_make_model(z3d_interop *interop);
/* Elements first .. first + count - 1 in the file's order, as fp32. */
z3d_status z3d_interop_read_run(const z3d_interop *interop, const z3d_interop_source *place,
                                int64_t first, int64_t count, float *out);
/* The two readers: path is set. */
z3d_status z3d_huggingface_open(const char *folder, z3d_interop *interop);
z3d_status z3d_llmc_open(z3d_interop *interop);
/* Finds every tensor's place in the safetensors files that were added. */
z3d_status z3d_safetensors_read(z3d_interop *interop);

#define Z3D_GGUF_IS_NOT_READ                                                                       \
    "GGUF files (llama.cpp) are not read: import the folder that they were made from, or "         \
    "transformers' from_pretrained(FOLDER, gguf_file=NAME) saved with save_pretrained()"

/* ---- values that are no numbers ---- */

typedef struct z3d_nonfinite {
    int64_t count;                /* infinities and NaNs */
    char first[2 * Z3D_NAME + 8]; /* tensor with one */
} z3d_nonfinite;

void z3d_nonfinite_add(z3d_nonfinite *bad, const char *tensor, int64_t count);
/* ERR_NUMERIC if there are any and they are not allowed. dtype: what they are written as. */
z3d_status z3d_nonfinite_judge(const z3d_nonfinite *bad, bool allowed, const char *path,
                               z3d_dtype dtype);

/* ---- the tokenizer's files ---- */

/* Under Hugging Face's names. */
enum {
    Z3D_FILE_VOCAB,
    Z3D_FILE_MERGES,
    Z3D_FILE_TOKENIZER,
    Z3D_FILE_TOKENIZER_CONFIG,
    Z3D_FILE_SPECIAL,
    Z3D_FILE_ADDED,
    Z3D_FILE_SENTENCEPIECE, /* what other programs read, for them: not used here */
    Z3D_FILE_CHAT_TEMPLATE,
    Z3D_FILE_GENERATION,
    Z3D_FILE_CONFIG, /* the model's, for its bos_token_id and eos_token_id */
    Z3D_TOKENIZER_FILES
};

typedef struct z3d_tokenizer_files {
    z3d_string text[Z3D_TOKENIZER_FILES]; /* no text: not there */
    bool known;                           /* vocab.json and merges.txt, or tokenizer.json */
    int64_t end, bos, eos; /* ids; -1: unknown. end: of <|endoftext|>; where config.json says no
                              other, eos is that too, and bos unless it is null there. Of a list,
                              the first */
    int64_t pad;           /* of config.json; -1: unknown */
    z3d_string ends;       /* eos as JSON: "2", of a list "[2, 5]"; no text: unknown */
} z3d_tokenizer_files;

/* Zero-initialise before; free also after a failure. `vocab`: vocab.json, tokenizer.json, or a
 * folder with them. ERR_IO, ERR_DATA. */
z3d_status z3d_tokenizer_files_read(const char *vocab, const char *merges,
                                    z3d_tokenizer_files *out);
/* config.json and generation_config.json of a folder. */
z3d_status z3d_tokenizer_files_read_config(const char *folder, z3d_tokenizer_files *out);
/* Those of the `bytes` tokenizer. */
void z3d_tokenizer_files_of_bytes(z3d_tokenizer_files *out);
/* Makes what is missing. positions: the longest text of the model. */
z3d_status z3d_tokenizer_files_complete(z3d_tokenizer_files *files, int64_t positions);
/* config: config.json too. */
z3d_status z3d_tokenizer_files_write(const z3d_tokenizer_files *files, bool config,
                                     const char *folder);
void z3d_tokenizer_files_free(z3d_tokenizer_files *files);

/* ---- export ---- */

/* Which values are written: the parameters, unless another kind is chosen. */
void z3d_checkpoint_export_kind(z3d_checkpoint *checkpoint, z3d_tensor_kind kind);
z3d_tensor_kind z3d_checkpoint_exported(const z3d_checkpoint *checkpoint);
/* The tensor that stands for this kind of a parameter's values: a frozen one is its own average. */
z3d_tensor_kind z3d_checkpoint_value_kind(const z3d_checkpoint *checkpoint, int tensor,
                                          z3d_tensor_kind kind);
/* Writes one tensor's values, as `view` says, at `offset` of a file; turned: [in, out]. Uses a
 * fixed amount of memory. Adds to *bad what is not finite in the file. */
z3d_status z3d_export_tensor(z3d_checkpoint *checkpoint, int tensor, const z3d_view *view,
                             bool turned, z3d_dtype dtype, int fd, const char *path, int64_t offset,
                             z3d_nonfinite *bad);
/* Writes a file under another name, PATH.part, syncs it and renames it when it is whole. */
typedef struct z3d_export_file {
    void *context;
    z3d_status (*write)(void *context, int fd, const char *path);
} z3d_export_file;
z3d_status z3d_export_write(const z3d_export_file *file, const char *path);

/* From now on a layer's weight is exported with its adapter in it: W + scale x B A. 0: it is not.
 */
void z3d_checkpoint_export_scale(z3d_checkpoint *checkpoint, double scale);
double z3d_checkpoint_exported_scale(const z3d_checkpoint *checkpoint);

/* model.safetensors in `folder`, or shards of at most `max_shard` bytes of tensors (a tensor that
 * is larger has a shard of its own) and their index; adapters are left out. */
typedef struct z3d_export_files {
    const z3d_model_type *type;
    z3d_dtype dtype;
    int64_t max_shard;
    const char *folder;
    const z3d_model *adapter; /* not NULL: what this model trains, as adapter_model.safetensors */
    const char *base;         /* the digest of the adapter's; "": unknown */
    int shards;               /* set: how many */
    z3d_nonfinite bad;        /* set */
} z3d_export_files;
z3d_status z3d_safetensors_write(z3d_checkpoint *checkpoint, z3d_export_files *files);

/* ---- adapters ---- */

/* Whether a parameter's name is one of an adapter's. */
bool z3d_is_adapter(const char *name);
/* Whether the parameter of this tensor is trained. */
bool z3d_tensor_is_trained(const z3d_model *model, const z3d_tensor *tensor);
/* Where PEFT looks for nothing, and we for the digest of an adapter's base: the file's metadata. */
#define Z3D_ADAPTER_BASE "zero3d_base"
/* adapter_config.json of a run with adapters. source: what its base was imported from, or NULL. */
z3d_status z3d_adapter_write_config(const z3d_model_type *type, const z3d_config *config,
                                    const z3d_model *model, const char *source, const char *folder);
/* ERR_UNSUPPORTED: not a GPT-2. */
z3d_status z3d_llmc_check(const z3d_config *config);
/* Whether a file begins as llm.c's checkpoints do. */
bool z3d_llmc_is_file(const char *path);
z3d_status z3d_llmc_write(z3d_checkpoint *checkpoint, const z3d_config *config, z3d_dtype dtype,
                          int fd, const char *path, z3d_nonfinite *bad);

#endif
