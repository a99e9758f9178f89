/* The loss of a checkpoint on data, with its own configuration adapted to the number of ranks. */
#include <math.h>
#include <stdlib.h>

#include "src/train/evaluation/data.h"
#include "src/train/inference_config.h"
#include "src/train/train.h"
#include "src/train/trainer.h"

static z3d_status read_config(z3d_world *world, const z3d_evaluate_request *request,
                              z3d_config **out) {
    Z3D_TRY(z3d_inference_config(request->path, z3d_world_size(world), false, request->assignments,
                                 request->count, out));
    return z3d_config_override(*out, "generate.prompt=");
}

/* ---- data ---- */

/* A text needs the tokenizer. For a token file the tokenizer only counts bytes; without it bits per
 * byte is unknown. */
static z3d_status make_tokenizer(z3d_trainer *trainer, const z3d_evaluate_request *request,
                                 z3d_string *why) {
    z3d_status status = z3d_tokenizer_of_config(trainer->config, &trainer->tokenizer);
    if (status == Z3D_OK || !z3d_names_token_file(request->data)) return status;
    z3d_string_append(why, "%s", z3d_error_message());
    return Z3D_OK;
}

static z3d_status open_data(z3d_trainer *trainer, const z3d_evaluate_request *request,
                            z3d_string *why) {
    const z3d_config *config = trainer->config;
    Z3D_TRY(make_tokenizer(trainer, request, why));
    Z3D_TRY(z3d_evaluation_data_open(request->data, request->json_key, trainer->tokenizer, config,
                                     &trainer->validation));
    if (trainer->rank == 0 && config->data_samples == Z3D_SAMPLES_WINDOWS &&
        z3d_dataset_masked(trainer->validation))
        z3d_log(Z3D_LOG_WARN,
                "%s: conversations or prompts are cut where a window ends: data.samples=documents "
                "keeps them whole",
                request->data);
    return z3d_dataset_check_tokenizer(trainer->validation, config);
}

/* ---- losses ---- */

/* Sums of one call. */
typedef struct part {
    double loss, targets;
} part;

static z3d_status evaluate_call(z3d_trainer *trainer, int64_t call, part *mine, bool *stop) {
    double loss = 0, targets = 0;
    const z3d_step_input input = {.micro = trainer->micro,
                                  .stop_requested = z3d_world_stop_requested(trainer->world)};
    z3d_trainer_place(trainer, "evaluation");
    z3d_status status = z3d_trainer_read_validation(trainer, 0, call);
    if (status == Z3D_OK)
        status = z3d_engine_evaluate(trainer->engine, &input, &loss, &targets, stop);
    if (status == Z3D_OK)
        status = z3d_engine_own_loss(trainer->engine, &mine->loss, &mine->targets);
    return status == Z3D_OK ? Z3D_OK : z3d_trainer_stop_all(trainer, status);
}

/* Consecutive ranks have consecutive samples, so the sums over ranks and calls are in the order of
 * the data. */
static z3d_status add_calls(z3d_trainer *trainer, part *all, part *sum) {
    const int64_t calls = z3d_trainer_validation_calls(trainer, 0);
    for (int64_t call = 0; call < calls; call++) {
        bool stop = false;
        part mine;
        Z3D_TRY(evaluate_call(trainer, call, &mine, &stop));
        if (stop)
            return Z3D_ERROR(Z3D_ERR_IO, "stopped by a signal after %lld of %lld parts of the data",
                             (long long)call, (long long)calls);
        z3d_trainer_wait_place(trainer);
        Z3D_TRY(z3d_world_gather_all(trainer->world, &mine, all, sizeof mine));
        for (int rank = 0; rank < z3d_world_size(trainer->world); rank++) {
            sum->loss += all[rank].loss;
            sum->targets += all[rank].targets;
        }
    }
    return Z3D_OK;
}

static z3d_status sum_losses(z3d_trainer *trainer, part *sum) {
    part *all;
    z3d_status made =
        z3d_new((size_t)z3d_world_size(trainer->world), sizeof *all, "the ranks' losses", &all);
    Z3D_TRY(z3d_trainer_agree(trainer, made));
    z3d_status status = add_calls(trainer, all, sum);
    free(all);
    return status;
}

/* Rank 0. */
static z3d_status find_bytes(const z3d_trainer *trainer, z3d_evaluate_result *result) {
    result->bytes = -1;
    if (!trainer->tokenizer) return Z3D_OK;
    Z3D_TRY(z3d_evaluation_bytes(trainer->validation, trainer->tokenizer,
                                 trainer->config->model_seq_length, &result->bytes));
    if (result->bytes < 0)
        z3d_string_append(&result->why, "the %s tokenizer of the run does not have all the tokens",
                          trainer->tokenizer->name);
    if (result->bytes == 0) z3d_string_append(&result->why, "the tokens have no text");
    if (result->bytes == 0) result->bytes = -1;
    return result->why.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a text") : Z3D_OK;
}

static void fill_result(const z3d_trainer *trainer, const part *sum, z3d_evaluate_result *result) {
    result->loss = sum->loss / sum->targets;
    result->perplexity = exp(result->loss);
    result->tokens = (int64_t)sum->targets;
    result->bits_per_byte = result->bytes > 0 ? sum->loss / log(2) / (double)result->bytes : NAN;
    result->windows = z3d_dataset_windows(trainer->validation);
    result->window = trainer->config->model_seq_length;
}

static z3d_status evaluate(z3d_trainer *trainer, const z3d_evaluate_request *request,
                           z3d_evaluate_result *result) {
    part sum = {0};
    Z3D_TRY(z3d_trainer_begin_inference(trainer));
    trainer->config->training_eval_steps = INT64_MAX; /* all windows */
    z3d_trainer_place(trainer, "start-up: opening data");
    Z3D_TRY(z3d_trainer_agree(trainer, open_data(trainer, request, &result->why)));
    const bool stage =
        z3d_is_assigned(request->assignments, request->count, "zero_optimization.stage");
    Z3D_TRY(z3d_trainer_setup_inference(trainer, 1, 0, stage));
    Z3D_TRY(z3d_trainer_load_weights(trainer, request->path, request->ema, &result->step));
    Z3D_TRY(sum_losses(trainer, &sum));
    z3d_trainer_place(trainer, "end: counting bytes");
    z3d_status status = trainer->rank == 0 ? find_bytes(trainer, result) : Z3D_OK;
    fill_result(trainer, &sum, result);
    return z3d_trainer_agree(trainer, status);
}

z3d_status z3d_evaluate(z3d_world *world, const z3d_evaluate_request *request,
                        z3d_evaluate_result *result) {
    z3d_trainer trainer = {.world = world, .rank = z3d_world_rank(world), .evaluates = true};
    *result = (z3d_evaluate_result){0};
    z3d_status status = z3d_trainer_agree(&trainer, read_config(world, request, &trainer.config));
    if (status == Z3D_OK) status = evaluate(&trainer, request, result);
    const z3d_kept_error end = z3d_error_keep(status);
    z3d_config *config = trainer.config;
    z3d_trainer_destroy(&trainer);
    z3d_config_destroy(config);
    return z3d_error_restore(&end);
}
