/* z3d_train: a run from start to end. */
#include "src/train/train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/plan/timeline_picture.h"
#include "src/train/schedule.h"
#include "src/train/trainer.h"

/* The state of the loop. */
typedef struct progress {
    z3d_run_sums sums;
    bool stopped, last_skipped;
    bool better; /* the step's validation loss is the lowest so far */
    double begin;
    z3d_sent sent[Z3D_COLLECTIVE_COUNT]; /* so far, by kind of collective */
} progress;

static void note_write(z3d_trainer *trainer, z3d_status status) {
    if (trainer->write_error.status == Z3D_OK) trainer->write_error = z3d_error_keep(status);
}

/* All ranks get rank 0's write error, if there is one. Collective. */
static z3d_status agree_writes(z3d_trainer *trainer) {
    z3d_trainer_place(trainer, "end: writing results");
    return z3d_trainer_agree(trainer, z3d_error_restore(&trainer->write_error));
}

static double wall_time(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void z3d_trainer_write_line(z3d_trainer *trainer, z3d_line_file *file) {
    z3d_string *line = &trainer->line;
    note_write(trainer, line->failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a line of metrics")
                                     : z3d_line_file_write(file, line->text, line->length));
    z3d_string_clear(line);
}

void z3d_trainer_event(z3d_trainer *trainer, int64_t step, const char *event, double seconds,
                       const char *detail) {
    const z3d_event_record record = {.step = step,
                                     .event = event,
                                     .time = wall_time(),
                                     .seconds = seconds,
                                     .detail = detail,
                                     .peak_tflops = NAN};
    z3d_metrics_event_line(&record, &trainer->line);
    z3d_trainer_write_line(trainer, &trainer->events);
}

static void write_board(z3d_trainer *trainer, int64_t step, const z3d_scalar *scalars, int count) {
    if (trainer->board.file.fd < 0) return;
    note_write(trainer, z3d_tensorboard_write(&trainer->board, wall_time(), step, scalars, count));
}

/* Shares are parts of the step's time; memory is the peak so far, in bytes. */
static void write_step_to_board(z3d_trainer *trainer, const z3d_step_record *record) {
    enum { OTHERS = 16 };
    char tag[Z3D_CATEGORY_COUNT][48];
    double exposed = record->result.exposed_seconds + record->result.exposed_transfer_seconds +
                     record->result.exposed_disk_seconds;
    z3d_scalar scalars[OTHERS + Z3D_CATEGORY_COUNT] = {
        {"train/loss", record->result.loss},
        {"train/perplexity", exp(record->result.loss)},
        {"train/grad_norm", record->result.grad_norm},
        {"train/learning_rate", (double)record->lr},
        {"train/loss_scale", (double)record->result.loss_scale},
        {"speed/tokens_per_second", (double)record->tokens / record->seconds},
        {"speed/model_tflops", record->model_tflops},
        {"speed/mfu", record->mfu},
        {"speed/exposed_share", exposed / record->seconds},
        {"speed/exposed_comm_seconds", record->result.exposed_seconds},
        {"speed/exposed_transfer_seconds", record->result.exposed_transfer_seconds},
        {"speed/exposed_disk_seconds",
         record->offloaded ? record->result.exposed_disk_seconds : NAN},
        {"speed/host_step_seconds", record->offloaded ? record->result.host_step_seconds : NAN},
        {"memory/host", record->host_memory > 0 ? (double)record->host_memory : NAN},
        {"memory/outside", record->outside_memory >= 0 ? (double)record->outside_memory : NAN}};
    int count = 0;
    while (scalars[count].tag) count++;
    for (int category = 0; category < Z3D_CATEGORY_COUNT; category++) {
        snprintf(tag[category], sizeof tag[category], "memory/%s",
                 z3d_category_name((z3d_category)category));
        scalars[count++] = (z3d_scalar){tag[category], (double)record->memory[category]};
    }
    write_board(trainer, record->result.step, scalars, count);
}

/* Sets the bytes sent since the last step. */
static void record_sent(const z3d_trainer *trainer, progress *progress, z3d_step_record *record) {
    z3d_sent sent[Z3D_COLLECTIVE_COUNT];
    z3d_metrics_sent(trainer->group, sent);
    for (int kind = 0; kind < Z3D_COLLECTIVE_COUNT; kind++) {
        const z3d_sent *before = &progress->sent[kind];
        record->logged[kind] = z3d_config_logs_collective(
            trainer->config, z3d_collective_name((z3d_collective_kind)kind));
        record->sent[kind] = (z3d_sent){sent[kind].bytes - before->bytes,
                                        sent[kind].between_nodes - before->between_nodes};
        record->comm_bytes += record->sent[kind].bytes;
    }
    memcpy(progress->sent, sent, sizeof sent);
}

/* Rank 0. */
static void record_step(z3d_trainer *trainer, progress *progress, const z3d_step_result *result,
                        float lr, double seconds) {
    const z3d_config *config = trainer->config;
    double peak = trainer->peak_tflops > 0 ? trainer->peak_tflops : NAN;
    int64_t tokens = config->train_batch_size * config->model_seq_length;
    double tokens_a_rank = (double)tokens / z3d_world_size(trainer->world);
    double tera = tokens_a_rank / (seconds > 0 ? seconds : NAN) / 1e12;
    z3d_step_record record = {
        .result = *result,
        .time = wall_time(),
        .lr = lr,
        .overflow_group = result->skipped && result->overflow_group >= 0
                              ? trainer->model->group[result->overflow_group].name
                              : NULL,
        .tokens = tokens,
        .seconds = seconds,
        .model_tflops = trainer->model_flops * tera,
        .mfu = trainer->model_flops * tera / peak,
        .hfu = trainer->hardware_flops * tera / peak,
        .offloaded = trainer->program.offload.optimizer != Z3D_SPACE_DEVICE ||
                     trainer->program.checkpoint_space == Z3D_SPACE_DISK,
        .outside_memory = z3d_trainer_outside_bytes(trainer),
    };
    record_sent(trainer, progress, &record);
    memcpy(record.memory, z3d_engine_measured(trainer->engine, Z3D_SPACE_DEVICE)->peak,
           sizeof record.memory);
    record.host_memory = z3d_engine_measured(trainer->engine, Z3D_SPACE_HOST)->total_peak;
    z3d_trainer_place(trainer, "step %lld: writing metrics", (long long)result->step);
    z3d_metrics_step_line(&record, &trainer->line);
    z3d_trainer_write_line(trainer, &trainer->metrics);
    write_step_to_board(trainer, &record);
    z3d_console_step(&trainer->console, &record);
}

static const char *overflow_place(const z3d_trainer *trainer, const z3d_step_result *result) {
    return result->overflow_group >= 0 ? trainer->model->group[result->overflow_group].name
                                       : "the forward pass";
}

static z3d_status refuse_falling_scale(const z3d_trainer *trainer, const z3d_step_result *result,
                                       const z3d_engine_state *state) {
    enum { USUAL_POWER = 16 };
    char lower[64] = "";
    if (trainer->config->fp16_initial_scale_power > USUAL_POWER)
        snprintf(lower, sizeof lower, ", or set fp16.initial_scale_power to %d", USUAL_POWER);
    return Z3D_ERROR(Z3D_ERR_NUMERIC,
                     "the run failed: all its steps (up to step %lld) skipped the update, because "
                     "the loss scale is still falling (now %.2g): train more steps%s",
                     (long long)result->step, (double)state->loss_scale, lower);
}

/* Whether no token of the step's data is trained. */
static bool empty(const z3d_step_result *result) {
    return result->targets == 0;
}

static z3d_status check_end(z3d_trainer *trainer, const z3d_step_result *result) {
    const z3d_config *config = trainer->config;
    const bool dynamic =
        config->fp16_enabled && config->fp16_loss_scale == 0 && isfinite(result->loss);
    char newest[64] = "";
    z3d_engine_state state;
    if (result->step != config->training_steps || !result->skipped || empty(result)) return Z3D_OK;
    z3d_engine_get_state(trainer->engine, &state);
    /* A dynamic loss scale tries a larger value from time to time. Steps that are skipped for this
     * are no failure, even at the end of the run, if any step was taken. */
    if (dynamic && state.optimizer_step > 0 && result->skipped_in_a_row <= config->fp16_hysteresis)
        return Z3D_OK;
    /* No step was taken only because the loss scale begins high and still falls. */
    if (dynamic && state.optimizer_step == 0 &&
        (double)state.loss_scale > config->fp16_min_loss_scale)
        return refuse_falling_scale(trainer, result, &state);
    /* A save in flight is the latest checkpoint: finish it. */
    Z3D_TRY(z3d_trainer_end_save(trainer, Z3D_OK));
    if (trainer->store && z3d_store_newest(trainer->store) >= 0)
        snprintf(newest, sizeof newest, "; the latest checkpoint is step %lld",
                 (long long)z3d_store_newest(trainer->store));
    return Z3D_ERROR(
        Z3D_ERR_NUMERIC,
        "the run failed: its last %lld step%s (up to step %lld) skipped the update, because "
        "numbers in %s are infinite or NaN (loss %g)%s; try a smaller learning rate, "
        "gradient clipping or bf16",
        (long long)result->skipped_in_a_row, result->skipped_in_a_row == 1 ? "" : "s",
        (long long)result->step, overflow_place(trainer, result),
        isnan(result->loss) ? NAN : result->loss, /* not "-nan" */
        newest);
}

/* The result is the same on all ranks, so the error is too. */
static z3d_status check_result(z3d_trainer *trainer, const z3d_step_result *result) {
    long long limit = (long long)trainer->config->training_max_skipped_steps;
    if (result->skipped && !empty(result) && result->skipped_in_a_row >= limit)
        return Z3D_ERROR(
            Z3D_ERR_NUMERIC,
            "step %lld: %lld step%s in a row skipped for infinite or NaN gradients, the "
            "last in %s at loss scale %g (limit: training.max_skipped_steps %lld); "
            "try a smaller learning rate, gradient clipping or bf16",
            (long long)result->step, (long long)result->skipped_in_a_row,
            result->skipped_in_a_row == 1 ? "" : "s", overflow_place(trainer, result),
            (double)result->loss_scale, limit);
    if (!result->skipped && !isfinite(result->loss))
        return Z3D_ERROR(Z3D_ERR_NUMERIC,
                         "step %lld: the loss is %f; try a smaller learning rate or gradient "
                         "clipping",
                         (long long)result->step, result->loss);
    return check_end(trainer, result);
}

static bool time_is_over(const z3d_trainer *trainer) {
    double limit = trainer->config->training_time_limit;
    return limit > 0 && z3d_now() - trainer->begin >= limit;
}

/* Whether this rank wants to stop: after a signal, the time limit, or a write error. */
static bool wants_stop(const z3d_trainer *trainer) {
    return z3d_world_stop_requested(trainer->world) || time_is_over(trainer) ||
           trainer->write_error.status != Z3D_OK;
}

static z3d_status train_step(z3d_trainer *trainer, progress *progress, int64_t step) {
    const z3d_config *config = trainer->config;
    double begin = z3d_now();
    z3d_step_result result;
    z3d_step_input input = {
        .micro = trainer->micro,
        .sample_base = (step - 1) * config->train_batch_size,
        .global_targets = config->train_batch_size * config->model_seq_length,
        .learning_rate = z3d_learning_rate(config, step),
        .stop_requested = wants_stop(trainer),
    };
    z3d_trainer_place(trainer, "step %lld: reading data", (long long)step);
    z3d_status status = z3d_trainer_read_step(trainer, step);
    if (status == Z3D_OK) status = z3d_trainer_run_step(trainer, step, &input, &result);
    if (status != Z3D_OK) return z3d_trainer_stop_all(trainer, status);
    double seconds = z3d_now() - begin;
    if (trainer->rank == 0) record_step(trainer, progress, &result, input.learning_rate, seconds);
    if (progress->sums.steps == 0)
        progress->sums.first_loss = result.loss;
    else
        progress->sums.steady_seconds += seconds;
    progress->sums.steps++;
    progress->sums.step_seconds += seconds;
    progress->sums.comm_seconds += result.exposed_seconds;
    progress->sums.transfer_seconds += result.exposed_transfer_seconds;
    progress->sums.disk_seconds += result.exposed_disk_seconds;
    progress->sums.host_step_seconds += result.host_step_seconds;
    progress->sums.skipped += result.skipped;
    progress->last_skipped = result.skipped;
    if (!empty(&result)) progress->sums.last_loss = result.loss;
    progress->stopped = result.stop;
    return check_result(trainer, &result);
}

/* Sums the loss of all validation batches of a file; a requested stop ends it at once. */
static z3d_status sum_validation(z3d_trainer *trainer, int64_t step, int file, double *loss_sum,
                                 double *targets, bool *stopped) {
    int64_t calls = z3d_trainer_validation_calls(trainer, file);
    for (int64_t call = 0; call < calls && !*stopped; call++) {
        z3d_step_input input = {
            .micro = trainer->micro,
            .sample_base = 0,
            .global_targets = z3d_samples_in_all(&trainer->program, &trainer->mesh) *
                              trainer->config->model_seq_length,
            .stop_requested = wants_stop(trainer),
        };
        z3d_trainer_place(trainer, "step %lld: reading validation data", (long long)step);
        z3d_status status = z3d_trainer_read_validation(trainer, file, call);
        if (status == Z3D_OK)
            status = z3d_engine_evaluate(trainer->engine, &input, loss_sum, targets, stopped);
        if (status != Z3D_OK) return z3d_trainer_stop_all(trainer, status);
    }
    return Z3D_OK;
}

/* Computes the loss of each file, and their mean weighted by data.validation. */
static z3d_status find_losses(z3d_trainer *trainer, progress *progress, int64_t step, double *loss,
                              double *all_targets) {
    const z3d_data_list *files = &trainer->config->data_validation;
    double mean = 0, weights = 0;
    for (int i = 0; i < files->count && !progress->stopped; i++) {
        double loss_sum = 0, targets = 0;
        Z3D_TRY(sum_validation(trainer, step, i, &loss_sum, &targets, &progress->stopped));
        loss[i] = targets > 0 ? loss_sum / targets : NAN;
        mean += files->weight[i] * loss[i];
        weights += files->weight[i];
        *all_targets += targets;
    }
    if (!progress->stopped)
        progress->sums.validation_loss = files->count > 1 ? mean / weights : loss[0];
    return Z3D_OK;
}

/* Rank 0: tells the losses of the files, if there are several. */
static void tell_losses(z3d_trainer *trainer, int64_t step, const double *loss) {
    const z3d_data_list *files = &trainer->config->data_validation;
    for (int i = 0; i < files->count && files->count > 1; i++) {
        z3d_string tag = {0};
        z3d_string_append(&tag, "validation/loss/%s", files->path[i]);
        const z3d_scalar scalar = {tag.text, loss[i]};
        if (!tag.failed) write_board(trainer, step, &scalar, 1);
        z3d_console_say(&trainer->console, "  %10.6f  of %s, weight %g", loss[i], files->path[i],
                        files->weight[i]);
        z3d_string_free(&tag);
    }
}

static void tell_validation(z3d_trainer *trainer, progress *progress, int64_t step,
                            const double *loss, double targets, double seconds) {
    z3d_metrics_sent(trainer->group, progress->sent);
    if (trainer->rank != 0) return;
    z3d_trainer_place(trainer, "step %lld: writing metrics", (long long)step);
    z3d_metrics_validation_line(step, wall_time(), progress->sums.validation_loss, loss,
                                trainer->config->data_validation.count, (int64_t)targets, seconds,
                                &trainer->line);
    z3d_trainer_write_line(trainer, &trainer->metrics);
    z3d_scalar scalars[] = {{"validation/loss", progress->sums.validation_loss},
                            {"validation/perplexity", exp(progress->sums.validation_loss)}};
    write_board(trainer, step, scalars, 2);
    z3d_console_validation(&trainer->console, step, progress->sums.validation_loss, seconds);
    tell_losses(trainer, step, loss);
}

/* A validation that a stop ended early gives no result. */
static z3d_status validate(z3d_trainer *trainer, progress *progress, int64_t step) {
    const int files = trainer->config->data_validation.count;
    double begin = z3d_now(), targets = 0, *loss;
    z3d_status status = z3d_new((size_t)files, sizeof *loss, "validation losses", &loss);
    Z3D_TRY(z3d_trainer_agree(trainer, status));
    status = find_losses(trainer, progress, step, loss, &targets);
    if (status == Z3D_OK && !progress->stopped) {
        progress->better = z3d_trainer_judge(trainer, step, progress->sums.validation_loss);
        tell_validation(trainer, progress, step, loss, targets, z3d_now() - begin);
    }
    free(loss);
    return status;
}

/* The work after a step: validation, checkpoint, samples. *last: the run ends with this step. */
static z3d_status after_step(z3d_trainer *trainer, progress *progress, int64_t step, bool *last) {
    const z3d_config *config = trainer->config;
    const int64_t interval = config->training_eval_interval, every = config->generate_every;
    const bool end = step == config->training_steps;
    progress->better = false;
    /* No validation after a signal, because time is short. Validation is before the checkpoint, so
     * that a run that resumes after this step has its validation too. */
    const bool due = trainer->validation && (end || (interval > 0 && step % interval == 0));
    if (due && !progress->stopped) Z3D_TRY(validate(trainer, progress, step));
    trainer->evaluations.due = due && progress->stopped;
    *last = progress->stopped || end || z3d_trainer_ends_early(trainer);
    const bool best = config->checkpoint_keep_best && progress->better;
    Z3D_TRY(z3d_trainer_checkpoint(trainer, step, progress->last_skipped, *last, *last || best));
    /* Samples come after the checkpoint: they take long, and the job may be killed meanwhile. */
    if (*last || every == 0 || step % every != 0) return Z3D_OK;
    Z3D_TRY(z3d_trainer_sample_all(trainer, step, false, &progress->stopped));
    *last = progress->stopped;
    return *last ? z3d_trainer_checkpoint(trainer, step, progress->last_skipped, true, true)
                 : Z3D_OK;
}

static z3d_status train_loop(z3d_trainer *trainer, progress *progress) {
    bool last = trainer->complete;
    /* A signal may have come during a long start-up. The time limit does not count here: a run that
     * is started again and again must advance by at least one step. */
    z3d_trainer_wait_place(trainer);
    Z3D_TRY(z3d_world_agree_stop(trainer->world, &progress->stopped));
    if (progress->stopped) return Z3D_OK;
    if (trainer->evaluations.due) { /* a stop before this start left it out */
        Z3D_TRY(after_step(trainer, progress, trainer->resumed_step, &last));
        Z3D_TRY(z3d_trainer_link_best(trainer));
    }
    for (int64_t step = trainer->resumed_step + 1; !last; step++) {
        Z3D_TRY(train_step(trainer, progress, step));
        Z3D_TRY(after_step(trainer, progress, step, &last));
    }
    return Z3D_OK;
}

/* Rank 0: a line about this start in events.jsonl. */
static void note_start(z3d_trainer *trainer) {
    z3d_string title = {0};
    if (trainer->complete) return;
    z3d_timeline_title(trainer->model, &trainer->mesh, &trainer->program, &title);
    const z3d_event_record start = {
        .step = trainer->resumed_step,
        .event = trainer->resumed_step > 0 ? "resume" : "start",
        .time = wall_time(),
        .seconds = NAN,
        .detail = title.text ? title.text : "",
        .device = z3d_device_description(trainer->device),
        .type = z3d_dtype_name(trainer->program.dtype),
        .peak_tflops = trainer->peak_measured ? trainer->peak_tflops : NAN,
    };
    z3d_metrics_event_line(&start, &trainer->line);
    z3d_trainer_write_line(trainer, &trainer->events);
    z3d_string_free(&title);
}

/* Writes a line about the end; returns `status`. */
static z3d_status note_end(z3d_trainer *trainer, const progress *progress, z3d_status status) {
    const z3d_kept_error kept = z3d_error_keep(status);
    int64_t step = trainer->resumed_step + progress->sums.steps;
    const char *event = status != Z3D_OK ? "failure" : progress->stopped ? "stop" : "end";
    char early[Z3D_EARLY_TEXT];
    const char *detail = status != Z3D_OK        ? kept.message
                         : !progress->stopped    ? z3d_trainer_why_early(trainer, early)
                         : time_is_over(trainer) ? "training.time_limit"
                                                 : "a signal";
    if (trainer->rank == 0 && trainer->write_error.status == Z3D_OK && !trainer->complete)
        z3d_trainer_event(trainer, step, event, z3d_now() - progress->begin, detail);
    return z3d_error_restore(&kept);
}

static void say_no_step(z3d_trainer *trainer, const progress *progress) {
    long long step = (long long)trainer->resumed_step;
    long long steps = (long long)trainer->config->training_steps;
    char early[Z3D_EARLY_TEXT];
    const char *key = trainer->epochs > 0 ? "training.epochs" : "training.steps";
    if (progress->stopped)
        z3d_console_say(&trainer->console,
                        "\nstopped by a signal before the first step (the run is at step %lld)",
                        step);
    else if (z3d_trainer_why_early(trainer, early))
        z3d_console_say(&trainer->console,
                        "Nothing to do: the run ended early at step %lld: %s. To train further, "
                        "raise the patience.",
                        step, early);
    else if (step > steps)
        z3d_console_say(&trainer->console,
                        "Nothing to do: the checkpoint is at step %lld, beyond training.steps "
                        "%lld. To train further, raise %s.",
                        step, steps, key);
    else
        z3d_console_say(&trainer->console,
                        "Nothing to do: the run is complete (step %lld). To train further, raise "
                        "%s.",
                        step, key);
}

static void write_summary(z3d_trainer *trainer, const z3d_run_end *end) {
    z3d_string path = {0}, text = {0};
    z3d_string_append(&path, "%s/summary.json", trainer->config->run_dir);
    z3d_summary_json(end, &text);
    note_write(trainer, z3d_run_folder_keep(&trainer->folder, "summary.json"));
    z3d_run_folder_say(&trainer->folder);
    note_write(trainer, path.failed || text.failed
                            ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the run's summary")
                            : z3d_write_whole_file(path.text, text.text, text.length));
    z3d_string_free(&path);
    z3d_string_free(&text);
}

/* Whether conversations are trained with a chat template that generation knows too. */
static bool chats(const z3d_trainer *trainer) {
    z3d_tokenizer *tokenizer = NULL;
    const bool has = z3d_dataset_masked(trainer->train) &&
                     z3d_tokenizer_of_config(trainer->config, &tokenizer) == Z3D_OK &&
                     z3d_tokenizer_answer_end(tokenizer) >= 0;
    z3d_tokenizer_destroy(tokenizer);
    return has;
}

/* Rank 0: prints the end in few lines, and writes summary.json. */
static void say_end(z3d_trainer *trainer, const progress *progress, const z3d_rank_memory *memory) {
    if (progress->sums.steps == 0) {
        say_no_step(trainer, progress);
        return;
    }
    char early[Z3D_EARLY_TEXT];
    z3d_string best = {0};
    if (trainer->store && trainer->config->checkpoint_keep_best)
        z3d_string_append(&best, "%s/" Z3D_BEST, trainer->checkpoint_dir);
    double tokens = (double)(progress->sums.steps - 1) * (double)trainer->config->train_batch_size *
                    (double)trainer->config->model_seq_length;
    double rate = tokens > 0 ? tokens / progress->sums.steady_seconds : NAN;
    double peak = trainer->peak_tflops > 0 ? trainer->peak_tflops * 1e12 : NAN;
    z3d_resident resident;
    bool explained = z3d_trainer_resident(trainer, &resident);
    z3d_run_end end = {
        .trainer = trainer,
        .sums = &progress->sums,
        .stopped = progress->stopped && trainer->write_error.status == Z3D_OK,
        .time_is_over = time_is_over(trainer),
        .early = progress->stopped ? NULL : z3d_trainer_why_early(trainer, early),
        .seconds = z3d_now() - progress->begin,
        .best = trainer->evaluations.best_step > 0 ? best.text : NULL,
        .tokens_per_second = rate,
        .mfu = rate / z3d_world_size(trainer->world) * trainer->model_flops / peak,
        .memory = memory,
        .resident = explained ? &resident : NULL,
        .offloaded = trainer->program.checkpoint_space != Z3D_SPACE_DEVICE ||
                     trainer->program.offload.optimizer != Z3D_SPACE_DEVICE,
        .checkpoint_dir = trainer->store ? trainer->checkpoint_dir : NULL,
        .chats = chats(trainer),
    };
    z3d_console_end(&trainer->console, &end);
    write_summary(trainer, &end);
    z3d_string_free(&best);
}

static z3d_status run(z3d_trainer *trainer, bool *unfinished) {
    Z3D_TRY(z3d_trainer_setup(trainer));
    z3d_trainer_keep_peak(trainer);
    progress progress = {.begin = z3d_now(), .sums = {.last_loss = NAN, .validation_loss = NAN}};
    z3d_rank_memory memory;
    Z3D_TRY(z3d_trainer_find_memory(trainer, &memory));
    z3d_console_start(&trainer->console, trainer->rank == 0 ? stdout : NULL, trainer, &memory);
    if (trainer->rank == 0) note_start(trainer);
    z3d_status status = train_loop(trainer, &progress);
    if (status != Z3D_OK) status = z3d_trainer_end_save(trainer, status);
    status = note_end(trainer, &progress, status);
    z3d_status written =
        agree_writes(trainer); /* a write error, such as a full disk, explains the stop */
    if (status == Z3D_OK) status = written;
    if (status != Z3D_OK) return status;
    *unfinished = progress.stopped && trainer->store &&
                  (trainer->resumed_step + progress.sums.steps < trainer->config->training_steps ||
                   trainer->evaluations.due);
    z3d_trainer_place(trainer, "end: writing results");
    Z3D_TRY(z3d_trainer_find_memory(trainer, &memory));
    if (trainer->rank == 0) say_end(trainer, &progress, &memory);
    if (trainer->tokenizer && !progress.stopped)
        Z3D_TRY(z3d_trainer_sample_all(trainer, trainer->resumed_step + progress.sums.steps, true,
                                       &progress.stopped));
    if (trainer->rank == 0) {
        note_write(trainer, z3d_line_file_close(&trainer->metrics));
        note_write(trainer, z3d_line_file_close(&trainer->events));
        note_write(trainer, z3d_line_file_close(&trainer->samples));
        note_write(trainer, z3d_tensorboard_close(&trainer->board));
    }
    return agree_writes(trainer);
}

z3d_status z3d_train(z3d_world *world, z3d_config *config) {
    const z3d_train_options none = {0};
    bool unused;
    return z3d_train_part(world, config, &none, &unused);
}

z3d_status z3d_train_part(z3d_world *world, z3d_config *config, const z3d_train_options *options,
                          bool *unfinished) {
    z3d_trainer trainer = {
        .world = world, .config = config, .options = options, .begin = z3d_now()};
    *unfinished = false;
    const z3d_kept_error end = z3d_error_keep(run(&trainer, unfinished));
    z3d_trainer_destroy(&trainer);
    return z3d_error_restore(&end);
}
