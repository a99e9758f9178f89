/* plan --fit and --recommend: the number of ranks. */
#include <math.h>

#include "src/plan/choose/choose.h"

enum { MOST_RANKS = 1 << 17, MOST_SEARCHES = 24, MOST_REFUSALS = 40 };

int z3d_default_ranks(const z3d_config *config, int ranks, const z3d_hardware *hardware) {
    const int64_t parts =
        config->parallel_tensor_model_parallel_size * config->parallel_pipeline_model_parallel_size;
    if (ranks > 0 || config->parallel_world_size != Z3D_AUTO) return ranks;
    const int64_t found = z3d_round_up((int64_t)hardware->devices, parts);
    return found > MOST_RANKS ? ranks : (int)found;
}

/* ---- the number of nodes that a training needs ---- */

typedef struct order {
    const z3d_config *config;
    const z3d_hardware *hardware;
    const z3d_goal *goal;
    bool keep;
    double rate;           /* tokens a second that the goal needs */
    double best, per_node; /* the highest rate so far, of all nodes and for each node */
    int searches, refusals;
} order;

/* A pipeline of few stages leaves each data rank, of tensor ranks inside a node, equally many
 * samples. */
static bool has_short_pipeline(const order *o, int nodes) {
    enum { FEW_STAGES = 8 };
    const int64_t batch = o->config->train_batch_size, devices = (int64_t)o->hardware->devices;
    for (int64_t stages = 1; stages <= FEW_STAGES; stages++)
        for (int64_t tensor = 1; tensor <= devices; tensor++) {
            const int64_t parts = stages * tensor, ranks = nodes * devices;
            if (devices % tensor == 0 && ranks % parts == 0 && batch % (ranks / parts) == 0)
                return true;
        }
    return false;
}

/* Ranks of other numbers of nodes make long pipelines of odd sizes: what is not a power of two must
 * divide the batch or the layers. */
static bool is_usual(const order *o, int nodes) {
    const int64_t batch = o->config->train_batch_size, layers = o->config->model_num_layers;
    int odd = nodes;
    while (odd % 2 == 0) odd /= 2;
    return ((batch == Z3D_AUTO ? 1 : batch % odd) * (layers % odd)) % odd == 0 ||
           (batch != Z3D_AUTO && has_short_pipeline(o, nodes));
}

static int usual_nodes(const order *o, int nodes) {
    while (!is_usual(o, nodes)) nodes++;
    return nodes;
}

/* The fewest nodes that could reach the goal: with all devices at their peak. */
static z3d_status least_nodes(const order *o, int *nodes) {
    z3d_config *config;
    z3d_model *model = NULL;
    const double peak = z3d_hardware_peak(o->hardware, z3d_plan_dtype(o->config));
    *nodes = 1;
    Z3D_TRY(z3d_config_copy(o->config, &config));
    z3d_status status = z3d_config_check(config, &z3d_model_rules);
    config->parallel_tensor_model_parallel_size = 1;
    config->parallel_sequence_parallel = 0;
    if (status == Z3D_OK) status = z3d_model_from_config(config, &model);
    if (status == Z3D_OK) {
        double least = ceil(o->rate * model->facts.flops.step / peak / o->hardware->devices);
        *nodes = usual_nodes(o, (int)fmin(fmax(least, 1), MOST_RANKS));
    }
    z3d_model_destroy(model);
    z3d_config_destroy(config);
    return status;
}

static z3d_status search(order *o, int nodes, z3d_config **config, z3d_recommendation *out) {
    const int ranks = nodes * (int)o->hardware->devices;
    Z3D_TRY(z3d_config_copy(o->config, config));
    z3d_status status = z3d_choose_nodes(*config, (int64_t)o->hardware->devices);
    if (status == Z3D_OK)
        status = z3d_recommend(*config, ranks, o->hardware, o->keep, o->goal, out);
    return status;
}

/* Errors that more nodes would not remove. */
static bool is_final(z3d_status status) {
    return status != Z3D_OK && status != Z3D_ERR_CONFIG && status != Z3D_ERR_MEMORY &&
           status != Z3D_ERR_TOPOLOGY;
}

static z3d_status refuse(const order *o, z3d_status last) {
    if (o->searches == 0 && last != Z3D_OK) return last;
    if (o->searches == 0)
        return Z3D_ERROR(
            Z3D_ERR_CONFIG,
            "%g days are too few for %g tokens: at their peak more than %d ranks would "
            "be needed; allow more days",
            o->goal->days, o->goal->tokens, MOST_RANKS);
    return Z3D_ERROR(
        Z3D_ERR_CONFIG,
        "no number of nodes that was tried trains on the tokens in %g days; the fastest takes %s: "
        "allow more days, or write a larger train_batch_size, which more ranks can share",
        o->goal->days, z3d_seconds_text(o->goal->tokens / o->best).text);
}

/* The rate of each node mostly falls with more nodes, or grows a little if smaller shards free
 * memory. */
static int next_nodes(const order *o, int nodes) {
    const double least = o->per_node > 0 ? ceil(0.95 * o->rate / o->per_node) : 0;
    return usual_nodes(o, least > nodes ? (int)fmin(least, MOST_RANKS) : nodes + 1);
}

z3d_status z3d_recommend_nodes(z3d_config **config, const z3d_hardware *hardware, bool keep,
                               const z3d_goal *goal, z3d_recommendation *out) {
    order o = {.config = *config,
               .hardware = hardware,
               .goal = goal,
               .keep = keep,
               .rate = goal->tokens / (goal->days * 86400)};
    z3d_status status = Z3D_OK;
    int nodes;
    Z3D_TRY(least_nodes(&o, &nodes));
    while (nodes * hardware->devices <= MOST_RANKS && o.searches < MOST_SEARCHES &&
           o.refusals < MOST_REFUSALS) {
        z3d_config *found = NULL;
        status = search(&o, nodes, &found, out);
        const double rate = status == Z3D_OK ? out->tokens / out->row[0].seconds : 0;
        if (rate >= o.rate) {
            z3d_config_destroy(*config);
            *config = found;
            return Z3D_OK;
        }
        z3d_config_destroy(found);
        if (is_final(status)) return status;
        *(status == Z3D_OK ? &o.searches : &o.refusals) += 1;
        o.best = fmax(o.best, rate);
        o.per_node = fmax(o.per_node, rate / nodes);
        nodes = next_nodes(&o, nodes);
    }
    return refuse(&o, status);
}
