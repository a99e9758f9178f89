/* Conversations as tokens, as the chat template of a model writes them. A template is a program; a
 * few that are known are written here as a table (chat_kinds.c), and a model's own is compared with
 * them by a digest of its text (chat_find.c). */
#ifndef ZERO3D_TRAIN_CHAT_H
#define ZERO3D_TRAIN_CHAT_H

#include "src/train/tokenizer.h"

typedef enum z3d_chat_role { Z3D_CHAT_SYSTEM, Z3D_CHAT_USER, Z3D_CHAT_ASSISTANT } z3d_chat_role;

typedef struct z3d_message {
    z3d_chat_role role;
    bool trained;
    const char *text;
    size_t length;
    const char *reasoning; /* beside the text; NULL: none */
    size_t reasoning_length;
} z3d_message;

/* Where the system's message goes. */
typedef enum z3d_chat_system {
    Z3D_SYSTEM_OWN_TURN,
    Z3D_SYSTEM_FIRST_USER, /* before the first message of the user, with an empty line between */
    Z3D_SYSTEM_REFUSED
} z3d_chat_system;

/* What begins a conversation: bos_token, if the tokenizer has one, or what begins a document. */
typedef enum z3d_chat_begin { Z3D_BEGIN_NOTHING, Z3D_BEGIN_BOS, Z3D_BEGIN_DOCUMENT } z3d_chat_begin;

typedef enum z3d_chat_trim { Z3D_TRIM_NONE, Z3D_TRIM_ASSISTANT, Z3D_TRIM_ALL } z3d_chat_trim;

/* What is written around messages, where a conversation is: an optional message of the system, then
 * user and assistant in turns. */
typedef struct z3d_chat_kind {
    const char *name;
    const char *before[3],
        *after[3];            /* by role; the assistant's turn ends with `end`, then after */
    const char *end;          /* a special token; NULL: the end of a text */
    const char *turn;         /* another special token that the tokenizer must have; NULL */
    const char *prompt;       /* of generation, behind the last message; NULL: nothing */
    const char *usual_system; /* of a conversation without one; NULL: there is none */
    z3d_chat_system system;
    z3d_chat_trim trim;
    z3d_chat_begin begin;
    bool thinking; /* Qwen3's <think> */
} z3d_chat_kind;

/* NULL: no kind has this name. */
const z3d_chat_kind *z3d_chat_kind_find(const char *name);
/* "chatml, llama3, ..." */
void z3d_chat_kind_names(z3d_string *out);

typedef struct z3d_chat {
    const z3d_chat_kind *kind;
    char *usual_system; /* NULL: the kind's */
    int32_t begin, end; /* tokens; begin -1: none */
} z3d_chat;

/* The template beside the tokenizer's file: chat_template.jinja, or chat_template in
 * tokenizer_config.json; or the one of that name, which is not NULL. *found: there is one. Free
 * also after a failure. ERR_UNSUPPORTED: it is none of those that are known; ERR_USAGE: no such
 * name; ERR_CONFIG: the tokenizer lacks its tokens. */
z3d_status z3d_chat_find(const char *name, z3d_tokenizer *tokenizer, z3d_chat *out, bool *found);
void z3d_chat_free(z3d_chat *chat);

/* Appends a conversation. Tokens of messages that are not trained, and what the template writes
 * around the trained ones before and behind, have Z3D_TOKEN_UNTRAINED; the token that ends the
 * assistant's turn is trained with it. ERR_DATA: the template has no place for a message; encode's
 * errors. */
z3d_status z3d_chat_encode(const z3d_chat *chat, z3d_tokenizer *tokenizer,
                           const z3d_message *message, int count, z3d_token_list *out);
/* Appends what a model continues with the assistant's answer: a conversation whose last message is
 * the user's, and the template's prompt of generation. The same errors. */
z3d_status z3d_chat_prompt(const z3d_chat *chat, z3d_tokenizer *tokenizer,
                           const z3d_message *message, int count, z3d_token_list *out);

#endif
