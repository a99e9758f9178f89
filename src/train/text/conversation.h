/* Conversations in JSON: lists of messages, {"role", "content"} or {"from", "value"}. */
#ifndef ZERO3D_TRAIN_CONVERSATION_H
#define ZERO3D_TRAIN_CONVERSATION_H

#include "src/base/base.h"
#include "src/train/text/chat.h"

/* Texts are not copied: the JSON object that they point into must outlive this. Zero-initialise. */
typedef struct z3d_conversation {
    z3d_message *message;
    int count;
    int64_t capacity;
} z3d_conversation;

void z3d_conversation_free(z3d_conversation *conversation);
z3d_status z3d_conversation_add(z3d_conversation *conversation, z3d_message message);
/* Appends the messages of `list`, which is the member `key` of its object. thinking: messages may
 * have reasoning_content. trained: the assistant's messages are trained, unless a message says
 * otherwise. ERR_DATA: which message is wrong, and why. */
z3d_status z3d_conversation_read(z3d_conversation *conversation, const z3d_json *list,
                                 const char *key, bool thinking, bool trained);
/* "system", "user", "assistant". */
const char *z3d_role_name(z3d_chat_role role);
/* ERR_DATA unless the messages are an optional system message, then user and assistant in turns. */
z3d_status z3d_conversation_check(const z3d_conversation *conversation);

/* *out: the member `key` of an object; ERR_DATA if it is missing or no text. what: begins the
 * error, "message 2: " if the object is a message, else "". */
z3d_status z3d_json_need_text(const z3d_json *object, const char *what, const char *key,
                              const z3d_json **out);
/* ERR_DATA if the object has the member `key` with content: we do not read it, and would lose it in
 * silence. */
z3d_status z3d_json_refuse_member(const z3d_json *object, const char *what, const char *key);
/* ERR_DATA if the object has tools beside the messages: our templates do not write them. */
z3d_status z3d_conversation_refuse_tools(const z3d_json *object);

#endif
