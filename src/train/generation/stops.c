/* Finds stops in a growing text. */
#include "src/train/generation/stops.h"

#include <stdlib.h>
#include <string.h>

z3d_status z3d_stops_create(z3d_tokenizer *tokenizer, const z3d_data_list *list, bool ends,
                            const z3d_chat *chat, z3d_stops *out) {
    *out = (z3d_stops){.ends = ends ? tokenizer : NULL};
    /* One more than the list, for the chat's token. */
    Z3D_TRY(z3d_new((size_t)list->count + 1, sizeof *out->token, "stops", &out->token));
    Z3D_TRY(z3d_new((size_t)list->count + 1, sizeof *out->text, "stops", &out->text));
    if (chat) out->token[out->tokens++] = chat->end;
    for (int i = 0; i < list->count; i++) {
        const char *text = list->path[i];
        int32_t token;
        Z3D_TRY(z3d_tokenizer_special_token(tokenizer, text, &token));
        if (token >= 0) {
            out->token[out->tokens++] = token;
            continue;
        }
        out->text[out->texts++] = text;
        if (strlen(text) > out->longest) out->longest = strlen(text);
    }
    return Z3D_OK;
}

void z3d_stops_release(z3d_stops *stops) {
    free(stops->token);
    free(stops->text);
    *stops = (z3d_stops){0};
}

bool z3d_stops_at_token(const z3d_stops *stops, int32_t token) {
    for (int i = 0; i < stops->tokens; i++)
        if (stops->token[i] == token) return true;
    return stops->ends && z3d_tokenizer_ends(stops->ends, token);
}

bool z3d_stops_find(const z3d_stops *stops, const char *text, size_t length, size_t from,
                    size_t *at) {
    size_t begin = from + 1 > stops->longest ? from + 1 - stops->longest : 0;
    bool found = false;
    for (int i = 0; i < stops->texts; i++) {
        size_t size = strlen(stops->text[i]);
        const char *hit =
            begin < length ? memmem(text + begin, length - begin, stops->text[i], size) : NULL;
        if (!hit || (found && (size_t)(hit - text) >= *at)) continue;
        *at = (size_t)(hit - text);
        found = true;
    }
    return found;
}

/* The number of bytes at the end that are the beginning of an incomplete character. */
static size_t cut_character(const char *text, size_t length) {
    for (size_t back = 1; back <= 3 && back <= length; back++) {
        unsigned char c = (unsigned char)text[length - back];
        if ((c & 0xc0) == 0x80) continue;
        size_t needed = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
        return needed > back ? back : 0;
    }
    return 0;
}

size_t z3d_stops_sure(const z3d_stops *stops, const char *text, size_t length) {
    size_t sure = length - cut_character(text, length);
    for (int i = 0; i < stops->texts; i++) {
        size_t size = strlen(stops->text[i]), most = size - 1 < length ? size - 1 : length;
        for (size_t part = most; part > 0; part--)
            if (memcmp(text + length - part, stops->text[i], part) == 0) {
                if (length - part < sure) sure = length - part;
                break;
            }
    }
    return sure;
}
