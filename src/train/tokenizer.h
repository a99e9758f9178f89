/* Tokenizers: text <-> token ids, behind one table. `bytes` is the one there is: ids 0-255 are the
 * bytes, 256 ends a document. */
#ifndef ZERO3D_TRAIN_TOKENIZER_H
#define ZERO3D_TRAIN_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "src/base/base.h"
#include "src/base/config.h"

typedef struct z3d_tokenizer z3d_tokenizer;

struct z3d_tokenizer_ops {
    const char *name;
    int32_t vocab_size;  /* ids are 0 .. vocab_size-1 */
    int32_t end_of_text; /* the id that ends a document */
    /* Appends the ids of `length` bytes of text to ids (room for most_tokens(length)); *count is
     * how many. */
    z3d_status (*encode)(const z3d_tokenizer *tokenizer, const char *text, size_t length,
                         int32_t *ids, size_t *count);
    /* Appends the text of `count` ids to out. Ids that are no text (end_of_text) append nothing.
     * ERR_DATA for an id outside the vocabulary. */
    z3d_status (*decode)(const z3d_tokenizer *tokenizer, const int32_t *ids, size_t count,
                         z3d_string *out);
    /* Upper bound of the ids that `length` bytes of text give. */
    size_t (*most_tokens)(size_t length);
};

/* Implementations put their own fields behind this. */
struct z3d_tokenizer {
    const struct z3d_tokenizer_ops *ops;
};

/* ERR_UNSUPPORTED for a kind that does not exist yet (gpt2), ERR_MEMORY. */
z3d_status z3d_tokenizer_create(z3d_tokenizer_kind kind, z3d_tokenizer **out);
void z3d_tokenizer_destroy(z3d_tokenizer *tokenizer);

#endif
