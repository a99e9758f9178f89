#include "src/model/interop.h"

#include <string.h>

bool z3d_ends_with(const char *text, const char *end) {
    size_t length = strlen(text), wanted = strlen(end);
    return length >= wanted && strcmp(text + length - wanted, end) == 0;
}

z3d_status z3d_refuse_member(const z3d_json *member, const char *supported) {
    static const char *const types[] = {"null", NULL, NULL, NULL, "[...]", "{...}"};
    char key[Z3D_SHOWN + 1], text[Z3D_SHOWN + 1];
    const char *value = member->type == Z3D_JSON_BOOL ? member->truth ? "true" : "false"
                        : member->type == Z3D_JSON_NUMBER || member->type == Z3D_JSON_STRING
                            ? z3d_shown(member->text, text)
                            : types[member->type];
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "%s: %s is not supported; only %s is",
                     z3d_shown(member->key, key), value, supported);
}
