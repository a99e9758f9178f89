/* Makes tokens from conversations, as the chat template of a model does. A template is a program.
 * We do not run it: chat_kinds.c is a table of known templates, and chat_find.c recognises a
 * model's template by a digest of its text. */
#ifndef ZERO3D_TRAIN_CHAT_H
#define ZERO3D_TRAIN_CHAT_H

#include "src/train/tokenizer.h"

typedef enum z3d_chat_role { Z3D_CHAT_SYSTEM, Z3D_CHAT_USER, Z3D_CHAT_ASSISTANT } z3d_chat_role;

typedef struct z3d_message {
    z3d_chat_role role;
    bool trained;
    const char *text;
    size_t length;
    const char *reasoning; /* the assistant's reasoning, before the text; NULL: none */
    size_t reasoning_length;
} z3d_message;

/* Where the system message stands. */
typedef enum z3d_chat_system {
    Z3D_SYSTEM_OWN_TURN,
    Z3D_SYSTEM_FIRST_USER, /* in the turn of the user's first message, before it and an empty line
                            */
    Z3D_SYSTEM_REFUSED
} z3d_chat_system;

/* The beginning of a conversation: nothing; bos_token, if the tokenizer has one; or the token that
 * begins a document. */
typedef enum z3d_chat_begin { Z3D_BEGIN_NOTHING, Z3D_BEGIN_BOS, Z3D_BEGIN_DOCUMENT } z3d_chat_begin;

typedef enum z3d_chat_trim { Z3D_TRIM_NONE, Z3D_TRIM_ASSISTANT, Z3D_TRIM_ALL } z3d_chat_trim;

/* The texts around messages. A conversation is an optional system message, then user and assistant
 * in turns. */
typedef struct z3d_chat_kind {
    const char *name;
    const char *before[3],
        *after[3];            /* by role; after the assistant's text comes `end`, then after[] */
    const char *end;          /* a special token; NULL: the end of a text */
    const char *turn;         /* another special token that the tokenizer must have; NULL */
    const char *prompt;       /* for generation, after the last message; NULL: nothing */
    const char *usual_system; /* the system message of a conversation without one; NULL: none */
    z3d_chat_system system;
    z3d_chat_trim trim;
    z3d_chat_begin begin;
    bool thinking; /* Qwen3's <think> */
} z3d_chat_kind;

/* NULL: no kind has this name. */
const z3d_chat_kind *z3d_chat_kind_find(const char *name);
enum { Z3D_CHAT_NAMES = 256 };
/* "chatml, llama3, ..." into buf; returns buf. Z3D_CHAT_NAMES bytes are enough. */
const char *z3d_chat_kind_names(char *buf, size_t size);

typedef struct z3d_chat {
    const z3d_chat_kind *kind; /* NULL: there is no template */
    char *usual_system;        /* NULL: the kind's */
    int32_t begin, end;        /* tokens; begin -1: none */
} z3d_chat;

/* Finds the template called `name`. With name NULL, the template beside the tokenizer's file:
 * chat_template.jinja, or chat_template in tokenizer_config.json; out->kind is NULL if there is
 * none, and after a failure. Free *out also after a failure. ERR_UNSUPPORTED: the template is not a
 * known one; ERR_USAGE: no template has this name; ERR_CONFIG: the tokenizer lacks the template's
 * tokens. */
z3d_status z3d_chat_find(const char *name, z3d_tokenizer *tokenizer, z3d_chat *out);
void z3d_chat_free(z3d_chat *chat);

/* Appends a conversation. Tokens of untrained messages, and the template's tokens before and after
 * trained messages, have the flag Z3D_TOKEN_UNTRAINED. One token of the template is trained: the
 * one that ends a trained turn of the assistant. prompt: the last message is the user's; appends
 * the template's prompt for generation, which a model continues with the assistant's answer; no
 * token has the flag. ERR_DATA: the template has no place for a message; encode's errors. */
z3d_status z3d_chat_encode(const z3d_chat *chat, z3d_tokenizer *tokenizer,
                           const z3d_message *message, int count, bool prompt, z3d_token_list *out);

#endif
