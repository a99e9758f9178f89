/* Tokens and strings that end a generated text. */
#ifndef ZERO3D_TRAIN_STOPS_H
#define ZERO3D_TRAIN_STOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/config.h"
#include "src/train/text/chat.h"
#include "src/train/tokenizer.h"

typedef struct z3d_stops {
    int32_t *token;
    int tokens;
    const z3d_tokenizer *ends; /* its end tokens are stops too; NULL: not used */
    const char **text;         /* not owned */
    int texts;
    size_t longest; /* of the texts, bytes */
} z3d_stops;

/* Makes stops of the texts of `list`, which must outlive *out. A text that is a special token of
 * the tokenizer (a token without text in decoded output) is a stop token. ends: the tokenizer's end
 * tokens are stops too; then the tokenizer must outlive *out. chat: its token that ends
 * an answer is a stop too; NULL: none. Zero-initialise *out before; release
 * it also after a failure. Errors: ERR_MEMORY, the tokenizer's. */
z3d_status z3d_stops_create(z3d_tokenizer *tokenizer, const z3d_data_list *list, bool ends,
                            const z3d_chat *chat, z3d_stops *out);
void z3d_stops_release(z3d_stops *stops);

bool z3d_stops_at_token(const z3d_stops *stops, int32_t token);
/* Looks for the first stop string that ends after text[from]; *at: where it begins. */
bool z3d_stops_find(const z3d_stops *stops, const char *text, size_t length, size_t from,
                    size_t *at);
/* The number of bytes of a growing text that later text cannot change: after them is a possible
 * beginning of a stop string, or an incomplete UTF-8 character. */
size_t z3d_stops_sure(const z3d_stops *stops, const char *text, size_t length);

#endif
