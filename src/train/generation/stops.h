/* What ends a generated text: tokens and strings. */
#ifndef ZERO3D_TRAIN_STOPS_H
#define ZERO3D_TRAIN_STOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/config.h"
#include "src/train/tokenizer.h"

typedef struct z3d_stops {
    int32_t *token;
    int tokens;
    const z3d_tokenizer *ends; /* whose ends are stops, too; NULL: none */
    const char **text;         /* not owned */
    int texts;
    size_t longest; /* of the texts, bytes */
} z3d_stops;

/* Of the texts of `list`, which must live longer. One that the tokenizer makes a single token
 * without text of its own is a stop token. ends: what ends the tokenizer's texts is one,
 * too; the tokenizer must live longer. Zero-initialise;
 * release it in any case. ERR_MEMORY. */
z3d_status z3d_stops_create(z3d_tokenizer *tokenizer, const z3d_data_list *list, bool ends,
                            z3d_stops *out);
/* One token more. At most once. */
void z3d_stops_add(z3d_stops *stops, int32_t token);
void z3d_stops_release(z3d_stops *stops);

bool z3d_stops_at_token(const z3d_stops *stops, int32_t token);
/* Looks for the first stop string that ends behind text[from]; *at is where it begins. */
bool z3d_stops_find(const z3d_stops *stops, const char *text, size_t length, size_t from,
                    size_t *at);
/* So many bytes of a text that grows are sure: behind them may begin a stop string, or lies a part
 * of a UTF-8 character. */
size_t z3d_stops_sure(const z3d_stops *stops, const char *text, size_t length);

#endif
