/* Finds keys without effect. */
#include "src/base/config/idle.h"

enum { LONGEST = 128 };

/* Users try overrides without editing the file. So if only an override makes a key of the file
 * useless, the key gets its default again, with a note. */
static bool may_be_idle(const config_checker *k, const char *path, const char *causes,
                        bool accepted) {
    char cause[LONGEST];
    while (z3d_next_word(&causes, cause, sizeof cause))
        accepted = accepted || config_is_overridden(k->c, cause);
    return accepted && config_is_from_file(k->c, path);
}

void config_refuse_idle(config_checker *k, const char *keys, const char *causes,
                        const char *because, const char *remedy, bool accepted) {
    char path[LONGEST];
    for (const char *at = causes; z3d_next_word(&at, path, sizeof path);)
        if (!config_sound(k, path, NULL)) return;
    while (z3d_next_word(&keys, path, sizeof path)) {
        const int key = config_find(path);
        if (!z3d_config_is_set(k->c, path) || config_is_standard(k->c, path) ||
            !config_sound(k, path, NULL))
            continue;
        if (may_be_idle(k, path, causes, accepted)) {
            config_tell(k->c, k->c->origin->place[key], config_table[key].path, "has no effect",
                        because);
            config_unset(k->c, key);
        } else {
            config_complain(k, path, "has no effect %s; %s%sleave this key out", because,
                            remedy ? remedy : "", remedy ? ", or " : "");
        }
    }
}

bool config_refuse_below_3(config_checker *k, const char *keys, const char *remedy, bool accepted) {
    static const char stage[] = "zero_optimization.stage";
    if (k->c->zero_optimization_stage == 3 || !config_sound(k, stage, NULL)) return false;
    config_refuse_idle(k, keys, stage,
                       "below zero_optimization.stage 3: every rank keeps whole parameters", remedy,
                       accepted);
    return true;
}
