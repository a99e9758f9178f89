/* Tokenizers: text <-> token ids, behind one table. `bytes`: ids 0-255 are the bytes, 256 ends a
 * document. `gpt2`: GPT-2's byte-level BPE, from the user's vocab.json and merges.txt or
 * tokenizer.json. */
#ifndef ZERO3D_TRAIN_TOKENIZER_H
#define ZERO3D_TRAIN_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "src/base/base.h"
#include "src/base/config.h"

typedef struct z3d_tokenizer z3d_tokenizer;

struct z3d_tokenizer_ops {
    const char *name;
    /* Sets the ids of `length` bytes of any text, valid UTF-8 or not; *count is how many, at most
     * `length`, which ids has room for. It may remember words: one thread at a time. ERR_MEMORY. */
    z3d_status (*encode)(z3d_tokenizer *tokenizer, const char *text, size_t length, int32_t *ids,
                         size_t *count);
    /* Appends the text of `count` ids to out. Ids that are no text (end_of_text) append nothing.
     * ERR_DATA for an id outside the vocabulary. */
    z3d_status (*decode)(const z3d_tokenizer *tokenizer, const int32_t *ids, size_t count,
                         z3d_string *out);
    void (*destroy)(z3d_tokenizer *tokenizer);
};

/* Implementations put their own fields behind this. */
struct z3d_tokenizer {
    const struct z3d_tokenizer_ops *ops;
    int32_t vocab_size;  /* ids are 0 .. vocab_size-1 */
    int32_t end_of_text; /* the id that ends a document */
};

/* bytes: vocab and merges are NULL or "". gpt2: `vocab` is vocab.json, `merges` is merges.txt;
 * without it the one beside vocab.json; `vocab` may be tokenizer.json, or the folder that has
 * either. ERR_CONFIG when
 * the files do not go with the kind, ERR_IO, ERR_DATA naming the file and the line, ERR_MEMORY. */
z3d_status z3d_tokenizer_create(z3d_tokenizer_kind kind, const char *vocab, const char *merges,
                                z3d_tokenizer **out);
void z3d_tokenizer_destroy(z3d_tokenizer *tokenizer); /* NULL is fine */

#endif
