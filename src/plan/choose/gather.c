/* zero_optimization.pipeline_gather: auto. */
#include "src/plan/choose/ways.h"

/* By pipeline.gather_per_step. */
static const int ways[] = {Z3D_PIPELINE_GATHER_PER_MICROBATCH, Z3D_PIPELINE_GATHER_PER_STEP};

bool z3d_gather_matters(const z3d_config *config, int ranks) {
    return config->parallel_pipeline_model_parallel_size > 1 &&
           config->zero_optimization_stage3_max_reuse_distance == 0 &&
           ranks > z3d_config_model_ranks(config) &&
           z3d_way_shards((int)config->zero_optimization_stage, Z3D_STATE_VALUE);
}

/* ---- on described hardware: by time ---- */

static z3d_status price(z3d_config *config, const z3d_choice *at, int way, z3d_gather_price *out) {
    z3d_estimate e;
    config->zero_optimization_pipeline_gather = ways[way];
    Z3D_TRY(z3d_estimate_config(config, at->ranks, at->hardware, &e));
    *out = (z3d_gather_price){e.time.seconds, e.fullest.arena, e.fullest.fits};
    return Z3D_OK;
}

static int faster(const z3d_gather_price *price, z3d_string *why) {
    bool fits = price[1].fits, quicker = price[1].seconds < price[0].seconds;
    z3d_string_append(why,
                      "%s (per_step: %.4g s a step, %s on the fullest rank; per_microbatch: %.4g "
                      "s, %s%s)",
                      fits && quicker ? "per_step" : "per_microbatch", price[1].seconds,
                      z3d_bytes_text(price[1].arena).text, price[0].seconds,
                      z3d_bytes_text(price[0].arena).text,
                      price[1].fits   ? ""
                      : price[0].fits ? "; only per_microbatch fits"
                                      : "; neither fits");
    return fits && quicker;
}

/* ---- in a run: by memory ---- */

/* 1 if per_step leaves a tenth of the memory free, which other processes may need; else 0. */
static int roomier(const z3d_need *need, const z3d_room *room, z3d_string *why) {
    z3d_room most = {
        .device = room->device / 10 * 9, .host = room->host / 10 * 9, .shared = room->shared};
    bool fits = z3d_need_missing(&need[1], &most) == 0;
    z3d_string_append(why,
                      "%s (per_step: %s a rank, sends %s elements a step to data ranks; "
                      "per_microbatch: %s, %s; a rank has %s%s)",
                      fits ? "per_step" : "per_microbatch",
                      z3d_bytes_text(z3d_need_total(&need[1], room)).text,
                      z3d_count_text((double)need[1].sent).text,
                      z3d_bytes_text(z3d_need_total(&need[0], room)).text,
                      z3d_count_text((double)need[0].sent).text, z3d_bytes_text(room->device).text,
                      fits ? "" : ", of which a tenth stays free");
    return fits;
}

static z3d_status weigh(z3d_config *config, const z3d_choice *at, int *way, z3d_string *why) {
    z3d_need need[2];
    for (int k = 0; k < 2; k++) {
        config->zero_optimization_pipeline_gather = ways[k];
        Z3D_TRY(z3d_plan_need(config, at, &need[k]));
    }
    *way = roomier(need, at->room, why);
    return Z3D_OK;
}

/* ---- the choice ---- */

z3d_status z3d_choose_gather(z3d_config *config, const z3d_choice *at, z3d_gather_price prices[2],
                             z3d_string *why) {
    z3d_mesh mesh;
    int given = config->zero_optimization_pipeline_gather, way = 0;
    bool open = given == Z3D_PIPELINE_GATHER_AUTO;
    prices[0] = prices[1] = (z3d_gather_price){0};
    Z3D_TRY(z3d_plan_place(config, at->ranks, 0, &mesh));
    if (!z3d_gather_matters(config, z3d_mesh_size(&mesh, Z3D_AXES_WORLD))) return Z3D_OK;
    if (open) Z3D_TRY(z3d_config_override(config, "training.hardware="));
    z3d_status status = Z3D_OK;
    for (int k = 0; k < 2 && at->hardware && status == Z3D_OK; k++)
        status = price(config, at, k, &prices[k]);
    if (status == Z3D_OK && open && at->hardware)
        way = faster(prices, why);
    else if (status == Z3D_OK && open && at->room)
        status = weigh(config, at, &way, why);
    else if (open)
        z3d_string_append(why, "per_microbatch, which needs least memory; a run decides by "
                               "training.hardware, if that is set, else by the memory that it "
                               "finds; plan --hardware FILE by time");
    config->zero_optimization_pipeline_gather = open ? ways[way] : given;
    if (why->failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory for a line of text");
    return status;
}
