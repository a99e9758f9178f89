/* Finds whether a file is JSON from its first values; keeps none of them. */
#include <stdlib.h>
#include <string.h>

#include "src/train/text/json_lines.h"

enum { WINDOW = 1 << 20, DEEPEST = 64, LOOKED_AT = 3 };

typedef enum verdict { VALUE, CUT_OFF, NO_JSON } verdict;

typedef struct cursor {
    const char *at, *end;
    int items, strings; /* complete ones so far */
} cursor;

static verdict skip_space(cursor *c) {
    while (c->at < c->end && z3d_json_is_white(*c->at)) c->at++;
    return c->at < c->end ? VALUE : CUT_OFF;
}

static verdict scan_string(cursor *c) {
    if (*c->at++ != '"') return NO_JSON;
    for (; c->at < c->end && *c->at != '"'; c->at++) {
        if ((unsigned char)*c->at < ' ') return NO_JSON;
        c->at += *c->at == '\\' && c->at + 1 < c->end;
    }
    if (c->at == c->end) return CUT_OFF;
    c->at++;
    c->strings++;
    return VALUE;
}

/* Scans a number, or a word of Python's json (null, true, NaN, ...). */
static verdict scan_word(cursor *c) {
    static const char *const words[] = {"true", "false", "null", "NaN", "Infinity", "-Infinity"};
    const char *begin = c->at;
    while (c->at < c->end && *c->at && !strchr(" \t\r\n,]}", *c->at)) c->at++;
    const size_t length = (size_t)(c->at - begin);
    if (c->at == c->end) return CUT_OFF;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == length && memcmp(begin, words[i], length) == 0) return VALUE;
    const bool number = length > 0 && strchr("-0123456789", *begin) && *begin;
    for (size_t i = 0; i < length; i++)
        if (!begin[i] || !strchr("0123456789+-.eE", begin[i])) return NO_JSON;
    return number ? VALUE : NO_JSON;
}

static verdict scan_key(cursor *c) {
    verdict v = skip_space(c);
    if (v == VALUE) v = scan_string(c);
    if (v == VALUE) v = skip_space(c);
    return v == VALUE && *c->at++ != ':' ? NO_JSON : v;
}

static verdict scan_value(cursor *c, int depth);

/* If the file is one array of texts, the first items are enough. */
static verdict scan_list(cursor *c, int depth) {
    const bool object = *c->at++ == '{';
    const char close = object ? '}' : ']';
    verdict v = skip_space(c);
    if (v == VALUE && *c->at == close) return c->at++, VALUE;
    for (int items = 0; v == VALUE; items++) {
        if (depth == 0 && !object && items >= LOOKED_AT && c->strings > 0) return CUT_OFF;
        if (object) v = scan_key(c);
        if (v == VALUE) v = scan_value(c, depth + 1);
        if (v == VALUE) v = skip_space(c);
        if (v != VALUE) return v;
        c->items++;
        if (*c->at == close) return c->at++, VALUE;
        if (*c->at++ != ',') return NO_JSON;
    }
    return v;
}

static verdict scan_value(cursor *c, int depth) {
    verdict v = skip_space(c);
    if (v != VALUE) return v;
    if (*c->at == '{' || *c->at == '[') return depth < DEEPEST ? scan_list(c, depth) : NO_JSON;
    return *c->at == '"' ? scan_string(c) : scan_word(c);
}

/* Whether the text begins with [ {" */
static bool begins_array(cursor c) {
    for (const char *next = "[{\""; *next; next++)
        if (skip_space(&c) != VALUE || *c.at++ != *next) return false;
    return true;
}

/* A file that begins like JSON is JSON, also with a mistake later: the reader will name the place.
 * whole: the text is the whole file. */
static z3d_json_look judge(cursor c, bool whole) {
    if (skip_space(&c) != VALUE) return Z3D_LOOK_TEXT;
    if (begins_array(c)) return Z3D_LOOK_LIST;
    const char *begin = c.at, *first_end = NULL;
    for (int i = 0; i < LOOKED_AT && skip_space(&c) == VALUE; i++) {
        if (*c.at != '{' && *c.at != '[') return Z3D_LOOK_TEXT;
        verdict v = scan_value(&c, 0);
        if (v == NO_JSON && i > 0 && *begin == '{') break;
        if (v == NO_JSON || (v == CUT_OFF && whole && c.items == 0)) return Z3D_LOOK_TEXT;
        if (!first_end) first_end = c.at;
        if (v == CUT_OFF) break;
    }
    if (*begin == '[')
        return memchr(begin, '"', (size_t)(c.end - begin)) ? Z3D_LOOK_LIST : Z3D_LOOK_VALUE;
    return memchr(begin, '\n', (size_t)(first_end - begin)) ? Z3D_LOOK_VALUE : Z3D_LOOK_LIST;
}

z3d_json_look z3d_look_at_input(z3d_input *input) {
    char *text;
    size_t count = 0;
    z3d_json_look found = Z3D_LOOK_TEXT;
    if (z3d_new(WINDOW, 1, "the beginning of a file", &text) != Z3D_OK) return found;
    z3d_status status = z3d_input_rewind(input);
    if (status == Z3D_OK) status = z3d_input_read(input, text, WINDOW, &count);
    const cursor begin = {text + z3d_json_mark_length(text, count), text + count, 0, 0};
    if (status == Z3D_OK) found = judge(begin, count < WINDOW);
    free(text);
    return found;
}

z3d_json_look z3d_look_for_json(const char *path) {
    z3d_input input;
    const bool open = z3d_input_open(&input, path) == Z3D_OK;
    const z3d_json_look found = open ? z3d_look_at_input(&input) : Z3D_LOOK_TEXT;
    z3d_input_close(&input);
    return found;
}

/* ---- a refusal ---- */

static bool has_string(const z3d_json *object) {
    if (!object || object->type != Z3D_JSON_OBJECT) return false;
    const z3d_json *m = object->first;
    while (m && m->type != Z3D_JSON_STRING) m = m->next;
    return m != NULL;
}

static z3d_status refuse(const char *path, const z3d_json *object) {
    z3d_string keys = {0};
    if (!has_string(object))
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "%s: JSON needs --json-key KEY, the key of the text, but this file has no "
                         "line and no array element that is an object with a text: write one "
                         "object per line, such as {\"text\": \"...\"}",
                         path);
    if (z3d_json_member(object, "chosen") && z3d_json_member(object, "rejected"))
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "%s has preference data (\"chosen\", \"rejected\"), which is not trained; "
                         "write the answers to train on as {\"prompt\": ..., \"completion\": ...}",
                         path);
    z3d_json_append_keys(object, &keys);
    z3d_status status = Z3D_ERROR(
        Z3D_ERR_USAGE,
        "%s has objects in JSON of no known format (their keys: %s); name the keys as a --format "
        "needs them: messages; conversations (sharegpt); prompt and completion; instruction and "
        "output (alpaca); or add --json-key KEY if one key has the whole text",
        path, keys.text ? keys.text : "");
    z3d_string_free(&keys);
    return status;
}

z3d_status z3d_refuse_raw_json(const char *path) {
    z3d_json_lines lines = {.path = path};
    bool more = z3d_json_lines_open(&lines) == Z3D_OK;
    for (int i = 0; i < LOOKED_AT && more && !has_string(lines.object); i++)
        more = z3d_json_lines_next_object(&lines) == Z3D_OK ? lines.object != NULL : lines.bad;
    z3d_status status = refuse(path, lines.object);
    z3d_json_lines_free(&lines);
    return status;
}
