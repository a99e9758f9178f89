/* What is evaluated: a token file, or text that becomes one. */
#ifndef ZERO3D_TRAIN_EVALUATION_DATA_H
#define ZERO3D_TRAIN_EVALUATION_DATA_H

#include "src/train/data.h"

/* What a path names, by its content and name. */
typedef enum z3d_evaluation_kind {
    Z3D_EVALUATE_TOKENS, /* .bin, .idx, a Megatron-LM prefix, or llm.c's magic number */
    Z3D_EVALUATE_LINES,  /* .jsonl, .ndjson, .json, or JSON by its content: each line or element is
                            a document, as `zero3d data tokenize` ends it */
    Z3D_EVALUATE_TEXT    /* anything else: one document, as transformers' tokenizer gives it */
} z3d_evaluation_kind;

z3d_evaluation_kind z3d_evaluation_kind_of(const char *path);

/* Opens a token file as the run's configuration says (model.seq_length, data.samples), text as
 * windows. tokenizer: of text; json_key: of the text in JSON lines. Text becomes a token file in
 * TMPDIR that is gone when the dataset is closed. Not collective. Errors: those of z3d_dataset_open
 * and of the tokenizer, ERR_DATA (no text, a bad line of JSON), ERR_IO. */
z3d_status z3d_evaluation_data_open(const char *path, const char *json_key,
                                    z3d_tokenizer *tokenizer, const z3d_config *run,
                                    z3d_dataset **out);

/* Bytes of the text that the targets of all windows are; -1: the tokenizer does not know a token,
 * so it is not theirs. Errors: those of reading. */
z3d_status z3d_evaluation_bytes(const z3d_dataset *dataset, const z3d_tokenizer *tokenizer,
                                int64_t seq_length, int64_t *out);

#endif
