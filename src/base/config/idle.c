/* Finds keys without effect. */
#include "src/base/config/idle.h"

#include <stdarg.h>

/* Users try overrides without editing the file. So if only an override makes a key of the file
 * useless, the key gets its default again, with a note. */
static bool may_be_idle(const config_checker *k, const char *path, const idle_reason *reason) {
    if (!config_is_from_file(k->c, path)) return false;
    bool overridden = false;
    for (int i = 0; i < MAX_CAUSES && reason->cause[i]; i++) {
        overridden = overridden || config_is_overridden(k->c, reason->cause[i]);
    }
    return overridden || reason->accepted;
}

static void refuse(config_checker *k, const char *path, const idle_reason *reason) {
    if (!z3d_config_is_set(k->c, path) || config_is_standard(k->c, path) ||
        !config_sound(k, path, NULL))
        return;
    if (may_be_idle(k, path, reason)) {
        int key = config_find(path);
        config_tell(k->c, k->c->origin->place[key], path, "has no effect", reason->because);
        config_unset(k->c, key);
    } else {
        const char *remedy = reason->remedy;
        config_complain(k, path, "has no effect %s; %s%sleave this key out", reason->because,
                        remedy ? remedy : "", remedy ? ", or " : "");
    }
}

void config_refuse_idle(config_checker *k, const idle_reason *reason, ...) {
    va_list keys;
    for (int i = 0; i < MAX_CAUSES && reason->cause[i]; i++) {
        if (!config_sound(k, reason->cause[i], NULL)) return;
    }
    va_start(keys, reason);
    for (const char *path; (path = va_arg(keys, const char *));) refuse(k, path, reason);
    va_end(keys);
}
