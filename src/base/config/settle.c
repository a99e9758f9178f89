/* All errors of a configuration: those of reading and those of the checks. */
#include "src/base/config/table.h"

/* Returns the errors of reading, then of the checks (`check`) and of resolving (`data`). */
static z3d_status examine(z3d_config *config, const z3d_config_rules *rules, bool check,
                          bool trains, int world_size, int *data) {
    config_checker k;
    config_errors all = config->origin->errors;
    all.text = (z3d_string){0};
    if (all.total) z3d_string_append(&all.text, "%s", config->origin->errors.text.text);
    config_checker_begin(&k, config, rules, &all);
    k.ranks = world_size;
    k.trains = trains;
    if (!config->origin->cut) {
        if (check) config_check_into(&k);
        if (data) config_resolve_into(&k, world_size, data);
    }
    z3d_status status = config_errors_status(&all); /* logged after the notes */
    z3d_config_tell(config);
    z3d_string_free(&all.text);
    return status;
}

z3d_status z3d_config_check(z3d_config *config, const z3d_config_rules *rules) {
    return examine(config, rules, true, false, 0, NULL);
}

z3d_status z3d_config_check_training(z3d_config *config, const z3d_config_rules *rules) {
    return examine(config, rules, true, true, 0, NULL);
}

z3d_status z3d_config_resolve(z3d_config *config, const z3d_config_rules *rules, int world_size,
                              int *data_parallel_size) {
    return examine(config, rules, false, false, world_size, data_parallel_size);
}

z3d_status z3d_config_settle(z3d_config *config, const z3d_config_rules *rules, int world_size,
                             int *data_parallel_size) {
    return examine(config, rules, true, false, world_size, data_parallel_size);
}
