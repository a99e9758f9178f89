/* Private to src/train: GPT-2's tokenizer. gpt2_words.c cuts text into words, gpt2_vocabulary.c
 * reads the tokens and merges (gpt2_json.c checks tokenizer.json), gpt2_tokenizer.c merges a word's
 * bytes into tokens. */
#ifndef ZERO3D_TRAIN_GPT2_H
#define ZERO3D_TRAIN_GPT2_H

#include "src/train/tokenizer.h"

/* As z3d_tokenizer_create. */
z3d_status z3d_gpt2_tokenizer_create(const char *vocab, const char *merges, z3d_tokenizer **out);

/* Bytes of the word that begins at `text`, of which `length` (> 0) bytes are there. Words are what
 * GPT-2's pattern matches, with Unicode's letters, numbers and white space:
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * A byte that is no part of valid UTF-8 counts as a character that is none of the three. */
size_t z3d_gpt2_word(const char *text, size_t length);

/* The text that stands for the end of a document. */
#define Z3D_END_OF_TEXT "<|endoftext|>"

/* Two tokens that become one; the lowest rank goes first. */
typedef struct z3d_merge {
    int32_t left, right; /* left -1: an empty place of the table */
    int32_t rank, merged;
} z3d_merge;

typedef struct z3d_gpt2_token {
    size_t begin, length; /* of its bytes in `text` */
} z3d_gpt2_token;

typedef struct z3d_gpt2_vocabulary {
    int32_t size, end_of_text;
    z3d_gpt2_token *token; /* [size] */
    z3d_string text;
    int32_t byte[256]; /* the token of each byte */
    z3d_merge *merge;  /* a hash table */
    size_t places;     /* in it, a power of two */
    bool one_file;     /* tokenizer.json: merges.txt was not read */
} z3d_gpt2_vocabulary;

/* tokenizer.json, told from vocab.json by its "model". */
bool z3d_gpt2_is_tokenizer_json(const z3d_json *root);
/* Its {"token": id} and its merges, and the id of the added token <|endoftext|> (-1: not added).
 * ERR_UNSUPPORTED for another kind of tokenizer than GPT-2's, by the name of what differs. */
z3d_status z3d_gpt2_tokenizer_json(const z3d_json *root, const char *path, const z3d_json **vocab,
                                   const z3d_json **merges, int64_t *end_of_text);

/* Reads vocab.json and merges.txt, or tokenizer.json as `vocab`. ERR_IO, ERR_DATA (file and line,
 * what is wrong), ERR_UNSUPPORTED, ERR_MEMORY. Free also after a failure. */
z3d_status z3d_gpt2_vocabulary_read(const char *vocab, const char *merges,
                                    z3d_gpt2_vocabulary *out);
void z3d_gpt2_vocabulary_free(z3d_gpt2_vocabulary *vocabulary);
/* What becomes of two neighbours; NULL: they stay two. */
const z3d_merge *z3d_gpt2_find_merge(const z3d_gpt2_vocabulary *vocabulary, int32_t left,
                                     int32_t right);

#endif
