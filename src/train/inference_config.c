/* A checkpoint's own configuration, adapted to the number of ranks. */
#include "src/train/inference_config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"
#include "src/model/model.h"

static int common_divisor(int a, int b) {
    return b ? common_divisor(b, a % b) : a;
}

bool z3d_is_assigned(char *const *assignments, int count, const char *key) {
    size_t length = strlen(key);
    for (int i = 0; i < count; i++)
        if (strncmp(assignments[i], key, length) == 0 && assignments[i][length] == '=') return true;
    return false;
}

/* Sets the tensor size (with `tensor` the largest one that fits the ranks of a pipeline stage and
 * the model) and the fewest micro-batches that the schedule allows. Keys that are assigned stay. */
static z3d_status fit_sizes(z3d_config *config, int ranks, bool tensor, char *const *assignments,
                            int count) {
    int64_t stages = config->parallel_pipeline_model_parallel_size;
    if (z3d_schedule_row_of(z3d_config_pipeline_schedule(config))->rounds &&
        !z3d_is_assigned(assignments, count, "gradient_accumulation_steps"))
        config->gradient_accumulation_steps = stages;
    if (!z3d_is_assigned(assignments, count, "parallel.tensor_model_parallel_size")) {
        z3d_model_sizes sizes;
        Z3D_TRY(z3d_model_sizes_of(config, &sizes));
        int left = ranks > stages ? ranks / (int)stages : 1;
        config->parallel_tensor_model_parallel_size =
            tensor ? common_divisor(left, (int)sizes.tensor_limit) : 1;
    }
    if (!z3d_is_assigned(assignments, count, "parallel.allow_tensor_across_nodes"))
        config->parallel_allow_tensor_across_nodes =
            config->parallel_tensor_model_parallel_size > 1;
    return Z3D_OK;
}

/* An imported model has its tokenizer in the same folder. If the model was copied, the copy's
 * tokenizer is used. */
static z3d_status find_tokenizer(const char *folder, z3d_config *config) {
    z3d_string beside = {0}, assignment = {0};
    if (config->data_tokenizer == Z3D_TOKENIZER_BYTES || !*config->data_vocab) return Z3D_OK;
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

/* If checkpoint.base says that the base has moved, its tokenizer is at the new place, too. */
static z3d_status find_moved_tokenizer(z3d_config *config) {
    char *folder;
    if (!*config->checkpoint_base) return Z3D_OK;
    Z3D_TRY(z3d_checkpoint_resolve(config->checkpoint_base, &folder));
    z3d_status status = find_tokenizer(folder, config);
    free(folder);
    return status;
}

z3d_status z3d_inference_config(const char *path, int ranks, bool tensor, char *const *assignments,
                                int count, z3d_config **out) {
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
    if (status == Z3D_OK) {
        /* One sample for each rank and step. Stage 3 needs the least memory; setup.c changes it to
         * stage 0 if that fits. */
        (*out)->train_micro_batch_size_per_gpu = 1;
        (*out)->gradient_accumulation_steps = 1;
        (*out)->zero_optimization_stage = 3;
        status = z3d_config_leave_training(*out);
    }
    if (status == Z3D_OK) status = find_tokenizer(folder, *out);
    for (int i = 0; i < count && status == Z3D_OK; i++)
        status = z3d_config_override(*out, assignments[i]);
    if (status == Z3D_OK && !z3d_is_assigned(assignments, count, "data.vocab"))
        status = find_moved_tokenizer(*out);
    /* If a vocabulary is set but the tokenizer is `bytes`, the vocabulary is GPT-2's. */
    if (status == Z3D_OK && (*out)->data_tokenizer == Z3D_TOKENIZER_BYTES && *(*out)->data_vocab)
        status = z3d_config_override(*out, "data.tokenizer=gpt2");
    if (status == Z3D_OK) status = fit_sizes(*out, ranks, tensor, assignments, count);
    z3d_checkpoint_close(checkpoint);
    free(folder);
    return status;
}
