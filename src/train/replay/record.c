/* Records a rank while it trains among others. */
#include <stdlib.h>
#include <string.h>

#include "src/train/trainer.h"

bool z3d_trainer_records(const z3d_trainer *trainer) {
    return trainer->options && trainer->options->record_first > 0;
}

static z3d_status check(const z3d_trainer *trainer) {
    const z3d_train_options *asked = trainer->options;
    const int ranks = z3d_world_size(trainer->world);
    const long long first = asked->record_first, last = asked->record_last;
    if (asked->record_rank >= ranks)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--record-rank %lld: this run has the ranks 0 to %d",
                         (long long)asked->record_rank, ranks - 1);
    if (last > trainer->config->training_steps)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--steps %lld:%lld: this run has %lld steps", first, last,
                         (long long)trainer->config->training_steps);
    if (trainer->config->training_cuda_graph == Z3D_CUDA_GRAPH_ON)
        return z3d_config_error(trainer->config, "training.cuda_graph",
                                "a rank can be recorded only without: set it to auto");
    return Z3D_OK;
}

/* Opens this rank's tape and writes the title; the steps write the rest. */
static z3d_status open_tape(z3d_trainer *trainer, const char *path) {
    const z3d_train_options *asked = trainer->options;
    z3d_string config = {0};
    Z3D_TRY(z3d_new(1, sizeof *trainer->tape, "a recording", &trainer->tape));
    z3d_rank_tape *tape = trainer->tape;
    tape->title = (z3d_rank_tape_title){
        .ranks = z3d_world_size(trainer->world),
        .rank = trainer->rank,
        .steps = {asked->record_first, asked->record_last},
        .version = ZERO3D_VERSION,
    };
    snprintf(tape->title.device, sizeof tape->title.device, "%s",
             z3d_device_description(trainer->device));
    tape->engine = trainer->engine;
    tape->group = trainer->group;
    z3d_config_write(trainer->config, &config);
    z3d_status status = config.failed
                            ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the configuration's text")
                            : z3d_block_file_create(path, &tape->file);
    if (status == Z3D_OK) status = z3d_rank_tape_put_title(tape, config.text);
    z3d_string_free(&config);
    return status;
}

z3d_status z3d_trainer_open_recording(z3d_trainer *trainer) {
    z3d_string path = {0};
    if (!z3d_trainer_records(trainer)) return Z3D_OK;
    if (trainer->options->record_first <= trainer->resumed_step) { /* for example a requeued job */
        z3d_log(Z3D_LOG_INFO,
                "--steps %lld:%lld: nothing is recorded, the run resumes at step %lld",
                (long long)trainer->options->record_first, (long long)trainer->options->record_last,
                (long long)trainer->resumed_step + 1);
        return Z3D_OK;
    }
    const long long rank = (long long)trainer->options->record_rank;
    z3d_status status = check(trainer);
    z3d_string_append(&path, "%s/replay-rank%lld.z3d", trainer->config->run_dir, rank);
    if (status == Z3D_OK && path.failed)
        status = Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a file's name");
    if (status == Z3D_OK && trainer->rank == 0)
        status = z3d_run_folder_keep(&trainer->folder, strrchr(path.text, '/') + 1);
    status = z3d_trainer_agree(trainer, status);
    if (status == Z3D_OK) {
        if (trainer->rank == rank) status = open_tape(trainer, path.text);
        status = z3d_trainer_agree(trainer, status);
    }
    if (status == Z3D_OK)
        z3d_log(Z3D_LOG_INFO, "steps %lld to %lld of rank %lld will be recorded: zero3d replay %s",
                (long long)trainer->options->record_first, (long long)trainer->options->record_last,
                rank, path.text);
    z3d_string_free(&path);
    return status;
}

z3d_status z3d_trainer_run_step(z3d_trainer *trainer, int64_t step, z3d_step_input *input,
                                z3d_step_result *result) {
    z3d_rank_tape *tape = trainer->tape;
    if (!tape || step < tape->title.steps.first)
        return z3d_engine_train_step(trainer->engine, input, result);
    z3d_status status = z3d_rank_tape_step(tape, input, result);
    if (tape->ended || step == tape->title.steps.last) z3d_trainer_close_recording(trainer);
    return status;
}

void z3d_trainer_close_recording(z3d_trainer *trainer) {
    if (!trainer->tape) return;
    z3d_block_file_close(trainer->tape->file);
    free(trainer->tape);
    trainer->tape = NULL;
}
