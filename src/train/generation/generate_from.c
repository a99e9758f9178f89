/* Text from a checkpoint: uses its own configuration, adapted to the number of ranks. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/train/generation/generate.h"
#include "src/train/text/text_files.h"
#include "src/train/train.h"
#include "src/train/trainer.h"

static int common_divisor(int a, int b) {
    return b ? common_divisor(b, a % b) : a;
}

static z3d_status leave_pipeline(z3d_config *config) {
    static const char *const assignments[] = {
        "parallel.pipeline_model_parallel_size=1",
        "parallel.virtual_pipeline_model_parallel_size=1",
        "parallel.pipeline_schedule=auto",
        "parallel.pipeline_schedule_file=",
        "parallel.pipeline_partition=time",
        "parallel.device_speeds=equal",
        "zero_optimization.pipeline_gather=auto",
    };
    for (size_t i = 0; i < sizeof assignments / sizeof *assignments; i++)
        Z3D_TRY(z3d_config_override(config, assignments[i]));
    return Z3D_OK;
}

/* One sample a rank and step, no pipeline stages. */
static z3d_status fit_config(z3d_config *config) {
    config->parallel_world_size = Z3D_AUTO;
    config->train_batch_size = Z3D_AUTO;
    config->train_micro_batch_size_per_gpu = 1;
    config->gradient_accumulation_steps = 1;
    config->zero_optimization_stage = 3;
    config->zero_optimization_grad_reduce = Z3D_GRAD_REDUCE_AUTO;
    config->training_threads = Z3D_AUTO;
    /* Nothing is kept for a backward, and the sequence need not divide by these ranks. */
    config->parallel_sequence_parallel = false;
    config->activation_checkpointing_partition_activations = false;
    return leave_pipeline(config);
}

static bool is_assigned(char *const *assignments, int count, const char *key) {
    size_t length = strlen(key);
    for (int i = 0; i < count; i++)
        if (strncmp(assignments[i], key, length) == 0 && assignments[i][length] == '=') return true;
    return false;
}

/* Beside the pipeline stages that the command line asks for: as many tensor ranks as the model
 * allows, and as few micro-batches as the schedule. */
static z3d_status fit_sizes(z3d_config *config, int ranks, char *const *assignments, int count) {
    int64_t stages = config->parallel_pipeline_model_parallel_size;
    if (z3d_config_pipeline_schedule(config) == Z3D_PIPELINE_INTERLEAVED &&
        !is_assigned(assignments, count, "gradient_accumulation_steps"))
        config->gradient_accumulation_steps = stages;
    if (!is_assigned(assignments, count, "parallel.tensor_model_parallel_size")) {
        z3d_model_sizes sizes;
        Z3D_TRY(z3d_model_sizes_of(config, &sizes));
        int left = ranks > stages ? ranks / (int)stages : 1;
        config->parallel_tensor_model_parallel_size = common_divisor(left, (int)sizes.tensor_limit);
    }
    if (!is_assigned(assignments, count, "parallel.allow_tensor_across_nodes"))
        config->parallel_allow_tensor_across_nodes =
            config->parallel_tensor_model_parallel_size > 1;
    return Z3D_OK;
}

/* An imported model that was moved has its tokenizer beside it, not where its configuration says.
 */
static z3d_status find_tokenizer(const char *folder, z3d_config *config) {
    z3d_string beside = {0}, assignment = {0};
    if (config->data_tokenizer == Z3D_TOKENIZER_BYTES || !*config->data_vocab ||
        access(config->data_vocab, F_OK) == 0)
        return Z3D_OK;
    z3d_string_append(&beside, "%s/../tokenizer", folder);
    z3d_status status = Z3D_OK;
    if (beside.text && access(beside.text, F_OK) == 0) {
        z3d_string_append(&assignment, "data.vocab=");
        z3d_string_append_json(&assignment, beside.text);
        status = assignment.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a path")
                                   : z3d_config_override(config, assignment.text);
    }
    z3d_string_free(&beside);
    z3d_string_free(&assignment);
    return status;
}

static z3d_status read_config(const char *path, int ranks, char *const *assignments, int count,
                              z3d_config **out) {
    char *folder = NULL;
    z3d_checkpoint *checkpoint = NULL;
    *out = NULL;
    z3d_status status = z3d_checkpoint_resolve(path, &folder);
    if (status == Z3D_OK) status = z3d_checkpoint_open(folder, &checkpoint);
    if (status == Z3D_OK) status = z3d_config_create(out);
    if (status == Z3D_OK) {
        const char *text = z3d_checkpoint_get_info(checkpoint)->config;
        status = z3d_config_read_text(*out, text, strlen(text), "the checkpoint's configuration");
    }
    if (status == Z3D_OK) status = fit_config(*out);
    /* What is loaded is given, however the run began. */
    if (status == Z3D_OK) status = z3d_config_override(*out, "checkpoint.resume=auto");
    if (status == Z3D_OK) status = find_tokenizer(folder, *out);
    for (int i = 0; i < count && status == Z3D_OK; i++)
        status = z3d_config_override(*out, assignments[i]);
    /* A vocabulary is for a model that has one: of GPT-2's kind where the run does not say which.
     */
    if (status == Z3D_OK && (*out)->data_tokenizer == Z3D_TOKENIZER_BYTES && *(*out)->data_vocab)
        status = z3d_config_override(*out, "data.tokenizer=gpt2");
    if (status == Z3D_OK) status = fit_sizes(*out, ranks, assignments, count);
    z3d_checkpoint_close(checkpoint);
    free(folder);
    return status;
}

static bool has_text(const z3d_config *config) {
    return config->generate_prompt && *config->generate_prompt;
}

z3d_status z3d_generate_has_prompt(const char *path, char *const *assignments, int count,
                                   bool *out) {
    z3d_config *config;
    z3d_status status = read_config(path, 1, assignments, count, &config);
    *out = status == Z3D_OK &&
           (has_text(config) || is_assigned(assignments, count, "generate.prompt"));
    z3d_config_destroy(config);
    return status;
}

/* No prompt is a mistake, an empty one that the command line gives a wish: a text from its
 * beginning. The configuration then has the text that stands for it. */
static z3d_status check_prompt(z3d_config *config, char *const *assignments, int count,
                               bool *empty) {
    *empty = false;
    if (has_text(config)) return Z3D_OK;
    *empty = is_assigned(assignments, count, "generate.prompt");
    if (*empty) return z3d_config_override(config, "generate.prompt=<|endoftext|>");
    return Z3D_ERROR(Z3D_ERR_CONFIG, "no prompt: give --prompt TEXT (the checkpoint's run has no "
                                     "generate.prompt; --prompt \"\" starts a new text)");
}

z3d_status z3d_trainer_sample(z3d_trainer *trainer, z3d_string *out, bool *stopped) {
    const z3d_config *config = trainer->config;
    z3d_generate_options options = {.prompt = trainer->empty_prompt ? "" : config->generate_prompt,
                                    .tokens = config->generate_tokens,
                                    .temperature = config->generate_temperature,
                                    .top_k = config->generate_top_k,
                                    .top_p = config->generate_top_p,
                                    .seed = (uint64_t)config->generate_seed,
                                    .world = trainer->world};
    z3d_string text = {0};
    z3d_trainer_place(trainer, "generation");
    z3d_status status = z3d_generate(trainer->engine, trainer->tokenizer, &options, &text, stopped);
    if (status != Z3D_OK) status = z3d_trainer_stop_all(trainer, status);
    if (status == Z3D_OK) {
        z3d_string_append(out, "%s", options.prompt);
        z3d_text_printable(text.text ? text.text : "", text.length, out);
        if (out->failed) status = Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the generated text");
    }
    z3d_string_free(&text);
    return z3d_trainer_agree(trainer, status);
}

static z3d_status generate(z3d_trainer *trainer, const char *path, z3d_string *out) {
    bool stopped;
    Z3D_TRY(z3d_trainer_setup_generate(trainer));
    Z3D_TRY(z3d_trainer_load_weights(trainer, path));
    Z3D_TRY(z3d_trainer_sample(trainer, out, &stopped));
    z3d_string_append(out, "\n");
    return Z3D_OK;
}

z3d_status z3d_generate_from(z3d_world *world, const char *path, char *const *assignments,
                             int count, z3d_string *out) {
    z3d_trainer trainer = {.world = world, .rank = z3d_world_rank(world)};
    trainer.metrics.fd = trainer.board.file.fd = -1;
    z3d_status status =
        read_config(path, z3d_world_size(world), assignments, count, &trainer.config);
    if (status == Z3D_OK)
        status = check_prompt(trainer.config, assignments, count, &trainer.empty_prompt);
    status = z3d_trainer_agree(&trainer, status);
    if (status == Z3D_OK) status = generate(&trainer, path, out);
    const z3d_kept_error end = z3d_error_keep(status);
    z3d_config *config = trainer.config;
    z3d_trainer_destroy(&trainer);
    z3d_config_destroy(config);
    return z3d_error_restore(&end);
}
