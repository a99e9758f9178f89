/* Cuts a text into words, stage by stage, with patterns (PCRE2, compiled to machine code if
 * possible) or functions. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "src/train/text/bpe.h"

typedef struct splitter {
    size_t (*word)(const char *, size_t); /* NULL: a pattern */
    pcre2_code *code;
    pcre2_match_data *match;
    z3d_split_behaviour behaviour;
    bool invert;
} splitter;

struct z3d_splitters {
    splitter stage[Z3D_MAX_STAGES];
    int count, patterns;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    z3d_string shadow; /* a copy of a text with invalid UTF-8 */
};

/* ---- creation ---- */

z3d_status z3d_splitters_create(z3d_splitters **out) {
    enum { MOST_STEPS = 50000000, SMALL_STACK = 1 << 15, LARGE_STACK = 1 << 22 };
    z3d_splitters *s;
    *out = NULL;
    Z3D_TRY(z3d_new(1, sizeof *s, "the patterns of words", &s));
    *out = s;
    s->context = pcre2_match_context_create(NULL);
    s->stack = pcre2_jit_stack_create(SMALL_STACK, LARGE_STACK, NULL);
    if (!s->context) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the patterns of words");
    pcre2_set_match_limit(s->context, MOST_STEPS);
    pcre2_set_heap_limit(s->context, 1 << 20); /* KiB */
    if (s->stack) pcre2_jit_stack_assign(s->context, NULL, s->stack);
    return Z3D_OK;
}

void z3d_splitters_destroy(z3d_splitters *s) {
    if (!s) return;
    for (int i = 0; i < s->count; i++) {
        pcre2_match_data_free(s->stage[i].match);
        pcre2_code_free(s->stage[i].code);
    }
    pcre2_match_context_free(s->context);
    pcre2_jit_stack_free(s->stack);
    z3d_string_free(&s->shadow);
    free(s);
}

int z3d_splitters_count(const z3d_splitters *s) {
    return s->count;
}

void z3d_splitters_add_function(z3d_splitters *s, size_t (*word)(const char *, size_t)) {
    s->stage[s->count++] = (splitter){.word = word};
}

/* Replaces \s by Unicode's white space: PCRE2's \s also has U+180E, which is no white space since
 * Unicode 6.3. */
static void append_pattern(const char *pattern, z3d_string *out) {
    for (const char *at = pattern; *at; at++) {
        bool escaped = at[0] == '\\' && at[1];
        if (escaped && (at[1] == 's' || at[1] == 'S'))
            z3d_string_append(out, at[1] == 's' ? "\\p{White_Space}" : "\\P{White_Space}");
        else
            z3d_string_append_bytes(out, at, escaped ? 2 : 1);
        at += escaped;
    }
}

z3d_status z3d_splitters_add_pattern(z3d_splitters *s, const char *pattern, bool literal,
                                     z3d_split_behaviour behaviour, bool invert) {
    z3d_string text = {0};
    int error = 0;
    size_t where = 0;
    if (literal)
        z3d_string_append(&text, "%s", pattern);
    else
        append_pattern(pattern, &text);
    splitter one = {.behaviour = behaviour, .invert = invert};
    uint32_t options = PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C);
    if (!text.failed)
        one.code = pcre2_compile((PCRE2_SPTR)(text.text ? text.text : ""), text.length, options,
                                 &error, &where, NULL);
    z3d_string_free(&text);
    if (!one.code) {
        char what[128] = "no memory";
        if (error) pcre2_get_error_message(error, (PCRE2_UCHAR *)what, sizeof what);
        return Z3D_ERROR(Z3D_ERR_DATA, "%s", what);
    }
    pcre2_jit_compile(one.code, PCRE2_JIT_COMPLETE); /* without it, matching is slower */
    one.match = pcre2_match_data_create(1, NULL);
    s->stage[s->count++] = one;
    s->patterns++;
    return one.match ? Z3D_OK : Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a pattern's matches");
}

/* ---- running ---- */

/* subject: the text, or its shadow, in which invalid bytes are control characters. */
typedef struct job {
    z3d_splitters *splitters;
    const char *text, *subject;
    z3d_word_merger *merger;
    z3d_token_list *out;
} job;

static z3d_status cut(const job *j, int stage, size_t begin, size_t end);

/* The state of a pattern's stage: a waiting stretch of text. It is passed on when the next stretch
 * does not belong to it. */
typedef struct state {
    const job *job;
    int stage;
    size_t begin, end; /* the waiting stretch; equal: none */
    bool after_match;
} state;

static z3d_status hand_on(state *s) {
    size_t begin = s->begin, end = s->end;
    s->begin = end;
    return begin < end ? cut(s->job, s->stage + 1, begin, end) : Z3D_OK;
}

/* Takes one stretch: a match of the pattern, or the text between two matches. */
static z3d_status take(state *s, size_t begin, size_t end, bool match) {
    const splitter *p = &s->job->splitters->stage[s->stage];
    match = match != p->invert;
    if (begin == end || (p->behaviour == Z3D_SPLIT_REMOVED && match)) return Z3D_OK;
    bool merged = p->behaviour == Z3D_SPLIT_MERGED && match && !s->after_match;
    s->after_match = match;
    if (merged && s->begin < s->end) {
        s->end = end;
        return Z3D_OK;
    }
    Z3D_TRY(hand_on(s));
    s->begin = begin;
    s->end = end;
    return Z3D_OK;
}

static z3d_status refuse_match(int found) {
    char what[128] = "";
    pcre2_get_error_message(found, (PCRE2_UCHAR *)what, sizeof what);
    return Z3D_ERROR(found == PCRE2_ERROR_NOMEMORY ? Z3D_ERR_MEMORY : Z3D_ERR_DATA,
                     "the tokenizer's pattern of words fails on this text: %s", what);
}

/* Matches a piece of text alone: the pattern does not see the text around it. */
static z3d_status cut_by_pattern(const job *j, int stage, size_t begin, size_t end) {
    const splitter *p = &j->splitters->stage[stage];
    PCRE2_SPTR subject = (PCRE2_SPTR)j->subject + begin;
    const size_t *range = pcre2_get_ovector_pointer(p->match);
    size_t length = end - begin, done = 0;
    state s = {.job = j, .stage = stage};
    for (size_t from = 0; from < length;) {
        int found = pcre2_match(p->code, subject, length, from, PCRE2_NO_UTF_CHECK, p->match,
                                j->splitters->context);
        if (found == PCRE2_ERROR_NOMATCH) break;
        if (found < 0) return refuse_match(found);
        if (range[1] < range[0] || range[0] < done) /* \K */
            return Z3D_ERROR(Z3D_ERR_DATA, "the tokenizer's pattern of words moves its own begin");
        size_t match_begin = range[0], match_end = range[1];
        Z3D_TRY(take(&s, begin + done, begin + match_begin, false));
        Z3D_TRY(take(&s, begin + match_begin, begin + match_end, true));
        done = from = match_end;
        if (match_begin == match_end && from < length)
            from += z3d_utf8_length(j->subject + begin + from, length - from);
    }
    Z3D_TRY(take(&s, begin + done, end, false));
    return hand_on(&s);
}

static z3d_status cut(const job *j, int stage, size_t begin, size_t end) {
    if (stage == j->splitters->count)
        return z3d_word_merger_add(j->merger, j->text + begin, end - begin, j->out);
    const splitter *p = &j->splitters->stage[stage];
    if (!p->word) return cut_by_pattern(j, stage, begin, end);
    bool last = stage + 1 == j->splitters->count;
    while (begin < end) {
        size_t word = p->word(j->text + begin, end - begin);
        Z3D_TRY(last ? z3d_word_merger_add(j->merger, j->text + begin, word, j->out)
                     : cut(j, stage + 1, begin, begin + word));
        begin += word;
    }
    return Z3D_OK;
}

/* Number of bytes of valid UTF-8 at the beginning. */
static size_t valid_run(const char *text, size_t length) {
    size_t at = 0, bytes;
    for (uint64_t word; at < length; at += bytes) {
        while (at + 8 <= length && (memcpy(&word, text + at, 8), !(word & 0x8080808080808080u)))
            at += 8;
        bytes = at < length ? z3d_utf8_length(text + at, length - at) : 0;
        if (bytes == 0) break;
    }
    return at;
}

/* NULL: no memory. */
static const char *make_shadow(z3d_string *shadow, const char *text, size_t length, size_t valid) {
    z3d_string_clear(shadow);
    z3d_string_append_bytes(shadow, text, valid);
    for (size_t at = valid; at < length;) {
        z3d_string_append_bytes(shadow, "\x01", 1);
        at++;
        size_t good = valid_run(text + at, length - at);
        z3d_string_append_bytes(shadow, text + at, good);
        at += good;
    }
    return shadow->failed ? NULL : shadow->text;
}

z3d_status z3d_splitters_run(z3d_splitters *s, const char *text, size_t length,
                             z3d_word_merger *merger, z3d_token_list *out) {
    job j = {s, text, text, merger, out};
    if (s->patterns > 0) {
        size_t valid = valid_run(text, length);
        if (valid < length) j.subject = make_shadow(&s->shadow, text, length, valid);
        if (!j.subject) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for %zu bytes of text", length);
    }
    return cut(&j, 0, 0, length);
}

size_t z3d_marked_word(const char *text, size_t length) {
    const size_t mark = sizeof Z3D_SPACE_MARK - 1;
    size_t at = 0;
    while (length - at >= mark && memcmp(text + at, Z3D_SPACE_MARK, mark) == 0) at += mark;
    const char *next = memmem(text + at, length - at, Z3D_SPACE_MARK, mark);
    return next ? (size_t)(next - text) : length;
}
