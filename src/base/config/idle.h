/* Keys whose values have no effect: refused, or told where only an override made them so. */
#ifndef ZERO3D_BASE_CONFIG_IDLE_H
#define ZERO3D_BASE_CONFIG_IDLE_H

#include "src/base/config/table.h"

enum { MAX_CAUSES = 3 };

/* The keys whose values leave others without effect, and why. */
typedef struct idle_reason {
    const char *cause[MAX_CAUSES]; /* up to NULL */
    const char *because;
    const char *remedy; /* NULL: there is none but to leave the key out */
    bool accepted;      /* also where the same file says so: a block that is switched off */
} idle_reason;

/* Refuses or tells each of the keys, up to NULL, that the user set to another value than its
 * default. */
void config_refuse_idle(config_checker *k, const idle_reason *reason, ...)
    __attribute__((sentinel));

#endif
