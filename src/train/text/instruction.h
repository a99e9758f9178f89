/* Instruction data: JSON objects that are conversations, or prompts with completions. */
#ifndef ZERO3D_TRAIN_INSTRUCTION_H
#define ZERO3D_TRAIN_INSTRUCTION_H

#include "src/train/data.h"
#include "src/train/text/chat.h"
#include "src/train/text/conversation.h"
#include "src/train/text/json_lines.h"

/* The format, found by the keys of the object; AUTO: it has the keys of none. */
z3d_tokenize_format z3d_instruction_format(const z3d_json *object);
/* Whether the object has the keys of a format. */
bool z3d_instruction_has_keys(const z3d_json *object, z3d_tokenize_format format);

typedef struct z3d_instructions {
    z3d_tokenize_format format; /* not AUTO or TEXT */
    z3d_loss_on loss_on;        /* not AUTO */
    z3d_chat chat;              /* it is searched when first needed */
    z3d_tokenizer *tokenizer;
    int64_t special_messages; /* of the last object: messages with a special token in their text */
    /* Private. */
    const z3d_tokenize_options *options;
    z3d_conversation conversation;
    z3d_string text[2]; /* a prompt with its completion; a message joined from several members */
    z3d_token_list ids;
} z3d_instructions;

/* Prepares to encode objects of this format, with the loss and the chat template of the options;
 * the options must outlive *out. Free also after a failure. Errors: z3d_chat_find's; ERR_USAGE: the
 * format is conversations and there is no template. */
z3d_status z3d_instructions_create(const z3d_tokenize_options *options, z3d_tokenize_format format,
                                   z3d_tokenizer *tokenizer, z3d_instructions *out);
void z3d_instructions_free(z3d_instructions *in);
/* Appends the tokens of lines->object; untrained tokens have the flag Z3D_TOKEN_UNTRAINED. *bytes:
 * bytes of its text. ERR_DATA: the object's place, and what is wrong. */
z3d_status z3d_instructions_encode(z3d_instructions *in, const z3d_json_lines *lines,
                                   z3d_token_list *out, int64_t *bytes);

#endif
