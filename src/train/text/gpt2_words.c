/* GPT-2's words. The pattern is matched by hand: its alternatives are tried in order, and all but
 * the last two begin with different characters. */
#include <stdbool.h>
#include <string.h>
#include <utf8proc.h>

#include "src/train/text/bpe.h"

typedef enum kind { LETTER, NUMBER, SPACE, OTHER } kind;

/* The kind of the character at `text` and its bytes; an invalid byte is OTHER. */
static kind look(const char *text, size_t length, size_t *bytes) {
    unsigned char c = (unsigned char)*text;
    utf8proc_int32_t code;
    *bytes = 1;
    if (c < 0x80) {
        if ((c | 32) >= 'a' && (c | 32) <= 'z') return LETTER;
        if (c >= '0' && c <= '9') return NUMBER;
        return c == ' ' || (c >= '\t' && c <= '\r') ? SPACE : OTHER;
    }
    utf8proc_ssize_t taken = utf8proc_iterate((const utf8proc_uint8_t *)text,
                                              (utf8proc_ssize_t)(length < 4 ? length : 4), &code);
    if (taken < 1) return OTHER;
    *bytes = (size_t)taken;
    const utf8proc_category_t category = utf8proc_category(code);
    if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) return LETTER;
    if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) return NUMBER;
    if (category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP) return SPACE;
    return code == 0x85 ? SPACE : OTHER; /* NEL is a control character, but also white space */
}

/* 's 't 're 've 'm 'll 'd: bytes of it, or 0. */
static size_t contraction(const char *text, size_t length) {
    if (length < 2 || text[0] != '\'') return 0;
    if (strchr("stmd", text[1]) && text[1]) return 2;
    bool two =
        length > 2 && ((text[1] == 'r' && text[2] == 'e') || (text[1] == 'v' && text[2] == 'e') ||
                       (text[1] == 'l' && text[2] == 'l'));
    return two ? 3 : 0;
}

size_t z3d_gpt2_word(const char *text, size_t length) {
    size_t at = contraction(text, length), bytes, last = 0;
    if (at) return at;
    kind first = look(text, length, &bytes);
    if (*text == ' ' && length > 1) { /* a space belongs to the next word */
        kind next = look(text + 1, length - 1, &bytes);
        if (next != SPACE) {
            at = 1;
            first = next;
        }
    }
    for (; at < length && look(text + at, length - at, &bytes) == first; at += bytes) last = at;
    /* The last character of white space before a word belongs to that word. */
    return first == SPACE && at < length && last > 0 ? last : at;
}

size_t z3d_space_length(const char *text, size_t length) {
    size_t bytes;
    return length > 0 && look(text, length, &bytes) == SPACE ? bytes : 0;
}

bool z3d_begins_word(const char *text, size_t length) {
    size_t bytes;
    const kind first = length > 0 ? look(text, length, &bytes) : OTHER;
    return first == LETTER || first == NUMBER;
}
