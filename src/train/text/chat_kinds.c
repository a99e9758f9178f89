/* The known chat templates. */
#include <stdio.h>
#include <string.h>

#include "src/train/text/chat.h"

#define CHATML                                                                                     \
    .before = {"<|im_start|>system\n", "<|im_start|>user\n", "<|im_start|>assistant\n"},           \
    .prompt = "<|im_start|>assistant\n", .after = {"<|im_end|>\n", "<|im_end|>\n", "\n"},          \
    .end = "<|im_end|>", .turn = "<|im_start|>"
#define HEADER(ROLE) "<|start_header_id|>" ROLE "<|end_header_id|>\n\n"
#define LLAMA3                                                                                     \
    .prompt = HEADER("assistant"), .after = {"<|eot_id|>", "<|eot_id|>", ""}, .end = "<|eot_id|>", \
    .turn = "<|start_header_id|>", .begin = Z3D_BEGIN_BOS, .trim = Z3D_TRIM_ALL
#define GEMMA                                                                                      \
    .before = {"", "<start_of_turn>user\n", "<start_of_turn>model\n"},                             \
    .prompt = "<start_of_turn>model\n", .after = {"", "<end_of_turn>\n", "\n"},                    \
    .end = "<end_of_turn>", .turn = "<start_of_turn>", .begin = Z3D_BEGIN_BOS,                     \
    .trim = Z3D_TRIM_ALL

/* The texts around the user's message, then those around the assistant's. */
#define MISTRAL(USER, USER_END, ASSISTANT, ASSISTANT_END)                                          \
    .before = {"", USER, ASSISTANT}, .after = {"", USER_END, ASSISTANT_END}, .begin = Z3D_BEGIN_BOS

/* Llama 3.2 writes today's date; this is the date that it writes without a clock, and Llama 3.1's
 * date. */
#define LLAMA31_SYSTEM                                                                             \
    HEADER("system") "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"

static const z3d_chat_kind kinds[] = {
    {.name = "chatml", CHATML},
    {.name = "qwen2.5",
     CHATML,
     .usual_system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
    {.name = "qwen3", CHATML, .thinking = true},
    {.name = "llama3", .before = {HEADER("system"), HEADER("user"), HEADER("assistant")}, LLAMA3},
    {.name = "llama3.1",
     .before = {LLAMA31_SYSTEM, HEADER("user"), HEADER("assistant")},
     LLAMA3,
     .usual_system = ""},
    {.name = "mistral-v0.1", MISTRAL("[INST] ", " [/INST]", "", " "), .system = Z3D_SYSTEM_REFUSED},
    {.name = "mixtral", MISTRAL("[INST] ", " [/INST]", "", ""), .system = Z3D_SYSTEM_REFUSED},
    {.name = "mistral-v1",
     MISTRAL(" [INST] ", " [/INST]", " ", ""),
     .system = Z3D_SYSTEM_FIRST_USER},
    {.name = "mistral-v3",
     MISTRAL("[INST] ", "[/INST]", " ", ""),
     .system = Z3D_SYSTEM_REFUSED,
     .trim = Z3D_TRIM_ASSISTANT},
    {.name = "mistral-nemo", MISTRAL("[INST]", "[/INST]", "", ""), .system = Z3D_SYSTEM_REFUSED},
    {.name = "gemma", GEMMA, .system = Z3D_SYSTEM_REFUSED},
    {.name = "gemma3", GEMMA, .system = Z3D_SYSTEM_FIRST_USER},
    {.name = "plain",
     .before = {"", "User: ", "Assistant: "},
     .after = {"\n", "\n", "\n"},
     .prompt = "Assistant:", /* the space belongs to the answer's first token */
     .begin = Z3D_BEGIN_DOCUMENT},
};

enum { KINDS = sizeof kinds / sizeof *kinds };

const z3d_chat_kind *z3d_chat_kind_find(const char *name) {
    for (int i = 0; i < KINDS; i++)
        if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
    return NULL;
}

const char *z3d_chat_kind_names(char *buf, size_t size) {
    size_t used = 0;
    for (int i = 0; i < KINDS && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%s", i ? ", " : "", kinds[i].name);
    return buf;
}
