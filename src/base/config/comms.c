/* DeepSpeed's comms_logger: which kinds of collectives a run reports. */
#include "src/base/collectives.h"
#include "src/base/config/table.h"

#include <string.h>

#define ENABLED "comms_logger.enabled"
#define ALL "comms_logger.prof_all"
#define OPS "comms_logger.prof_ops"

/* DeepSpeed's and PyTorch's other names. */
static const char *own_name(const char *name) {
    static const char *const others[][2] = {{"all_gather_into_tensor", "all_gather"},
                                            {"all_gather_base", "all_gather"},
                                            {"reduce_scatter_tensor", "reduce_scatter"},
                                            {"reduce_scatter_base", "reduce_scatter"},
                                            {"isend", "send"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i][0]) == 0) return others[i][1];
    return name;
}

/* A receive's bytes count for its sender; a barrier has no bytes. */
static bool moves_bytes(const char *name) {
    static const char *const names[] = {
#define X(NAME, name) #name,
        Z3D_COLLECTIVE_MAP(X)
#undef X
    };
    bool known = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        known = known || strcmp(name, names[i]) == 0;
    return known && strcmp(name, "recv") != 0 && strcmp(name, "barrier") != 0;
}

bool z3d_config_logs_collective(const z3d_config *config, const char *name) {
    const z3d_data_list *ops = &config->comms_logger_prof_ops;
    bool named = config->comms_logger_prof_all;
    for (int i = 0; i < ops->count && !named; i++)
        named = strcmp(own_name(ops->path[i]), name) == 0;
    return config->comms_logger_enabled && named;
}

static void check_names(config_checker *k) {
    const z3d_data_list *ops = &k->c->comms_logger_prof_ops;
    for (int i = 0; i < ops->count && config_sound(k, OPS, NULL); i++)
        if (!moves_bytes(own_name(ops->path[i])))
            config_complain(k, OPS,
                            "%.40s is no collective whose bytes are counted; write some of "
                            "all_reduce, reduce_scatter, all_gather, broadcast and send",
                            ops->path[i]);
}

void config_check_comms(config_checker *k) {
    const z3d_config *c = k->c;
    if (!config_sound(k, ENABLED, ALL, OPS, NULL)) return;
    check_names(k);
    if (!c->comms_logger_enabled)
        config_note_idle(k, OPS " " ALL, ENABLED, "while " ENABLED " is false", "set it to true",
                         true);
    else if (c->comms_logger_prof_all)
        config_refuse_idle(k, OPS, ALL, "while " ALL " is true", "set it to false");
    else if (c->comms_logger_prof_ops.count == 0)
        config_complain(k, ALL, "false, but " OPS " names no collective; name some, or write true");
}
