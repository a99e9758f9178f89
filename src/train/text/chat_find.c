/* Finds the chat template of a model. Two templates count as the same if they differ only in the
 * layout of their program: white space between words, quotes, comments; or in the text of ChatML's
 * usual system message. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/train/text/bpe.h"
#include "src/train/text/chat.h"
#include "src/train/text/json_lines.h"
#include "src/train/text/text_files.h"

#define SYSTEM_TURN "<|im_start|>system\n"
#define TURN_END "<|im_end|>"

enum { LARGEST = 1 << 20 };

/* Digests of the templates in the layout of this file, and their kinds. */
static const struct {
    uint64_t digest;
    const char *kind;
} templates[] = {
    {0xaf4fb51932f1455f, "chatml"},       /* OpenHermes, Hermes, Yi, SmolLM's first */
    {0xb363a760cb8d811a, "chatml"},       /* Qwen 1.5 and 2, SmolLM 2 */
    {0x5452bd71c22c6fbd, "chatml"},       /* Qwen 2.5 */
    {0xa665e617e8609697, "chatml"},       /* Qwen 3 Instruct 2507 */
    {0x43b82b8f2ed65a1c, "qwen3"},        /* Qwen 3 */
    {0x72af8203a596b7f2, "llama3"},       /* Llama 3 */
    {0x5b3590da821e1237, "llama3.1"},     /* Llama 3.1 */
    {0xcf8f100bb94df826, "llama3.1"},     /* Llama 3.2 */
    {0x6cc7637172e8fc09, "mistral-v0.1"}, /* Mistral 7B Instruct 0.1 */
    {0xd643b868e4015887, "mixtral"},      /* Mixtral 8x7B Instruct, Mistral 7B Instruct 0.2 */
    {0x21c60e0a596611c3, "mistral-v1"}, /* the later template of Mistral 7B Instruct 0.1 and 0.2 */
    {0xe78fa15fa35f54c1, "mistral-v3"}, /* Mistral 7B Instruct 0.3 */
    {0x5a3d9efa7235f278, "mistral-nemo"}, /* Mistral Nemo Instruct */
    {0xe0dccbca9015b991, "gemma"},        /* Gemma and Gemma 2 */
    {0x8f73ba753d225db6, "gemma3"},       /* Gemma 3 */
};

/* ---- the template's text in one layout ---- */

/* Appends a string of the program: in single quotes, with a line feed for \n. Returns its length.
 */
static size_t append_string(const char *text, z3d_string *out) {
    size_t at = 1;
    z3d_string_append(out, "'");
    for (; text[at] && text[at] != *text; at++) {
        const bool escape = text[at] == '\\' && text[at + 1];
        at += escape;
        const char c = escape && text[at] == 'n' ? '\n' : text[at];
        z3d_string_append_bytes(out, &c, 1);
    }
    z3d_string_append(out, "'");
    return at + (text[at] != 0);
}

/* {%- removes the white space before it. */
static void take_space(z3d_string *out) {
    while (!out->failed && out->length > 0 && z3d_json_is_white(out->text[out->length - 1]))
        out->text[--out->length] = 0;
}

/* The length of a comment. As in transformers it includes the line's end after it and the blanks
 * before it on its line. 0: the comment has no end, or keeps these (+). */
static size_t take_comment(const char *text, z3d_string *out) {
    const char *begin = text + 2 + (text[2] == '-'), *end = strstr(begin, "#}");
    size_t blanks = out->length;
    if (!end || *begin == '+' || (end > begin && end[-1] == '+')) return 0;
    while (blanks > 0 && strchr(" \t", out->text[blanks - 1])) blanks--;
    if (blanks == 0 || out->text[blanks - 1] == '\n')
        while (out->length > blanks) out->text[--out->length] = 0;
    const bool all = end > begin && end[-1] == '-';
    end += 2;
    if (all)
        while (z3d_json_is_white(*end)) end++;
    return (size_t)(end - text) + (!all && *end == '\n');
}

static void lay_out(const char *text, bool comments, z3d_string *out) {
    bool program = false;
    for (size_t at = 0, comment; text[at];) {
        const char c = text[at], next = text[at + 1];
        if (!program && c == '\n' && !next) return; /* the end of the last line is not written */
        if (!program && c == '{' && next && strchr("{%#", next) && text[at + 2] == '-')
            take_space(out);
        if (!comments && !program && c == '{' && next == '#' &&
            (comment = take_comment(text + at, out)) > 0) {
            at += comment;
            continue;
        }
        if (!program && c == '{' && (next == '{' || next == '%'))
            program = true;
        else if (program && next == '}' && (c == '}' || c == '%'))
            program = false;
        if (program && (c == '\'' || c == '"')) {
            at += append_string(text + at, out);
            continue;
        }
        if (!program || !z3d_json_is_white(c)) z3d_string_append_bytes(out, &c, 1);
        at++;
    }
}

/* ---- ChatML's usual system message ---- */

/* *out: malloc'ed; NULL: the template has none. */
static z3d_status find_usual_system(const char *text, char **out) {
    *out = NULL;
    while ((text = strstr(text, SYSTEM_TURN)) != NULL) {
        text += sizeof SYSTEM_TURN - 1;
        const char *end = strstr(text, TURN_END);
        if (!end || end == text || memchr(text, '\'', (size_t)(end - text))) continue;
        *out = strndup(text, (size_t)(end - text));
        return *out ? Z3D_OK : Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a chat template");
    }
    return Z3D_OK;
}

/* The digest of a text without all occurrences of `part` (NULL: of the whole text). */
static uint64_t digest_without(const char *text, const char *part) {
    z3d_content_hash hash = {{0, 0}};
    const char *next;
    while (part && (next = strstr(text, part)) != NULL) {
        z3d_content_hash_add(&hash, text, (size_t)(next - text));
        text = next + strlen(part);
    }
    z3d_content_hash_add(&hash, text, strlen(text));
    return hash.word[0];
}

/* ---- the files ---- */

/* The member "chat_template": a text, or a list of named templates. */
static const z3d_json *template_of(const z3d_json *config) {
    const z3d_json *m = z3d_json_member(config, "chat_template");
    if (m && m->type == Z3D_JSON_ARRAY)
        for (m = m->first; m; m = m->next)
            if (z3d_json_is_text(z3d_json_member(m, "name"), "default"))
                return z3d_json_member(m, "template");
    return m && m->type == Z3D_JSON_STRING ? m : NULL;
}

/* *text NULL: the file has no template. */
static z3d_status read_config(const char *beside, char **text) {
    z3d_json *config;
    Z3D_TRY(z3d_read_json_beside(beside, "tokenizer_config.json", &config));
    const z3d_json *m = template_of(config);
    *text = m ? strdup(m->text) : NULL;
    const bool failed = m && !*text;
    z3d_json_free(config);
    return failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a chat template") : Z3D_OK;
}

/* Reads the template in the folder of the file `beside`; *path: its file. */
static z3d_status read_template(const char *beside, char **text, char **path) {
    size_t length;
    Z3D_TRY(z3d_path_beside(beside, "chat_template.jinja", path));
    if (access(*path, F_OK) == 0) return z3d_read_file(*path, LARGEST, text, &length);
    free(*path);
    Z3D_TRY(z3d_path_beside(beside, "tokenizer_config.json", path));
    return read_config(beside, text);
}

/* ---- comparing with known templates ---- */

/* The kind whose marks the template has, as a hint for the error; NULL: none. */
static const char *nearest(const char *text) {
    static const char *const marks[][2] = {{"<think>", "qwen3"},
                                           {"<|im_start|>", "chatml"},
                                           {"Cutting Knowledge", "llama3.1"},
                                           {"<|start_header_id|>", "llama3"},
                                           {"<start_of_turn>", "gemma3"},
                                           {"[INST]", "mistral-v3"}};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (strstr(text, marks[i][0])) return marks[i][1];
    return NULL;
}

/* comments: keep comments, because some known templates have their own. */
static z3d_status look_up(const char *text, bool comments, const char *path, z3d_chat *out,
                          uint64_t *digest) {
    z3d_string laid = {0};
    lay_out(text, comments, &laid);
    free(out->usual_system);
    out->usual_system = NULL;
    z3d_status status = laid.failed || !laid.text
                            ? Z3D_ERROR(Z3D_ERR_DATA, "%s: the chat template is empty", path)
                            : find_usual_system(laid.text, &out->usual_system);
    *digest = status == Z3D_OK ? digest_without(laid.text, out->usual_system) : 0;
    z3d_string_free(&laid);
    for (size_t i = 0; status == Z3D_OK && i < sizeof templates / sizeof *templates; i++)
        if (templates[i].digest == *digest) out->kind = z3d_chat_kind_find(templates[i].kind);
    return status;
}

static z3d_status recognise(const char *text, const char *path, z3d_chat *out) {
    uint64_t digest;
    char names[Z3D_CHAT_NAMES];
    Z3D_TRY(look_up(text, true, path, out, &digest));
    if (!out->kind) Z3D_TRY(look_up(text, false, path, out, &digest));
    if (out->kind) return Z3D_OK;
    const char *hint = nearest(text);
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                     "%s: this chat template is not a known one: give --chat-template %s if it "
                     "writes the same as %s (names: %s; digest %016llx)",
                     path, hint ? hint : "NAME", hint ? hint : "the one of that name",
                     z3d_chat_kind_names(names, sizeof names), (unsigned long long)digest);
}

static z3d_status find_token(const z3d_chat *chat, z3d_tokenizer *tokenizer, const char *text,
                             int32_t *out) {
    Z3D_TRY(z3d_tokenizer_special_token(tokenizer, text, out));
    if (*out >= 0 && tokenizer->model_ids > 0 && *out >= tokenizer->model_ids)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "the %s chat template writes %s, token %d, but the model has ids 0 to %d "
                         "(model.vocab_size): use a run that was trained with more (checkpoint "
                         "import --vocab-size)",
                         chat->kind->name, text, *out, tokenizer->model_ids - 1);
    if (*out >= 0) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_CONFIG,
                     "the %s chat template writes %s, but the %s tokenizer has no such special "
                     "token; --chat-template plain needs none",
                     chat->kind->name, text, tokenizer->name);
}

static z3d_status find_tokens(z3d_chat *chat, z3d_tokenizer *tokenizer) {
    const z3d_chat_kind *kind = chat->kind;
    int32_t turn;
    const int32_t first[] = {[Z3D_BEGIN_NOTHING] = -1,
                             [Z3D_BEGIN_BOS] = tokenizer->usual_begin,
                             [Z3D_BEGIN_DOCUMENT] = tokenizer->begin_of_text};
    chat->begin = first[kind->begin];
    chat->end = tokenizer->end_of_text;
    if (kind->turn) Z3D_TRY(find_token(chat, tokenizer, kind->turn, &turn));
    return kind->end ? find_token(chat, tokenizer, kind->end, &chat->end) : Z3D_OK;
}

/* Finds the template in the folder of the tokenizer's file. */
static z3d_status find_kind(const z3d_tokenizer *tokenizer, z3d_chat *out) {
    char *text = NULL, *path = NULL;
    if (!tokenizer->path) return Z3D_OK;
    z3d_status status = read_template(tokenizer->path, &text, &path);
    if (status == Z3D_OK && text) status = recognise(text, path, out);
    free(text);
    free(path);
    return status;
}

z3d_status z3d_chat_find(const char *name, z3d_tokenizer *tokenizer, z3d_chat *out) {
    char names[Z3D_CHAT_NAMES];
    *out = (z3d_chat){.kind = name ? z3d_chat_kind_find(name) : NULL};
    if (name && !out->kind)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--chat-template %s: expected auto or one of %s", name,
                         z3d_chat_kind_names(names, sizeof names));
    z3d_status status = name ? Z3D_OK : find_kind(tokenizer, out);
    if (status == Z3D_OK && out->kind) status = find_tokens(out, tokenizer);
    if (status != Z3D_OK) out->kind = NULL;
    return status;
}

int32_t z3d_tokenizer_answer_end(z3d_tokenizer *tokenizer) {
    z3d_chat chat;
    (void)z3d_chat_find(NULL, tokenizer, &chat);
    const int32_t end = chat.kind ? chat.end : -1;
    z3d_chat_free(&chat);
    return end;
}

void z3d_chat_free(z3d_chat *chat) {
    free(chat->usual_system);
    *chat = (z3d_chat){0};
}
