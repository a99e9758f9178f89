/* Prompts as tokens; files of prompts and of answers: JSON lines. */
#ifndef ZERO3D_TRAIN_PROMPTS_H
#define ZERO3D_TRAIN_PROMPTS_H

#include "src/train/generation/generate.h"
#include "src/train/text/chat.h"

/* What a text becomes before a model continues it. */
typedef struct z3d_prompt_style {
    z3d_tokenizer *tokenizer;
    const z3d_chat *chat; /* it is the user's message; NULL: it stays as it is */
    const char *system;   /* the message of the system before it; NULL: none, or the usual one */
} z3d_prompt_style;

/* Sets token, length and begins; free(token), also after a failure. Errors: encode's, ERR_DATA: the
 * template has no place for the system's message. */
z3d_status z3d_prompt_encode(const z3d_prompt_style *style, const char *text, size_t length,
                             z3d_prompt *out);

typedef struct z3d_prompts {
    z3d_prompt *prompt;
    z3d_string *head; /* of each answer's line: the prompt, and the line's other keys */
    int64_t count, capacity;
} z3d_prompts;

/* What a line may set for itself. */
typedef struct z3d_prompt_defaults {
    int64_t tokens, positions; /* positions: that the model sees at most */
    uint64_t seed;
} z3d_prompt_defaults;

/* Reads the lines {"prompt": "...", "tokens": 20, "seed": 1, ...} of `text` (malloc'ed, taken
 * over), which is the file `path`. Only the prompt must be there; of a chat it may also be
 * {"messages": [...]}, of which the last one is the user's. A line with a seed of its own has
 * the answer of a prompt that is alone. ERR_DATA with "path:line: what" for every line that is
 * wrong. Free also after a failure. */
z3d_status z3d_prompts_read(char *text, size_t length, const char *path,
                            const z3d_prompt_style *style, const z3d_prompt_defaults *defaults,
                            z3d_prompts *out);
void z3d_prompts_free(z3d_prompts *prompts);

/* The line of an answer: {"prompt": ..., other keys, "text": ..., "tokens": N, "finish": "stop"}.
 */
void z3d_prompts_answer_line(const z3d_string *head, const z3d_answer *answer, z3d_string *out);

#endif
