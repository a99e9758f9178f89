/* activation_checkpointing.granularity and recompute_activation: auto. */
#include "src/plan/choose/ways.h"

/* Bytes of device memory that a rank has and needs. */
typedef struct weight {
    int64_t need, capacity;
    bool fits; /* a tenth of the memory stays free, in a run at least BESIDE_PLAN */
} weight;

static z3d_status weigh_described(z3d_config *config, const z3d_choice *at, weight *out) {
    z3d_estimate e;
    Z3D_TRY(z3d_estimate_config(config, at->ranks, at->hardware, &e));
    const z3d_memory_need *need = &e.fullest;
    *out = (weight){(int64_t)(need->capacity - need->free), (int64_t)need->capacity,
                    need->fits && need->free >= need->capacity / 10};
    return Z3D_OK;
}

/* Bytes of a process outside its plan: 28 to 37 MiB were measured on the cpu device. */
enum { BESIDE_PLAN = 64 << 20 };

/* The memory budget to check is a run's, or without one that of described hardware. */
static z3d_status weigh(z3d_config *config, const z3d_choice *at, weight *out) {
    const z3d_room *room = at->room;
    if (!room) return weigh_described(config, at, out);
    const int64_t tenth = room->device / 10, free = tenth > BESIDE_PLAN ? tenth : BESIDE_PLAN;
    const z3d_room most = {.device = room->device > free ? room->device - free : 0,
                           .host = room->host,
                           .shared = room->shared};
    z3d_need need;
    Z3D_TRY(z3d_plan_need(config, at, &need));
    *out = (weight){z3d_need_total(&need, room), room->device, z3d_need_missing(&need, &most) == 0};
    return Z3D_OK;
}

/* ---- granularity ---- */

/* Tries granularities from `first` on; the lower the enumeration's value, the fewer activations are
 * resident. */
static z3d_status first_that_fits(z3d_config *config, const z3d_choice *at, int first,
                                  z3d_string *why) {
    z3d_config_ENUM *key = &config->activation_checkpointing_granularity;
    weight of = {0}, before = of;
    for (*key = first;; --*key) {
        Z3D_TRY(weigh(config, at, &of));
        if (of.fits || *key == Z3D_GRANULARITY_FULL) break;
        before = of;
    }
    z3d_string_append(why, "%s: a rank needs %s", z3d_fit_granularities[*key],
                      z3d_bytes_text(of.need).text);
    if (*key < first)
        z3d_string_append(why, ", with %s %s", z3d_fit_granularities[*key + 1],
                          z3d_bytes_text(before.need).text);
    z3d_string_append(why, "; it has %s, of which a tenth stays free",
                      z3d_bytes_text(of.capacity).text);
    return Z3D_OK;
}

z3d_status z3d_choose_granularity(z3d_config *config, const z3d_choice *at, int first,
                                  z3d_string *why) {
    z3d_config_ENUM *key = &config->activation_checkpointing_granularity;
    if (*key != Z3D_GRANULARITY_AUTO) return Z3D_OK;
    *key = Z3D_GRANULARITY_FULL;
    if (z3d_config_wants_checkpoints(config))
        z3d_string_append(why, "full, which the other keys of activation_checkpointing need");
    else if (at->room || at->hardware)
        Z3D_TRY(first_that_fits(config, at, first, why));
    else
        z3d_string_append(why, "full, which needs least memory; a run decides by the memory of its "
                               "machine, plan --hardware FILE by that of a described one");
    if (why->failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory for a line of text");
    return Z3D_OK;
}

/* ---- recompute_activation ---- */

/* Keeping the output costs no memory if it is not alive at the peak. */
static z3d_status decide(z3d_config *config, const z3d_choice *at, bool *keep, z3d_string *why) {
    weight kept, again;
    config->activation_checkpointing_recompute_activation = Z3D_RECOMPUTE_FALSE;
    Z3D_TRY(weigh(config, at, &kept));
    *keep = kept.fits;
    if (!kept.fits) {
        config->activation_checkpointing_recompute_activation = Z3D_RECOMPUTE_TRUE;
        Z3D_TRY(weigh(config, at, &again));
        *keep = kept.need <= again.need;
    }
    z3d_string_append(why, "%s: a rank that keeps the output needs %s of %s%s",
                      *keep ? "false" : "true", z3d_bytes_text(kept.need).text,
                      z3d_bytes_text(kept.capacity).text,
                      kept.fits ? ""
                      : *keep   ? ", as much as one that does not"
                                : ", of which a tenth stays free");
    return Z3D_OK;
}

z3d_status z3d_choose_activation(z3d_config *config, const z3d_choice *at, z3d_string *why) {
    z3d_config_ENUM *key = &config->activation_checkpointing_recompute_activation;
    z3d_status status = Z3D_OK;
    bool keep = false;
    if (*key != Z3D_RECOMPUTE_AUTO) return Z3D_OK;
    if (at->room || at->hardware) status = decide(config, at, &keep, why);
    *key = keep ? Z3D_RECOMPUTE_FALSE : Z3D_RECOMPUTE_TRUE;
    if (why->failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory for a line of text");
    return status;
}
