/* Keys whose values have no effect: they are refused, or noted if only an override is the cause. */
#ifndef ZERO3D_BASE_CONFIG_IDLE_H
#define ZERO3D_BASE_CONFIG_IDLE_H

#include "src/base/config/table.h"

/* Refuses or notes each of `keys` ("a b") that is set and not at its default: the values of
 * `causes` leave it without effect. Does nothing if a cause has an error. remedy: an alternative to
 * leaving the key out, or NULL. accepted: a key of the file is only noted in any case (a block is
 * off). */
void config_refuse_idle(config_checker *k, const char *keys, const char *causes,
                        const char *because, const char *remedy, bool accepted);
/* Refuses or notes keys that only stage 3 reads; false: the stage is 3, or has an error. */
bool config_refuse_below_3(config_checker *k, const char *keys, const char *remedy, bool accepted);

#endif
