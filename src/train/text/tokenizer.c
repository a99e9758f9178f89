/* The tokenizers by kind, and `bytes`. */
#include "src/train/tokenizer.h"

#include <stdlib.h>

#include "src/train/text/gpt2.h"

enum { BYTES_END_OF_TEXT = 256, BYTES_VOCABULARY = 257 };

static z3d_status bytes_encode(z3d_tokenizer *tokenizer, const char *text, size_t length,
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

static void bytes_destroy(z3d_tokenizer *tokenizer) {
    free(tokenizer);
}

static const struct z3d_tokenizer_ops bytes_ops = {
    .name = "bytes",
    .encode = bytes_encode,
    .decode = bytes_decode,
    .destroy = bytes_destroy,
};

z3d_status z3d_tokenizer_create(z3d_tokenizer_kind kind, const char *vocab, const char *merges,
                                z3d_tokenizer **out) {
    bool files = (vocab && *vocab) || (merges && *merges);
    *out = NULL;
    if (kind == Z3D_TOKENIZER_GPT2) return z3d_gpt2_tokenizer_create(vocab, merges, out);
    if (files) return Z3D_ERROR(Z3D_ERR_CONFIG, "the bytes tokenizer has no vocabulary files");
    Z3D_TRY(z3d_new(1, sizeof(z3d_tokenizer), "the tokenizer", out));
    **out = (z3d_tokenizer){&bytes_ops, BYTES_VOCABULARY, BYTES_END_OF_TEXT};
    return Z3D_OK;
}

void z3d_tokenizer_destroy(z3d_tokenizer *tokenizer) {
    if (tokenizer) tokenizer->ops->destroy(tokenizer);
}
