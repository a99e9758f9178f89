/* DeepSpeed's schedulers repeat the peak rate and the end of a cosine in their own keys. Those set
 * ours if it is not set; otherwise they must agree with it. */
#include "src/base/config/table.h"

#include <math.h>

/* In fp32, as the rate is used. */
static bool alike(double a, double b) {
    return (float)a == (float)b || fabs(a - b) <= 1e-6 * fabs(b);
}

static void settle(config_checker *k, int index, int key, double *field, double value) {
    struct z3d_config_origin *origin = k->c->origin;
    char said[40], wanted[40];
    config_place place = origin->peer[index].place;
    if (origin->place[key].source < 0) {
        *field = value;
        origin->place[key] = place;
        return;
    }
    if (alike(value, *field)) return;
    if (place.line > 0 && config_is_overridden(k->c, config_table[key].path)) {
        config_tell(k->c, place, config_peer_path[index],
                    "has no effect:", "an override gives the rate");
        origin->peer[index].place.source = -1;
        return;
    }
    z3d_string where = {0};
    config_format_place(k->c, place, &where);
    (void)Z3D_ERROR(Z3D_ERR_CONFIG, "%s: %s: it gives %s %s, but that is %s; leave one of them out",
                    where.failed ? "configuration" : where.text, config_peer_path[index],
                    config_table[key].path, z3d_format_number(value, said, sizeof said),
                    z3d_format_number(*field, wanted, sizeof wanted));
    z3d_string_free(&where);
    k->wrong[key] = true;
    config_errors_add(k->errors);
}

void config_settle_peers(config_checker *k) {
    z3d_config *c = k->c;
    const config_peer *peer = c->origin->peer;
    const config_peer *peak = &peer[CONFIG_PEER_WARMUP_MAX_LR];
    const config_peer *ratio = &peer[CONFIG_PEER_COS_MIN_RATIO];
    if (peak->place.source >= 0 && config_sound(k, "optimizer.params.lr", NULL)) {
        settle(k, CONFIG_PEER_WARMUP_MAX_LR, CONFIG_KEY_optimizer_params_lr,
               &c->optimizer_params_lr, peak->value);
    }
    if (ratio->place.source >= 0 &&
        config_sound(k, "scheduler.params.min_lr", "optimizer.params.lr", NULL)) {
        settle(k, CONFIG_PEER_COS_MIN_RATIO, CONFIG_KEY_scheduler_params_min_lr,
               &c->scheduler_params_min_lr, ratio->value * c->optimizer_params_lr);
    }
}
