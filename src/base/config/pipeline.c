/* Rules of pipelines: stages, chunks, schedules, and how units are split. */
#include "src/base/config/table.h"

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

/* ---- values of keys ---- */

z3d_schedule_kind z3d_config_pipeline_schedule(const z3d_config *config) {
    return z3d_schedule_of_key(config->parallel_pipeline_schedule,
                               config->parallel_virtual_pipeline_model_parallel_size);
}

int64_t z3d_config_chunks(const z3d_config *config) {
    return config->parallel_pipeline_model_parallel_size *
           config->parallel_virtual_pipeline_model_parallel_size;
}

/* ---- the checks ---- */

/* The model's units; 0: not known. A converted file may not describe the model. */
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
    int64_t most = Z3D_MAX_CHUNKS;
    if (units > 0 && units < most) most = units;
    if (chunks <= most) return true;
    char number[64], right[96];
    snprintf(number, sizeof number, each > 1 ? "%lld stages x %lld chunks" : "%lld stages",
             (long long)stages, (long long)each);
    if (each > 1 && stages > most)
        snprintf(right, sizeof right, "at most %lld stages and 1 chunk in each", (long long)most);
    else
        snprintf(right, sizeof right, "at most %lld", (long long)(each > 1 ? most / stages : most));
    if (most == Z3D_MAX_CHUNKS)
        config_complain(k, key, "%s are more than %lld chunks; write %s", number, (long long)most,
                        right);
    else
        config_complain(k, key,
                        "%s are more than the model's %lld units (embedding, blocks, head); write "
                        "%s",
                        number, (long long)units, right);
    return false;
}

static void check_schedule_chunks(config_checker *k) {
    const z3d_schedule_kind kind = z3d_config_pipeline_schedule(k->c);
    const int64_t each = k->c->parallel_virtual_pipeline_model_parallel_size;
    if (z3d_schedule_has_chunks(kind, each)) return;
    config_complain(k, SCHEDULE, "%s, not %lld; set " VIRTUAL " to %s, or write %s",
                    z3d_schedule_chunks_text(kind).text, (long long)each,
                    z3d_schedule_row_of(kind)->chunks, z3d_schedule_choices(each, false).text);
}

static void check_schedule_file(config_checker *k) {
    const char *path = k->c->parallel_pipeline_schedule_file;
    bool file = k->c->parallel_pipeline_schedule == Z3D_PIPELINE_FILE;
    if (!config_sound(k, SCHEDULE, SCHEDULE_FILE, NULL)) return;
    if (!file)
        config_refuse_idle(k, SCHEDULE_FILE, SCHEDULE, "unless " SCHEDULE " is file",
                           "set it to file");
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

/* Checks a list of units per chunk. */
static void check_partition(config_checker *k) {
    int64_t units[Z3D_MAX_CHUNKS], chunks = z3d_config_chunks(k->c), sum = 0;
    int64_t all = units_of(k);
    int count;
    if (!config_sound(k, PARTITION, NULL)) return;
    if (z3d_config_partition(k->c, units, Z3D_MAX_CHUNKS, &count) != Z3D_PARTITION_LIST) return;
    if (count != chunks) {
        config_complain(k, PARTITION,
                        "the list has %d number%s, but there are %lld chunks (pipeline size %lld x "
                        "virtual size %lld); write the units of each chunk",
                        count, z3d_plural(count), (long long)chunks,
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

void config_check_pipeline(config_checker *k) {
    if (!config_sound(k, SIZE, VIRTUAL, SCHEDULE, NULL)) return;
    if (k->c->parallel_pipeline_model_parallel_size == 1) {
        config_refuse_idle(k, VIRTUAL " " SCHEDULE " " SCHEDULE_FILE " " PARTITION " " GATHER, SIZE,
                           "with " SIZE " 1", NULL);
        return;
    }
    bool cut = check_chunks(k);
    check_schedule_chunks(k);
    check_schedule_file(k);
    if (cut) check_partition(k);
    config_refuse_below_3(k, GATHER, NULL, false);
}

/* If the batch gives the number of micro-batches, the error names the batch. */
bool config_check_micro_batches(config_checker *k, int64_t data) {
    const z3d_config *c = k->c;
    static const char accumulation[] = "gradient_accumulation_steps";
    int64_t micros = c->gradient_accumulation_steps,
            stages = c->parallel_pipeline_model_parallel_size,
            samples = data * c->train_micro_batch_size_per_gpu;
    if (!config_sound(k, SIZE, VIRTUAL, SCHEDULE, NULL)) return true;
    const z3d_schedule_kind kind = z3d_config_pipeline_schedule(c);
    const int64_t round = z3d_schedule_round(kind, stages);
    if (micros % round == 0) return true;
    bool batch = !z3d_config_is_set(c, accumulation) && z3d_config_is_set(c, "train_batch_size");
    int64_t unit = batch ? samples : 1;
    char right[CONFIG_MULTIPLES];
    config_complain(k, batch ? "train_batch_size" : accumulation,
                    "%s in a step, not %lld; write %s, or choose 1 chunk per pipeline stage",
                    z3d_schedule_round_text(kind, stages).text, (long long)micros,
                    config_multiples(micros * unit, round * unit, right));
    return false;
}
