/* Reads objects of instruction data and encodes them. */
#include "src/train/text/instruction.h"

#include <stdio.h>

#include "src/train/data/token_writer.h"

/* For each format: its name, and the keys that it is recognised by. */
static const struct {
    const char *name, *key, *other;
} formats[] = {[Z3D_FORMAT_AUTO] = {"auto", "", ""},
               [Z3D_FORMAT_TEXT] = {"text", "text", ""},
               [Z3D_FORMAT_MESSAGES] = {"messages", "messages", ""},
               [Z3D_FORMAT_PROMPT_COMPLETION] = {"prompt-completion", "prompt", "completion"},
               [Z3D_FORMAT_ALPACA] = {"alpaca", "instruction", "output"},
               [Z3D_FORMAT_SHAREGPT] = {"sharegpt", "conversations", ""}};

const char *z3d_tokenize_format_name(z3d_tokenize_format format) {
    return formats[format].name;
}

bool z3d_instruction_has_keys(const z3d_json *object, z3d_tokenize_format format) {
    const char *other = formats[format].other;
    return z3d_json_member(object, formats[format].key) &&
           (!*other || z3d_json_member(object, other));
}

z3d_tokenize_format z3d_instruction_format(const z3d_json *object) {
    static const z3d_tokenize_format order[] = {Z3D_FORMAT_MESSAGES, Z3D_FORMAT_SHAREGPT,
                                                Z3D_FORMAT_PROMPT_COMPLETION, Z3D_FORMAT_ALPACA,
                                                Z3D_FORMAT_TEXT};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (z3d_instruction_has_keys(object, order[i])) return order[i];
    return Z3D_FORMAT_AUTO;
}

/* ---- members ---- */

static z3d_status check_keys(const z3d_instructions *in, const z3d_json_lines *lines) {
    const char *key = formats[in->format].key;
    char option[64];
    if (z3d_instruction_has_keys(lines->object, in->format)) return Z3D_OK;
    if (z3d_json_member(lines->object, key)) key = formats[in->format].other;
    snprintf(option, sizeof option, "--format %s: ", formats[in->format].name);
    return z3d_json_lines_refuse_key(lines, option, key);
}

/* ---- messages ---- */

static z3d_status read_system(z3d_instructions *in, const z3d_json *object) {
    const z3d_json *system = z3d_json_member(object, "system");
    if (z3d_json_is_none(system)) return Z3D_OK;
    Z3D_TRY(z3d_json_need_text(object, "", "system", &system));
    if (system->length == 0) return Z3D_OK;
    return z3d_conversation_add(
        &in->conversation,
        (z3d_message){.role = Z3D_CHAT_SYSTEM, .text = system->text, .length = system->length});
}

static void train_last(z3d_instructions *in) {
    bool found = false;
    for (int i = in->conversation.count - 1; i >= 0; i--) {
        z3d_message *m = &in->conversation.message[i];
        m->trained &= !found;
        found |= m->role == Z3D_CHAT_ASSISTANT;
    }
}

static z3d_status read_messages(z3d_instructions *in, const z3d_json *list, const char *key,
                                bool trained) {
    return z3d_conversation_read(&in->conversation, list, key, in->chat.kind->thinking, trained);
}

static z3d_status check_answered(const z3d_conversation *c) {
    for (int i = 0; i < c->count; i++)
        if (c->message[i].role == Z3D_CHAT_ASSISTANT) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_DATA, "the conversation has no answer of the assistant");
}

static z3d_status encode_messages(z3d_instructions *in, z3d_token_list *out, int64_t *bytes) {
    const z3d_conversation *talk = &in->conversation;
    size_t first = out->count;
    Z3D_TRY(z3d_conversation_check(talk));
    Z3D_TRY(check_answered(talk));
    for (int i = 0; i < talk->count; i++) {
        const z3d_message *m = &talk->message[i];
        size_t length;
        *bytes += (int64_t)(m->length + m->reasoning_length);
        in->special_messages +=
            z3d_tokenizer_find_special(in->tokenizer, m->text, m->length, &length) != NULL;
    }
    Z3D_TRY(z3d_chat_encode(&in->chat, in->tokenizer, talk->message, talk->count, false, out));
    for (size_t i = first; i < out->count && in->loss_on == Z3D_LOSS_ALL; i++)
        out->id[i] &= ~Z3D_TOKEN_UNTRAINED;
    return Z3D_OK;
}

/* ---- a prompt and its completion ---- */

/* Encodes prompt and completion, both texts, as one document. A token that crosses the border
 * belongs to the completion. */
static z3d_status encode_texts(z3d_instructions *in, const char *prompt, size_t length,
                               const z3d_json *completion, z3d_token_list *out, int64_t *bytes) {
    size_t first = out->count, same = 0;
    z3d_string *text = &in->text[0];
    z3d_string_clear(text);
    z3d_string_append_bytes(text, prompt, length);
    z3d_string_append_bytes(text, completion->text, completion->length);
    if (text->failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a prompt");
    *bytes += (int64_t)text->length;
    in->ids.count = 0;
    Z3D_TRY(z3d_tokenizer_part(in->tokenizer, text->text, length, true, false, &in->ids));
    Z3D_TRY(z3d_tokenizer_part(in->tokenizer, text->text, text->length, true, true, out));
    while (same < in->ids.count && first + same < out->count &&
           in->ids.id[same] == out->id[first + same])
        same++;
    for (size_t i = 0; i < same && in->loss_on != Z3D_LOSS_ALL; i++)
        out->id[first + i] |= Z3D_TOKEN_UNTRAINED;
    return Z3D_OK;
}

static z3d_status check_completion(const z3d_json *completion, const char *key) {
    if (completion->length > 0) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_DATA, "\"%s\" is empty: there is nothing to train", key);
}

/* needed: an error if there is no template. */
static z3d_status find_chat(z3d_instructions *in, bool needed) {
    if (!in->chat.kind)
        Z3D_TRY(z3d_chat_find(in->options->chat_template, in->tokenizer, &in->chat));
    if (in->chat.kind || !needed) return Z3D_OK;
    return Z3D_ERROR(
        Z3D_ERR_USAGE,
        "%s data with conversations needs a chat template, but the tokenizer's folder "
        "has none: give --vocab FOLDER of a chat model, or name a template: --chat-template plain",
        formats[in->format].name);
}

static z3d_status encode_pair(z3d_instructions *in, const z3d_json *object, z3d_token_list *out,
                              int64_t *bytes) {
    const z3d_json *prompt = z3d_json_member(object, "prompt"),
                   *completion = z3d_json_member(object, "completion");
    if (prompt->type == Z3D_JSON_ARRAY) {
        Z3D_TRY(find_chat(in, true));
        Z3D_TRY(read_messages(in, prompt, "prompt", in->loss_on == Z3D_LOSS_ASSISTANT));
        const int first = in->conversation.count;
        bool trained = in->loss_on == Z3D_LOSS_ALL;
        Z3D_TRY(read_messages(in, completion, "completion", true));
        for (int i = first; i < in->conversation.count; i++)
            trained |= in->conversation.message[i].trained;
        if (!trained)
            return Z3D_ERROR(Z3D_ERR_DATA,
                             "\"completion\" has no answer of the assistant that is trained");
        return encode_messages(in, out, bytes);
    }
    Z3D_TRY(z3d_json_need_text(object, "", "prompt", &prompt));
    Z3D_TRY(z3d_json_need_text(object, "", "completion", &completion));
    Z3D_TRY(check_completion(completion, "completion"));
    if (in->options->chat_template)
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "--chat-template %s is for lists of messages, but \"prompt\" is a text: "
                         "leave the option out, or write messages",
                         in->options->chat_template);
    return encode_texts(in, prompt->text, prompt->length, completion, out, bytes);
}

/* ---- Alpaca's ---- */

/* Encodes an object as a user's message and its answer, if there is a chat template; else with
 * Alpaca's own prompt. */
static z3d_status encode_alpaca(z3d_instructions *in, const z3d_json *object, z3d_token_list *out,
                                int64_t *bytes) {
    static const char begin[] = "Below is an instruction that describes a task%s. Write a response "
                                "that appropriately completes the request.\n\n### Instruction:\n";
    const z3d_json *instruction, *output, *more = z3d_json_member(object, "input");
    z3d_string *text = &in->text[1];
    z3d_conversation *talk = &in->conversation;
    Z3D_TRY(z3d_json_need_text(object, "", "instruction", &instruction));
    if (z3d_json_is_none(more))
        more = NULL;
    else
        Z3D_TRY(z3d_json_need_text(object, "", "input", &more));
    Z3D_TRY(z3d_json_need_text(object, "", "output", &output));
    Z3D_TRY(check_completion(output, "output"));
    const bool with = more && more->length > 0, chat = in->chat.kind != NULL;
    z3d_string_clear(text);
    if (!chat)
        z3d_string_append(text, begin,
                          with ? ", paired with an input that provides further context" : "");
    z3d_string_append_bytes(text, instruction->text, instruction->length);
    if (with) z3d_string_append(text, chat ? "\n" : "\n\n### Input:\n");
    if (with) z3d_string_append_bytes(text, more->text, more->length);
    if (!chat) z3d_string_append(text, "\n\n### Response:\n");
    if (text->failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a prompt");
    if (!chat) Z3D_TRY(z3d_json_refuse_member(object, "", "system"));
    if (!chat) return encode_texts(in, text->text, text->length, output, out, bytes);
    Z3D_TRY(read_system(in, object));
    Z3D_TRY(z3d_conversation_add(talk, (z3d_message){.role = Z3D_CHAT_USER,
                                                     .text = text->text ? text->text : "",
                                                     .length = text->length}));
    Z3D_TRY(z3d_conversation_add(talk, (z3d_message){.role = Z3D_CHAT_ASSISTANT,
                                                     .trained = true,
                                                     .text = output->text,
                                                     .length = output->length}));
    return encode_messages(in, out, bytes);
}

/* ---- an object ---- */

static z3d_status encode_object(z3d_instructions *in, const z3d_json_lines *lines,
                                z3d_token_list *out, int64_t *bytes) {
    const z3d_json *object = lines->object;
    const char *key = formats[in->format].key;
    in->conversation.count = 0;
    in->special_messages = 0;
    *bytes = 0;
    Z3D_TRY(check_keys(in, lines));
    Z3D_TRY(z3d_conversation_refuse_tools(object));
    if (in->format == Z3D_FORMAT_ALPACA) Z3D_TRY(z3d_json_refuse_member(object, "", "history"));
    if (in->format == Z3D_FORMAT_PROMPT_COMPLETION) return encode_pair(in, object, out, bytes);
    if (in->format == Z3D_FORMAT_ALPACA) return encode_alpaca(in, object, out, bytes);
    if (in->format == Z3D_FORMAT_SHAREGPT) Z3D_TRY(read_system(in, object));
    Z3D_TRY(read_messages(in, z3d_json_member(object, key), key, true));
    if (in->loss_on == Z3D_LOSS_COMPLETIONS) train_last(in);
    return encode_messages(in, out, bytes);
}

z3d_status z3d_instructions_encode(z3d_instructions *in, const z3d_json_lines *lines,
                                   z3d_token_list *out, int64_t *bytes) {
    return z3d_json_lines_context(lines, encode_object(in, lines, out, bytes));
}

z3d_status z3d_instructions_create(const z3d_tokenize_options *options, z3d_tokenize_format format,
                                   z3d_tokenizer *tokenizer, z3d_instructions *out) {
    const bool talks = format == Z3D_FORMAT_MESSAGES || format == Z3D_FORMAT_SHAREGPT;
    *out = (z3d_instructions){
        .format = format, .loss_on = options->loss_on, .tokenizer = tokenizer, .options = options};
    if (out->loss_on == Z3D_LOSS_AUTO)
        out->loss_on = talks ? Z3D_LOSS_ASSISTANT : Z3D_LOSS_COMPLETIONS;
    return format == Z3D_FORMAT_PROMPT_COMPLETION ? Z3D_OK : find_chat(out, talks);
}

void z3d_instructions_free(z3d_instructions *in) {
    z3d_chat_free(&in->chat);
    z3d_conversation_free(&in->conversation);
    z3d_string_free(&in->text[0]);
    z3d_string_free(&in->text[1]);
    z3d_token_list_free(&in->ids);
    *in = (z3d_instructions){0};
}
