/* Added tokens, which are found in a text before it is cut into words. Their texts are a trie of
 * bytes. */
#include <stdlib.h>
#include <string.h>

#include "src/train/text/bpe.h"

void z3d_added_set_free(z3d_added_set *set) {
    free(set->node);
    *set = (z3d_added_set){0};
}

static z3d_status new_node(z3d_added_set *set, unsigned char byte, int32_t next, int32_t *out) {
    Z3D_TRY(
        z3d_grow(set->count, &set->capacity, sizeof *set->node, "the added tokens", &set->node));
    set->node[set->count] = (z3d_added_node){-1, next, -1, byte};
    *out = set->count++;
    return Z3D_OK;
}

static int32_t find_child(const z3d_added_set *set, int32_t at, unsigned char byte) {
    int32_t child = set->node[at].child;
    while (child >= 0 && set->node[child].byte != byte) child = set->node[child].next;
    return child;
}

z3d_status z3d_added_set_add(z3d_added_set *set, const char *text, size_t length, int32_t id) {
    unsigned char first = (unsigned char)text[0];
    int32_t at = set->first[first] - 1;
    set->only = set->count == 0 || set->only == first ? first : -1;
    if (at < 0) Z3D_TRY(new_node(set, first, -1, &at));
    set->first[first] = at + 1;
    for (size_t i = 1; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        int32_t child = find_child(set, at, byte);
        if (child < 0) {
            Z3D_TRY(new_node(set, byte, set->node[at].child, &child));
            set->node[at].child = child;
        }
        at = child;
    }
    if (set->node[at].id < 0) set->node[at].id = id;
    return Z3D_OK;
}

/* The longest token at the beginning of `text`; *bytes: its length. */
static int32_t match(const z3d_added_set *set, const char *text, size_t length, size_t *bytes) {
    int32_t at = set->first[(unsigned char)text[0]] - 1, id = -1;
    for (size_t i = 1; at >= 0; i++) {
        if (set->node[at].id >= 0) {
            id = set->node[at].id;
            *bytes = i;
        }
        at = i < length ? find_child(set, at, (unsigned char)text[i]) : -1;
    }
    return id;
}

/* The beginning of the white space that ends at `end`; at least `from`. */
static size_t space_before(const char *text, size_t from, size_t end) {
    while (end > from) {
        size_t at = end - 1;
        while (at > from && ((unsigned char)text[at] & 0xc0) == 0x80) at--;
        if (z3d_space_length(text + at, end - at) != end - at) break;
        end = at;
    }
    return end;
}

static size_t space_after(const char *text, size_t at, size_t length) {
    while (at < length) {
        size_t bytes = z3d_space_length(text + at, length - at);
        if (bytes == 0) break;
        at += bytes;
    }
    return at;
}

z3d_found z3d_added_set_find(const z3d_added_set *set, const unsigned char *flags, const char *text,
                             size_t length, size_t from) {
    for (size_t at = from, bytes; at < length && set->count > 0; at++) {
        if (set->only >= 0) {
            const char *next = memchr(text + at, set->only, length - at);
            if (!next) break;
            at = (size_t)(next - text);
        } else {
            while (at < length && set->first[(unsigned char)text[at]] == 0) at++;
            if (at == length) break;
        }
        int32_t id = match(set, text + at, length - at, &bytes);
        if (id < 0) continue;
        z3d_found found = {at, at + bytes, id};
        if (flags[id] & Z3D_ADDED_LSTRIP) found.begin = space_before(text, from, at);
        if (flags[id] & Z3D_ADDED_RSTRIP) found.end = space_after(text, at + bytes, length);
        return found;
    }
    return (z3d_found){length, length, -1};
}
