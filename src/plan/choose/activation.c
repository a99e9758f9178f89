/* activation_checkpointing.recompute_activation: auto. */
#include "src/plan/choose/choose.h"

/* What a rank that keeps the output has and needs: bytes of device memory. */
typedef struct weight {
    double need, capacity;
    bool fits; /* a tenth of the memory stays free: what runs beside may want some */
} weight;

static z3d_status weigh_described(z3d_config *config, int ranks, const z3d_hardware *hardware,
                                  weight *out) {
    z3d_case *of;
    z3d_estimate e;
    Z3D_TRY(z3d_case_create(config, ranks, 0, z3d_case_node(config, hardware), &of));
    z3d_status status = z3d_estimate_make(of, hardware, 0, NULL, &e);
    const z3d_memory_need *need = &e.fullest;
    if (status == Z3D_OK)
        *out = (weight){need->capacity - need->free, need->capacity,
                        need->fits && need->free >= need->capacity / 10};
    z3d_case_destroy(of);
    return status;
}

static z3d_status weigh_here(z3d_config *config, int ranks, int threads, const z3d_room *room,
                             weight *out) {
    const z3d_room most = {
        .device = room->device / 10 * 9, .host = room->host, .shared = room->shared};
    z3d_need need;
    Z3D_TRY(z3d_plan_need(config, ranks, threads, &need));
    *out = (weight){(double)z3d_need_total(&need, room), (double)room->device,
                    z3d_need_missing(&need, &most) == 0};
    return Z3D_OK;
}

static void say(const weight *kept, z3d_string *why) {
    char need[32], capacity[32];
    z3d_string_append(why, "%s: a rank that keeps the output needs %s of %s%s",
                      kept->fits ? "false" : "true",
                      z3d_format_bytes((int64_t)kept->need, need, sizeof need),
                      z3d_format_bytes((int64_t)kept->capacity, capacity, sizeof capacity),
                      kept->fits ? "" : ", of which a tenth stays free");
}

z3d_status z3d_choose_activation(z3d_config *config, int ranks, int threads,
                                 const z3d_hardware *hardware, const z3d_room *room,
                                 z3d_string *why) {
    z3d_config_ENUM *key = &config->activation_checkpointing_recompute_activation;
    z3d_status status = Z3D_OK;
    weight kept = {.fits = false};
    if (*key != Z3D_RECOMPUTE_AUTO) return Z3D_OK;
    *key = Z3D_RECOMPUTE_FALSE;
    if (room)
        status = weigh_here(config, ranks, threads, room, &kept);
    else if (hardware)
        status = weigh_described(config, ranks, hardware, &kept);
    if (status == Z3D_OK && (room || hardware)) say(&kept, why);
    *key = kept.fits ? Z3D_RECOMPUTE_FALSE : Z3D_RECOMPUTE_TRUE;
    if (why->failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory for a line of text");
    return status;
}
