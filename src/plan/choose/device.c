/* The device of a described machine. */
#include <string.h>

#include "src/plan/choose/choose.h"

z3d_status z3d_choose_device(z3d_config *config, const z3d_hardware *hardware, bool *chosen) {
    const bool cpu = z3d_hardware_is_cpu(hardware), gpu = strcmp(hardware->kind, "gpu") == 0;
    const bool wants_cpu = config->training_device == Z3D_TRAINING_CPU;
    *chosen = false;
    if ((!cpu && !gpu) || cpu == wants_cpu) return Z3D_OK;
    if (z3d_config_is_set(config, "training.device"))
        return z3d_config_error(config, "training.device",
                                "%s, but the described machine, %s, computes on %s; write %s, or "
                                "describe another machine",
                                wants_cpu ? "cpu" : "cuda", hardware->name, cpu ? "CPUs" : "GPUs",
                                cpu ? "cpu" : "cuda");
    *chosen = true;
    return z3d_config_override(config, "training.device=cuda");
}
