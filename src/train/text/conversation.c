/* Reads conversations. */
#include "src/train/text/conversation.h"

#include <stdio.h>
#include <stdlib.h>

void z3d_conversation_free(z3d_conversation *c) {
    free(c->message);
    *c = (z3d_conversation){0};
}

z3d_status z3d_conversation_add(z3d_conversation *c, z3d_message m) {
    Z3D_TRY(z3d_grow(c->count, &c->capacity, sizeof *c->message, "a conversation", &c->message));
    c->message[c->count++] = m;
    return Z3D_OK;
}

/* ---- members ---- */

z3d_status z3d_json_need_text(const z3d_json *object, const char *what, const char *key,
                              const z3d_json **out) {
    *out = z3d_json_member(object, key);
    if (*out && (*out)->type == Z3D_JSON_STRING) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_DATA, "%s\"%s\" is %s", what, key,
                     !*out                            ? "missing"
                     : (*out)->type == Z3D_JSON_NULL  ? "null; expected a text"
                     : (*out)->type == Z3D_JSON_ARRAY ? "a list; expected a text"
                                                      : "not a text");
}

z3d_status z3d_json_refuse_member(const z3d_json *object, const char *what, const char *key) {
    const z3d_json *m = z3d_json_member(object, key);
    const bool list = m && (m->type == Z3D_JSON_ARRAY || m->type == Z3D_JSON_OBJECT);
    if (z3d_json_is_none(m) || (list && m->count == 0) ||
        (m->type == Z3D_JSON_STRING && m->length == 0))
        return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_DATA, "%s\"%s\" is not supported: remove the key or the object", what,
                     key);
}

z3d_status z3d_conversation_refuse_tools(const z3d_json *object) {
    Z3D_TRY(z3d_json_refuse_member(object, "", "tools"));
    return z3d_json_refuse_member(object, "", "functions");
}

/* ---- messages ---- */

static z3d_status find_role(const z3d_json *role, const char *what, z3d_chat_role *out) {
    static const char *const names[] = {[Z3D_CHAT_SYSTEM] = "system",
                                        [Z3D_CHAT_USER] = "user human",
                                        [Z3D_CHAT_ASSISTANT] = "assistant gpt model chatgpt"};
    for (*out = Z3D_CHAT_SYSTEM; *out <= Z3D_CHAT_ASSISTANT; ++*out)
        if (z3d_has_word(names[*out], role->text)) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_DATA, "%srole \"%.40s\": expected system, user or assistant", what,
                     role->text);
}

/* "weight": 0 in a message: it is not trained. */
static z3d_status read_weight(const z3d_json *m, const char *what, bool *trained) {
    const z3d_json *weight = z3d_json_member(m, "weight");
    if (z3d_json_is_none(weight) || z3d_json_is_number(weight, 1)) return Z3D_OK;
    *trained = false;
    if (z3d_json_is_number(weight, 0)) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_DATA,
                     "%s\"weight\": expected 0 (the message is not trained) or 1 (it is)", what);
}

static z3d_status read_reasoning(const z3d_json *m, const char *what, bool thinking,
                                 z3d_message *out) {
    const z3d_json *reasoning = z3d_json_member(m, "reasoning_content");
    if (!thinking) return z3d_json_refuse_member(m, what, "reasoning_content");
    if (reasoning && reasoning->type == Z3D_JSON_STRING) {
        out->reasoning = reasoning->text;
        out->reasoning_length = reasoning->length;
    }
    return Z3D_OK;
}

/* Reads {"role", "content"} or {"from", "value"}. trained: the default for the assistant's
 * messages. */
static z3d_status read_message(z3d_conversation *c, const z3d_json *m, bool thinking,
                               bool trained) {
    char what[48];
    const bool other = !z3d_json_member(m, "role") && z3d_json_member(m, "from");
    const z3d_json *role, *content, *calls = z3d_json_member(m, "tool_calls");
    z3d_message out = {0};
    snprintf(what, sizeof what, "message %d: ", c->count + 1);
    if (m->type != Z3D_JSON_OBJECT)
        return Z3D_ERROR(Z3D_ERR_DATA, "%sexpected an object {\"role\": ..., \"content\": ...}",
                         what);
    Z3D_TRY(z3d_json_need_text(m, what, other ? "from" : "role", &role));
    Z3D_TRY(find_role(role, what, &out.role));
    if (calls && !z3d_json_is_none(calls))
        return Z3D_ERROR(Z3D_ERR_DATA, "%s\"tool_calls\": calls of tools are not supported", what);
    Z3D_TRY(z3d_json_need_text(m, what, other ? "value" : "content", &content));
    out.text = content->text;
    out.length = content->length;
    out.trained = trained && out.role == Z3D_CHAT_ASSISTANT;
    Z3D_TRY(read_weight(m, what, &out.trained));
    Z3D_TRY(read_reasoning(m, what, thinking, &out));
    return z3d_conversation_add(c, out);
}

const char *z3d_role_name(z3d_chat_role role) {
    static const char *const names[] = {"system", "user", "assistant"};
    return names[role];
}

z3d_status z3d_conversation_read(z3d_conversation *c, const z3d_json *list, const char *key,
                                 bool thinking, bool trained) {
    if (list->type != Z3D_JSON_ARRAY)
        return Z3D_ERROR(Z3D_ERR_DATA, "\"%s\" is no list of messages", key);
    if (list->count == 0) return Z3D_ERROR(Z3D_ERR_DATA, "\"%s\" is empty", key);
    for (const z3d_json *m = list->first; m; m = m->next)
        Z3D_TRY(read_message(c, m, thinking, trained));
    return Z3D_OK;
}

z3d_status z3d_conversation_check(const z3d_conversation *c) {
    const int first = c->message[0].role == Z3D_CHAT_SYSTEM;
    for (int i = first; i < c->count; i++) {
        const z3d_chat_role role = c->message[i].role,
                            wanted = (i - first) % 2 == 0 ? Z3D_CHAT_USER : Z3D_CHAT_ASSISTANT;
        if (role != wanted)
            return Z3D_ERROR(Z3D_ERR_DATA,
                             "message %d is the %s's, expected the %s's: user and assistant must "
                             "be in turns, after at most one system message",
                             i + 1, z3d_role_name(role), z3d_role_name(wanted));
    }
    return Z3D_OK;
}
