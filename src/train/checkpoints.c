/* The run's checkpoints: opens their folder, resumes from one, and saves them. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/train/trainer.h"

static bool says(const char *value, const char *word) {
    return strcmp(value, word) == 0;
}

/* Refuses a folder whose latest checkpoint would not be the run's own: a new run in another run's
 * folder, and a run that resumes from an earlier step, or from the same step of another folder. */
static z3d_status check_folder(const z3d_trainer *trainer, int64_t step) {
    int64_t newest = trainer->store ? z3d_store_newest(trainer->store) : -1;
    if (newest < step || newest < 0 || (newest == step && trainer->resumes_newest)) return Z3D_OK;
    return z3d_config_error(trainer->config, "checkpoint.resume",
                            "%s, but %s has a checkpoint of step %lld, which is not older: "
                            "set checkpoint.resume: auto to resume from it, set another "
                            "checkpoint.dir, or delete it",
                            trainer->config->checkpoint_resume, trainer->checkpoint_dir,
                            (long long)newest);
}

static z3d_status accept(void *context, const z3d_checkpoint_info *info) {
    const z3d_trainer *trainer = context;
    int64_t tokens = z3d_dataset_tokens(trainer->train);
    if (!says(trainer->config->checkpoint_resume, "auto"))
        Z3D_TRY(check_folder(trainer, info->engine.step));
    Z3D_TRY(z3d_trainer_compare_configs(trainer, info));
    if (info->train_tokens != tokens)
        return z3d_config_error(trainer->config, "data.train",
                                "%lld tokens here, %lld in the checkpoint of step %lld: a resumed "
                                "run must keep its training data",
                                (long long)tokens, (long long)info->train_tokens,
                                (long long)info->engine.step);
    return Z3D_OK;
}

/* ---- before the engine is made ---- */

z3d_status z3d_trainer_name_checkpoints(z3d_trainer *trainer) {
    const char *own = trainer->config->checkpoint_dir;
    if (!own || !*own)
        return z3d_join_path(trainer->config->run_dir, "checkpoints", &trainer->checkpoint_dir);
    trainer->checkpoint_dir = strdup(own);
    return trainer->checkpoint_dir ? Z3D_OK
                                   : Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a folder's name");
}

/* The configuration in one checkpoint. */
static z3d_status read_config(const char *folder, z3d_config **out) {
    z3d_checkpoint *checkpoint;
    Z3D_TRY(z3d_checkpoint_open(folder, &checkpoint));
    const char *text = z3d_checkpoint_get_info(checkpoint)->config;
    z3d_status status = z3d_trainer_read_saved(text, out);
    z3d_checkpoint_close(checkpoint);
    return status;
}

/* The configuration in the newest checkpoint of `dir` whose configuration is readable. Whether the
 * checkpoint is complete is found when it is loaded. */
static z3d_status read_newest_config(const char *dir, z3d_config **out) {
    int64_t *steps;
    int count;
    Z3D_TRY(z3d_checkpoint_list(dir, &steps, &count));
    z3d_status status = Z3D_OK;
    for (int i = count - 1; i >= 0 && status == Z3D_OK && !*out; i--) {
        char *folder;
        status = z3d_checkpoint_path(dir, steps[i], &folder);
        if (status != Z3D_OK) break;
        status = read_config(folder, out);
        if (status == Z3D_ERR_DATA) status = Z3D_OK;
        free(folder);
    }
    free(steps);
    return status;
}

z3d_status z3d_trainer_saved_config(const z3d_trainer *trainer, z3d_config **out) {
    const z3d_config *config = trainer->config;
    const char *resume = config->checkpoint_resume;
    char *folder;
    *out = NULL;
    if (says(resume, "never")) return Z3D_OK;
    if (says(resume, "auto")) return read_newest_config(trainer->checkpoint_dir, out);
    Z3D_TRY(z3d_checkpoint_resolve(resume, &folder));
    z3d_status status = read_config(folder, out);
    free(folder);
    return status;
}

/* ---- at the start ---- */

/* Called before a checkpoint is complete: a resumed run then has the lines of all steps before it.
 */
static z3d_status sync_metrics(void *context) {
    return z3d_line_file_sync(&((z3d_trainer *)context)->metrics);
}

static z3d_status open_store(z3d_trainer *trainer) {
    const z3d_config *config = trainer->config;
    z3d_store_config store = {
        .world = trainer->world,
        .mesh = &trainer->mesh,
        .model = trainer->model,
        .engine = trainer->engine,
        .dir = trainer->checkpoint_dir,
        .keep = config->checkpoint_keep,
        .keep_best = config->checkpoint_keep_best,
        .asynchronous = z3d_plan_saves_beside(config) && config->checkpoint_interval > 0,
        .begins = z3d_plan_begins(config),
        .program = "zero3d " ZERO3D_VERSION,
        .dtype = trainer->program.dtype,
        .zero_stage = trainer->program.stage,
        .base = config->checkpoint_base,
        .before_commit = sync_metrics,
        .commit_context = trainer,
    };
    return z3d_store_open(&store, &trainer->store);
}

/* Found by rank 0 in the run's folder and sent to all ranks: whether the folder has checkpoints,
 * and whether checkpoint.resume names the newest one, by any path. */
typedef struct found {
    bool any, named;
} found;

static z3d_status look(const z3d_trainer *trainer, found *out) {
    struct stat a, b;
    int64_t *steps;
    int count;
    char *newest = NULL, *named = NULL;
    const char *resume = trainer->config->checkpoint_resume;
    *out = (found){false, false};
    Z3D_TRY(z3d_checkpoint_list(trainer->checkpoint_dir, &steps, &count));
    z3d_status status = Z3D_OK;
    if (count > 0) {
        status = z3d_checkpoint_path(trainer->checkpoint_dir, steps[count - 1], &newest);
        if (status == Z3D_OK && z3d_config_resumes_path(trainer->config))
            status = z3d_checkpoint_resolve(resume, &named);
        out->any = true;
        out->named = named && stat(newest, &a) == 0 && stat(named, &b) == 0 &&
                     a.st_dev == b.st_dev && a.st_ino == b.st_ino;
    }
    free(newest);
    free(named);
    free(steps);
    return status;
}

/* Opens the folder in which checkpoints are saved or from which the run may resume. */
static z3d_status take_folder(z3d_trainer *trainer) {
    found found;
    z3d_trainer_place(trainer, "start-up: looking for checkpoints");
    z3d_status status = trainer->rank == 0 ? look(trainer, &found) : Z3D_OK;
    Z3D_TRY(z3d_trainer_take_from_root(trainer, status, &found, sizeof found));
    trainer->resumes_newest = found.named;
    return trainer->config->checkpoint_interval > 0 || found.any ? open_store(trainer) : Z3D_OK;
}

/* Adds the checkpoint's model sizes to an error about other sizes, as arguments. */
static z3d_status name_sizes(const z3d_trainer *trainer, const char *folder, z3d_status failure) {
    const z3d_kept_error kept = z3d_error_keep(failure);
    z3d_config *there = NULL;
    z3d_string sizes = {0}, text = {0};
    if (read_config(folder, &there) == Z3D_OK)
        z3d_trainer_name_sizes(trainer->config, there, &sizes);
    z3d_status status = z3d_error_restore(&kept);
    if (sizes.length)
        z3d_string_append(&text, "%s; the checkpoint has %s", z3d_error_message(), sizes.text);
    if (text.length && !text.failed)
        status = z3d_error_set_lines(status, __FILE__, __LINE__, text.text);
    z3d_config_destroy(there);
    z3d_string_free(&sizes);
    z3d_string_free(&text);
    return status;
}

static z3d_status load(z3d_trainer *trainer, const char *path, bool weights_only,
                       z3d_checkpoint_info *info) {
    char *folder;
    Z3D_TRY(z3d_checkpoint_resolve(path, &folder));
    z3d_status status = z3d_checkpoint_load_all(
        trainer->world, folder, trainer->config->checkpoint_base, trainer->model, trainer->engine,
        (z3d_checkpoint_verify)trainer->config->checkpoint_verify, weights_only,
        weights_only ? z3d_trainer_compare_adapters : accept, trainer, info);
    if (status == Z3D_ERR_CONFIG && weights_only) status = name_sizes(trainer, folder, status);
    free(folder);
    return status;
}

z3d_status z3d_trainer_load_weights(z3d_trainer *trainer, const char *path, bool average,
                                    int64_t *step) {
    z3d_checkpoint_info info = {0};
    char *folder;
    Z3D_TRY(z3d_checkpoint_resolve(path, &folder));
    z3d_status status = z3d_checkpoint_load_weights(
        trainer->world, folder, trainer->config->checkpoint_base, trainer->model, trainer->engine,
        (z3d_checkpoint_verify)trainer->config->checkpoint_verify, average, &info);
    if (status == Z3D_ERR_CONFIG) status = name_sizes(trainer, folder, status);
    free(folder);
    *step = info.engine.step;
    return status;
}

static void say(z3d_trainer *trainer, const z3d_checkpoint_info *info, const char *what,
                const char *key, const char *from) {
    z3d_string_clear(&trainer->weights);
    z3d_string_append(&trainer->weights, "step %lld of %s (%s)", (long long)info->engine.step, from,
                      key);
    if (trainer->rank == 0)
        z3d_log(Z3D_LOG_INFO, "%s step %lld of %s (saved with %s, ZeRO stage %d, %s)", what,
                (long long)info->engine.step, from,
                z3d_sizes_name(info->tensor_size, info->pipeline_size, info->data_size).text,
                info->zero_stage, z3d_dtype_name(info->dtype));
}

/* Resumes from a checkpoint. *step: its step; -1: the run is new. */
static z3d_status go_on(z3d_trainer *trainer, int64_t *step) {
    const z3d_config *config = trainer->config;
    const char *resume = config->checkpoint_resume;
    z3d_checkpoint_info info = {0};
    *step = -1;
    if (says(resume, "auto")) {
        if (trainer->store)
            Z3D_TRY(z3d_store_resume(trainer->store,
                                     (z3d_checkpoint_verify)config->checkpoint_verify, accept,
                                     trainer, &info, step));
        if (*step >= 0) {
            say(trainer, &info, "resuming after", "checkpoint.resume", trainer->checkpoint_dir);
            trainer->saved_step = *step;
        }
    } else if (!says(resume, "never")) {
        Z3D_TRY(load(trainer, resume, false, &info));
        *step = info.engine.step;
        say(trainer, &info, "resuming after", "checkpoint.resume", resume);
    } else {
        Z3D_TRY(check_folder(trainer, -1));
    }
    trainer->evaluations = info.evaluations;
    trainer->base = info.base;
    if (trainer->store) z3d_store_keep_all(trainer->store, info.engine.skipped_in_a_row > 0);
    return z3d_trainer_take_evaluations(trainer);
}

z3d_status z3d_trainer_link_best(z3d_trainer *trainer) {
    const bool keeps = trainer->config->checkpoint_keep_best;
    if (!trainer->store || (trainer->complete && !keeps)) return Z3D_OK;
    return z3d_store_take_best(trainer->store, trainer->evaluations.best_step);
}

/* Begins with the weights of a checkpoint. */
static z3d_status begin_with(z3d_trainer *trainer, const char *path) {
    z3d_checkpoint_info info = {0};
    Z3D_TRY(load(trainer, path, true, &info));
    say(trainer, &info, "starting a new run from the weights of", "checkpoint.init_from", path);
    trainer->base = info.base;
    if (!trainer->base.path) trainer->base.path = strdup(path);
    return Z3D_OK;
}

static z3d_status take_adapter(z3d_trainer *trainer) {
    const char *folder = trainer->config->lora_init_from;
    if (!*folder) return Z3D_OK;
    Z3D_TRY(z3d_adapter_load(trainer->world, folder, &trainer->base, trainer->config,
                             trainer->model, trainer->engine));
    z3d_string_append(&trainer->weights, ", adapter of %s (lora.init_from)", folder);
    if (trainer->rank == 0) z3d_log(Z3D_LOG_INFO, "the adapter is that of %s", folder);
    return Z3D_OK;
}

z3d_status z3d_trainer_resume(z3d_trainer *trainer) {
    const char *init = trainer->config->checkpoint_init_from;
    int64_t step;
    z3d_string_append(&trainer->weights, "random (training.seed %lld)",
                      (long long)trainer->config->training_seed);
    Z3D_TRY(take_folder(trainer));
    Z3D_TRY(go_on(trainer, &step));
    if (trainer->config->checkpoint_interval == 0) { /* no checkpoints are saved */
        z3d_store_close(trainer->store);
        trainer->store = NULL;
    }
    if (step < 0 && *init) Z3D_TRY(begin_with(trainer, init));
    if (step < 0) Z3D_TRY(take_adapter(trainer));
    if (trainer->rank == 0 && trainer->store && trainer->base.folder)
        z3d_log(Z3D_LOG_INFO,
                "checkpoints do not have the frozen parameters: they use those of %s, so keep it",
                trainer->base.folder);
    trainer->resumed_step = step > 0 ? step : 0;
    if (step <= 0 || !trainer->validation) trainer->evaluations.due = false;
    trainer->complete =
        step > 0 && !trainer->evaluations.due &&
        (step >= trainer->config->training_steps || z3d_trainer_ends_early(trainer));
    return z3d_trainer_link_best(trainer);
}

/* ---- during the run ---- */

static void say_saved(z3d_trainer *trainer, int64_t step) {
    double whole, stalled;
    char seconds[32];
    if (step < 0 || trainer->rank != 0) return;
    z3d_store_seconds(trainer->store, &whole, &stalled);
    z3d_trainer_event(trainer, step, "checkpoint", whole, NULL);
    z3d_console_say(&trainer->console, "checkpoint of step %lld saved in %s", (long long)step,
                    z3d_format_seconds(whole, seconds, sizeof seconds));
}

static z3d_status save(z3d_trainer *trainer, int64_t step) {
    const z3d_config *config = trainer->config;
    z3d_string text = {0};
    z3d_config_write(config, &text);
    z3d_checkpoint_info info = {.samples = step * config->train_batch_size,
                                .train_tokens = z3d_dataset_tokens(trainer->train),
                                .evaluations = trainer->evaluations,
                                .base = trainer->base,
                                .config = text.failed ? NULL : text.text};
    z3d_status status = z3d_store_save(trainer->store, &info);
    z3d_string_free(&text);
    return status;
}

/* Whether a save begins after this step. */
static bool is_due(z3d_trainer *trainer, int64_t step, bool skipped, bool now) {
    bool due = now || trainer->save_waits || step % trainer->config->checkpoint_interval == 0;
    if (due && skipped && !now && !trainer->save_waits)
        z3d_console_say(
            &trainer->console,
            "step %lld was skipped: its checkpoint is saved after the next step that is "
            "not skipped",
            (long long)step);
    trainer->save_waits = due && skipped && !now;
    return due && !trainer->save_waits;
}

z3d_status z3d_trainer_checkpoint(z3d_trainer *trainer, int64_t step, bool skipped, bool last,
                                  bool now) {
    int64_t durable;
    if (!trainer->store) return Z3D_OK;
    bool due = is_due(trainer, step, skipped, now) && step != trainer->saved_step;
    z3d_trainer_place(trainer, "step %lld: saving a checkpoint", (long long)step);
    /* Waits, so that two saves are never in flight. */
    Z3D_TRY(z3d_store_poll(trainer->store, due || last, &durable));
    say_saved(trainer, durable);
    if (!due) return Z3D_OK;
    z3d_store_keep_all(trainer->store, skipped);
    Z3D_TRY(save(trainer, step));
    trainer->saved_step = step;
    bool beside = z3d_plan_saves_beside(trainer->config);
    if (last && beside) Z3D_TRY(z3d_store_poll(trainer->store, true, &durable));
    if (last || !beside) say_saved(trainer, step);
    return Z3D_OK;
}

z3d_status z3d_trainer_end_save(z3d_trainer *trainer, z3d_status failure) {
    int64_t durable;
    if (!trainer->store) return failure;
    const z3d_kept_error kept = z3d_error_keep(failure);
    z3d_trainer_place(trainer, "end: finishing a checkpoint");
    if (z3d_store_poll(trainer->store, true, &durable) == Z3D_OK) say_saved(trainer, durable);
    return z3d_error_restore(&kept);
}
