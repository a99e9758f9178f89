/* zero_optimization.offload_optimizer.ratio: auto. */
#include "src/plan/choose/choose.h"

/* Shares of the states: 0, 1/8 .. 1. */
enum { PARTS = 8, SHARES = PARTS + 1 };

typedef struct share {
    double seconds;
    bool fits;
} share;

bool z3d_ratio_is_open(const z3d_config *config) {
    return z3d_is_auto(config->zero_optimization_offload_optimizer_ratio) &&
           config->zero_optimization_offload_optimizer_device != Z3D_OFFLOAD_DEVICE_NONE;
}

static double ratio_of(int part) {
    return (double)part / PARTS;
}

/* ---- on described hardware: by time ---- */

static void say_others(const share *of, int best, z3d_string *why) {
    const char *before = " (";
    for (int part = 0; part < SHARES; part++) {
        if (!of[part].fits || part == best) continue;
        z3d_string_append(why, "%s%g: %.4g s", before, ratio_of(part), of[part].seconds);
        before = ", ";
    }
    const char *first = before[0] == ',' ? "; " : before;
    int large = 0;
    for (int part = 0; part < SHARES; part++)
        if (!of[part].fits) z3d_string_append(why, "%s%g", large++ ? ", " : first, ratio_of(part));
    z3d_string_append(why, "%s)", large > 1 ? " do not fit" : large ? " does not fit" : "");
}

/* Among equal times it takes the smaller share: it leaves more of the states on the device. */
static int fastest(const share *of, z3d_string *why) {
    int best = -1;
    for (int part = 0; part < SHARES; part++)
        if (of[part].fits && (best < 0 || of[part].seconds < of[best].seconds)) best = part;
    if (best < 0) {
        z3d_string_append(why, "1 (no share fits)");
        return PARTS;
    }
    z3d_string_append(why, "%g, %.4g s a step", ratio_of(best), of[best].seconds);
    say_others(of, best, why);
    return best;
}

static z3d_status compare(z3d_config *config, const z3d_choice *at, int *part, z3d_string *why) {
    share of[SHARES];
    for (int k = 0; k < SHARES; k++) {
        z3d_estimate e;
        config->zero_optimization_offload_optimizer_ratio = ratio_of(k);
        Z3D_TRY(z3d_estimate_config(config, at->ranks, at->hardware, &e));
        of[k] = (share){e.time.seconds, e.fullest.fits};
    }
    *part = fastest(of, why);
    return Z3D_OK;
}

/* ---- in a run: by memory ---- */

/* The smallest share that leaves a tenth of the memory free: other processes may need it. */
static z3d_status weigh(z3d_config *config, const z3d_choice *at, int *part, z3d_string *why) {
    const z3d_room *room = at->room;
    const z3d_room most = {
        .device = room->device / 10 * 9, .host = room->host / 10 * 9, .shared = room->shared};
    int64_t before = 0, total;
    for (*part = 0;; ++*part) {
        z3d_need need;
        config->zero_optimization_offload_optimizer_ratio = ratio_of(*part);
        Z3D_TRY(z3d_plan_need(config, at, &need));
        total = z3d_need_total(&need, room);
        if (*part == PARTS || z3d_need_missing(&need, &most) == 0) break;
        before = total;
    }
    z3d_string_append(why, "%g: a rank needs %s", ratio_of(*part), z3d_bytes_text(total).text);
    if (*part > 0)
        z3d_string_append(why, ", with %g %s", ratio_of(*part - 1), z3d_bytes_text(before).text);
    z3d_string_append(why, "; it has %s, of which a tenth stays free",
                      z3d_bytes_text(room->device).text);
    return Z3D_OK;
}

/* ---- the choice ---- */

z3d_status z3d_choose_ratio(z3d_config *config, const z3d_choice *at, z3d_string *why) {
    z3d_status status = Z3D_OK;
    int part = PARTS;
    if (!z3d_ratio_is_open(config)) return Z3D_OK;
    Z3D_TRY(z3d_config_check(config, &z3d_model_rules));
    Z3D_TRY(z3d_config_override(config, "training.hardware="));
    if (at->hardware)
        status = compare(config, at, &part, why);
    else if (at->room)
        status = weigh(config, at, &part, why);
    else
        z3d_string_append(why, "1, which needs least device memory; a run decides by "
                               "training.hardware, if that is set, else by the memory that it "
                               "finds; plan --hardware FILE by time");
    config->zero_optimization_offload_optimizer_ratio = ratio_of(part);
    if (why->failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory for a line of text");
    return status;
}
