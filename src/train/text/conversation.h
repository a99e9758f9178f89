/* Conversations in JSON: lists of messages, {"role", "content"} or {"from", "value"}. */
#ifndef ZERO3D_TRAIN_CONVERSATION_H
#define ZERO3D_TRAIN_CONVERSATION_H

#include "src/base/base.h"
#include "src/train/text/chat.h"

/* Texts are not copied: what they were read from must live longer. Zero-initialise. */
typedef struct z3d_conversation {
    z3d_message *message;
    int count, capacity;
} z3d_conversation;

void z3d_conversation_free(z3d_conversation *conversation);
z3d_status z3d_conversation_add(z3d_conversation *conversation, z3d_message message);
/* Appends the messages of `list`, which is the member `key` of its object. thinking: a message may
 * have reasoning_content. trained: the assistant's, unless a message says otherwise. ERR_DATA: what
 * is wrong, and in which message. */
z3d_status z3d_conversation_read(z3d_conversation *conversation, const z3d_json *list,
                                 const char *key, bool thinking, bool trained);
/* "system", "user", "assistant". */
const char *z3d_role_name(z3d_chat_role role);
/* ERR_DATA unless it is an optional message of the system, then user and assistant in turns. */
z3d_status z3d_conversation_check(const z3d_conversation *conversation);

/* A member of an object, or of the message that `what` ("message 2: ") names, that must be a text.
 * ERR_DATA. */
z3d_status z3d_json_need_text(const z3d_json *object, const char *what, const char *key,
                              const z3d_json **out);
/* A member that says something, which is not read, so that it is not lost in silence. ERR_DATA. */
z3d_status z3d_json_refuse_member(const z3d_json *object, const char *what, const char *key);
/* Tools beside the messages, which templates write and these do not. ERR_DATA. */
z3d_status z3d_conversation_refuse_tools(const z3d_json *object);

#endif
