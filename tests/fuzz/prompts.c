/* Fuzzes files of prompts: any text is read, or refused with its lines; the answer to a prompt that
 * was read is one line of JSON with that prompt. Behind a first byte 'c' they are of a chat, behind
 * 's' with a message of the system. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "src/train/generation/prompts.h"

enum { POSITIONS = 64 };

/* The tokens of a prompt are its bytes, behind the one that ends a document. */
static void check_bytes(const z3d_json *kept, const z3d_string *text) {
    if (!kept || kept->type != Z3D_JSON_STRING || kept->length != text->length) abort();
    if (text->length && memcmp(kept->text, text->text, text->length) != 0) abort();
}

/* Of a chat the tokens end where the assistant's turn begins. */
static void check_turn(const z3d_json *line, const z3d_string *text) {
    static const char end[] = "Assistant:";
    const size_t length = sizeof end - 1;
    if (!z3d_json_member(line, "prompt") == !z3d_json_member(line, "messages")) abort();
    if (text->length < length || memcmp(text->text + text->length - length, end, length) != 0)
        abort();
}

static void check(const z3d_prompt_style *style, const z3d_prompt *prompt,
                  const z3d_answer *answer) {
    const z3d_tokenizer *t = style->tokenizer;
    z3d_string line = {0}, text = {0};
    z3d_json *json;
    z3d_json_repairs repairs = {0}; /* an answer may have NULs */
    if (prompt->length < 1 || prompt->length > POSITIONS || prompt->tokens < 1) abort();
    z3d_prompts_answer_line(&prompt->head, answer, &line);
    if (line.failed || memchr(line.text, '\n', line.length) != line.text + line.length - 1) abort();
    if (z3d_json_parse_line(line.text, line.length - 1, "answer", 1, &repairs, &json) != Z3D_OK)
        abort();
    if (z3d_tokenizer_decode(t, prompt->token, (size_t)prompt->length, true, &text) != Z3D_OK)
        abort();
    if (style->chat)
        check_turn(json, &text);
    else
        check_bytes(z3d_json_member(json, "prompt"), &text);
    if (!z3d_json_member(json, "text") || !z3d_json_member(json, "finish")) abort();
    z3d_json_free(json);
    z3d_string_free(&line);
    z3d_string_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const z3d_answer answer = {(const char *)data, size < 32 ? size : 32, 3, size & 1};
    const bool system = size > 0 && *data == 's', talks = system || (size > 0 && *data == 'c');
    z3d_chat chat;
    z3d_prompt_style style = {.chat = talks ? &chat : NULL,
                              .system = system ? "Be brief." : NULL,
                              .positions = POSITIONS,
                              .tokens = 5,
                              .seed = 1};
    z3d_prompts prompts;
    data += talks, size -= talks;
    char *text = malloc(size + 1);
    if (!text || z3d_tokenizer_create(Z3D_TOKENIZER_BYTES, "", "", &style.tokenizer) != Z3D_OK)
        abort();
    if (z3d_chat_find("plain", style.tokenizer, &chat) != Z3D_OK) abort();
    if (size) memcpy(text, data, size);
    z3d_status status = z3d_prompts_read(text, size, "p", &style, &prompts);
    if (status != Z3D_OK && status != Z3D_ERR_DATA) abort();
    if (status == Z3D_OK && prompts.count == 0) abort();
    for (int64_t i = 0; i < prompts.count && status == Z3D_OK; i++)
        check(&style, &prompts.prompt[i], &answer);
    z3d_prompts_free(&prompts);
    z3d_chat_free(&chat);
    z3d_tokenizer_destroy(style.tokenizer);
    return 0;
}
