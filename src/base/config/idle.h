/* Keys whose values have no effect: they are refused, or noted if only an override is the cause. */
#ifndef ZERO3D_BASE_CONFIG_IDLE_H
#define ZERO3D_BASE_CONFIG_IDLE_H

#include "src/base/config/table.h"

/* Refuses or notes each of `keys` ("a b") that the user set to a value other than its default,
 * because the values of the keys `causes` leave it without effect. Does nothing if a cause has an
 * error. remedy: besides leaving the key out; NULL: none. accepted: only notes it, even if the file
 * itself is the cause: a block that is off. */
void config_refuse_idle(config_checker *k, const char *keys, const char *causes,
                        const char *because, const char *remedy, bool accepted);

#endif
