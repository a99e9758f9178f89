/* Data: token files on disk, the order in which their windows become samples, and how text becomes
 * token files.
 *
 * A sample is a window of seq_length + 1 tokens: inputs are its first, targets its last seq_length
 * tokens. Or it has whole documents: of each, a token's target is the next one, and the last has
 * none. The sample k of the run is a pure function of (data.seed, k). It does not depend on a
 * parallel size, nothing is shared at start-up, and the data position of a run is the one number k.
 */
#ifndef ZERO3D_TRAIN_DATA_H
#define ZERO3D_TRAIN_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/base.h"
#include "src/base/config.h"
#include "src/train/tokenizer.h"

/* ---- making token files: `zero3d data tokenize` ---- */

/* Which documents are held out for validation. A document is a text file or a JSON line. Never the
 * same document (by content) in both. Where whole documents would be less than a quarter or more
 * than four times the share that is asked for, the last tokens of all text are held out instead,
 * cut at a line's end of a text file. */
typedef enum z3d_tokenize_split {
    Z3D_SPLIT_HASH, /* by the hash of the document's bytes: the same choice for every order of files
                     */
    Z3D_SPLIT_TAIL  /* the last documents in the order they were read */
} z3d_tokenize_split;

/* What the objects in JSON are. */
typedef enum z3d_tokenize_format {
    Z3D_FORMAT_AUTO, /* by the keys of the first object */
    Z3D_FORMAT_TEXT,
    Z3D_FORMAT_MESSAGES,          /* {"messages": [{"role": ..., "content": ...}]} */
    Z3D_FORMAT_PROMPT_COMPLETION, /* {"prompt": ..., "completion": ...}, texts or messages */
    Z3D_FORMAT_ALPACA,            /* {"instruction": ..., "input": ..., "output": ...} */
    Z3D_FORMAT_SHAREGPT           /* {"conversations": [{"from": ..., "value": ...}]} */
} z3d_tokenize_format;

/* Which tokens are trained as targets. */
typedef enum z3d_loss_on {
    Z3D_LOSS_AUTO,        /* completions of prompts, the assistant of conversations, all of texts */
    Z3D_LOSS_COMPLETIONS, /* what answers a prompt; of a conversation, its last answer */
    Z3D_LOSS_ASSISTANT,
    Z3D_LOSS_ALL
} z3d_loss_on;

/* "messages", "prompt-completion", ... */
const char *z3d_tokenize_format_name(z3d_tokenize_format format);

/* Progress so far. */
typedef struct z3d_tokenize_progress {
    int64_t bytes, total_bytes; /* of the files: read, and to read */
    int64_t tokens;
    double seconds; /* since the beginning */
} z3d_tokenize_progress;

typedef struct z3d_tokenize_options {
    const char *const *inputs; /* files and folders; folders are walked, in name order */
    int count;
    const char *output_train;      /* .bin to write */
    const char *output_validation; /* .bin of the held-out documents; NULL: nothing is held out */
    double validation_fraction;    /* in (0,1) with output_validation */
    int64_t limit_bytes;           /* stop after so many bytes of text; 0: no limit */
    z3d_tokenize_split split;
    z3d_tokenizer *tokenizer; /* NULL: bytes */
    /* Of the text in JSON: .jsonl and .ndjson files, .json files that are named as inputs or have
     * lines of objects or an array of texts, and named files that begin as JSON does; NULL: there
     * are none. */
    const char *json_key;
    z3d_tokenize_format format; /* not AUTO or TEXT: there is no json_key */
    z3d_loss_on loss_on;
    const char *chat_template; /* its name; NULL: the one beside the tokenizer's file */
    bool force;                /* outputs replace files that are no token files */
    bool skip_bad; /* leaves out lines and elements without a text at the key; else they are errors
                    */
    /* Called after every file and every few MiB; NULL: not at all. */
    void (*progress)(void *context, const z3d_tokenize_progress *progress);
    void *context;
} z3d_tokenize_options;

enum { Z3D_BAD_LINES_NAMED = 5 };

typedef struct z3d_tokenize_result {
    int64_t files, bytes; /* text files used and their text */
    int64_t documents, train_documents, validation_documents;
    int64_t train_tokens, validation_tokens; /* end-of-text tokens included */
    int64_t skipped_binary, skipped_duplicate, skipped_empty, skipped_unreadable; /* files */
    int64_t skipped_encoding;    /* files that are not UTF-8 */
    int64_t skipped_no_json;     /* files of folders, where conversations or prompts are read */
    int64_t duplicate_documents; /* documents whose text was seen before */
    int64_t empty_documents;     /* JSON lines whose text is empty */
    int64_t bad_documents;       /* JSON lines and elements left out by skip_bad */
    char bad_lines[512];         /* the first ones: "a.jsonl:3, a.json:7 (element 2)" */
    z3d_json_repairs repairs;    /* in JSON lines */
    bool limited;                /* limit_bytes was reached */
    char cut_file[256];          /* the text file whose end is held out; "": none */
    char duplicate_file[256];    /* the first one of skipped_duplicate */
    int32_t vocab_size;          /* what model.vocab_size must be at least */
    z3d_tokenize_format format;  /* of JSON; AUTO: there is none */
    char chat_template[32];      /* "": there is none */
    int64_t untrained_tokens;    /* of both files */
    int64_t special_messages;    /* of conversations: with a special token in their text */
} z3d_tokenize_result;

/* Reads files and folders, packed ones too; leaves out empty files and duplicates, and what is not
 * text where it was not named itself. Ends
 * every document (a text file, a JSON line) with the tokenizer's end-of-text and writes token files
 * in llm.c's format, each through a temporary file that is renamed when complete. Not collective.
 * Errors: ERR_USAGE (no input, bad fraction, equal outputs, an output that is an input or no token
 * file, JSON without a key or a key without JSON), ERR_IO (cannot read an input named, cannot
 * write), ERR_DATA (no text found, a bad line of JSON, or nothing left for one of the outputs). */
z3d_status z3d_data_tokenize(const z3d_tokenize_options *options, z3d_tokenize_result *result);

/* One line: "1.20 GB of 4.00 GB (30 %), 25.1 MB/s, 300 M tokens". */
void z3d_tokenize_progress_line(const z3d_tokenize_progress *progress, z3d_string *out);

/* A few lines for people: what was read, what was left out, what was written. */
void z3d_tokenize_summary(const z3d_tokenize_options *options, const z3d_tokenize_result *result,
                          z3d_string *out);

/* ---- token files ---- */

typedef struct z3d_token_file z3d_token_file;

/* Maps a token file. The content says which format it has: llm.c's .bin (256 int32 of header: magic
 * 20240520 version 1 with uint16 tokens, magic 20240801 version 7 with uint32 tokens, token count
 * in header[2]), and Megatron-LM's .bin/.idx pair, named by its .idx, its .bin or the path without
 * either; its sequences are one stream in their order. Errors: ERR_IO (missing, unreadable),
 * ERR_DATA (empty, truncated, trailing bytes, wrong magic or version, not a token type). */
z3d_status z3d_token_file_open(const char *path, z3d_token_file **out);
void z3d_token_file_close(z3d_token_file *file);
int64_t z3d_token_file_tokens(const z3d_token_file *file);
/* Finds where documents begin, if that is not known yet: a Megatron-LM index is read for it.
 * ERR_DATA: it cannot be known. */
z3d_status z3d_token_file_find_documents(z3d_token_file *file);
/* Documents whose borders are known; 0: none. */
int64_t z3d_token_file_documents(const z3d_token_file *file);
/* The index of a document's first token; of one behind the last, the number of tokens. */
int64_t z3d_token_file_document(const z3d_token_file *file, int64_t document);
/* Whether it keeps which tokens are trained as targets; else all are. */
bool z3d_token_file_masked(const z3d_token_file *file);
/* Whether one of the tokens first .. first+count-1 is. */
bool z3d_token_file_trains(const z3d_token_file *file, int64_t first, int64_t count);
/* Sets those of targets[0 .. count) to -1 (ignored) that are not; targets[0] is token `first`. */
void z3d_token_file_ignore(const z3d_token_file *file, int64_t first, int64_t count,
                           int32_t *targets);
/* Of the tokenizer that made it; 0: unknown, as of other programs' files. */
uint64_t z3d_token_file_digest(const z3d_token_file *file);
/* ERR_CONFIG if another tokenizer made it. */
z3d_status z3d_token_file_check(const z3d_token_file *file, const z3d_tokenizer *tokenizer);
/* Tokens first .. first+count-1. ERR_DATA with file, position and value if one is not in 0 ..
 * vocab_size-1; ERR_IO if the file became shorter during the run. */
z3d_status z3d_token_file_read(const z3d_token_file *file, int64_t first, int64_t count,
                               int32_t vocab_size, int32_t *out);

/* ---- samples ---- */

typedef struct z3d_dataset z3d_dataset;

/* Of whole documents in samples. */
typedef struct z3d_packing_facts {
    int64_t documents;       /* of the files; 0: samples are windows */
    int64_t samples;         /* of an epoch */
    int64_t tokens;          /* in an epoch's samples */
    int64_t too_long;        /* documents; split ones count once */
    int64_t untrained;       /* documents left out: no token in them is trained */
    int64_t untrained_parts; /* of split documents that have others, likewise */
} z3d_packing_facts;

typedef struct z3d_dataset_config {
    const z3d_data_list *files; /* weights are shares of the samples; copied */
    int64_t seq_length;
    int32_t vocab_size;
    uint64_t seed;
    bool
        whole_windows; /* training: a file must hold at least one window of seq_length + 1 tokens */
    bool documents;    /* samples are whole documents, not windows */
    z3d_too_long too_long; /* with documents */
} z3d_dataset_config;

/* Opens the files. Errors: z3d_token_file_open's; ERR_DATA when a file holds too few tokens. Not
 * collective. */
z3d_status z3d_dataset_open(const z3d_dataset_config *config, z3d_dataset **out);
void z3d_dataset_close(z3d_dataset *dataset);
int64_t z3d_dataset_tokens(const z3d_dataset *dataset);
/* Samples of one pass: the whole windows of all files. */
int64_t z3d_dataset_samples(const z3d_dataset *dataset);
/* Opens data.train of a configuration. Not collective. */
z3d_status z3d_train_data_open(const z3d_config *config, z3d_dataset **out);
/* Where training.epochs is set, tells the configuration what a pass over data.train is, so that its
 * resolution finds training.steps. Errors: z3d_train_data_open's. Not collective. */
z3d_status z3d_train_data_count(z3d_config *config);
/* Reads part `part` of `parts` of all tokens, to find a token beyond the vocabulary before the run
 * starts; *largest becomes the largest one if it was less. Does nothing if a part is larger than
 * 4 GiB; tokens are always checked again when they are read. */
z3d_status z3d_dataset_check(const z3d_dataset *dataset, int part, int parts, int32_t *largest);
/* ERR_CONFIG if another tokenizer made a file than the configuration's, where both are known: the
 * file has a digest, and data.vocab is there, or the model has about as many ids as there are
 * bytes. */
z3d_status z3d_dataset_check_tokenizer(const z3d_dataset *dataset, const z3d_config *config);

typedef struct z3d_sample_place {
    int file;
    int64_t epoch, window; /* of that file */
} z3d_sample_place;

/* File, epoch and window of sample `sample` (from 0) of the run. */
void z3d_dataset_locate(const z3d_dataset *dataset, int64_t sample, z3d_sample_place *out);
/* Its tokens and targets, each int32[seq_length]; a target that is not trained is -1. starts (NULL:
 * not wanted): of each token, where its document begins in the sample; windows begin at 0. */
z3d_status z3d_dataset_sample(const z3d_dataset *dataset, int64_t sample, int32_t *tokens,
                              int32_t *targets, int32_t *starts);
/* Whether a file keeps which tokens are trained. */
bool z3d_dataset_masked(const z3d_dataset *dataset);
z3d_packing_facts z3d_dataset_packing(const z3d_dataset *dataset);

/* Validation: windows in file order, the last one of a file filled up with ignored targets (-1); or
 * all samples of documents. */
int64_t z3d_dataset_windows(const z3d_dataset *dataset);
/* Those of one file, which begin at window *first. */
int64_t z3d_dataset_file_windows(const z3d_dataset *dataset, int file, int64_t *first);
/* Window `index` as a sample, and how many of its targets are trained. For an index outside 0 ..
 * windows-1 all targets are ignored. */
z3d_status z3d_dataset_window(const z3d_dataset *dataset, int64_t index, int32_t *tokens,
                              int32_t *targets, int32_t *starts, int64_t *valid);

#endif
