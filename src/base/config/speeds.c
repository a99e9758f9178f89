/* Rules of parallel.device_speeds: how fast each rank computes. */
#include "src/base/config/table.h"

#include <stdlib.h>

#define SPEEDS "parallel.device_speeds"

z3d_device_speeds z3d_config_device_speeds(const z3d_config *config, double *speed, int capacity,
                                           int *count) {
    const config_key *key = &config_table[CONFIG_KEY_parallel_device_speeds];
    return (z3d_device_speeds)config_word_or_list(key, config->parallel_device_speeds, speed,
                                                  capacity, count);
}

void config_check_speeds(config_checker *k) {
    static const double least = 1e-3, most = 1e3;
    int count;
    double *speed = NULL;
    if (!config_sound(k, SPEEDS, NULL)) return;
    if (z3d_config_device_speeds(k->c, NULL, 0, &count) != Z3D_SPEEDS_LIST) return;
    if (z3d_new((size_t)count, sizeof *speed, "speeds", &speed) != Z3D_OK) {
        config_errors_add(k->errors);
        return;
    }
    (void)z3d_config_device_speeds(k->c, speed, count, &count);
    int wrong = 0;
    while (wrong < count && speed[wrong] >= least && speed[wrong] <= most) wrong++;
    if (wrong < count)
        config_complain(k, SPEEDS, "rank %d's speed is %g; write a number from %g to %g", wrong,
                        speed[wrong], least, most);
    free(speed);
}

bool config_check_ranks_speeds(config_checker *k, int ranks) {
    int count;
    if (!config_sound(k, SPEEDS, NULL)) return true;
    if (z3d_config_device_speeds(k->c, NULL, 0, &count) != Z3D_SPEEDS_LIST) return true;
    if (count == ranks) return true;
    config_complain(k, SPEEDS,
                    "the list has %d number%s, but there are %d ranks; write one number per rank, "
                    "or measured",
                    count, z3d_plural(count), ranks);
    return false;
}
