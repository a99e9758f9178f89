/* Keys whose values have no effect. They are errors, or a note if only an override made them
 * useless. */
#ifndef ZERO3D_BASE_CONFIG_IDLE_H
#define ZERO3D_BASE_CONFIG_IDLE_H

#include "src/base/config/table.h"

enum { MAX_CAUSES = 3 };

/* Why keys have no effect, and the keys that are the cause. */
typedef struct idle_reason {
    const char *cause[MAX_CAUSES]; /* up to NULL */
    const char *because;
    const char *remedy; /* NULL: the user can only leave the key out */
    bool accepted;      /* no error without an override, too: the file has a block that is off */
} idle_reason;

/* For each of the keys (NULL ends the list) that the user has set to another value than its
 * default: an error, or a note and the default. */
void config_refuse_idle(config_checker *k, const idle_reason *reason, ...)
    __attribute__((sentinel));

#endif
