/* The reader of texts in JSON. */
#include "src/train/text/json_lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "src/train/text/text_files.h"

enum { FIRST_BUFFER = 1 << 20, LONGEST_LINE = 1 << 28, PLACE = 512 };

static bool has_end(const char *path, const char *end) {
    size_t length = z3d_unpacked_name_length(path), wanted = strlen(end);
    return length > wanted && strncasecmp(path + length - wanted, end, wanted) == 0;
}

bool z3d_is_json_lines(const char *path) {
    return has_end(path, ".jsonl") || has_end(path, ".ndjson");
}

bool z3d_is_json(const char *path) {
    return has_end(path, ".json");
}

/* ---- the buffer ---- */

size_t z3d_json_mark_length(const char *text, size_t length) {
    return length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

z3d_status z3d_json_lines_open(z3d_json_lines *l) {
    return z3d_input_open(&l->input, l->path);
}

z3d_status z3d_json_lines_take(z3d_json_lines *l, z3d_input *input) {
    l->input = *input;
    *input = (z3d_input){0};
    return z3d_input_rewind(&l->input);
}

void z3d_json_lines_of(z3d_json_lines *l, char *text, size_t length) {
    l->layout = Z3D_LAYOUT_LINES;
    l->buffer = text;
    l->capacity = l->end = length;
    l->begin = z3d_json_mark_length(text, length);
    l->ended = true;
}

/* Makes room at the end of the buffer: moves its content to the front, or doubles the buffer. */
static z3d_status make_room(z3d_json_lines *l) {
    size_t used = l->end - l->begin;
    if (l->begin > 0 && used < l->capacity / 2) {
        memmove(l->buffer, l->buffer + l->begin, used);
    } else {
        if (used >= LONGEST_LINE)
            return Z3D_ERROR(Z3D_ERR_DATA, "%s:%lld: a line of more than %d MiB", l->path,
                             (long long)l->newlines + 1, LONGEST_LINE >> 20);
        size_t capacity = l->capacity ? 2 * l->capacity : FIRST_BUFFER;
        char *grown = malloc(capacity);
        if (!grown)
            return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for line %lld of %s",
                             (long long)l->newlines + 1, l->path);
        if (used) memcpy(grown, l->buffer + l->begin, used);
        free(l->buffer);
        l->buffer = grown;
        l->capacity = capacity;
    }
    l->begin = 0;
    l->end = used;
    return Z3D_OK;
}

static z3d_status read_more(z3d_json_lines *l) {
    size_t count;
    if (l->end == l->capacity) Z3D_TRY(make_room(l));
    Z3D_TRY(z3d_input_read(&l->input, l->buffer + l->end, l->capacity - l->end, &count));
    l->ended = count == 0;
    l->end += count;
    return Z3D_OK;
}

/* ---- lines ---- */

/* The next line, without its end; *line NULL: the file has ended. */
static z3d_status next_line(z3d_json_lines *l, char **line, size_t *length) {
    size_t searched = 0;
    char *newline = NULL;
    for (;;) {
        size_t used = l->end - l->begin;
        if (used > searched)
            newline = memchr(l->buffer + l->begin + searched, '\n', used - searched);
        if (newline || l->ended) break;
        searched = used;
        Z3D_TRY(read_more(l));
    }
    *line = NULL;
    if (!newline && l->begin == l->end) return Z3D_OK;
    *line = l->buffer + l->begin;
    *length = (newline ? (size_t)(newline - l->buffer) : l->end) - l->begin;
    l->begin += *length + (newline != NULL);
    l->line = ++l->newlines;
    return Z3D_OK;
}

static bool is_blank(const char *line, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (!z3d_json_is_white(line[i])) return false;
    return true;
}

/* The next line that is not blank; *line NULL: the file has ended. */
static z3d_status next_filled_line(z3d_json_lines *l, char **line, size_t *length) {
    do Z3D_TRY(next_line(l, line, length));
    while (*line && is_blank(*line, *length));
    return Z3D_OK;
}

/* ---- an array ---- */

static z3d_status refuse(const z3d_json_lines *l, const char *what, int64_t element) {
    return Z3D_ERROR(Z3D_ERR_DATA, "%s:%lld: %s element %lld", l->path, (long long)l->newlines + 1,
                     what, (long long)element);
}

/* *c: byte `at` of the unused bytes; -1: the file has ended. */
static z3d_status look(z3d_json_lines *l, size_t at, int *c) {
    while (l->begin + at >= l->end && !l->ended) Z3D_TRY(read_more(l));
    *c = l->begin + at < l->end ? (unsigned char)l->buffer[l->begin + at] : -1;
    return Z3D_OK;
}

/* *c: the next byte that is no white space. */
static z3d_status skip_space(z3d_json_lines *l, int *c) {
    for (;; l->begin++) {
        Z3D_TRY(look(l, 0, c));
        if (!z3d_json_is_white(*c)) return Z3D_OK;
        l->newlines += *c == '\n';
    }
}

/* *length: the length of the value that begins here. */
static z3d_status find_end(z3d_json_lines *l, size_t *length) {
    bool string = false, escaped = false;
    int c, depth = 0;
    for (*length = 0;; ++*length) {
        Z3D_TRY(look(l, *length, &c));
        if (c < 0) return refuse(l, "the file ends within", l->elements);
        if (string) {
            string = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        if (depth == 0 && (c == ',' || c == ']' || c == '}')) return Z3D_OK;
        string = c == '"';
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        if (depth > 0 || (c != '}' && c != ']')) continue;
        ++*length;
        return Z3D_OK;
    }
}

/* *text NULL: array and file have ended. */
static z3d_status next_element(z3d_json_lines *l, char **text, size_t *length) {
    int c;
    *text = NULL;
    Z3D_TRY(skip_space(l, &c));
    if (c == ']') {
        l->begin++;
        Z3D_TRY(skip_space(l, &c));
        return c < 0 ? Z3D_OK : refuse(l, "text follows the array's end, after", l->elements);
    }
    if (l->elements++ > 0) {
        if (c != ',') return refuse(l, "expected ',' or ']' after", l->elements - 1);
        l->begin++;
        Z3D_TRY(skip_space(l, &c));
    }
    l->line = l->newlines + 1;
    Z3D_TRY(find_end(l, length));
    *text = l->buffer + l->begin;
    for (size_t i = 0; i < *length; i++) l->newlines += (*text)[i] == '\n';
    l->begin += *length;
    return Z3D_OK;
}

/* The first byte that is no white space decides between lines and an array. */
static z3d_status find_layout(z3d_json_lines *l) {
    int c;
    Z3D_TRY(look(l, 3, &c));
    size_t count = l->end - l->begin;
    Z3D_TRY(z3d_refuse_wide(l->path, l->buffer + l->begin, count));
    l->begin += z3d_json_mark_length(l->buffer + l->begin, count);
    Z3D_TRY(skip_space(l, &c));
    l->layout = c == '[' ? Z3D_LAYOUT_ARRAY : Z3D_LAYOUT_LINES;
    l->begin += c == '[';
    return Z3D_OK;
}

/* ---- both ---- */

/* *value NULL: the file has ended. */
static z3d_status next_value(z3d_json_lines *l, char **value, size_t *length) {
    if (l->layout == Z3D_LAYOUT_UNKNOWN) Z3D_TRY(find_layout(l));
    if (l->layout == Z3D_LAYOUT_ARRAY) return next_element(l, value, length);
    return next_filled_line(l, value, length);
}

enum { NAMED = 5 };

static void append_key(z3d_string *keys, int *named, const char *outer, const char *key) {
    if (++*named <= NAMED)
        z3d_string_append(keys, "%s%.40s%s%.40s", *named > 1 ? ", " : "", outer, *outer ? "." : "",
                          key);
}

void z3d_json_append_keys(const z3d_json *object, z3d_string *keys) {
    int named = 0;
    for (const z3d_json *m = object->first; m; m = m->next) {
        bool inner = m->type == Z3D_JSON_OBJECT && m->count > 0;
        if (!inner) append_key(keys, &named, "", m->key);
        for (const z3d_json *n = inner ? m->first : NULL; n; n = n->next)
            append_key(keys, &named, m->key, n->key);
    }
    if (named > NAMED) z3d_string_append(keys, ", ...");
}

void z3d_json_lines_place(const z3d_json_lines *l, char *out, size_t size) {
    int used = snprintf(out, size, "%s:%lld", l->path, (long long)l->line);
    if (l->layout == Z3D_LAYOUT_ARRAY && used > 0 && (size_t)used < size)
        snprintf(out + used, size - (size_t)used, " (element %lld)", (long long)l->elements);
}

z3d_status z3d_json_lines_context(const z3d_json_lines *l, z3d_status status) {
    if (status == Z3D_OK) return status;
    const long long line = l->line, element = l->elements;
    if (l->layout != Z3D_LAYOUT_ARRAY) return z3d_error_context(status, "%s:%lld", l->path, line);
    return z3d_error_context(status, "%s:%lld (element %lld)", l->path, line, element);
}

z3d_status z3d_json_lines_refuse_key(const z3d_json_lines *l, const char *option, const char *key) {
    z3d_string keys = {0};
    z3d_json_append_keys(l->object, &keys);
    z3d_status status =
        Z3D_ERROR(Z3D_ERR_DATA, "%s%s: this %s has no such key; it has%s%s", option ? option : "",
                  key, l->layout == Z3D_LAYOUT_ARRAY ? "element" : "line",
                  keys.text ? ": " : " none", keys.text ? keys.text : "");
    z3d_string_free(&keys);
    return status;
}

/* The member of that name; for "data.text" the member "text" of the member "data". */
static const z3d_json *find_member(const z3d_json *object, const char *key) {
    const z3d_json *found = z3d_json_member(object, key);
    if (found || object->type != Z3D_JSON_OBJECT) return found;
    for (const z3d_json *m = object->first; m && !found; m = m->next) {
        size_t length = strlen(m->key);
        if (strncmp(m->key, key, length) == 0 && key[length] == '.')
            found = find_member(m, key + length + 1);
    }
    return found;
}

z3d_status z3d_json_lines_text(const z3d_json_lines *l, const char **text, size_t *length) {
    const z3d_json *member = find_member(l->object, l->key);
    if (!member) return z3d_json_lines_refuse_key(l, l->option, l->key);
    if (member->type != Z3D_JSON_STRING)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s%s: its value is %s", l->option ? l->option : "", l->key,
                         member->type == Z3D_JSON_NULL ? "null" : "not a string");
    *text = member->text;
    *length = member->length;
    return Z3D_OK;
}

/* The error for a value that is no JSON: `status`, unless the file's encoding explains it. */
static z3d_status refuse_value(const z3d_json_lines *l, const char *value, size_t bytes,
                               z3d_status status) {
    char place[PLACE];
    size_t rest;
    if (status != Z3D_ERR_DATA) return status;
    z3d_json_lines_place(l, place, sizeof place);
    if (l->input.path &&
        z3d_utf8_faults((const unsigned char *)value, bytes, &rest) + (int64_t)rest > 0)
        return z3d_text_refuse(l->path, place, Z3D_TEXT_OTHER_ENCODING);
    if (l->layout != Z3D_LAYOUT_ARRAY) return status;
    return z3d_error_context(status, "element %lld", (long long)l->elements);
}

z3d_status z3d_json_lines_next_object(z3d_json_lines *l) {
    char *value;
    size_t bytes;
    z3d_json_free(l->object);
    l->object = NULL;
    l->bad = false;
    Z3D_TRY(next_value(l, &value, &bytes));
    if (!value) return Z3D_OK;
    l->bad = true; /* errors from here on are about this object alone */
    z3d_status status = z3d_json_parse_line(value, bytes, l->path, l->line,
                                            l->strict ? NULL : &l->repairs, &l->object);
    if (status != Z3D_OK) return refuse_value(l, value, bytes, status);
    if (l->object->type == Z3D_JSON_OBJECT) return Z3D_OK;
    return z3d_json_lines_context(l, Z3D_ERROR(Z3D_ERR_DATA, "%s%s%sexpected a JSON object {...}",
                                               l->option ? l->option : "", l->key ? l->key : "",
                                               l->key ? ": " : ""));
}

z3d_status z3d_json_lines_next(z3d_json_lines *l, const char **text, size_t *length) {
    *text = NULL;
    Z3D_TRY(z3d_json_lines_next_object(l));
    if (!l->object) return Z3D_OK;
    Z3D_TRY(z3d_json_lines_context(l, z3d_json_lines_text(l, text, length)));
    l->bad = false;
    return Z3D_OK;
}

void z3d_json_lines_free(z3d_json_lines *l) {
    z3d_json_free(l->object);
    free(l->buffer);
    z3d_input_close(&l->input);
    *l = (z3d_json_lines){0};
}
