/* Finds Megatron-LM's arguments in a command line or a part of a shell script. */
#include "src/base/config/megatron.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { WORD = 1 << 15, VARIABLES = 128 };

typedef struct variable {
    char *name, *value; /* value NULL: not known, since two values are assigned */
} variable;

typedef struct reader {
    const char *at;
    variable variable[VARIABLES];
    int count;
    bool full; /* a word or the variables are too many */
} reader;

static bool separates(char c) {
    return isspace((unsigned char)c) || strchr("\"'()\\;", c);
}

/* Whether the character at `at` belongs to the word before it: a quote within a word does, and is
 * left out; one that opens a text of arguments, NAME="--flag, does not. */
static bool continues(const char *at) {
    if (!separates(*at)) return *at != '\0';
    bool quote = *at == '"' || *at == '\'';
    return quote && at[1] && !separates(at[1]) && at[1] != '-';
}

/* NAME of "NAME=...", 0: the word is no assignment. */
static size_t assigned_name(const char *word) {
    size_t length = 0;
    while (isalnum((unsigned char)word[length]) || word[length] == '_') length++;
    bool plus = word[length] == '+' && word[length + 1] == '=';
    return length > 0 && !isdigit((unsigned char)word[0]) && (word[length] == '=' || plus) ? length
                                                                                           : 0;
}

/* Where the value of NAME="a b" ends, from the first space in it on; `at`: here. A text that has
 * arguments is no value: its words are read one by one. */
static const char *value_end(const char *word, size_t length, const char *at, char quote) {
    bool assigns = quote && assigned_name(word) && length > 0;
    const char *end = assigns ? strchr(at, quote) : NULL;
    for (const char *c = at; end && c + 1 < end; c++)
        if (c[0] == '-' && c[1] == '-') return at;
    return end ? end : at;
}

static void add_character(reader *r, char *word, size_t *length, char c) {
    bool space = isspace((unsigned char)c) || c == '\\';
    if (space && *length > 0 && word[*length - 1] == ' ') return;
    r->full = r->full || *length == WORD - 1;
    if (!r->full) word[(*length)++] = space ? ' ' : c;
    word[*length] = '\0';
}

/* The next word; false at the end. */
static bool next_word(reader *r, char *word) {
    size_t length = 0;
    char quote = '\0';
    for (;;) {
        while (*r->at && separates(*r->at)) r->at++;
        if (*r->at != '#') break;
        while (*r->at && *r->at != '\n') r->at++;
    }
    word[0] = '\0';
    for (; continues(r->at); r->at++) {
        if (!separates(*r->at))
            add_character(r, word, &length, *r->at);
        else
            quote = *r->at == quote ? '\0' : *r->at;
    }
    for (const char *end = value_end(word, length, r->at, quote); r->at < end; r->at++)
        add_character(r, word, &length, *r->at);
    return length > 0;
}

/* Which of two values counts (branches of an if?) only a shell knows. */
static void assign(reader *r, const char *word, size_t name) {
    const char *value = strchr(word, '=') + 1;
    int i = 0;
    while (i < r->count &&
           (strlen(r->variable[i].name) != name || strncmp(r->variable[i].name, word, name) != 0))
        i++;
    if (i < r->count) {
        variable *v = &r->variable[i];
        if (v->value && strcmp(v->value, value) == 0) return;
        free(v->value);
        v->value = NULL;
        return;
    }
    r->full = r->full || r->count == VARIABLES;
    if (r->full || !*value) return;
    variable *v = &r->variable[r->count];
    *v = (variable){strndup(word, name), strdup(value)};
    if (v->name)
        r->count++;
    else
        free(v->value);
}

/* $NAME, ${NAME} and ${NAME:-default} at `at`: its value, or NULL; *end is what follows. */
static const char *look_up(const reader *r, const char *at, const char **end) {
    bool brace = at[1] == '{';
    const char *name = at + 1 + brace;
    size_t length = 0;
    while (isalnum((unsigned char)name[length]) || name[length] == '_') length++;
    const char *stop = brace ? strchr(name, '}') : name + length;
    *end = stop ? stop + brace : name + length;
    for (int i = 0; i < r->count; i++) {
        const variable *v = &r->variable[i];
        if (strlen(v->name) == length && strncmp(v->name, name, length) == 0) return v->value;
    }
    return NULL;
}

/* The word with the variables that are known. */
static void put_variables_in(const reader *r, const char *word, z3d_string *out) {
    while (*word) {
        const char *end = word + 1;
        const char *value = *word == '$' ? look_up(r, word, &end) : NULL;
        if (value)
            z3d_string_append(out, "%s", value);
        else
            z3d_string_append_bytes(out, word, (size_t)(end - word));
        word = end;
    }
}

static bool is_flag(const char *word) {
    return word[0] == '-' && word[1] == '-' && isalpha((unsigned char)word[2]);
}

static z3d_status begin_argument(megatron_text *out, const char *word, const char *file) {
    if (out->count == MEGATRON_GIVEN)
        return Z3D_ERROR(Z3D_ERR_DATA, "%.200s: more than %d arguments", file, MEGATRON_GIVEN);
    size_t length = strcspn(word, "=");
    megatron_given *g = &out->given[out->count];
    *g = (megatron_given){strndup(word + 2, length - 2),
                          strdup(word[length] ? word + length + 1 : "")};
    if (!g->name || !g->values) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for an argument");
    for (char *c = g->name; *c; c++)
        if (*c == '_') *c = '-';
    out->count++;
    return Z3D_OK;
}

static z3d_status add_value(megatron_given *g, const char *word) {
    z3d_string joined = {0};
    z3d_string_append(&joined, "%s%s%s", g->values, g->values[0] ? " " : "", word);
    if (joined.failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for an argument");
    free(g->values);
    g->values = joined.text;
    return Z3D_OK;
}

static z3d_status take_word(reader *r, const char *word, const char *file, megatron_text *out,
                            bool *open) {
    size_t name = assigned_name(word);
    size_t length = strlen(word);
    bool script = length > 3 && strcmp(word + length - 3, ".py") == 0;
    if (is_flag(word)) {
        *open = true;
        return begin_argument(out, word, file);
    }
    if (name) assign(r, word, name);
    /* What follows an assignment, a program or the whole of an array is no value. */
    if (name || script || strstr(word, "[@]") || strchr("<>|&", word[0])) *open = false;
    if (!*open) return Z3D_OK;
    /* Only data has several values; a word after another's is the next command. */
    megatron_given *last = &out->given[out->count - 1];
    return !last->values[0] || strstr(last->name, "data-path") ? add_value(last, word) : Z3D_OK;
}

z3d_status megatron_parse(const char *text, const char *file, megatron_text *out) {
    reader r = {.at = text};
    char word[WORD] = "";
    bool open = false;
    z3d_status status = Z3D_OK;
    while (status == Z3D_OK && next_word(&r, word)) {
        z3d_string whole = {0};
        put_variables_in(&r, word, &whole);
        status = whole.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for an argument")
                              : take_word(&r, whole.text, file, out, &open);
        z3d_string_free(&whole);
    }
    if (status == Z3D_OK && r.full)
        status = Z3D_ERROR(Z3D_ERR_DATA,
                           "%.200s: a word of more than %d characters, or more than "
                           "%d variables",
                           file, WORD - 1, VARIABLES);
    for (int i = 0; i < r.count; i++) {
        free(r.variable[i].name);
        free(r.variable[i].value);
    }
    if (status == Z3D_OK && out->count == 0)
        return Z3D_ERROR(Z3D_ERR_DATA,
                         "%.200s has no arguments; expected --num-layers 24 and the like", file);
    return status;
}

void megatron_text_free(megatron_text *text) {
    for (int i = 0; i < text->count; i++) {
        free(text->given[i].name);
        free(text->given[i].values);
    }
}

const char *megatron_value(const megatron_text *text, const char *name) {
    for (int i = text->count - 1; i >= 0; i--) {
        if (strcmp(text->given[i].name, name) == 0) return text->given[i].values;
    }
    return NULL;
}
