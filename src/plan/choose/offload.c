/* activation_checkpointing.cpu_checkpointing: auto. */
#include "src/plan/choose/choose.h"

/* Copies count as hidden if they lengthen the step by at most this share. */
static const double hidden_share = 0.01;

static bool decide(const z3d_estimate *off, const z3d_estimate *on, z3d_string *why) {
    const z3d_number_text host = z3d_bytes_text(on->fullest.host_arena);
    const z3d_memory_need *without = &off->fullest, *with = &on->fullest;
    double slower = on->time.seconds / off->time.seconds - 1;
    if (with->fits && !without->fits) {
        z3d_string_append(why,
                          "on: without it a rank needs %s more than the device has; %s of "
                          "checkpoints go to host memory, and the step time changes by %+.1f %%",
                          z3d_bytes_text((int64_t)-without->free).text, host.text, 100 * slower);
        return true;
    }
    if (without->fits && !with->fits) {
        z3d_string_append(why, "off: %s of checkpoints do not fit into a rank's host memory",
                          host.text);
        return false;
    }
    bool hides = slower <= hidden_share;
    z3d_string_append(why,
                      "%s: copying %s of checkpoints to the host and back %s %.3g s of compute a "
                      "step (step time %+.2f %%; up to %g %% counts as hidden)%s",
                      hides ? "on" : "off", host.text, hides ? "is hidden by" : "is not hidden by",
                      on->time.compute, 100 * slower, 100 * hidden_share,
                      with->fits ? "" : "; the run does not fit with or without it");
    return hides;
}

static z3d_status choose(z3d_config *config, const z3d_choice *at, z3d_string *why) {
    z3d_config_ENUM *key = &config->activation_checkpointing_cpu_checkpointing;
    z3d_estimate off, on;
    *key = Z3D_OFFLOAD_OFF;
    if (config->activation_checkpointing_granularity == Z3D_GRANULARITY_NONE ||
        config->activation_checkpointing_granularity == Z3D_GRANULARITY_SELECTIVE) {
        z3d_string_append(why, "off: only granularity full has activation checkpoints");
        return Z3D_OK;
    }
    if (!at->hardware) {
        z3d_string_append(why, "off: the speed of this machine is unknown; set training.hardware, "
                               "or use plan --hardware FILE");
        return Z3D_OK;
    }
    Z3D_TRY(z3d_estimate_config(config, at->ranks, at->hardware, &off));
    *key = Z3D_OFFLOAD_ON;
    Z3D_TRY(z3d_estimate_config(config, at->ranks, at->hardware, &on));
    if (!decide(&off, &on, why)) *key = Z3D_OFFLOAD_OFF;
    return Z3D_OK;
}

z3d_status z3d_choose_offload(z3d_config *config, const z3d_choice *at, z3d_string *why) {
    if (config->activation_checkpointing_cpu_checkpointing != Z3D_OFFLOAD_AUTO) return Z3D_OK;
    Z3D_TRY(z3d_config_check(config, &z3d_model_rules));
    /* Clear training.hardware first: after the choice it would be an option without effect, which
     * is an error. */
    Z3D_TRY(z3d_config_override(config, "training.hardware="));
    Z3D_TRY(choose(config, at, why));
    if (why->failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory for a line of text");
    return Z3D_OK;
}
