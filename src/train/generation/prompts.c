/* Reads prompts, and writes answers. */
#include "src/train/generation/prompts.h"

#include <stdlib.h>
#include <string.h>

#include "src/train/text/conversation.h"
#include "src/train/text/json_lines.h"

enum { MOST_TOKENS = 1000000, MOST_ERRORS = 20 };

/* ---- tokens ---- */

/* Refuses special tokens in messages: one could end the user's message and begin another. */
static z3d_status refuse_special(const z3d_tokenizer *t, const z3d_message *message, int count) {
    for (int i = 0; i < count; i++) {
        const z3d_message *m = &message[i];
        size_t bytes;
        const char *token = z3d_tokenizer_find_special(t, m->text, m->length, &bytes);
        if (token)
            return Z3D_ERROR(Z3D_ERR_DATA,
                             "the %s's message has %.*s, which is a special token of the "
                             "tokenizer, not text: remove it",
                             z3d_role_name(m->role), (int)bytes, token);
    }
    return Z3D_OK;
}

static z3d_status encode_chat(const z3d_prompt_style *style, const z3d_message *message, int count,
                              z3d_prompt *out) {
    z3d_token_list list = {0};
    Z3D_TRY(refuse_special(style->tokenizer, message, count));
    z3d_status status = z3d_chat_encode(style->chat, style->tokenizer, message, count, true, &list);
    out->token = list.id;
    out->length = (int64_t)list.count;
    out->begins = true;
    return status;
}

static z3d_status encode_message(const z3d_prompt_style *style, const char *text, size_t length,
                                 z3d_prompt *out) {
    z3d_message message[] = {{.role = Z3D_CHAT_SYSTEM, .text = style->system},
                             {.role = Z3D_CHAT_USER, .text = text, .length = length}};
    const int first = style->system ? 0 : 1;
    if (style->system) message[0].length = strlen(style->system);
    return encode_chat(style, message + first, 2 - first, out);
}

z3d_status z3d_prompt_encode(const z3d_prompt_style *style, const char *text, size_t length,
                             z3d_prompt *out) {
    z3d_token_list list = {0};
    if (style->chat) return encode_message(style, text, length, out);
    z3d_status status = z3d_tokenizer_prompt(style->tokenizer, text, length, &list);
    out->token = list.id;
    out->length = (int64_t)list.count;
    out->begins = length == 0;
    return status;
}

z3d_status z3d_prompt_check(const z3d_prompt_style *style, const z3d_prompt *prompt,
                            z3d_status error) {
    if (prompt->length <= style->positions) return Z3D_OK;
    return Z3D_ERROR(error,
                     "the prompt has %lld tokens, but the model sees %lld (model.seq_length); "
                     "shorten it",
                     (long long)prompt->length, (long long)style->positions);
}

/* Puts the system message before the messages, unless they have one. */
static z3d_status add_system(const z3d_prompt_style *style, z3d_conversation *talk) {
    if (!style->system || talk->message[0].role == Z3D_CHAT_SYSTEM) return Z3D_OK;
    Z3D_TRY(z3d_conversation_add(talk, (z3d_message){.role = Z3D_CHAT_SYSTEM}));
    memmove(talk->message + 1, talk->message, ((size_t)talk->count - 1) * sizeof *talk->message);
    talk->message[0] = (z3d_message){
        .role = Z3D_CHAT_SYSTEM, .text = style->system, .length = strlen(style->system)};
    return Z3D_OK;
}

static z3d_status encode_messages(const z3d_prompt_style *style, const z3d_json *list,
                                  z3d_prompt *out) {
    z3d_conversation talk = {0};
    z3d_status status =
        z3d_conversation_read(&talk, list, "messages", style->chat->kind->thinking, false);
    if (status == Z3D_OK) status = z3d_conversation_check(&talk);
    if (status == Z3D_OK && talk.message[talk.count - 1].role != Z3D_CHAT_USER)
        status = Z3D_ERROR(Z3D_ERR_DATA, "the last message must be the user's: the assistant's "
                                         "answer is generated");
    if (status == Z3D_OK) status = add_system(style, &talk);
    if (status == Z3D_OK) status = encode_chat(style, talk.message, talk.count, out);
    z3d_conversation_free(&talk);
    return status;
}

/* ---- the keys of a line that are copied to its answer ---- */

static bool is_of_answer(const char *key) {
    return z3d_has_word("text tokens finish", key);
}

/* key: the one of the prompt. */
static void append_head(const z3d_json *line, const char *key, z3d_string *out) {
    z3d_string_append(out, "{\"%s\": ", key);
    z3d_json_append(z3d_json_member(line, key), " ", out);
    for (const z3d_json *m = line->first; m; m = m->next) {
        if (is_of_answer(m->key) || strcmp(m->key, key) == 0) continue;
        z3d_string_append(out, ", ");
        z3d_string_append_json(out, m->key);
        z3d_string_append(out, ": ");
        z3d_json_append(m, " ", out);
    }
}

void z3d_prompts_answer_line(const z3d_string *head, const z3d_answer *answer, z3d_string *out) {
    z3d_string_append_bytes(out, head->text, head->length);
    z3d_string_append(out, ", \"text\": ");
    z3d_string_append_json_bytes(out, answer->text, answer->length);
    z3d_string_append(out, ", \"tokens\": %lld, \"finish\": \"%s\"}\n", (long long)answer->tokens,
                      answer->stopped ? "stop" : "length");
}

/* ---- lines ---- */

static z3d_status take_number(const z3d_json *line, const char *key, int64_t least, int64_t most,
                              int64_t *out) {
    const z3d_json *member = z3d_json_member(line, key);
    int64_t value;
    if (!member) return Z3D_OK;
    if (!z3d_json_int(member, &value) || value < least || value > most)
        return Z3D_ERROR(Z3D_ERR_DATA, "%s: expected an integer from %lld to %lld", key,
                         (long long)least, (long long)most);
    *out = value;
    return Z3D_OK;
}

/* JSON readers use the last of two equal keys; in a line of data two are an error. */
static z3d_status check_once(const z3d_json *line, const char *key) {
    int count = 0;
    for (const z3d_json *m = line->first; m; m = m->next) count += !strcmp(m->key, key);
    return count < 2 ? Z3D_OK : Z3D_ERROR(Z3D_ERR_DATA, "%s: this line has the key twice", key);
}

/* Finds the key of the text to continue: prompt or messages. */
static z3d_status find_prompt(const z3d_json *line, bool chat, const char **key) {
    const bool has_text = z3d_json_member(line, "prompt"),
               talks = z3d_json_member(line, "messages");
    *key = talks && chat ? "messages" : "prompt";
    if (talks && !has_text && !chat)
        return Z3D_ERROR(Z3D_ERR_DATA, "messages: conversations need --chat");
    if (talks && has_text && chat)
        return Z3D_ERROR(Z3D_ERR_DATA, "this line has prompt and messages: give one");
    return check_once(line, *key);
}

static z3d_status encode_line(const z3d_json_lines *lines, const z3d_prompt_style *style,
                              const char *key, z3d_prompt *prompt) {
    const char *text;
    size_t length;
    if (style->chat) Z3D_TRY(z3d_conversation_refuse_tools(lines->object));
    if (strcmp(key, "messages") == 0)
        return encode_messages(style, z3d_json_member(lines->object, key), prompt);
    Z3D_TRY(z3d_json_lines_text(lines, &text, &length));
    return z3d_prompt_encode(style, text, length, prompt);
}

static z3d_status take_line(const z3d_json_lines *lines, const z3d_prompt_style *style,
                            z3d_prompt *prompt) {
    int64_t seed = -1;
    const char *key;
    prompt->tokens = style->tokens;
    Z3D_TRY(find_prompt(lines->object, style->chat != NULL, &key));
    Z3D_TRY(take_number(lines->object, "tokens", 1, MOST_TOKENS, &prompt->tokens));
    Z3D_TRY(take_number(lines->object, "seed", 0, INT64_MAX, &seed));
    prompt->seed = seed >= 0 ? (uint64_t)seed : style->seed;
    prompt->line = seed >= 0 ? 0 : (uint64_t)lines->line - 1;
    Z3D_TRY(encode_line(lines, style, key, prompt));
    Z3D_TRY(z3d_prompt_check(style, prompt, Z3D_ERR_DATA));
    append_head(lines->object, key, &prompt->head);
    return prompt->head.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for prompts") : Z3D_OK;
}

/* Collects the errors of all lines, so that the user can correct the file at once. */
static z3d_status read_lines(z3d_json_lines *lines, const z3d_prompt_style *style, z3d_prompts *out,
                             z3d_string *errors, int64_t *wrong) {
    for (;;) {
        z3d_status status = z3d_json_lines_next_object(lines);
        if (status == Z3D_OK && !lines->object) return Z3D_OK;
        if (status == Z3D_OK) {
            Z3D_TRY(
                z3d_grow(out->count, &out->capacity, sizeof *out->prompt, "prompts", &out->prompt));
            z3d_prompt *prompt = &out->prompt[out->count++];
            *prompt = (z3d_prompt){0};
            status = z3d_json_lines_context(lines, take_line(lines, style, prompt));
        }
        if (status != Z3D_OK && status != Z3D_ERR_DATA) return status;
        if (status == Z3D_ERR_DATA && ++*wrong <= MOST_ERRORS)
            z3d_string_append(errors, "%s%s", *wrong > 1 ? "\n" : "", z3d_error_message());
    }
}

/* Whether the text, after a byte-order mark and white space, begins with neither { nor [. */
static bool is_plain_text(const char *text, size_t length) {
    size_t at = z3d_json_mark_length(text, length);
    while (at < length && z3d_json_is_white(text[at])) at++;
    return at < length && text[at] != '{' && text[at] != '[';
}

z3d_status z3d_prompts_read(char *text, size_t length, const char *path,
                            const z3d_prompt_style *style, z3d_prompts *out) {
    z3d_json_lines lines = {.path = path, .key = "prompt", .strict = true};
    z3d_string errors = {0};
    int64_t wrong = 0;
    *out = (z3d_prompts){0};
    z3d_json_lines_of(&lines, text, length);
    z3d_status status =
        is_plain_text(text, length)
            ? Z3D_ERROR(Z3D_ERR_DATA,
                        "%s: it has no JSON lines: each line must be {\"prompt\": \"a text\"}",
                        path)
            : read_lines(&lines, style, out, &errors, &wrong);
    z3d_json_lines_free(&lines);
    if (wrong > MOST_ERRORS)
        z3d_string_append(&errors, "\n... and %lld more lines are wrong",
                          (long long)wrong - MOST_ERRORS);
    if (status == Z3D_OK && errors.failed)
        status = Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for what is wrong in %s", path);
    if (status == Z3D_OK && wrong > 0)
        status = z3d_error_set_lines(Z3D_ERR_DATA, __FILE__, __LINE__, errors.text);
    if (status == Z3D_OK && out->count == 0)
        status = Z3D_ERROR(Z3D_ERR_DATA,
                           "%s has no prompts: each line must be {\"prompt\": \"a text\"}", path);
    z3d_string_free(&errors);
    return status;
}

void z3d_prompts_free(z3d_prompts *prompts) {
    for (int64_t i = 0; i < prompts->count; i++) {
        free(prompts->prompt[i].token);
        z3d_string_free(&prompts->prompt[i].head);
    }
    free(prompts->prompt);
    *prompts = (z3d_prompts){0};
}
