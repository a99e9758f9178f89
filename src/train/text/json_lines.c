/* The reader of texts in JSON. */
#include "src/train/text/json_lines.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "src/train/text/text_files.h"

enum { FIRST_BUFFER = 1 << 20, LONGEST_LINE = 1 << 28, LOOKED_AT = 3 };

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

/* Some editors begin a file with a byte order mark: its length, or 0. */
static size_t mark_length(const char *text, size_t length) {
    return length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

void z3d_json_lines_of(z3d_json_lines *l, char *text, size_t length) {
    l->layout = Z3D_LAYOUT_LINES;
    l->buffer = text;
    l->capacity = l->end = length;
    l->begin = mark_length(text, length);
    l->ended = true;
}

/* Makes room behind what is in the buffer: moves it to the front, or doubles the buffer. */
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
    Z3D_TRY(z3d_input_read(l->input, l->buffer + l->end, l->capacity - l->end, &count));
    l->ended = count == 0;
    l->end += count;
    return Z3D_OK;
}

/* ---- lines ---- */

/* The next line, without its end; *line NULL: there is none. */
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

static bool is_white(int c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool is_blank(const char *line, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (!is_white(line[i])) return false;
    return true;
}

/* *line NULL: there is none. */
static z3d_status next_filled_line(z3d_json_lines *l, char **line, size_t *length) {
    do Z3D_TRY(next_line(l, line, length));
    while (*line && is_blank(*line, *length));
    return Z3D_OK;
}

/* ---- an array ---- */

static z3d_status refuse(const z3d_json_lines *l, const char *what) {
    return Z3D_ERROR(Z3D_ERR_DATA, "%s:%lld: %s", l->path, (long long)l->newlines + 1, what);
}

/* The byte `at` behind those that were used; *c -1: the file has ended. */
static z3d_status look(z3d_json_lines *l, size_t at, int *c) {
    while (l->begin + at >= l->end && !l->ended) Z3D_TRY(read_more(l));
    *c = l->begin + at < l->end ? (unsigned char)l->buffer[l->begin + at] : -1;
    return Z3D_OK;
}

/* The next byte that is no white space. */
static z3d_status skip_space(z3d_json_lines *l, int *c) {
    for (;; l->begin++) {
        Z3D_TRY(look(l, 0, c));
        if (!is_white(*c)) return Z3D_OK;
        l->newlines += *c == '\n';
    }
}

/* Where the value ends that begins here. */
static z3d_status find_end(z3d_json_lines *l, size_t *length) {
    bool string = false, escaped = false;
    int c, depth = 0;
    for (*length = 0;; ++*length) {
        Z3D_TRY(look(l, *length, &c));
        if (c < 0) return refuse(l, "the file ends within an array's value");
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

/* *text NULL: the array has ended, and the file with it. */
static z3d_status next_element(z3d_json_lines *l, char **text, size_t *length) {
    int c;
    *text = NULL;
    Z3D_TRY(skip_space(l, &c));
    if (c == ']') {
        l->begin++;
        Z3D_TRY(skip_space(l, &c));
        return c < 0 ? Z3D_OK : refuse(l, "text behind the array's end");
    }
    if (l->elements++ > 0) {
        if (c != ',') return refuse(l, "expected ',' or ']' behind an array's value");
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

/* Whether it is lines or an array, by the first byte that is no white space. */
static z3d_status find_layout(z3d_json_lines *l) {
    int c;
    Z3D_TRY(look(l, 3, &c));
    size_t count = l->end - l->begin;
    Z3D_TRY(z3d_refuse_utf16(l->path, l->buffer + l->begin, count));
    l->begin += mark_length(l->buffer + l->begin, count);
    Z3D_TRY(skip_space(l, &c));
    l->layout = c == '[' ? Z3D_LAYOUT_ARRAY : Z3D_LAYOUT_LINES;
    l->begin += c == '[';
    return Z3D_OK;
}

/* ---- both ---- */

/* *value NULL: there is none. */
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

/* The object has other keys: which. Those of an object within it are named as --json-key would. */
static z3d_status refuse_key(const z3d_json_lines *l) {
    z3d_string keys = {0};
    int named = 0;
    for (const z3d_json *m = l->object->first; m; m = m->next) {
        bool inner = m->type == Z3D_JSON_OBJECT && m->count > 0;
        if (!inner) append_key(&keys, &named, "", m->key);
        for (const z3d_json *n = inner ? m->first : NULL; n; n = n->next)
            append_key(&keys, &named, m->key, n->key);
    }
    z3d_status status =
        Z3D_ERROR(Z3D_ERR_DATA, "%s:%lld: %s%s: this line has no such key; it has%s%s%s", l->path,
                  (long long)l->line, l->option ? l->option : "", l->key, named ? ": " : " none",
                  keys.text ? keys.text : "", named > NAMED ? ", ..." : "");
    z3d_string_free(&keys);
    return status;
}

/* A member of that name, or of "data.text" the member "text" of "data". */
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

static z3d_status find_text(const z3d_json_lines *l, const char **text, size_t *length) {
    const char *what = NULL;
    const z3d_json *member = find_member(l->object, l->key);
    if (l->object->type != Z3D_JSON_OBJECT)
        what = "expected a JSON object {...}";
    else if (!member)
        return refuse_key(l);
    else if (member->type != Z3D_JSON_STRING)
        what = member->type == Z3D_JSON_NULL ? "its value is null" : "its value is not a string";
    if (what)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s:%lld: %s%s: %s", l->path, (long long)l->line,
                         l->option ? l->option : "", l->key, what);
    *text = member->text;
    *length = member->length;
    return Z3D_OK;
}

z3d_status z3d_json_lines_next(z3d_json_lines *l, const char **text, size_t *length) {
    char *value;
    size_t bytes;
    *text = NULL;
    z3d_json_free(l->object);
    l->object = NULL;
    l->bad = false;
    Z3D_TRY(next_value(l, &value, &bytes));
    if (!value) return Z3D_OK;
    l->bad = true; /* what follows is about this object alone */
    Z3D_TRY(z3d_json_parse_line(value, bytes, l->path, l->line, l->strict ? NULL : &l->repairs,
                                &l->object));
    Z3D_TRY(find_text(l, text, length));
    l->bad = false;
    return Z3D_OK;
}

/* ---- a look at a file ---- */

static bool is_json_object(const char *line, size_t length) {
    z3d_json *object;
    z3d_json_repairs unused;
    size_t at = 1;
    if (length < 2 || line[0] != '{') return false;
    while (at < length && (line[at] == ' ' || line[at] == '\t')) at++;
    if (at == length || line[at] != '"') return false;
    if (z3d_json_parse_line(line, length, "", 1, &unused, &object) != Z3D_OK) return false;
    z3d_json_free(object);
    return true;
}

/* [ {" */
static bool begins_array(const char *at, const char *end) {
    for (const char *next = "[{\""; *next; next++) {
        while (at < end && is_white(*at)) at++;
        if (at == end || *at++ != *next) return false;
    }
    return true;
}

/* whole: all of the file is there. */
static bool has_lines(const char *at, const char *end, bool whole) {
    int found = 0;
    bool good = true;
    while (at < end && good && found < LOOKED_AT) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((newline ? newline : end) - at);
        if (!newline && !whole) break; /* the line is cut off here */
        if (!is_blank(at, length)) {
            good = is_json_object(at, length);
            found++;
        }
        at += length + (newline != NULL);
    }
    return good && found > 0;
}

z3d_status z3d_looks_like_json_lines(int fd, const char *path, bool *out) {
    char *text;
    size_t count = 0;
    z3d_input input;
    *out = false;
    Z3D_TRY(z3d_new(FIRST_BUFFER, 1, "the beginning of a file", &text));
    z3d_status status = z3d_input_open(&input, fd, path);
    if (status == Z3D_OK) status = z3d_input_read(&input, text, FIRST_BUFFER, &count);
    const char *at = text, *end = text + count;
    at += mark_length(at, count);
    if (status == Z3D_OK) *out = begins_array(at, end) || has_lines(at, end, count < FIRST_BUFFER);
    z3d_input_close(&input);
    free(text);
    return status;
}

void z3d_json_lines_free(z3d_json_lines *l) {
    z3d_json_free(l->object);
    free(l->buffer);
    *l = (z3d_json_lines){0};
}
