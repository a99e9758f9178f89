/* Private to checkpoint/interop/: models in other programs' files. interop.c, huggingface.c,
 * safetensors.c and llmc.c read them for import.c; export.c, export_safetensors.c and llmc.c write
 * them; tokenizer_files.c copies and writes the tokenizer. Nothing is collective. */
#ifndef ZERO3D_CHECKPOINT_INTEROP_INTEROP_H
#define ZERO3D_CHECKPOINT_INTEROP_INTEROP_H

#include "checkpoint/format.h"
#include "src/model/model.h"

/* ---- files to import ---- */

/* The place of a tensor in the files. */
typedef struct z3d_interop_source {
    bool found;      /* a file has it, right or wrong */
    z3d_dtype dtype; /* fp32, bf16 or fp16 */
    bool indexed;    /* the index of the files names it */
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
    z3d_interop_file *file;     /* the files with tensors */
    int64_t bytes;              /* of all files */
    bool turned;                /* in the files, matrices with view.turned are [in, out] */
    bool wrapped;               /* an adapter: all names begin with PEFT's prefix */
    char base[Z3D_DIGEST_TEXT]; /* digest of an adapter's base; "": unknown */
    char *base_name;            /* PEFT's name of the base; NULL: unknown */
    z3d_json *index;            /* of the shards; NULL: none */
    z3d_config *config;         /* its model.* are those of the files */
    const z3d_model_type *type;
    z3d_model *model;
    int count;
    z3d_tensor *tensor; /* of the model */
    z3d_view *view;
    z3d_interop_source *place;
} z3d_interop;

/* Opens a Hugging Face folder (config.json, and model.safetensors or its shards) or llm.c's
 * checkpoint, and reads only the description of the tensors. Call z3d_interop_close also after a
 * failure. Errors: ERR_IO, ERR_DATA (with file and tensor), ERR_UNSUPPORTED (the model computes
 * something else than ours). The message of a folder has all errors of one kind, one line each. */
z3d_status z3d_interop_open(const char *from, z3d_interop *out);
void z3d_interop_close(z3d_interop *interop);
/* Reads elements first .. first + count - 1 of a tensor in our order (row-major [out, in]), as
 * fp32, in a fixed amount of memory. Errors: ERR_IO, ERR_DATA. */
z3d_status z3d_interop_read(const z3d_interop *interop, int tensor, int64_t first, int64_t count,
                            float *out);

/* The readers share these functions. */

/* Opens a file and appends it to interop->file. */
z3d_status z3d_interop_add_file(z3d_interop *interop, const char *path);
/* Checks config's sizes against the files' bytes, and makes the model and the lists of tensors. */
z3d_status z3d_interop_make_model(z3d_interop *interop);
/* Makes the lists of views and places of the tensors. */
z3d_status z3d_interop_list(z3d_interop *interop);
/* Reads elements first .. first + count - 1 in the file's order, as fp32. */
z3d_status z3d_interop_read_run(const z3d_interop *interop, const z3d_interop_source *place,
                                int64_t first, int64_t count, float *out);
/* The two readers. interop->path is set before. */
z3d_status z3d_huggingface_open(const char *folder, z3d_interop *interop);
z3d_status z3d_llmc_open(z3d_interop *interop);
/* The names of fp32, bf16 and fp16 in safetensors files. */
enum { Z3D_SAFETENSORS_TYPES = 3 };
extern const char *const z3d_safetensors_types[Z3D_SAFETENSORS_TYPES];
/* Finds every tensor's place in the safetensors files that were added. */
z3d_status z3d_safetensors_read(z3d_interop *interop);

#define Z3D_GGUF_IS_NOT_READ                                                                       \
    "GGUF files (llama.cpp) are not read: import the folder that they were made from, or "         \
    "transformers' from_pretrained(FOLDER, gguf_file=NAME) saved with save_pretrained()"

/* ---- infinities and NaNs ---- */

typedef struct z3d_nonfinite {
    int64_t count;                /* infinities and NaNs */
    char first[2 * Z3D_NAME + 8]; /* the first tensor with one */
} z3d_nonfinite;

void z3d_nonfinite_add(z3d_nonfinite *bad, const char *tensor, int64_t count);
/* ERR_NUMERIC if values are not finite and this is not allowed. dtype: the written type. */
z3d_status z3d_nonfinite_judge(const z3d_nonfinite *bad, bool allowed, const char *path,
                               z3d_dtype dtype);

/* ---- the tokenizer's files ---- */

/* The files, which have Hugging Face's names. */
enum {
    Z3D_FILE_VOCAB,
    Z3D_FILE_MERGES,
    Z3D_FILE_TOKENIZER,
    Z3D_FILE_TOKENIZER_CONFIG,
    Z3D_FILE_SPECIAL,
    Z3D_FILE_ADDED,
    Z3D_FILE_SENTENCEPIECE, /* copied for other programs; zero3d does not use it */
    Z3D_FILE_CHAT_TEMPLATE,
    Z3D_FILE_GENERATION,
    Z3D_FILE_CONFIG, /* the model's, for its bos_token_id and eos_token_id */
    Z3D_TOKENIZER_FILES
};

typedef struct z3d_tokenizer_files {
    z3d_string text[Z3D_TOKENIZER_FILES]; /* no text: no such file */
    bool known;      /* there is vocab.json and merges.txt, or tokenizer.json */
    int64_t end;     /* id of <|endoftext|>; -1: unknown, as of all ids here */
    int64_t eos;     /* of config.json (the first of a list), else `end` */
    int64_t bos;     /* of config.json; else `end`, unless it is null there */
    int64_t pad;     /* of config.json */
    z3d_string ends; /* eos as JSON: "2", of a list "[2, 5]"; no text: unknown */
} z3d_tokenizer_files;

/* Reads the files of a tokenizer into *out, which is zero before. vocab: vocab.json,
 * tokenizer.json, or a folder with them; merges: merges.txt, or NULL. Free *out also after a
 * failure. Errors: ERR_IO, ERR_DATA. */
z3d_status z3d_tokenizer_files_read(const char *vocab, const char *merges,
                                    z3d_tokenizer_files *out);
/* Reads config.json and generation_config.json of a folder. */
z3d_status z3d_tokenizer_files_read_config(const char *folder, z3d_tokenizer_files *out);
/* Makes the files of the `bytes` tokenizer. */
void z3d_tokenizer_files_of_bytes(z3d_tokenizer_files *out);
/* Makes the files that are missing. positions: tokens of the model's longest text. */
z3d_status z3d_tokenizer_files_complete(z3d_tokenizer_files *files, int64_t positions);
/* Writes the files into a folder. config: config.json, too. */
z3d_status z3d_tokenizer_files_write(const z3d_tokenizer_files *files, bool config,
                                     const char *folder);
void z3d_tokenizer_files_free(z3d_tokenizer_files *files);

/* ---- export ---- */

/* What an export writes of each tensor. */
typedef struct z3d_export_values {
    z3d_tensor_kind kind; /* the parameters or their averages */
    double scale;         /* a layer's weight becomes W + scale x B A of its adapter; 0: W */
    z3d_dtype dtype;      /* the written type */
} z3d_export_values;

/* Writes one tensor's values in the shape of `view`, transposed if it is turned, at byte `offset`
 * of a file, in a fixed amount of memory. Counts in *bad the values that are not finite in the
 * file. */
z3d_status z3d_export_tensor(z3d_checkpoint *checkpoint, int tensor, const z3d_view *view,
                             const z3d_export_values *values, int fd, const char *path,
                             int64_t offset, z3d_nonfinite *bad);
/* Writes a file as PATH.part, syncs it, and renames it to PATH. */
typedef z3d_status (*z3d_export_writer)(void *context, int fd, const char *path);
z3d_status z3d_export_write(z3d_export_writer writer, void *context, const char *path);

/* Writes model.safetensors in `folder`, or shards and their index. A shard has at most `max_shard`
 * bytes of tensors; a larger tensor has a shard of its own. Adapters are left out. */
typedef struct z3d_export_files {
    const z3d_model_type *type;
    z3d_export_values values;
    int64_t max_shard;
    const char *folder;
    const z3d_model *adapter; /* not NULL: writes only the parameters that this model trains, as
                                 adapter_model.safetensors */
    const char *base;         /* the digest of the adapter's base; "": unknown */
    int shards;               /* set: number of files */
    z3d_nonfinite bad;        /* set: values that are not finite */
} z3d_export_files;
z3d_status z3d_safetensors_write(z3d_checkpoint *checkpoint, z3d_export_files *files);

/* ---- adapters ---- */

/* Whether the parameter of this tensor is trained. */
bool z3d_tensor_is_trained(const z3d_model *model, const z3d_tensor *tensor);
/* The key, in an adapter file's metadata, of the digest of its base. PEFT ignores it. */
#define Z3D_ADAPTER_BASE "zero3d_base"
/* Writes adapter_config.json. source: the path from which the base was imported, or NULL. */
z3d_status z3d_adapter_write_config(const z3d_model_type *type, const z3d_config *config,
                                    const z3d_model *model, const char *source, const char *folder);

/* ---- llm.c ---- */

/* ERR_UNSUPPORTED unless the model is a GPT-2. */
z3d_status z3d_llmc_check(const z3d_config *config);
/* Whether a file begins with llm.c's magic number. */
bool z3d_llmc_is_file(const char *path);
/* Writes the whole file. *bad: see z3d_export_tensor. */
z3d_status z3d_llmc_write(z3d_checkpoint *checkpoint, const z3d_config *config,
                          const z3d_export_values *values, int fd, const char *path,
                          z3d_nonfinite *bad);

#endif
