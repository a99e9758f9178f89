/* Guesses the key that a misspelt name means. */
#include "src/base/config/table.h"

#include <stdio.h>
#include <string.h>

/* Our keys' names in other frameworks: a whole path, or ".leaf" in any section or none. */
static const struct {
    const char *name, *path;
} renamed[] = {
    {".global_batch_size", "train_batch_size"},
    {".batch_size", "train_batch_size"},
    {".micro_batch_size", "train_micro_batch_size_per_gpu"},
    {".accumulation_steps", "gradient_accumulation_steps"},
    {".tensor_parallel_size", "parallel.tensor_model_parallel_size"},
    {".pipeline_parallel_size", "parallel.pipeline_model_parallel_size"},
    {".clip_grad", "gradient_clipping"},
    {".grad_clip", "gradient_clipping"},
    {".max_grad_norm", "gradient_clipping"},
    {".learning_rate", "optimizer.params.lr"},
    {".warmup_max_lr", "optimizer.params.lr"},
    {".cos_min_ratio", "scheduler.params.min_lr"},
    {".adam_eps", "optimizer.params.eps"},
    {".beta1", "optimizer.params.betas"},
    {".beta2", "optimizer.params.betas"},
    {".lr_decay_style", "scheduler.type"},
    {".warmup_steps", "scheduler.params.warmup_num_steps"},
    {".lr_warmup_iters", "scheduler.params.warmup_num_steps"},
    {".lr_decay_iters", "scheduler.params.total_num_steps"},
    {".train_iters", "training.steps"},
    {".max_steps", "training.steps"},
    {".num_train_epochs", "training.epochs"},
    {".num_epochs", "training.epochs"},
    {".max_epochs", "training.epochs"},
    {".n_layer", "model.num_layers"},
    {".n_embd", "model.hidden_size"},
    {".n_head", "model.num_attention_heads"},
    {".num_heads", "model.num_attention_heads"},
    {".n_kv_heads", "model.num_key_value_heads"},
    {".num_kv_heads", "model.num_key_value_heads"},
    {".num_query_groups", "model.num_key_value_heads"},
    {".kv_channels", "model.head_dim"},
    {".ffn_hidden_size", "model.intermediate_size"},
    {".norm_epsilon", "model.rms_norm_eps"},
    {".rotary_base", "model.rope_theta"},
    {".block_size", "model.seq_length"},
    {".n_positions", "model.seq_length"},
    {".max_position_embeddings", "model.seq_length"},
    {".init_std", "model.init_method_std"},
    {".recompute_granularity", "activation_checkpointing.granularity"},
    {".output_dir", "run.dir"},
    {".warmup_ratio", "scheduler.params.warmup_ratio"},
    {".lr_warmup_fraction", "scheduler.params.warmup_ratio"},
    {".lr_end", "scheduler.params.min_lr"},
    {".num_training_steps", "scheduler.params.total_num_steps"},
    {".lr_wsd_decay_iters", "scheduler.params.num_decay_steps"},
    {".lr_scheduler_type", "scheduler.type"},
    {".lr_scheduler_kwargs", "scheduler.params"},
    {".num_cycles", "scheduler.params.num_cycles"},
    {".optim", "optimizer.type"},
    {".data_seed", "data.seed"},
    {".packing", "data.samples"},
    {".packing_strategy", "data.samples"},
    {".padding_free", "data.samples"},
    {".max_length", "model.seq_length"},
    {".dtype", "bf16.enabled"},
    {".torch_dtype", "bf16.enabled"},
    {".per_device_eval_batch_size", "train_micro_batch_size_per_gpu"},
    {".run_name", "run.dir"},
    {".adam_beta1", "optimizer.params.betas"},
    {".adam_beta2", "optimizer.params.betas"},
    {".adam_epsilon", "optimizer.params.eps"},
    {".gradient_checkpointing", "activation_checkpointing.granularity"},
    {".logging_steps", "training.log_interval"},
    {".validation_interval", "training.eval_interval"},
    {"eval_steps", "training.eval_interval"}, /* of transformers' Trainer */
    {".eval_strategy", "training.eval_interval"},
    {".evaluation_strategy", "training.eval_interval"},
    {".eval_iters", "training.eval_steps"},
    {".load_best_model_at_end", "checkpoint.keep_best"},
    {".metric_for_best_model", "checkpoint.keep_best"},
    {".early_stopping", "training.early_stopping_patience"},
    {".patience", "training.early_stopping_patience"},
    {".save_total_limit", "checkpoint.keep"},
    {".save_strategy", "checkpoint.interval"},
    {".resume_from_checkpoint", "checkpoint.resume"},
    {".model_name_or_path", "checkpoint.init_from"},
    {".ddp_timeout", "training.watchdog_timeout"},
    {".max_seq_length", "model.seq_length"},
    {".max_seq_len", "model.seq_length"},
    {".data_path", "data.train"},
    {".train_micro_batch_size", "train_micro_batch_size_per_gpu"},
    {".per_device_train_batch_size", "train_micro_batch_size_per_gpu"},
    {"model.vocab", "model.vocab_size"},
    {".d_model", "model.hidden_size"},
    {"model.dim", "model.hidden_size"},
    {"model.layers", "model.num_layers"},
    {"model.heads", "model.num_attention_heads"},
    {".n_ctx", "model.seq_length"},
    {".context_length", "model.seq_length"},
    {"model.dropout", "model.hidden_dropout"},
    {".save_interval", "checkpoint.interval"},
    {".save_steps", "checkpoint.interval"},
    {"save", "checkpoint.dir"},
    {"checkpoint.save", "checkpoint.dir"},
    {"load", "checkpoint.resume"},
    {"checkpoint.load", "checkpoint.resume"},
    {"seed", "training.seed"},
    {"run.name", "run.dir"},
    {"zero", "zero_optimization"},
    {"tp", "parallel.tensor_model_parallel_size"},
    {"parallel.tp", "parallel.tensor_model_parallel_size"},
    {".pp_size", "parallel.pipeline_model_parallel_size"},
    {".pipeline_parallel_degree", "parallel.pipeline_model_parallel_size"},
    {".num_stages", "parallel.pipeline_model_parallel_size"},
    {".pipeline_stages", "parallel.pipeline_model_parallel_size"},
    {".num_virtual_stages_per_pipeline_rank", "parallel.virtual_pipeline_model_parallel_size"},
    {".num_model_chunks", "parallel.virtual_pipeline_model_parallel_size"},
    {".vpp", "parallel.virtual_pipeline_model_parallel_size"},
    {".pipeline_parallel_schedule", "parallel.pipeline_schedule"},
    {".pp_schedule", "parallel.pipeline_schedule"},
    {".pp_engine", "parallel.pipeline_schedule"},
    {".pipeline_parallel_schedule_csv", "parallel.pipeline_schedule_file"},
    {".partition_method", "parallel.pipeline_partition"},
    {".pipeline_model_parallel_layout", "parallel.pipeline_partition"},
    {".offload_optimizer_device", "zero_optimization.offload_optimizer.device"},
    {".optimizer_cpu_offload", "zero_optimization.offload_optimizer.device"},
    {".offload_optimizer_nvme_path", "zero_optimization.offload_optimizer.nvme_path"},
    {".optimizer_buffer_count", "zero_optimization.offload_optimizer.buffer_count"},
    {".optimizer_offload_fraction", "zero_optimization.offload_optimizer.ratio"},
    {".offload_param_device", "zero_optimization.offload_param.device"},
    {".offload_params_device", "zero_optimization.offload_param.device"},
    {".offload_param_nvme_path", "zero_optimization.offload_param.nvme_path"},
    {".num_microbatches", "gradient_accumulation_steps"},
    {".micro_batches", "gradient_accumulation_steps"},
    {"pp", "parallel.pipeline_model_parallel_size"},
    {"parallel.pp", "parallel.pipeline_model_parallel_size"},
    {"lr", "optimizer.params.lr"},
    {"training.lr", "optimizer.params.lr"},
    {"lora.rank", "lora.r"},
    {"lora.alpha", "lora.lora_alpha"},
    {"lora.dropout", "lora.lora_dropout"},
    {"lora.targets", "lora.target_modules"},
    {".lora_rank", "lora.r"},
    {".lora_r", "lora.r"},
    {".lora_target_modules", "lora.target_modules"},
};

static const char *leaf_of(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

static bool same_parent(const char *a, const char *b) {
    size_t m = (size_t)(leaf_of(a) - a), n = (size_t)(leaf_of(b) - b);
    return m == n && strncmp(a, b, m) == 0;
}

/* If we have the section of `path`, the user means a key of that section. */
static bool is_elsewhere(const char *path, const char *candidate) {
    char section[2 * Z3D_WORD];
    const size_t length = (size_t)(leaf_of(path) - path);
    if (length == 0 || length > sizeof section) return false;
    snprintf(section, sizeof section, "%.*s", (int)(length - 1), path);
    return config_is_section(section) && strncmp(path, candidate, length) != 0;
}

/* The distance of `candidate` from the path that was written: that of the last words, plus one for
 * another section. So a key of the same section wins. */
static int score(const char *path, const char *candidate) {
    const char *leaf = leaf_of(path);
    if (is_elsewhere(path, candidate)) return Z3D_FAR_AWAY;
    int d = z3d_word_distance(leaf, leaf_of(candidate));
    int allowed = 1 + (int)strlen(leaf) / 4;
    if (d > allowed || (d > 0 && (size_t)d >= strlen(leaf))) return Z3D_FAR_AWAY;
    return 2 * d + !same_parent(path, candidate);
}

typedef struct nearest {
    const char *path;
    char *found;
    size_t size;
    int best;
} nearest;

/* Compares with a key and each of its sections. */
static void take_nearer(nearest *search, const char *key) {
    char candidate[2 * Z3D_WORD];
    for (size_t length = strlen(key); length > 0; length--) {
        if ((key[length] != '\0' && key[length] != '.') || length >= sizeof candidate) continue;
        memcpy(candidate, key, length);
        candidate[length] = '\0';
        int s = score(search->path, candidate);
        if (s < search->best && length < search->size) {
            search->best = s;
            memcpy(search->found, candidate, length + 1);
        }
    }
}

static const char *known_elsewhere(const char *path) {
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++) {
        bool leaf = renamed[i].name[0] == '.';
        const char *name = renamed[i].name + leaf;
        if (z3d_word_distance(leaf ? leaf_of(path) : path, name) == 0) return renamed[i].path;
    }
    return NULL;
}

const char *config_nearest(const char *path, char *buf, size_t size) {
    nearest search = {path, buf, size, Z3D_FAR_AWAY};
    const char *known = known_elsewhere(path);
    if (known) return known;
    for (int i = 0; i < CONFIG_KEY_COUNT; i++) take_nearer(&search, config_table[i].path);
    for (int i = 0; i < config_accepted_count; i++) take_nearer(&search, config_accepted[i].path);
    return search.best < Z3D_FAR_AWAY ? buf : NULL;
}

const char *z3d_config_key_named(const char *name) {
    const char *known = known_elsewhere(name);
    for (int i = 0; i < CONFIG_KEY_COUNT && !known; i++) {
        if (z3d_word_distance(leaf_of(config_table[i].path), name) == 0)
            known = config_table[i].path;
    }
    return known && config_find(known) >= 0 ? known : NULL;
}
