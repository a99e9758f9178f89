/* Growing strings, the JSON writing that is built on them, and words. */
#include "src/base/strings.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for `more` bytes and the NUL. */
static bool reserve(z3d_string *string, size_t more) {
    if (string->failed) return false;
    if (more < string->capacity - string->length) return true; /* capacity > length or both 0 */
    size_t needed = string->length + more + 1;
    size_t capacity = string->capacity ? string->capacity : 64;
    while (capacity < needed && capacity <= SIZE_MAX / 2) capacity *= 2;
    char *grown = needed > more && capacity >= needed ? realloc(string->text, capacity) : NULL;
    if (!grown) {
        string->failed = true;
        return false;
    }
    if (!string->text) grown[0] = '\0';
    string->text = grown;
    string->capacity = capacity;
    return true;
}

void z3d_string_append_bytes(z3d_string *string, const char *bytes, size_t count) {
    if (!reserve(string, count)) return;
    if (count) memcpy(string->text + string->length, bytes, count);
    string->length += count;
    string->text[string->length] = '\0';
}

void z3d_string_append(z3d_string *string, const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    char small[256];
    int length = vsnprintf(small, sizeof small, format, arguments);
    if (length < 0) {
        string->failed = true;
    } else if ((size_t)length < sizeof small) {
        z3d_string_append_bytes(string, small, (size_t)length);
    } else if (reserve(string, (size_t)length)) {
        vsnprintf(string->text + string->length, (size_t)length + 1, format, again);
        string->length += (size_t)length;
    }
    va_end(again);
    va_end(arguments);
}

void z3d_string_clear(z3d_string *string) {
    string->length = 0;
    string->failed = false;
    if (string->text) string->text[0] = '\0';
}

void z3d_string_free(z3d_string *string) {
    free(string->text);
    *string = (z3d_string){0};
}

/* Unicode 15, table 3-7. */
size_t z3d_utf8_length(const char *text, size_t left) {
    const unsigned char *c = (const unsigned char *)text;
    if (left == 0) return 0;
    if (c[0] < 0x80) return 1;
    size_t length = c[0] < 0xC2 ? 0 : c[0] < 0xE0 ? 2 : c[0] < 0xF0 ? 3 : c[0] < 0xF5 ? 4 : 0;
    if (length > left) return 0;
    for (size_t i = 1; i < length; i++) {
        if ((c[i] & 0xC0) != 0x80) return 0; /* no continuation byte */
    }
    if (c[0] == 0xE0 && c[1] < 0xA0) return 0; /* overlong */
    if (c[0] == 0xED && c[1] > 0x9F) return 0; /* surrogate */
    if (c[0] == 0xF0 && c[1] < 0x90) return 0; /* overlong */
    if (c[0] == 0xF4 && c[1] > 0x8F) return 0; /* beyond U+10FFFF */
    return length;
}

void z3d_string_append_json(z3d_string *string, const char *text) {
    if (!text) {
        z3d_string_append_bytes(string, "null", 4);
        return;
    }
    z3d_string_append_json_bytes(string, text, strlen(text));
}

void z3d_string_append_json_bytes(z3d_string *string, const char *text, size_t count) {
    static const char escaped[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf";
    const char *end = text + count;
    z3d_string_append_bytes(string, "\"", 1);
    while (text < end) {
        const char *escape = memchr(escaped, *text, sizeof escaped - 1);
        size_t length = z3d_utf8_length(text, (size_t)(end - text));
        if (escape) {
            z3d_string_append(string, "\\%c", letters[escape - escaped]);
        } else if ((unsigned char)*text < 0x20 || *text == 0x7f) {
            z3d_string_append(string, "\\u%04x", (unsigned)(unsigned char)*text);
        } else if (length == 0) {
            z3d_string_append_bytes(string, "\xEF\xBF\xBD", 3);
            length = 1;
        } else {
            z3d_string_append_bytes(string, text, length);
        }
        text += length;
    }
    z3d_string_append_bytes(string, "\"", 1);
}

void z3d_string_append_shell(z3d_string *string, const char *text) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_./=:,+-@%";
    if (*text && text[strspn(text, plain)] == '\0') {
        z3d_string_append(string, "%s", text);
        return;
    }
    z3d_string_append(string, "'");
    for (const char *at = text; *at; at++)
        z3d_string_append(string, *at == '\'' ? "'\\''" : "%c", *at);
    z3d_string_append(string, "'");
}

void z3d_string_append_number(z3d_string *string, double value) {
    if (!isfinite(value)) {
        z3d_string_append_bytes(string, "null", 4);
        return;
    }
    char text[40];
    z3d_format_number(value, text, sizeof text);
    z3d_string_append_bytes(string, text, strlen(text));
}

void z3d_string_append_key(z3d_string *string, const char *name) {
    const bool first = string->length == 0 || string->text[string->length - 1] == '{';
    z3d_string_append(string, "%s\"%s\": ", first ? "" : ", ", name);
}

void z3d_string_append_member(z3d_string *string, const char *name, double value) {
    z3d_string_append_key(string, name);
    z3d_string_append_number(string, value);
}

void z3d_string_append_member_text(z3d_string *string, const char *name, const char *text) {
    z3d_string_append_key(string, name);
    z3d_string_append_json(string, text);
}

const char *z3d_shown(const char *name, char out[Z3D_SHOWN + 1]) {
    size_t i = 0;
    for (; name[i] && i < Z3D_SHOWN; i++)
        out[i] = (char)(name[i] < ' ' || name[i] > '~' ? '?' : name[i]);
    out[i] = '\0';
    return out;
}

static int min3(int a, int b, int c) {
    int least = a < b ? a : b;
    return least < c ? least : c;
}

int z3d_word_distance(const char *a, const char *b) {
    size_t m = strlen(a), n = strlen(b);
    if (m >= Z3D_WORD || n >= Z3D_WORD) return Z3D_FAR_AWAY;
    int rows[3][Z3D_WORD + 1];
    int *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= n; j++) last[j] = (int)j;
    for (size_t i = 1; i <= m; i++) {
        now[0] = (int)i;
        for (size_t j = 1; j <= n; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            x = x == '-' ? '_' : x;
            now[j] = min3(last[j] + 1, now[j - 1] + 1, last[j - 1] + (x != y));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < now[j]) {
                now[j] = before[j - 2] + 1;
            }
        }
        int *free_row = before;
        before = last;
        last = now;
        now = free_row;
    }
    return last[n];
}

bool z3d_next_word(const char **words, char *buf, size_t size) {
    const size_t length = strcspn(*words, " ");
    snprintf(buf, size, "%.*s", (int)length, *words);
    *words += length + strspn(*words + length, " ");
    return length > 0;
}

bool z3d_has_word(const char *words, const char *word) {
    for (size_t length; *words; words += length + (words[length] == ' ')) {
        length = strcspn(words, " ");
        if (strncmp(words, word, length) == 0 && word[length] == '\0') return true;
    }
    return false;
}

bool z3d_has_leaf(const char *words, const char *path) {
    const char *dot = strrchr(path, '.');
    return z3d_has_word(words, dot ? dot + 1 : path);
}
