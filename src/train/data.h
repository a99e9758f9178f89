/* Data: token files on disk, the order in which their windows become samples, and how text becomes
 * token files.
 *
 * A sample is a window of seq_length + 1 tokens: the first seq_length of them are the inputs, the
 * last seq_length the targets. Or a sample has whole documents (data.samples: documents): each
 * token's target is the next token of its document; a document's last token has no target. Sample k
 * of the run is a pure function of (data.seed, k). So it depends on no parallel size, the ranks
 * share nothing at start-up, and the data position of a run is the one number k. */
#ifndef ZERO3D_TRAIN_DATA_H
#define ZERO3D_TRAIN_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/base.h"
#include "src/base/config.h"
#include "src/train/data/token_file.h"
#include "src/train/tokenizer.h"

/* ---- making token files: `zero3d data tokenize` ---- */

/* Which documents are held out for validation. A document is a text file or a JSON line. No
 * document (by content) is in both files. If the held-out documents were less than a quarter or
 * more than four times the requested share of all tokens, the last tokens of all text are held out
 * instead; the cut is at the end of a line of a text file. */
typedef enum z3d_tokenize_split {
    Z3D_SPLIT_HASH, /* by the hash of the document's bytes: the same choice for every order of files
                     */
    Z3D_SPLIT_TAIL  /* the last documents in the order they were read */
} z3d_tokenize_split;

/* The format of a file's JSON objects. */
typedef enum z3d_tokenize_format {
    Z3D_FORMAT_AUTO, /* the keys of the first object decide */
    Z3D_FORMAT_TEXT,
    Z3D_FORMAT_MESSAGES,          /* {"messages": [{"role": ..., "content": ...}]} */
    Z3D_FORMAT_PROMPT_COMPLETION, /* {"prompt": ..., "completion": ...}, texts or messages */
    Z3D_FORMAT_ALPACA,            /* {"instruction": ..., "input": ..., "output": ...} */
    Z3D_FORMAT_SHAREGPT           /* {"conversations": [{"from": ..., "value": ...}]} */
} z3d_tokenize_format;

/* Which tokens are trained as targets. */
typedef enum z3d_loss_on {
    Z3D_LOSS_AUTO,        /* completions of prompts, the assistant of conversations, all of texts */
    Z3D_LOSS_COMPLETIONS, /* the completion of a prompt; the last answer of a conversation */
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
    /* Files and folders; a folder stands for all files below it, in name order. */
    const char *const *inputs;
    int count;
    const char *output_train;      /* .bin to write */
    const char *output_validation; /* .bin of the held-out documents; NULL: nothing is held out */
    double validation_fraction;    /* in (0,1) with output_validation */
    int64_t limit_bytes;           /* stop after so many bytes of text; 0: no limit */
    z3d_tokenize_split split;
    z3d_tokenizer *tokenizer; /* NULL: bytes */
    /* The key of the text in JSON objects; NULL: no object has such a text. These files are read as
     * JSON: .jsonl and .ndjson files; .json files that are named as inputs, have an object in each
     * line or are an array of texts; other named files that begin like JSON. */
    const char *json_key;
    z3d_tokenize_format format; /* json_key is NULL unless AUTO or TEXT */
    z3d_loss_on loss_on;
    const char *chat_template; /* its name; NULL: the one beside the tokenizer's file */
    bool force;                /* outputs replace files that are no token files */
    bool skip_bad; /* leaves out lines and elements without a text at the key; without skip_bad they
                    * are errors */
    /* Called after every file and every few MiB; may be NULL. */
    void (*progress)(void *context, const z3d_tokenize_progress *progress);
    void *context;
} z3d_tokenize_options;

enum { Z3D_BAD_LINES_NAMED = 5 };

typedef struct z3d_tokenize_result {
    int64_t files, bytes; /* text files used and their text */
    int64_t documents, train_documents, validation_documents;
    int64_t train_tokens, validation_tokens; /* end-of-text tokens included */
    int64_t skipped_binary, skipped_duplicate, skipped_empty, skipped_unreadable; /* files */
    int64_t skipped_encoding; /* files that are not UTF-8 */
    int64_t skipped_no_json;  /* files of folders that are no JSON, if conversations or prompts are
                                 read */
    int64_t duplicate_documents; /* documents whose text was seen before */
    int64_t empty_documents;     /* JSON lines whose text is empty */
    int64_t bad_documents;       /* JSON lines and elements left out by skip_bad */
    char bad_lines[512];         /* the first ones: "a.jsonl:3, a.json:7 (element 2)" */
    z3d_json_repairs repairs;    /* in JSON lines */
    bool limited;                /* limit_bytes was reached */
    char cut_file[256];          /* the text file whose end is held out; "": none */
    char duplicate_file[256];    /* the first one of skipped_duplicate */
    int32_t vocab_size;          /* the least model.vocab_size for these tokens */
    z3d_tokenize_format format;  /* of the JSON files; AUTO: no file was JSON */
    char chat_template[32];      /* "": there is none */
    int64_t untrained_tokens;    /* of both files */
    int64_t special_messages;    /* messages of conversations with a special token in their text */
} z3d_tokenize_result;

/* Reads files and folders, also packed files. Leaves out empty files, duplicates, and files of
 * folders that are not text. Ends every document (a text file, a JSON line) with the tokenizer's
 * end-of-text and writes token files in llm.c's format, each as a temporary file that is renamed
 * when complete. Not collective. Errors: ERR_USAGE (no input, bad fraction, equal outputs, an
 * output that is an input or no token file, JSON without a key or a key without JSON), ERR_IO
 * (cannot read an input named, cannot write), ERR_DATA (no text found, a bad line of JSON, or
 * nothing left for one of the outputs). */
z3d_status z3d_data_tokenize(const z3d_tokenize_options *options, z3d_tokenize_result *result);

/* One line: "1.20 GB of 4.00 GB (30 %), 25.1 MB/s, 300 M tokens". */
void z3d_tokenize_progress_line(const z3d_tokenize_progress *progress, z3d_string *out);

/* A few lines for people: what was read, what was left out, what was written. */
void z3d_tokenize_summary(const z3d_tokenize_options *options, const z3d_tokenize_result *result,
                          z3d_string *out);

/* ---- samples ---- */

typedef struct z3d_dataset z3d_dataset;

/* Samples of whole documents (data.samples: documents). */
typedef struct z3d_packing_facts {
    int64_t documents;       /* in the files; 0: samples are windows */
    int64_t samples;         /* in an epoch */
    int64_t tokens;          /* in an epoch's samples */
    int64_t too_long;        /* documents; split ones count once */
    int64_t untrained;       /* documents left out: no token in them is trained */
    int64_t untrained_parts; /* parts of split documents, left out for the same reason */
} z3d_packing_facts;

typedef struct z3d_dataset_config {
    const z3d_data_list *files; /* weights are shares of the samples; copied */
    int64_t seq_length;
    int32_t vocab_size;
    uint64_t seed;
    /* Training: a file must have at least one window of seq_length + 1 tokens. */
    bool whole_windows;
    bool documents;        /* samples are whole documents, not windows */
    z3d_too_long too_long; /* with documents */
} z3d_dataset_config;

/* Opens the files. Errors: z3d_token_file_open's; ERR_CONFIG when there is no file; ERR_DATA when a
 * file holds too few tokens. Not collective. */
z3d_status z3d_dataset_open(const z3d_dataset_config *config, z3d_dataset **out);
void z3d_dataset_close(z3d_dataset *dataset);
int64_t z3d_dataset_tokens(const z3d_dataset *dataset);
/* Samples of one pass over the data: the whole windows of all files, or all samples of documents.
 */
int64_t z3d_dataset_samples(const z3d_dataset *dataset);
/* The samples of `files` as a configuration says; whole_windows false. */
z3d_dataset_config z3d_dataset_config_of(const z3d_config *config, const z3d_data_list *files);
/* Opens data.train of a configuration. Not collective. */
z3d_status z3d_train_data_open(const z3d_config *config, z3d_dataset **out);
/* If training.epochs is set: counts the samples of a pass over data.train for the configuration,
 * whose resolution computes training.steps from it. Errors: z3d_train_data_open's. Not collective.
 */
z3d_status z3d_train_data_count(z3d_config *config);
/* Reads part `part` of `parts` of all tokens, so that a token beyond the vocabulary is found before
 * the run starts. *largest becomes the maximum of itself and these tokens. Does nothing if a part
 * is larger than 4 GiB; tokens are always checked again when they are read. */
z3d_status z3d_dataset_check(const z3d_dataset *dataset, int part, int parts, int32_t *largest);
/* ERR_CONFIG if a file was made by another tokenizer than the configuration's. Both must be known:
 * the file has a digest, and data.vocab is set (tokenizer `bytes`: the model has at most 512 ids).
 */
z3d_status z3d_dataset_check_tokenizer(const z3d_dataset *dataset, const z3d_config *config);

typedef struct z3d_sample_place {
    int file;
    int64_t epoch, window; /* of that file */
} z3d_sample_place;

/* File, epoch and window of sample `sample` (from 0) of the run. */
void z3d_dataset_locate(const z3d_dataset *dataset, int64_t sample, z3d_sample_place *out);
/* The tokens and targets of sample `sample` of the run, each int32[seq_length]; a target that is
 * not trained is -1. positions, int32[seq_length] or NULL: the position of each token in
 * its document; in a window, its position there. */
z3d_status z3d_dataset_read(const z3d_dataset *dataset, int64_t sample, int32_t *tokens,
                            int32_t *targets, int32_t *positions);
/* Whether one of the files says which tokens are trained. */
bool z3d_dataset_masked(const z3d_dataset *dataset);
z3d_packing_facts z3d_dataset_packing(const z3d_dataset *dataset);

/* The number of windows for validation: they follow each other in file order; the last window of a
 * file is filled up with ignored targets (-1). With samples of documents, all samples. */
int64_t z3d_dataset_windows(const z3d_dataset *dataset);
/* The number of windows of one file; *first: the index of its first window. */
int64_t z3d_dataset_file_windows(const z3d_dataset *dataset, int file, int64_t *first);
/* Window `index` as a sample (see z3d_dataset_read). For an index outside 0 .. windows-1 all
 * targets are ignored. */
z3d_status z3d_dataset_window(const z3d_dataset *dataset, int64_t index, int32_t *tokens,
                              int32_t *targets, int32_t *positions);

#endif
