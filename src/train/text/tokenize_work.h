/* The state of the two passes of `zero3d data tokenize`, and its parts in other files. */
#ifndef ZERO3D_TRAIN_TOKENIZE_WORK_H
#define ZERO3D_TRAIN_TOKENIZE_WORK_H

#include "src/train/data.h"
#include "src/train/data/token_writer.h"
#include "src/train/text/instruction.h"
#include "src/train/text/text_files.h"

typedef struct z3d_tokenize_document {
    uint64_t hash;
    int64_t tokens;
    int64_t first_part, parts; /* of a text file, index and number; a JSON line has none */
    const char *path;          /* of a text file */
    bool held_out;
} z3d_tokenize_document;

typedef struct z3d_tokenize_part {
    int64_t tokens;
    bool ends_line;
} z3d_tokenize_part;

typedef struct z3d_tokenize_work {
    const z3d_tokenize_options *options;
    z3d_tokenize_result *result;
    z3d_tokenizer *tokenizer;
    z3d_text_list list;
    z3d_hash_set seen;
    z3d_token_writer stream, train, validation;
    z3d_tokenize_document *document;
    int64_t document_capacity;
    z3d_tokenize_part *part;
    int64_t parts, part_capacity;
    int64_t cut;        /* index of the document whose end is held out; -1: none */
    int64_t cut_tokens; /* number of its tokens before the cut */
    size_t part_bytes;  /* the least bytes of a part */
    char *text;
    z3d_token_list ids;
    z3d_tokenize_format format; /* of the JSON files; AUTO: no file was JSON yet */
    const char *json_key; /* key of the texts in JSON; NULL: the objects are instruction data */
    z3d_instructions in;  /* for instruction data */
    int64_t json_files;   /* files that were read as JSON */
    int64_t raw_json;     /* JSON files that were read as plain text */
    const char *first_raw_json;
    double begun;
    /* Of the files; read so far; reported to `progress` so far. */
    int64_t total_bytes, read_bytes, told_bytes;
} z3d_tokenize_work;

/* ERR_USAGE unless the outputs are different files, none of them is an input, and each is new,
 * empty or a token file (with options->force any file). So no text is overwritten. */
z3d_status z3d_check_outputs(const z3d_tokenize_options *options);
/* Appends `begin` and what was left out, "3 empty files, 1 duplicate file"; if nothing was, appends
 * nothing. */
void z3d_tokenize_left_out(const z3d_tokenize_result *result, const char *begin, z3d_string *out);
/* Decides which documents, or the end of which document, are held out. ERR_DATA: none can be. */
z3d_status z3d_tokenize_hold_out(z3d_tokenize_work *work);
/* Copies the tokens of all documents from the stream (which must be flushed) to the output files,
 * and finishes these. ERR_IO. */
z3d_status z3d_tokenize_deal_out(z3d_tokenize_work *work);

#endif
