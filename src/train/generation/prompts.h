/* Makes tokens from prompts. Reads files of prompts and writes lines of answers, both JSON lines.
 */
#ifndef ZERO3D_TRAIN_PROMPTS_H
#define ZERO3D_TRAIN_PROMPTS_H

#include "src/train/generation/generate.h"
#include "src/train/text/chat.h"

/* How a text becomes a prompt. */
typedef struct z3d_prompt_style {
    z3d_tokenizer *tokenizer;
    /* The text is the user's message in this template; NULL: the text is the prompt. */
    const z3d_chat *chat;
    const char *system; /* the system message before it; NULL: the template's usual one, or none */
    int64_t positions;  /* the most tokens that the model sees */
    int64_t tokens;     /* of answers, and the seed, for prompts that do not set them */
    uint64_t seed;
} z3d_prompt_style;

/* Sets token, length and begins; free(out->token), also after a failure. Errors: those of the
 * tokenizer's encode; ERR_DATA: the template has no place for a system message. Call
 * z3d_prompt_check after it: it returns `error` if the prompt is longer than the model sees. */
z3d_status z3d_prompt_encode(const z3d_prompt_style *style, const char *text, size_t length,
                             z3d_prompt *out);
z3d_status z3d_prompt_check(const z3d_prompt_style *style, const z3d_prompt *prompt,
                            z3d_status error);

typedef struct z3d_prompts {
    z3d_prompt *prompt;
    int64_t count, capacity;
} z3d_prompts;

/* Reads `text`, the content of the file `path`: lines {"prompt": "...", "tokens": 20, "seed": 1,
 * ...}. `text` is malloc'ed; this function frees it. Only the prompt is required; with a chat
 * template a line may have {"messages": [...]} instead, whose last message is the user's. A line
 * with its own seed gets the answer that its prompt would get alone. ERR_DATA with "path:line: ..."
 * for every wrong line. Free *out also after a failure. */
z3d_status z3d_prompts_read(char *text, size_t length, const char *path,
                            const z3d_prompt_style *style, z3d_prompts *out);
void z3d_prompts_free(z3d_prompts *prompts);

/* Appends an answer's line: {"prompt": ..., other keys, "text": ..., "tokens": N, "finish":
 * "stop"}. */
void z3d_prompts_answer_line(const z3d_string *head, const z3d_answer *answer, z3d_string *out);

#endif
