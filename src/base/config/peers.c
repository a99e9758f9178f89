/* DeepSpeed's schedulers repeat the peak rate and the end of a cosine in their own keys, and its
 * pipeline block has the number of stages. Those set ours if it is not set; otherwise they must
 * agree with it. */
#include "src/base/config/table.h"

#include <math.h>
#include <stdio.h>

/* In fp32, as the rate is used. */
static bool alike(double a, double b) {
    return (float)a == (float)b || fabs(a - b) <= 1e-6 * fabs(b);
}

static double value_of(const z3d_config *c, int key) {
    const void *field = config_field(c, &config_table[key]);
    return config_table[key].type == CONFIG_INT ? (double)*(const int64_t *)field
                                                : *(const double *)field;
}

/* One error, at the place of the other key. */
static void refuse(config_checker *k, int index, int key, const char *what) {
    z3d_string where = {0};
    config_format_place(k->c, k->c->origin->peer[index].place, &where);
    (void)Z3D_ERROR(Z3D_ERR_CONFIG, "%s: %s: %s", where.failed ? "configuration" : where.text,
                    config_peer_path[index], what);
    z3d_string_free(&where);
    k->wrong[key] = true;
    config_errors_add(k->errors);
}

static void settle(config_checker *k, int index, int key, double value) {
    struct z3d_config_origin *origin = k->c->origin;
    const char *path = config_table[key].path;
    char said[40], wanted[40], what[256];
    config_place place = origin->peer[index].place;
    z3d_format_number(value, said, sizeof said);
    if (origin->place[key].source < 0) {
        if (config_set_text(k->c, &config_table[key], said) != Z3D_OK) {
            snprintf(what, sizeof what, "%s", z3d_error_message());
            refuse(k, index, key, what);
            return;
        }
        origin->place[key] = place;
        return;
    }
    if (alike(value, value_of(k->c, key))) return;
    if (place.line > 0 && config_is_overridden(k->c, path)) {
        snprintf(what, sizeof what, "an override gives %s", path);
        config_tell(k->c, place, config_peer_path[index], "has no effect:", what);
        origin->peer[index].place.source = -1;
        return;
    }
    snprintf(what, sizeof what, "it gives %s %s, but that is %s; leave one of them out", path, said,
             z3d_format_number(value_of(k->c, key), wanted, sizeof wanted));
    refuse(k, index, key, what);
}

void config_settle_peers(config_checker *k) {
    const z3d_config *c = k->c;
    const config_peer *peer = c->origin->peer;
    const config_peer *peak = &peer[CONFIG_PEER_WARMUP_MAX_LR];
    const config_peer *ratio = &peer[CONFIG_PEER_COS_MIN_RATIO];
    const config_peer *stages = &peer[CONFIG_PEER_PIPELINE_STAGES];
    if (peak->place.source >= 0 && config_sound(k, "optimizer.params.lr", NULL)) {
        settle(k, CONFIG_PEER_WARMUP_MAX_LR, CONFIG_KEY_optimizer_params_lr, peak->value);
    }
    if (ratio->place.source >= 0 &&
        config_sound(k, "scheduler.params.min_lr", "optimizer.params.lr", NULL)) {
        settle(k, CONFIG_PEER_COS_MIN_RATIO, CONFIG_KEY_scheduler_params_min_lr,
               ratio->value * c->optimizer_params_lr);
    }
    if (stages->place.source >= 0 &&
        config_sound(k, "parallel.pipeline_model_parallel_size", NULL)) {
        settle(k, CONFIG_PEER_PIPELINE_STAGES, CONFIG_KEY_parallel_pipeline_model_parallel_size,
               stages->value);
    }
}
