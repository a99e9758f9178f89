/* The reader of JSON lines. */
#include "src/train/text/json_lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { FIRST_BUFFER = 1 << 20, LONGEST_LINE = 1 << 28, LOOKED_AT = 3 };

bool z3d_is_json_lines(const char *path) {
    static const char *const ends[] = {".jsonl", ".ndjson"};
    size_t length = strlen(path);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t end = strlen(ends[i]);
        if (length > end && strcasecmp(path + length - end, ends[i]) == 0) return true;
    }
    return false;
}

static const char byte_order_mark[] = "\xef\xbb\xbf"; /* some editors begin a file with it */

void z3d_json_lines_of(z3d_json_lines *l, char *text, size_t length) {
    l->fd = -1;
    l->buffer = text;
    l->capacity = l->end = length;
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
                             (long long)l->line + 1, LONGEST_LINE >> 20);
        size_t capacity = l->capacity ? 2 * l->capacity : FIRST_BUFFER;
        char *grown = malloc(capacity);
        if (!grown)
            return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for line %lld of %s",
                             (long long)l->line + 1, l->path);
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
    if (l->end == l->capacity) Z3D_TRY(make_room(l));
    ssize_t count;
    do count = read(l->fd, l->buffer + l->end, l->capacity - l->end);
    while (count < 0 && errno == EINTR);
    if (count < 0)
        return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot read the file: %s", l->path, strerror(errno));
    l->ended = count == 0;
    l->end += (size_t)count;
    return Z3D_OK;
}

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
    l->offset += (int64_t)*length + (newline != NULL);
    l->line++;
    return Z3D_OK;
}

static bool is_blank(const char *line, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') return false;
    return true;
}

/* The line has another key: which it has. */
static z3d_status refuse_key(const z3d_json_lines *l) {
    enum { NAMED = 5 };
    z3d_string keys = {0};
    int named = 0;
    for (const z3d_json *m = l->object->first; m && named < NAMED; m = m->next, named++)
        z3d_string_append(&keys, "%s%.40s", named ? ", " : "", m->key);
    bool more = l->object->count > NAMED;
    z3d_status status =
        Z3D_ERROR(Z3D_ERR_DATA, "%s:%lld: %s%s: this line has no such key; it has%s%s%s", l->path,
                  (long long)l->line, l->option ? l->option : "", l->key, named ? ": " : " none",
                  keys.text ? keys.text : "", more ? ", ..." : "");
    z3d_string_free(&keys);
    return status;
}

static z3d_status find_text(const z3d_json_lines *l, const char **text, size_t *length) {
    const char *what = NULL;
    const z3d_json *member = z3d_json_member(l->object, l->key);
    if (l->object->type != Z3D_JSON_OBJECT)
        what = "expected a JSON object {...}";
    else if (!member)
        return refuse_key(l);
    else if (member->type != Z3D_JSON_STRING)
        what = "its value is not a string";
    if (what)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s:%lld: %s%s: %s", l->path, (long long)l->line,
                         l->option ? l->option : "", l->key, what);
    *text = member->text;
    *length = member->length;
    return Z3D_OK;
}

z3d_status z3d_json_lines_next(z3d_json_lines *l, const char **text, size_t *length) {
    char *line;
    size_t bytes;
    *text = NULL;
    z3d_json_free(l->object);
    l->object = NULL;
    do {
        Z3D_TRY(next_line(l, &line, &bytes));
        if (line && l->line == 1 && bytes >= 3 && memcmp(line, byte_order_mark, 3) == 0)
            line += 3, bytes -= 3;
    } while (line && is_blank(line, bytes));
    if (!line) return Z3D_OK;
    Z3D_TRY(z3d_json_parse_line(line, bytes, l->path, l->line, l->strict ? NULL : &l->repairs,
                                &l->object));
    return find_text(l, text, length);
}

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

z3d_status z3d_looks_like_json_lines(int fd, const char *path, bool *out) {
    char *text;
    int found = 0;
    *out = false;
    Z3D_TRY(z3d_new(FIRST_BUFFER, 1, "the beginning of a file", &text));
    ssize_t count = pread(fd, text, FIRST_BUFFER, 0);
    if (count < 0) {
        free(text);
        return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot read the file: %s", path, strerror(errno));
    }
    const char *at = text, *end = text + count;
    if (count >= 3 && memcmp(at, byte_order_mark, 3) == 0) at += 3;
    bool good = true;
    while (at < end && good && found < LOOKED_AT) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((newline ? newline : end) - at);
        if (!newline && count == FIRST_BUFFER) break; /* the line is cut off here */
        if (!is_blank(at, length)) {
            good = is_json_object(at, length);
            found++;
        }
        at += length + (newline != NULL);
    }
    *out = good && found > 0;
    free(text);
    return Z3D_OK;
}

void z3d_json_lines_free(z3d_json_lines *l) {
    z3d_json_free(l->object);
    free(l->buffer);
    *l = (z3d_json_lines){0};
}
