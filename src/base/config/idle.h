/* Keys whose values have no effect: refused, or told where only an override made them so. */
#ifndef ZERO3D_BASE_CONFIG_IDLE_H
#define ZERO3D_BASE_CONFIG_IDLE_H

#include "src/base/config/table.h"

/* Refuses or tells each of `keys` ("a b") that the user set to another value than its default:
 * the values of the keys `causes` leave it without effect. remedy NULL: there is none but to leave
 * the key out. accepted: also where the same file says so: a block that is switched off. */
void config_refuse_idle(config_checker *k, const char *keys, const char *causes,
                        const char *because, const char *remedy, bool accepted);

#endif
