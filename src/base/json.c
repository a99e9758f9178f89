/* A JSON reader: recursive descent with a limited depth; all memory is in one list of blocks. */
#include "src/base/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64, BLOCK = 1 << 16 };

/* The memory of one tree, freed together. The first block has the root. */
typedef struct block {
    struct block *next;
    size_t used, size;
    _Alignas(16) char data[];
} block;

typedef struct parser {
    const char *begin, *at, *end, *name;
    const char *counted; /* lines are counted up to here */
    int64_t line;
    block *blocks;
    z3d_json_repairs *repairs; /* NULL: no repairs */
} parser;

static int64_t line_here(parser *p) {
    for (; p->counted < p->at; p->counted++) p->line += *p->counted == '\n';
    return p->line;
}

static z3d_status refuse(parser *p, const char *what) {
    return Z3D_ERROR(Z3D_ERR_DATA, "%s:%lld: byte %lld: %s", p->name, (long long)line_here(p),
                     (long long)(p->at - p->begin), what);
}

static void *take(parser *p, size_t bytes) {
    bytes = (bytes + 15) / 16 * 16;
    if (!p->blocks || p->blocks->size - p->blocks->used < bytes) {
        size_t size = bytes > BLOCK ? bytes : BLOCK;
        block *fresh = malloc(sizeof *fresh + size);
        if (!fresh) return NULL;
        *fresh = (block){p->blocks, 0, size};
        p->blocks = fresh;
    }
    void *memory = p->blocks->data + p->blocks->used;
    p->blocks->used += bytes;
    return memory;
}

static void skip_space(parser *p) {
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r'))
        p->at++;
}

static bool next_is(parser *p, char c) {
    if (p->at >= p->end || *p->at != c) return false;
    p->at++;
    return true;
}

/* ---- strings ---- */

static z3d_status read_hex4(parser *p, unsigned *out) {
    *out = 0;
    for (int i = 0; i < 4; i++, p->at++) {
        char c = p->at < p->end ? *p->at : '\0';
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return refuse(p, "expected four hexadecimal digits after \\u");
        *out = *out * 16 + (unsigned)digit;
    }
    return Z3D_OK;
}

/* A first byte, and six bits in each byte after it. */
static char *put_utf8(char *to, unsigned c) {
    static const unsigned first[] = {0, 0xc0, 0xe0, 0xf0};
    int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    *to++ = (char)(first[more] | c >> 6 * more);
    while (more-- > 0) *to++ = (char)(0x80 | (c >> 6 * more & 63));
    return to;
}

/* Reads the digits after "\u". */
static z3d_status read_unicode(parser *p, char **to) {
    unsigned c, low;
    Z3D_TRY(read_hex4(p, &c));
    if (c >= 0xd800 && c < 0xdc00) {
        const char *next = p->at;
        low = 0;
        if (next_is(p, '\\') && next_is(p, 'u')) Z3D_TRY(read_hex4(p, &low));
        if (low >= 0xdc00 && low < 0xe000)
            c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        else
            p->at = next;
    }
    if (c >= 0xd800 && c < 0xe000) {
        if (!p->repairs) return refuse(p, "half of a surrogate pair in a string");
        p->repairs->surrogates++;
        c = 0xfffd;
    }
    if (c == 0) {
        if (!p->repairs) return refuse(p, "a NUL character in a string");
        p->repairs->nuls++;
    }
    *to = put_utf8(*to, c);
    return Z3D_OK;
}

static z3d_status read_escape(parser *p, char **to) {
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    char c = p->at < p->end ? *p->at++ : '\0';
    if (c == 'u') return read_unicode(p, to);
    const char *found = c ? strchr(from, c) : NULL;
    if (!found) return refuse(p, "an unknown escape in a string");
    *(*to)++ = into[found - from];
    return Z3D_OK;
}

/* At the opening quote. A string never grows when it is unescaped. */
static z3d_status read_string(parser *p, const char **out, size_t *length_out) {
    if (!next_is(p, '"')) return refuse(p, "expected a string");
    const char *close = p->at;
    while (close < p->end && *close != '"') close += *close == '\\' ? 2 : 1;
    if (close >= p->end) return refuse(p, "a string has no end");
    char *text = take(p, (size_t)(close - p->at) + 1), *to = text;
    if (!text) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory to read %s", p->name);
    while (p->at < p->end && *p->at != '"') {
        if (*p->at == '\\') {
            p->at++;
            Z3D_TRY(read_escape(p, &to));
            continue;
        }
        size_t length = z3d_utf8_length(p->at, (size_t)(p->end - p->at));
        if (length == 0) return refuse(p, "a string that is not UTF-8");
        if ((unsigned char)*p->at < 0x20) return refuse(p, "a control character in a string");
        memcpy(to, p->at, length);
        to += length, p->at += length;
    }
    if (!next_is(p, '"')) return refuse(p, "a string has no end");
    *to = '\0';
    *out = text;
    *length_out = (size_t)(to - text);
    return Z3D_OK;
}

/* ---- values ---- */

static bool digits(parser *p) {
    const char *first = p->at;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9') p->at++;
    return p->at > first;
}

static z3d_status read_number(parser *p, z3d_json *value) {
    const char *first = p->at;
    next_is(p, '-');
    bool zero = p->at < p->end && *p->at == '0';
    const char *integer = p->at;
    if (!digits(p) || (zero && p->at - integer > 1)) return refuse(p, "not a JSON value");
    if (next_is(p, '.') && !digits(p)) return refuse(p, "expected digits after the point");
    if (next_is(p, 'e') || next_is(p, 'E')) {
        if (!next_is(p, '-')) next_is(p, '+');
        if (!digits(p)) return refuse(p, "expected digits in the exponent");
    }
    char *text = take(p, (size_t)(p->at - first) + 1);
    if (!text) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory to read %s", p->name);
    memcpy(text, first, (size_t)(p->at - first));
    text[p->at - first] = '\0';
    value->type = Z3D_JSON_NUMBER;
    value->text = text;
    return Z3D_OK;
}

static bool word(parser *p, const char *text) {
    size_t length = strlen(text);
    if ((size_t)(p->end - p->at) < length || memcmp(p->at, text, length) != 0) return false;
    p->at += length;
    return true;
}

static z3d_status read_value(parser *p, z3d_json *value, int depth);

static z3d_status read_key(parser *p, const char **key) {
    size_t length;
    Z3D_TRY(read_string(p, key, &length));
    if (strlen(*key) != length) return refuse(p, "a NUL character in a key");
    skip_space(p);
    return next_is(p, ':') ? Z3D_OK : refuse(p, "expected ':'");
}

/* Reads the members after the opening bracket. */
static z3d_status read_members(parser *p, z3d_json *value, int depth) {
    char close = value->type == Z3D_JSON_OBJECT ? '}' : ']';
    z3d_json **link = &value->first;
    if (depth >= MAX_DEPTH) return refuse(p, "more than 64 levels");
    skip_space(p);
    if (next_is(p, close)) return Z3D_OK;
    do {
        z3d_json *member = take(p, sizeof *member);
        if (!member) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory to read %s", p->name);
        *member = (z3d_json){0};
        skip_space(p);
        if (close == '}') Z3D_TRY(read_key(p, &member->key));
        Z3D_TRY(read_value(p, member, depth + 1));
        member->line = line_here(p);
        *link = member;
        link = &member->next;
        value->count++;
        skip_space(p);
    } while (next_is(p, ','));
    return next_is(p, close)
               ? Z3D_OK
               : refuse(p, close == '}' ? "expected ',' or '}'" : "expected ',' or ']'");
}

static z3d_status read_value(parser *p, z3d_json *value, int depth) {
    skip_space(p);
    if (p->at >= p->end) return refuse(p, "the text ends; expected a value");
    if (*p->at == '"') {
        value->type = Z3D_JSON_STRING;
        return read_string(p, &value->text, &value->length);
    }
    if (next_is(p, '{')) {
        value->type = Z3D_JSON_OBJECT;
        return read_members(p, value, depth);
    }
    if (next_is(p, '[')) {
        value->type = Z3D_JSON_ARRAY;
        return read_members(p, value, depth);
    }
    value->type = Z3D_JSON_BOOL;
    if (word(p, "true")) {
        value->truth = true;
        return Z3D_OK;
    }
    if (word(p, "false")) return Z3D_OK;
    value->type = Z3D_JSON_NULL;
    if (word(p, "null")) return Z3D_OK;
    return read_number(p, value);
}

/* ---- public functions ---- */

/* The caller gets a pointer to the root in this struct; z3d_json_free finds the list of blocks from
 * it. */
typedef struct document {
    z3d_json root;
    block *blocks;
} document;

z3d_status z3d_json_parse(const char *text, size_t length, const char *name, z3d_json **out) {
    return z3d_json_parse_line(text, length, name, 1, NULL, out);
}

z3d_status z3d_json_read(const char *path, size_t limit, z3d_json **out) {
    char *text;
    size_t length;
    *out = NULL;
    Z3D_TRY(z3d_read_file(path, limit, &text, &length));
    z3d_status status = z3d_json_parse(text, length, path, out);
    free(text);
    return status;
}

z3d_status z3d_json_parse_line(const char *text, size_t length, const char *name, int64_t line,
                               z3d_json_repairs *repairs, z3d_json **out) {
    parser p = {text, text, text + length, name, text, line, NULL, repairs};
    *out = NULL;
    document *whole = calloc(1, sizeof *whole);
    if (!whole) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory to read %s", name);
    z3d_status status = read_value(&p, &whole->root, 0);
    skip_space(&p);
    if (status == Z3D_OK && p.at != p.end) status = refuse(&p, "text after the end");
    whole->blocks = p.blocks;
    if (status == Z3D_OK)
        *out = &whole->root;
    else
        z3d_json_free(&whole->root);
    return status;
}

void z3d_json_free(z3d_json *json) {
    if (!json) return;
    document *whole = (document *)json;
    for (block *at = whole->blocks, *next; at; at = next) {
        next = at->next;
        free(at);
    }
    free(whole);
}

const z3d_json *z3d_json_member(const z3d_json *object, const char *key) {
    const z3d_json *last = NULL;
    if (!object || object->type != Z3D_JSON_OBJECT) return NULL;
    for (const z3d_json *m = object->first; m; m = m->next)
        if (strcmp(m->key, key) == 0) last = m;
    return last;
}

z3d_status z3d_json_get(const z3d_json *object, const char *key, z3d_json_type type,
                        const z3d_json **out) {
    static const char *const names[] = {"null",     "true or false", "a number",
                                        "a string", "an array",      "an object"};
    *out = z3d_json_member(object, key);
    if (!*out) return Z3D_ERROR(Z3D_ERR_DATA, "\"%s\" is missing", key);
    if ((*out)->type != type) return Z3D_ERROR(Z3D_ERR_DATA, "\"%s\" is not %s", key, names[type]);
    return Z3D_OK;
}

bool z3d_json_int(const z3d_json *value, int64_t *out) {
    if (!value || value->type != Z3D_JSON_NUMBER) return false;
    char *end;
    errno = 0;
    long long number = strtoll(value->text, &end, 10);
    *out = number;
    if (*end == '.') end += 1 + strspn(end + 1, "0"); /* some programs write 16.0 for 16 */
    return errno == 0 && *end == '\0' && number >= 0;
}

z3d_status z3d_json_get_int(const z3d_json *object, const char *key, int64_t *out) {
    const z3d_json *value;
    Z3D_TRY(z3d_json_get(object, key, Z3D_JSON_NUMBER, &value));
    if (!z3d_json_int(value, out))
        return Z3D_ERROR(Z3D_ERR_DATA, "\"%s\": %.40s is not a whole number of 0 or more", key,
                         value->text);
    return Z3D_OK;
}

z3d_status z3d_json_get_float(const z3d_json *object, const char *key, double *out) {
    const z3d_json *value;
    Z3D_TRY(z3d_json_get(object, key, Z3D_JSON_NUMBER, &value));
    *out = strtod(value->text, NULL);
    return Z3D_OK;
}

z3d_status z3d_json_get_text(const z3d_json *object, const char *key, const char **out) {
    const z3d_json *value;
    Z3D_TRY(z3d_json_get(object, key, Z3D_JSON_STRING, &value));
    *out = value->text;
    return Z3D_OK;
}

bool z3d_json_is_text(const z3d_json *value, const char *text) {
    return value && value->type == Z3D_JSON_STRING && strcmp(value->text, text) == 0;
}

bool z3d_json_is_number(const z3d_json *value, double number) {
    return value && value->type == Z3D_JSON_NUMBER && strtod(value->text, NULL) == number;
}

const char *z3d_json_text(const z3d_json *object, const char *key) {
    const z3d_json *m = z3d_json_member(object, key);
    return m && m->type == Z3D_JSON_STRING ? m->text : "";
}

bool z3d_json_is_none(const z3d_json *value) {
    return !value || value->type == Z3D_JSON_NULL;
}

bool z3d_json_flag(const z3d_json *object, const char *key, bool missing) {
    const z3d_json *m = z3d_json_member(object, key);
    return m && m->type == Z3D_JSON_BOOL ? m->truth : missing;
}

/* NOLINTNEXTLINE(misc-no-recursion): the reader refuses more than MAX_DEPTH levels */
void z3d_json_append(const z3d_json *value, const char *space, z3d_string *out) {
    const bool object = value->type == Z3D_JSON_OBJECT;
    switch (value->type) {
    case Z3D_JSON_NULL:
        z3d_string_append(out, "null");
        break;
    case Z3D_JSON_BOOL:
        z3d_string_append(out, value->truth ? "true" : "false");
        break;
    case Z3D_JSON_NUMBER:
        z3d_string_append(out, "%s", value->text);
        break;
    case Z3D_JSON_STRING:
        z3d_string_append_json_bytes(out, value->text, value->length);
        break;
    case Z3D_JSON_ARRAY:
    case Z3D_JSON_OBJECT:
        z3d_string_append(out, object ? "{" : "[");
        for (const z3d_json *m = value->first; m; m = m->next) {
            if (object) z3d_string_append_json(out, m->key);
            if (object) z3d_string_append(out, ":%s", space);
            z3d_json_append(m, space, out);
            if (m->next) z3d_string_append(out, ",%s", space);
        }
        z3d_string_append(out, object ? "}" : "]");
    }
}
