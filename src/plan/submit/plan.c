/* The plan of a job before it is submitted. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/plan/choose/choose.h"
#include "src/plan/submit/submit.h"

bool z3d_job_seconds(const char *time, int64_t *out) {
    int64_t part[4] = {0}, days = 0;
    int parts = 0, used = 0;
    int length = (int)strlen(time);
    const bool dashed = strchr(time, '-') != NULL;
    if (time[strspn(time, "0123456789:-")] != '\0') return false; /* sscanf takes spaces */
    if (dashed && (sscanf(time, "%6" SCNd64 "-%n", &days, &used) != 1 || used == 0)) return false;
    while (used < length && parts < 3) {
        int more = 0;
        if (sscanf(time + used, "%6" SCNd64 "%n", &part[parts], &more) != 1 || more == 0 ||
            part[parts] < 0)
            return false;
        parts++;
        used += more;
        if (used < length && (time[used++] != ':' || used == length)) return false;
    }
    if (used != length || parts == 0) return false;
    /* The unit of the first part: hours if it follows days or if the time has three parts; else
     * minutes. */
    const int64_t unit = dashed || parts == 3 ? 3600 : 60;
    int64_t seconds = days * 86400, each = unit;
    for (int i = 0; i < parts; i++, each /= 60) seconds += part[i] * each;
    *out = seconds;
    return seconds > 0;
}

/* Whether a step's samples can be divided among the ranks of so many nodes. */
static bool divides(const z3d_job *job, const z3d_config *config, int64_t nodes) {
    const int64_t model = z3d_config_model_ranks(config);
    const int64_t ranks = nodes * job->ranks;
    return ranks % model == 0 && config->train_batch_size % (ranks / model) == 0;
}

static z3d_status refuse_nodes(const z3d_job *job, const z3d_config *config) {
    return Z3D_ERROR(Z3D_ERR_CONFIG,
                     "--nodes %lld-%lld: no number of nodes with %lld ranks each divides the %lld "
                     "samples of a step (train_batch_size) over copies of %lld ranks%s",
                     (long long)job->nodes, (long long)job->most_nodes, (long long)job->ranks,
                     (long long)config->train_batch_size, (long long)z3d_config_model_ranks(config),
                     job->config_count > 1 ? ", and the samples of the other runs" : "");
}

/* parallel.elastic: the batch is resolved again for each number of nodes. */
static z3d_status try_nodes(const z3d_job *job, z3d_config *config, int64_t nodes) {
    const int64_t micro = config->train_micro_batch_size_per_gpu;
    z3d_mesh unused;
    z3d_status status = z3d_plan_place(config, nodes * job->ranks, 0, &unused);
    config->train_micro_batch_size_per_gpu = micro;
    return status;
}

static z3d_status list_nodes(z3d_job *job) {
    const int64_t count = job->most_nodes - job->nodes + 1;
    if (job->most_nodes * job->ranks > INT32_MAX)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "--nodes %lld: with %lld ranks each they are too many",
                         (long long)job->most_nodes, (long long)job->ranks);
    Z3D_TRY(z3d_new((size_t)count, sizeof *job->choice, "numbers of nodes", &job->choice));
    for (int64_t i = 0; i < count; i++) job->choice[i] = job->nodes + i;
    job->choices = count;
    return Z3D_OK;
}

/* Removes the numbers of nodes that this configuration cannot use from a range. */
static z3d_status choose_nodes(z3d_job *job, z3d_config *config) {
    int64_t left = 0, refused = 0;
    if (!job->choice) Z3D_TRY(list_nodes(job));
    if (job->most_nodes == job->nodes) return Z3D_OK;
    if (!config->parallel_elastic || config->train_batch_size == Z3D_AUTO)
        return Z3D_ERROR(Z3D_ERR_CONFIG,
                         "--nodes %lld-%lld: a range needs parallel.elastic=true, "
                         "train_batch_size and train_micro_batch_size_per_gpu",
                         (long long)job->nodes, (long long)job->most_nodes);
    for (int64_t i = 0; i < job->choices; i++) {
        const int64_t nodes = job->choice[i];
        if (!divides(job, config, nodes)) continue;
        if (try_nodes(job, config, nodes) == Z3D_OK)
            job->choice[left++] = nodes;
        else
            refused = nodes;
    }
    job->choices = left;
    if (left > 0) return Z3D_OK;
    return refused ? try_nodes(job, config, refused) : refuse_nodes(job, config);
}

void z3d_job_release(z3d_job *job) {
    z3d_string_free(&job->facts);
    z3d_string_free(&job->setup);
    free(job->choice);
    job->choice = NULL;
}

static void say_time(const z3d_job *job, const z3d_config *config, double seconds,
                     z3d_string *line) {
    int64_t limit = 0;
    const double whole = seconds * (double)config->training_steps;
    (void)z3d_job_seconds(job->time, &limit);
    const double left = (double)(limit - job->signal);
    z3d_string_append(line, "predicted: %s a step", z3d_seconds_text(seconds).text);
    if (config->training_steps == Z3D_AUTO) {
        z3d_string_append(line, "; the steps of training.epochs are not known: data.train is not "
                                "on this machine");
        return;
    }
    z3d_string_append(line, ", %s for %lld steps", z3d_seconds_text(whole).text,
                      (long long)config->training_steps);
    const double between = seconds * (double)config->checkpoint_interval;
    if (between > 3600 && config->checkpoint_interval < config->training_steps)
        z3d_string_append(line, ", a save every %lld steps (%s)",
                          (long long)config->checkpoint_interval, z3d_seconds_text(between).text);
    if (whole > left)
        z3d_string_append(line, "; the job is put into the queue again after about %.0f steps",
                          fmax(1, left / seconds));
}

/* Names important keys that are not set, because the user may not have thought of them. */
static void say_defaults(const char *name, const z3d_config *config, z3d_string *out) {
    z3d_string list = {0};
    if (!z3d_config_is_set(config, "optimizer.params.lr"))
        z3d_string_append(&list, ", lr %g", config->optimizer_params_lr);
    if (!z3d_config_is_set(config, "scheduler.type")) z3d_string_append(&list, ", a constant rate");
    if (!z3d_config_is_set(config, "gradient_clipping")) z3d_string_append(&list, ", no clipping");
    if (!z3d_config_is_set(config, "training.steps") &&
        !z3d_config_is_set(config, "training.epochs"))
        z3d_string_append(&list, ", %lld steps", (long long)config->training_steps);
    if (list.length && !list.failed)
        z3d_string_append(out, "%s: not written, so the defaults: %s\n", name, list.text + 2);
    out->failed = out->failed || list.failed;
    z3d_string_free(&list);
}

/* The advice knows only the memory that a plan can use; this message also has the device's
 * memory. */
static z3d_status refuse_memory(const z3d_config *config, int ranks, int threads,
                                const z3d_hardware *hardware, const z3d_memory_need *need) {
    const int64_t usable = need->arena + (int64_t)need->free;
    const z3d_room room = {.device = usable, .host = (int64_t)need->host_capacity};
    const z3d_choice at = {.ranks = ranks, .threads = threads, .room = &room};
    z3d_status status = z3d_plan_check_room(config, &at);
    if (status != Z3D_ERR_MEMORY) return status;
    return z3d_error_context(status, "%s has %s, of which %s lie outside the plan",
                             hardware->device, z3d_bytes_text((int64_t)need->capacity).text,
                             z3d_bytes_text((int64_t)need->capacity - usable).text);
}

static z3d_status price(z3d_job *job, z3d_config *config, const z3d_hardware *hardware, int ranks,
                        z3d_string *line) {
    z3d_case *of;
    z3d_estimate estimate;
    z3d_saving saving = {.save_seconds = -1};
    z3d_sim_node node = z3d_case_node(config, hardware);
    Z3D_TRY(z3d_case_create(config, ranks, 0, node, &of));
    z3d_status status = z3d_estimate_make(of, hardware, 0, NULL, &estimate);
    if (status == Z3D_OK) status = z3d_saving_find(of, hardware, &saving);
    z3d_case_destroy(of);
    Z3D_TRY(status);
    const z3d_memory_need *fullest = &estimate.fullest;
    if (!fullest->fits) {
        Z3D_TRY(refuse_memory(config, ranks, node.threads, hardware, fullest));
        return Z3D_ERROR(Z3D_ERR_MEMORY, "it does not fit on %s", hardware->name);
    }
    const int64_t step = (int64_t)ceil(2 * estimate.time.seconds + fmax(0, saving.save_seconds));
    const int64_t needed = (60 + step + 59) / 60 * 60;
    if (job->signal < needed) job->signal = needed;
    z3d_string_append(line, "; %s of %s on each %s; ",
                      z3d_bytes_text((int64_t)(fullest->capacity - fullest->free)).text,
                      z3d_bytes_text((int64_t)fullest->capacity).text, hardware->device);
    say_time(job, config, estimate.time.seconds, line);
    return Z3D_OK;
}

static z3d_status plan_nodes(z3d_job *job, const char *name, z3d_config *config,
                             const z3d_hardware *hardware, int64_t nodes, z3d_string *line) {
    z3d_mesh mesh;
    const int ranks = (int)(nodes * job->ranks);
    Z3D_TRY(z3d_plan_place(config, ranks, 0, &mesh));
    z3d_string_append(line, "%s: %d rank%s = %s on %lld node%s", name, ranks, z3d_plural(ranks),
                      z3d_mesh_name(&mesh).text, (long long)nodes, z3d_plural(nodes));
    if (hardware) return price(job, config, hardware, ranks, line);
    z3d_plan *plan;
    Z3D_TRY(z3d_plan_create(config, ranks, 0, &plan));
    const int64_t *arena = plan->set.program[Z3D_MODE_TRAIN]->arena;
    z3d_string_append(line,
                      "; %s on rank 0 (--hardware says whether it fits and how long it takes)",
                      z3d_bytes_text(arena[Z3D_SPACE_DEVICE]).text);
    z3d_plan_destroy(plan);
    return Z3D_OK;
}

z3d_status z3d_job_plan(z3d_job *job, const char *name, z3d_config *config,
                        const z3d_hardware *hardware) {
    if (config->checkpoint_interval == 0)
        return z3d_config_error(config, "checkpoint.interval",
                                "it is 0: a job that is stopped could not go on; write how many "
                                "steps may be lost");
    Z3D_TRY(choose_nodes(job, config));
    /* Of several numbers of nodes, plan the fewest and the most. */
    for (int k = 0; k < (job->choices > 1 ? 2 : 1); k++) {
        const int64_t nodes = job->choice[k == 0 ? 0 : job->choices - 1];
        z3d_string line = {0}, unused = {0};
        /* parallel.elastic: the second plan resolves the batch again. */
        const int64_t micro = config->train_micro_batch_size_per_gpu;
        const int granularity = config->activation_checkpointing_granularity;
        z3d_gather_price gathers[2];
        const z3d_choice at = {.ranks = (int)(nodes * job->ranks), .hardware = hardware};
        z3d_status status = z3d_choose_granularity(config, &at, Z3D_GRANULARITY_NONE, &unused);
        if (status == Z3D_OK) status = z3d_choose_offload(config, &at, &unused);
        if (status == Z3D_OK) status = z3d_choose_gather(config, &at, gathers, &unused);
        if (status == Z3D_OK) status = plan_nodes(job, name, config, hardware, nodes, &line);
        if (config->parallel_elastic) config->train_micro_batch_size_per_gpu = micro;
        config->activation_checkpointing_granularity = granularity;
        if (status == Z3D_OK) z3d_string_append(&job->facts, "%s\n", line.text);
        z3d_string_free(&line);
        z3d_string_free(&unused);
        Z3D_TRY(status);
    }
    say_defaults(name, config, &job->facts);
    return job->facts.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a text") : Z3D_OK;
}
