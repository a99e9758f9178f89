/* The data of an evaluation: a token file, or text that is written to a token file first. */
#ifndef ZERO3D_TRAIN_EVALUATION_DATA_H
#define ZERO3D_TRAIN_EVALUATION_DATA_H

#include "src/train/data.h"

/* Opens the data that `path` names: a token file (z3d_names_token_file); JSON, by its name (.jsonl,
 * .ndjson, .json) or its content, in which each line or element is a document, as `zero3d data
 * tokenize` ends it; or else a text, one document, as transformers' tokenizer gives it. A token
 * file is read as the run's configuration says (model.seq_length, data.samples); text is always cut
 * into windows. tokenizer: for text; json_key: the key of the text in JSON lines. Text is written
 * to a token file in TMPDIR that has no name, so it is freed with the dataset. Not collective.
 * Errors: those of z3d_dataset_open and of the tokenizer, ERR_DATA (no text, a bad line of JSON),
 * ERR_IO. */
z3d_status z3d_evaluation_data_open(const char *path, const char *json_key,
                                    z3d_tokenizer *tokenizer, const z3d_config *run,
                                    z3d_dataset **out);

/* Bytes of text in the targets of all windows; -1: a token is outside the tokenizer's vocabulary,
 * so another tokenizer made the data. Errors: z3d_dataset_window's. Not collective. */
z3d_status z3d_evaluation_bytes(const z3d_dataset *dataset, const z3d_tokenizer *tokenizer,
                                int64_t seq_length, int64_t *out);

#endif
