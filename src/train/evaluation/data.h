/* The data of an evaluation: a token file, or text that is written to a token file first. */
#ifndef ZERO3D_TRAIN_EVALUATION_DATA_H
#define ZERO3D_TRAIN_EVALUATION_DATA_H

#include "src/train/data.h"

/* The kind of the data that a path names, found by its content and name. */
typedef enum z3d_evaluation_kind {
    Z3D_EVALUATE_TOKENS, /* .bin, .idx, a Megatron-LM prefix, or llm.c's magic number */
    Z3D_EVALUATE_LINES,  /* .jsonl, .ndjson, .json, or JSON by its content: each line or element is
                            a document, as `zero3d data tokenize` ends it */
    Z3D_EVALUATE_TEXT    /* anything else: one document, as transformers' tokenizer gives it */
} z3d_evaluation_kind;

z3d_evaluation_kind z3d_evaluation_kind_of(const char *path);

/* Opens a token file as the run's configuration says (model.seq_length, data.samples); text is
 * always cut into windows. tokenizer: for text; json_key: the key of the text in JSON lines. Text
 * is written to a token file in TMPDIR that has no name, so it is freed with the dataset. Not
 * collective. Errors: those of z3d_dataset_open and of the tokenizer, ERR_DATA (no text, a bad line
 * of JSON), ERR_IO. */
z3d_status z3d_evaluation_data_open(const char *path, const char *json_key,
                                    z3d_tokenizer *tokenizer, const z3d_config *run,
                                    z3d_dataset **out);

/* Bytes of text in the targets of all windows; -1: a token is outside the tokenizer's vocabulary,
 * so another tokenizer made the data. Errors: z3d_dataset_window's. Not collective. */
z3d_status z3d_evaluation_bytes(const z3d_dataset *dataset, const z3d_tokenizer *tokenizer,
                                int64_t seq_length, int64_t *out);

#endif
