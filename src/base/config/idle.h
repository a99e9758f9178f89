/* Keys whose values have no effect: they are refused, or noted if only an override is the cause. */
#ifndef ZERO3D_BASE_CONFIG_IDLE_H
#define ZERO3D_BASE_CONFIG_IDLE_H

#include "src/base/config/table.h"

enum { MAX_CAUSES = 3 };

/* Why a key has no effect: the keys that cause it, and a text. */
typedef struct idle_reason {
    const char *cause[MAX_CAUSES]; /* up to NULL */
    const char *because;
    const char *remedy; /* besides leaving the key out; NULL: none */
    bool accepted;      /* only noted, even if the file itself is the cause: a block that is off */
} idle_reason;

/* Refuses or notes each of the keys (up to NULL) that the user set to a value other than its
 * default. Does nothing if a cause has an error. */
void config_refuse_idle(config_checker *k, const idle_reason *reason, ...)
    __attribute__((sentinel));

#endif
