/* Encodes a conversation as its template does, and marks untrained tokens. */
#include <string.h>

#include "src/train/data/token_writer.h"
#include "src/train/text/bpe.h"
#include "src/train/text/chat.h"

typedef struct span {
    const char *text;
    size_t length;
} span;

/* Text between two special tokens that are written as ids. It is encoded as a whole, because a
 * token may cross the border of its parts. It is trained from trained_from on. */
typedef struct run {
    z3d_tokenizer *tokenizer;
    z3d_string text;
    size_t trained_from;
    bool trained; /* a part of it is trained */
    bool follows; /* it follows a special token */
    z3d_token_list *out, ids;
} run;

static void add(run *r, span s, bool trained) {
    if (trained && !r->trained) r->trained_from = r->text.length;
    r->trained |= trained;
    z3d_string_append_bytes(&r->text, s.text, s.length);
}

static void add_text(run *r, const char *text) {
    add(r, (span){text, strlen(text)}, false);
}

static z3d_status encode(run *r, size_t length, z3d_token_list *out) {
    const char *text = r->text.text ? r->text.text : "";
    const size_t first = out->count;
    Z3D_TRY(r->follows ? z3d_tokenizer_encode_after(r->tokenizer, text, length, out)
                       : z3d_tokenizer_encode(r->tokenizer, text, length, true, out));
    return z3d_tokenizer_check_ids(r->tokenizer, out, first);
}

/* A token is untrained if the text before trained_from, encoded alone, begins with the same tokens
 * up to it. So a token that crosses the border is trained. */
static z3d_status flush(run *r) {
    size_t first = r->out->count, untrained;
    if (r->text.failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a conversation");
    Z3D_TRY(encode(r, r->text.length, r->out));
    untrained = r->out->count - first;
    if (r->trained) {
        r->ids.count = 0;
        Z3D_TRY(encode(r, r->trained_from, &r->ids));
        size_t most = r->ids.count < untrained ? r->ids.count : untrained;
        for (untrained = 0; untrained < most; untrained++)
            if (r->ids.id[untrained] != r->out->id[first + untrained]) break;
    }
    for (size_t i = 0; i < untrained; i++) r->out->id[first + i] |= Z3D_TOKEN_UNTRAINED;
    z3d_string_clear(&r->text);
    r->trained = false;
    return Z3D_OK;
}

static z3d_status add_id(run *r, int32_t id, bool trained) {
    Z3D_TRY(flush(r));
    r->follows = true;
    return z3d_token_list_add(r->out, trained ? id : id | Z3D_TOKEN_UNTRAINED);
}

/* ---- contents ---- */

/* White space of Python's strip, which has four separators more than patterns have. */
static size_t white_space(const char *text, size_t length) {
    return *text >= 0x1c && *text <= 0x1f ? 1 : z3d_space_length(text, length);
}

static span strip(span s) {
    size_t bytes;
    while (s.length > 0 && (bytes = white_space(s.text, s.length)) > 0)
        s.text += bytes, s.length -= bytes;
    while (s.length > 0) {
        size_t at = s.length - 1;
        while (at > 0 && ((unsigned char)s.text[at] & 0xc0) == 0x80) at--;
        if (white_space(s.text + at, s.length - at) != s.length - at) break;
        s.length = at;
    }
    return s;
}

static span strip_lines(span s, bool left, bool right) {
    while (left && s.length > 0 && *s.text == '\n') s.text++, s.length--;
    while (right && s.length > 0 && s.text[s.length - 1] == '\n') s.length--;
    return s;
}

static const char *find(span s, const char *text) {
    return s.length > 0 ? memmem(s.text, s.length, text, strlen(text)) : NULL;
}

/* The text after the last `mark`; all of it if there is no mark. */
static span after_last(span s, const char *mark) {
    for (const char *at; (at = find(s, mark)) != NULL;) {
        size_t used = (size_t)(at - s.text) + strlen(mark);
        s.text += used, s.length -= used;
    }
    return s;
}

/* ---- Qwen3's thoughts ---- */

#define THINK "<think>"
#define THOUGHT "</think>"

static bool is_tool_response(const z3d_message *m) {
    static const char begin[] = "<tool_response>", end[] = "</tool_response>";
    const size_t first = sizeof begin - 1, last = sizeof end - 1;
    return m->length >= first && memcmp(m->text, begin, first) == 0 && m->length >= last &&
           memcmp(m->text + m->length - last, end, last) == 0;
}

static int last_question(const z3d_message *message, int count) {
    for (int i = count - 1; i >= 0; i--)
        if (message[i].role == Z3D_CHAT_USER && !is_tool_response(&message[i])) return i;
    return count - 1;
}

/* Answers before the last question are written without thoughts; later ones keep theirs, and the
 * last answer always has some, also empty ones. */
static void add_thinking(run *r, const z3d_message *m, bool after, bool last) {
    span content = {m->text, m->length}, thoughts = {m->reasoning, m->reasoning_length};
    const char *end = find(content, THOUGHT);
    if (!m->reasoning && end) {
        thoughts = strip_lines((span){m->text, (size_t)(end - m->text)}, false, true);
        thoughts = strip_lines(after_last(thoughts, THINK), true, false);
        content = strip_lines(after_last(content, THOUGHT), true, false);
    }
    if (after && (last || thoughts.length > 0)) {
        thoughts = strip_lines(thoughts, true, true);
        add(r, (span){THINK "\n", sizeof THINK}, m->trained);
        if (thoughts.length > 0) add(r, thoughts, m->trained);
        add(r, (span){"\n" THOUGHT "\n\n", sizeof THOUGHT + 2}, m->trained);
        content = strip_lines(content, true, false);
    }
    add(r, content, m->trained);
}

/* ---- a conversation ---- */

static span content_of(const z3d_chat_kind *kind, const z3d_message *m) {
    const span s = {m->text, m->length};
    bool trim = kind->trim == Z3D_TRIM_ALL ||
                (kind->trim == Z3D_TRIM_ASSISTANT && m->role == Z3D_CHAT_ASSISTANT);
    return trim ? strip(s) : s;
}

/* Adds the system message: the conversation's own or the usual one. */
static z3d_status add_system(run *r, const z3d_chat *chat, const z3d_message *m) {
    const z3d_chat_kind *kind = chat->kind;
    const char *usual = chat->usual_system ? chat->usual_system : kind->usual_system;
    if (m && kind->system == Z3D_SYSTEM_REFUSED)
        return Z3D_ERROR(Z3D_ERR_DATA,
                         "the %s chat template has no place for a system message before an answer; "
                         "put its text into the first message of the user",
                         kind->name);
    if (kind->system != Z3D_SYSTEM_OWN_TURN || (!m && !usual)) return Z3D_OK;
    add_text(r, kind->before[Z3D_CHAT_SYSTEM]);
    add(r, m ? content_of(kind, m) : (span){usual, strlen(usual)}, false);
    add_text(r, kind->after[Z3D_CHAT_SYSTEM]);
    return Z3D_OK;
}

static void add_user(run *r, const z3d_chat_kind *kind, const z3d_message *m,
                     const z3d_message *system) {
    add_text(r, kind->before[Z3D_CHAT_USER]);
    if (system) {
        add(r, (span){system->text, system->length}, false);
        add_text(r, "\n\n");
    }
    add(r, content_of(kind, m), m->trained);
    add_text(r, kind->after[Z3D_CHAT_USER]);
}

static z3d_status add_conversation(run *r, const z3d_chat *chat, const z3d_message *message,
                                   int count) {
    const z3d_chat_kind *kind = chat->kind;
    const bool has_system = message->role == Z3D_CHAT_SYSTEM;
    const int question = kind->thinking ? last_question(message, count) : 0;
    if (chat->begin >= 0) Z3D_TRY(add_id(r, chat->begin, false));
    Z3D_TRY(add_system(r, chat, has_system ? message : NULL));
    for (int i = has_system; i < count; i++) {
        const z3d_message *m = &message[i];
        if (m->role == Z3D_CHAT_USER) {
            add_user(r, kind, m,
                     kind->system == Z3D_SYSTEM_FIRST_USER && has_system && i == 1 ? message
                                                                                   : NULL);
            continue;
        }
        add_text(r, kind->before[Z3D_CHAT_ASSISTANT]);
        if (kind->thinking)
            add_thinking(r, m, i > question, i == count - 1);
        else
            add(r, content_of(kind, m), m->trained);
        Z3D_TRY(add_id(r, chat->end, m->trained));
        add_text(r, kind->after[Z3D_CHAT_ASSISTANT]);
    }
    return Z3D_OK;
}

z3d_status z3d_chat_encode(const z3d_chat *chat, z3d_tokenizer *tokenizer,
                           const z3d_message *message, int count, bool prompt,
                           z3d_token_list *out) {
    const size_t first = out->count;
    run r = {.tokenizer = tokenizer, .out = out};
    z3d_status status = add_conversation(&r, chat, message, count);
    if (prompt && chat->kind->prompt) add_text(&r, chat->kind->prompt);
    if (status == Z3D_OK) status = flush(&r);
    for (size_t i = first; prompt && i < out->count; i++) out->id[i] &= ~Z3D_TOKEN_UNTRAINED;
    z3d_string_free(&r.text);
    z3d_token_list_free(&r.ids);
    return status;
}
