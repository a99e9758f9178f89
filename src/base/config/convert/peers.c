/* Keys of other frameworks with the meaning of a key of ours: DeepSpeed's schedulers repeat the
 * peak rate and the end of a cosine, its pipeline block has the number of stages, its first offload
 * switches had other names. They set our key if nobody did; otherwise they must agree with it. */
#include "src/base/config/table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Compares in the learning rate's fp32, and allows rounding. */
static bool alike(double a, double b) {
    return (float)a == (float)b || fabs(a - b) <= 1e-6 * fabs(b);
}

/* Whether two texts are the same value. */
static bool agree(const char *value, const char *said) {
    double a, b;
    if (z3d_parse_float(value, &a) != Z3D_OK || z3d_parse_float(said, &b) != Z3D_OK)
        return strcmp(value, said) == 0;
    return alike(b, a);
}

/* Adds an error at the place of the other framework's key. */
static void refuse(config_checker *k, int index, int key, const char *what) {
    z3d_string where = {0};
    config_format_place(k->c, k->c->origin->peer[index].place, &where);
    (void)Z3D_ERROR(Z3D_ERR_CONFIG, "%s: %s: %s", where.failed ? "configuration" : where.text,
                    config_peer_key[index].path, what);
    z3d_string_free(&where);
    k->wrong[key] = true;
    config_errors_add(k->errors);
}

static void settle(config_checker *k, int index, int key, const char *said) {
    struct z3d_config_origin *origin = k->c->origin;
    const char *path = config_table[key].path;
    char what[256];
    config_place place = origin->peer[index].place;
    if (origin->place[key].source < 0) {
        if (config_set_text(k->c, &config_table[key], said) == Z3D_OK)
            origin->place[key] = place;
        else
            refuse(k, index, key, z3d_error_message());
        return;
    }
    z3d_string value = {0};
    config_append_value(&value, k->c, &config_table[key], 0);
    const char *is = value.failed ? " another" : value.text;
    if (agree(is + 1, said)) {
        z3d_string_free(&value);
        return;
    }
    if (place.line > 0 && config_is_overridden(k->c, path)) {
        snprintf(what, sizeof what, "an override gives %s", path);
        config_tell(k->c, place, config_peer_key[index].path, "has no effect:", what);
        origin->peer[index].place.source = -1;
    } else {
        snprintf(what, sizeof what, "it sets %s to %s, but that key is%s; leave one of them out",
                 path, said, is);
        refuse(k, index, key, what);
    }
    z3d_string_free(&value);
}

/* The value of our key that another framework's key asks for. Its switch sets a switch, or a device
 * to cpu. */
static const char *value_for(const z3d_config *c, int index, int key, char *buf, size_t size) {
    double value = c->origin->peer[index].value;
    if (config_table[key].type == CONFIG_BOOL) return value != 0 ? "true" : "false";
    if (config_peer_key[index].type == CONFIG_BOOL) return "cpu";
    if (index == CONFIG_PEER_COS_MIN_RATIO) value *= c->optimizer_params_lr;
    return z3d_format_number(value, buf, size);
}

/* Keys with another name. The peak precedes the ratio, which multiplies it; autotp_size 0 counts
 * as not set. */
static void settle_renamed(config_checker *k) {
    static const struct {
        int peer, key;
    } renamed[] = {
        {CONFIG_PEER_WARMUP_MAX_LR, CONFIG_KEY_optimizer_params_lr},
        {CONFIG_PEER_COS_MIN_RATIO, CONFIG_KEY_scheduler_params_min_lr},
        {CONFIG_PEER_PIPELINE_STAGES, CONFIG_KEY_parallel_pipeline_model_parallel_size},
        {CONFIG_PEER_AUTOTP_SIZE, CONFIG_KEY_parallel_tensor_model_parallel_size},
        {CONFIG_PEER_PREFETCH, CONFIG_KEY_zero_optimization_stage3_prefetch_bucket_size},
        {CONFIG_PEER_PERSISTENCE, CONFIG_KEY_zero_optimization_stage3_param_persistence_threshold},
        {CONFIG_PEER_MAX_LIVE, CONFIG_KEY_zero_optimization_stage3_max_live_parameters},
        {CONFIG_PEER_MAX_REUSE, CONFIG_KEY_zero_optimization_stage3_max_reuse_distance},
        {CONFIG_PEER_SHARD_DEGREE, CONFIG_KEY_zero_optimization_mics_shard_size},
        {CONFIG_PEER_CPU_OFFLOAD, CONFIG_KEY_zero_optimization_offload_optimizer_device},
        {CONFIG_PEER_CPU_OFFLOAD_PARAM, CONFIG_KEY_zero_optimization_offload_param_device},
        {CONFIG_PEER_CPU_OFFLOAD_PARAMS, CONFIG_KEY_zero_optimization_offload_param_device},
        {CONFIG_PEER_TENSORBOARD, CONFIG_KEY_run_tensorboard},
    };
    char buf[40];
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++) {
        const int index = renamed[i].peer, key = renamed[i].key;
        const config_peer *peer = &k->c->origin->peer[index];
        const bool unsaid = index == CONFIG_PEER_AUTOTP_SIZE && peer->value <= 0;
        const bool scaled = index == CONFIG_PEER_COS_MIN_RATIO;
        if (peer->place.source >= 0 && !unsaid && config_sound(k, config_table[key].path, NULL) &&
            (!scaled || config_sound(k, "optimizer.params.lr", NULL)))
            settle(k, index, key, value_for(k->c, index, key, buf, sizeof buf));
    }
}

/* A block that is off may have any value. */
static void refuse_loud_logger(config_checker *k) {
    static const struct {
        int peer;
        const char *what;
    } asks[] = {
        {CONFIG_PEER_COMMS_VERBOSE, "not supported: training.trace_steps writes each collective of "
                                    "the first steps; leave it out or write false"},
        {CONFIG_PEER_COMMS_DEBUG, "not supported: training.trace_steps names the entry of the step "
                                  "program that waits; leave it out or write false"},
    };
    for (size_t i = 0; i < sizeof asks / sizeof *asks && k->c->comms_logger_enabled; i++)
        if (k->c->origin->peer[asks[i].peer].place.source >= 0)
            refuse(k, asks[i].peer, CONFIG_KEY_comms_logger_enabled, asks[i].what);
}

void config_settle_optimizer(z3d_config *c) {
    if (c->optimizer_type == Z3D_OPTIMIZER_adam && c->optimizer_params_adam_w_mode)
        c->optimizer_type = Z3D_OPTIMIZER_adamw;
}

void config_settle_peers(config_checker *k) {
    config_settle_optimizer(k->c);
    settle_renamed(k);
    refuse_loud_logger(k);
}
