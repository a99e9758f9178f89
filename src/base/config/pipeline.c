/* Rules of pipelines: stages, chunks, schedules, and how units are split. */
#include "src/base/config/idle.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SIZE "parallel.pipeline_model_parallel_size"
#define VIRTUAL "parallel.virtual_pipeline_model_parallel_size"
#define SCHEDULE "parallel.pipeline_schedule"
#define SCHEDULE_FILE "parallel.pipeline_schedule_file"
#define PARTITION "parallel.pipeline_partition"
#define GATHER "zero_optimization.pipeline_gather"

/* ---- what the keys mean ---- */

z3d_partition z3d_config_partition(const z3d_config *config, int64_t *units, int capacity,
                                   int *count) {
    const config_key *key = &config_table[CONFIG_KEY_parallel_pipeline_partition];
    return (z3d_partition)config_word_or_list(key, config->parallel_pipeline_partition, units,
                                              capacity, count);
}

z3d_pipeline_schedule z3d_config_pipeline_schedule(const z3d_config *config) {
    if (config->parallel_pipeline_schedule != Z3D_PIPELINE_AUTO)
        return (z3d_pipeline_schedule)config->parallel_pipeline_schedule;
    return config->parallel_virtual_pipeline_model_parallel_size > 1 ? Z3D_PIPELINE_INTERLEAVED
                                                                     : Z3D_PIPELINE_1F1B;
}

int64_t z3d_config_chunks(const z3d_config *config) {
    return config->parallel_pipeline_model_parallel_size *
           config->parallel_virtual_pipeline_model_parallel_size;
}

/* ---- the checks ---- */

static void check_one_stage(config_checker *k) {
    const idle_reason one = {{SIZE}, "with " SIZE " 1", NULL, false};
    config_refuse_idle(k, &one, VIRTUAL, SCHEDULE, SCHEDULE_FILE, PARTITION, GATHER, NULL);
}

/* The model's units; 0: not known. A file that is converted need not say what the model is. */
static int64_t units_of(const config_checker *k) {
    bool said = !k->c->origin->report || z3d_config_is_set(k->c, "model.num_layers");
    bool known = k->rules && said && config_sound(k, "model.num_layers", "model.type", NULL);
    return known ? k->rules->units(k->c) : 0;
}

/* At least one unit a chunk. */
static bool check_chunks(config_checker *k) {
    const z3d_config *c = k->c;
    int64_t stages = c->parallel_pipeline_model_parallel_size,
            each = c->parallel_virtual_pipeline_model_parallel_size, chunks = z3d_config_chunks(c),
            units = units_of(k);
    const char *key = each > 1 ? VIRTUAL : SIZE;
    int64_t most = Z3D_CONFIG_MAX_CHUNKS;
    if (units > 0 && units < most) most = units;
    if (chunks <= most) return true;
    char number[64], right[96];
    snprintf(number, sizeof number, each > 1 ? "%lld stages x %lld chunks" : "%lld stages",
             (long long)stages, (long long)each);
    if (each > 1 && stages > most)
        snprintf(right, sizeof right, "at most %lld stages and 1 chunk in each", (long long)most);
    else
        snprintf(right, sizeof right, "at most %lld", (long long)(each > 1 ? most / stages : most));
    if (most == Z3D_CONFIG_MAX_CHUNKS)
        config_complain(k, key, "%s are more than %lld chunks; write %s", number, (long long)most,
                        right);
    else
        config_complain(k, key,
                        "%s are more than the model's %lld units (embedding, blocks, head); write "
                        "%s",
                        number, (long long)units, right);
    return false;
}

/* The chunks per stage of each schedule: at least, at most. */
static void check_schedule_chunks(config_checker *k) {
    static const struct {
        int least, most;
        const char *what;
    } fits[] = {
        [Z3D_PIPELINE_1F1B] = {1, 1, "1f1b has 1 chunk per stage"},
        [Z3D_PIPELINE_GPIPE] = {1, 1, "gpipe has 1 chunk per stage"},
        [Z3D_PIPELINE_INTERLEAVED] = {2, Z3D_CONFIG_MAX_CHUNKS,
                                      "interleaved has 2 or more chunks per stage"},
        [Z3D_PIPELINE_ZB_H1] = {1, 1, "zb-h1 has 1 chunk per stage"},
        [Z3D_PIPELINE_ZB_V] = {2, 2, "zb-v has 2 chunks per stage"},
        [Z3D_PIPELINE_FILE] = {1, Z3D_CONFIG_MAX_CHUNKS, ""},
    };
    int64_t each = k->c->parallel_virtual_pipeline_model_parallel_size;
    int schedule = (int)z3d_config_pipeline_schedule(k->c), least = fits[schedule].least;
    if (each >= least && each <= fits[schedule].most) return;
    config_complain(k, SCHEDULE, "%s, not %lld; set " VIRTUAL " to %d%s%s", fits[schedule].what,
                    (long long)each, least, schedule == Z3D_PIPELINE_INTERLEAVED ? " or more" : "",
                    each == 1   ? ", or write 1f1b"
                    : each == 2 ? ", or write interleaved or zb-v"
                                : ", or write interleaved");
}

static void check_schedule_file(config_checker *k) {
    const char *path = k->c->parallel_pipeline_schedule_file;
    bool file = k->c->parallel_pipeline_schedule == Z3D_PIPELINE_FILE;
    const idle_reason generated = {
        {SCHEDULE}, "unless " SCHEDULE " is file", "set it to file", false};
    if (!config_sound(k, SCHEDULE, SCHEDULE_FILE, NULL)) return;
    if (!file)
        config_refuse_idle(k, &generated, SCHEDULE_FILE, NULL);
    else if (!*path)
        config_complain(k, SCHEDULE,
                        "file needs the path of a schedule; set " SCHEDULE_FILE
                        ", or choose another schedule");
    else if (access(path, R_OK) != 0)
        config_complain(k, SCHEDULE_FILE,
                        "'%.200s' cannot be read: %s; write the path of a CSV file with the "
                        "header stage,pass,chunk,micro",
                        path, strerror(errno));
}

/* A list of units per chunk. */
static void check_partition(config_checker *k) {
    int64_t units[Z3D_CONFIG_MAX_CHUNKS], chunks = z3d_config_chunks(k->c), sum = 0;
    int64_t all = units_of(k);
    int count;
    if (!config_sound(k, PARTITION, NULL)) return;
    if (z3d_config_partition(k->c, units, Z3D_CONFIG_MAX_CHUNKS, &count) != Z3D_PARTITION_LIST)
        return;
    if (count != chunks) {
        config_complain(k, PARTITION,
                        "the list has %d number%s, but there are %lld chunks (pipeline size %lld x "
                        "virtual size %lld); write the units of each chunk",
                        count, count == 1 ? "" : "s", (long long)chunks,
                        (long long)k->c->parallel_pipeline_model_parallel_size,
                        (long long)k->c->parallel_virtual_pipeline_model_parallel_size);
        return;
    }
    for (int i = 0; i < count; i++) {
        if (units[i] < 1) {
            config_complain(k, PARTITION, "chunk %d of the list has %lld units; write at least 1",
                            i, (long long)units[i]);
            return;
        }
        if (!z3d_add_i64(sum, units[i], &sum)) sum = INT64_MAX;
    }
    if (all > 0 && sum != all)
        config_complain(k, PARTITION,
                        "the list's sum is %lld; write numbers whose sum is the model's %lld units "
                        "(embedding, blocks, head)",
                        (long long)sum, (long long)all);
}

/* Only sharded parameters are gathered. */
static void check_gather(config_checker *k) {
    const idle_reason whole = {{"zero_optimization.stage"},
                               "below zero_optimization.stage 3: every rank keeps whole parameters",
                               NULL,
                               false};
    if (k->c->zero_optimization_stage < 3) config_refuse_idle(k, &whole, GATHER, NULL);
}

void config_check_pipeline(config_checker *k) {
    if (!config_sound(k, SIZE, VIRTUAL, SCHEDULE, NULL)) return;
    if (k->c->parallel_pipeline_model_parallel_size == 1) {
        check_one_stage(k);
        return;
    }
    bool cut = check_chunks(k);
    check_schedule_chunks(k);
    check_schedule_file(k);
    if (cut) check_partition(k);
    check_gather(k);
}

/* Where the batch gives the number of micro-batches, the batch is at fault. */
bool config_check_micro_batches(config_checker *k, int64_t data) {
    const z3d_config *c = k->c;
    static const char accumulation[] = "gradient_accumulation_steps";
    int64_t micros = c->gradient_accumulation_steps,
            stages = c->parallel_pipeline_model_parallel_size,
            samples = data * c->train_micro_batch_size_per_gpu;
    bool groups = config_sound(k, SIZE, VIRTUAL, SCHEDULE, NULL) && stages > 1 &&
                  z3d_config_pipeline_schedule(c) == Z3D_PIPELINE_INTERLEAVED;
    if (!groups || micros % stages == 0) return true;
    int64_t below = micros / stages * stages, above = below + stages;
    bool batch = !z3d_config_is_set(c, accumulation) && z3d_config_is_set(c, "train_batch_size");
    int64_t unit = batch ? samples : 1;
    char either[32] = "";
    if (below > 0) snprintf(either, sizeof either, "%lld or ", (long long)(below * unit));
    config_complain(k, batch ? "train_batch_size" : accumulation,
                    "%lld micro-batch%s in a step cannot be interleaved over %lld pipeline stages; "
                    "write %s%lld for a multiple of %lld micro-batches, or choose 1 chunk per "
                    "stage",
                    (long long)micros, micros == 1 ? "" : "es", (long long)stages, either,
                    (long long)(above * unit), (long long)stages);
    return false;
}
