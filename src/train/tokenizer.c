/* The tokenizers: `bytes`. */
#include "src/train/tokenizer.h"

#include <stdlib.h>

enum { BYTES_END_OF_TEXT = 256, BYTES_VOCABULARY = 257 };

static z3d_status bytes_encode(const z3d_tokenizer *tokenizer, const char *text, size_t length,
                               int32_t *ids, size_t *count) {
    (void)tokenizer;
    for (size_t i = 0; i < length; i++) ids[i] = (unsigned char)text[i];
    *count = length;
    return Z3D_OK;
}

static z3d_status bytes_decode(const z3d_tokenizer *tokenizer, const int32_t *ids, size_t count,
                               z3d_string *out) {
    (void)tokenizer;
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= BYTES_VOCABULARY)
            return Z3D_ERROR(Z3D_ERR_DATA, "token %zu is %d: the bytes tokenizer has ids 0 to %d",
                             i, ids[i], BYTES_VOCABULARY - 1);
        if (ids[i] == BYTES_END_OF_TEXT) continue;
        char byte = (char)ids[i];
        z3d_string_append_bytes(out, &byte, 1);
    }
    return out->failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for %zu bytes of text", count)
                       : Z3D_OK;
}

static size_t bytes_most_tokens(size_t length) {
    return length;
}

static const struct z3d_tokenizer_ops bytes_ops = {
    .name = "bytes",
    .vocab_size = BYTES_VOCABULARY,
    .end_of_text = BYTES_END_OF_TEXT,
    .encode = bytes_encode,
    .decode = bytes_decode,
    .most_tokens = bytes_most_tokens,
};

z3d_status z3d_tokenizer_create(z3d_tokenizer_kind kind, z3d_tokenizer **out) {
    *out = NULL;
    if (kind != Z3D_TOKENIZER_BYTES)
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                         "data.tokenizer: only `bytes` (vocabulary %d) exists so far",
                         BYTES_VOCABULARY);
    Z3D_TRY(z3d_new(1, sizeof(z3d_tokenizer), "the tokenizer", out));
    (*out)->ops = &bytes_ops;
    return Z3D_OK;
}

void z3d_tokenizer_destroy(z3d_tokenizer *tokenizer) {
    free(tokenizer);
}
