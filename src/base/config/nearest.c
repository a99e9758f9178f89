/* Guesses the key or option that a misspelt name means. */
#include "src/base/config/table.h"

#include <stdio.h>
#include <string.h>

/* Our keys' names in other frameworks: a whole path, or ".leaf" in any section or none. */
static const struct {
    const char *path, *names;
} renamed[] = {
    {"train_batch_size", ".global_batch_size .batch_size"},
    {"train_micro_batch_size_per_gpu",
     ".micro_batch_size .per_device_eval_batch_size .train_micro_batch_size "
     ".per_device_train_batch_size"},
    {"gradient_accumulation_steps", ".accumulation_steps .num_microbatches .micro_batches"},
    {"parallel.tensor_model_parallel_size", ".tensor_parallel_size tp parallel.tp"},
    {"parallel.pipeline_model_parallel_size",
     ".pipeline_parallel_size .pp_size .pipeline_parallel_degree .num_stages .pipeline_stages pp "
     "parallel.pp"},
    {"gradient_clipping", ".clip_grad .grad_clip .max_grad_norm"},
    {"optimizer.params.lr", ".learning_rate .warmup_max_lr lr training.lr"},
    {"scheduler.params.min_lr", ".cos_min_ratio .lr_end"},
    {"optimizer.params.eps", ".adam_eps .adam_epsilon"},
    {"optimizer.params.betas", ".beta1 .beta2 .adam_beta1 .adam_beta2"},
    {"scheduler.type", ".lr_decay_style .lr_scheduler_type"},
    {"scheduler.params.warmup_num_steps", ".warmup_steps .lr_warmup_iters"},
    {"scheduler.params.total_num_steps", ".lr_decay_iters .num_training_steps"},
    {"training.steps", ".train_iters .max_steps"},
    {"training.epochs", ".num_train_epochs .num_epochs .max_epochs"},
    {"model.num_layers", ".n_layer model.layers"},
    {"model.hidden_size", ".n_embd .d_model model.dim"},
    {"model.num_attention_heads", ".n_head .num_heads model.heads"},
    {"model.num_key_value_heads", ".n_kv_heads .num_kv_heads .num_query_groups"},
    {"model.head_dim", ".kv_channels"},
    {"model.intermediate_size", ".ffn_hidden_size"},
    {"model.rms_norm_eps", ".norm_epsilon"},
    {"model.rope_theta", ".rotary_base"},
    {"model.seq_length",
     ".block_size .n_positions .max_position_embeddings .max_length .max_seq_length .max_seq_len "
     ".n_ctx .context_length"},
    {"model.init_method_std", ".init_std"},
    {"activation_checkpointing.granularity", ".recompute_granularity .gradient_checkpointing"},
    {"run.dir", ".output_dir .run_name run.name"},
    {"scheduler.params.warmup_ratio", ".warmup_ratio .lr_warmup_fraction"},
    {"scheduler.params.num_decay_steps", ".lr_wsd_decay_iters"},
    {"scheduler.params", ".lr_scheduler_kwargs"},
    {"scheduler.params.num_cycles", ".num_cycles"},
    {"optimizer.type", ".optim"},
    {"data.seed", ".data_seed"},
    {"data.samples", ".packing .packing_strategy .padding_free"},
    {"bf16.enabled", ".dtype .torch_dtype"},
    {"training.log_interval", ".logging_steps"},
    {"training.eval_interval",
     ".validation_interval eval_steps .eval_strategy .evaluation_strategy"},
    {"training.eval_steps", ".eval_iters"},
    {"checkpoint.keep_best", ".load_best_model_at_end .metric_for_best_model"},
    {"training.early_stopping_patience", ".early_stopping .patience"},
    {"checkpoint.keep", ".save_total_limit"},
    {"checkpoint.interval", ".save_strategy .save_interval .save_steps"},
    {"checkpoint.resume", ".resume_from_checkpoint load checkpoint.load"},
    {"checkpoint.init_from", ".model_name_or_path"},
    {"training.watchdog_timeout", ".ddp_timeout"},
    {"data.train", ".data_path"},
    {"model.vocab_size", "model.vocab"},
    {"model.hidden_dropout", "model.dropout"},
    {"checkpoint.dir", "save checkpoint.save"},
    {"training.seed", "seed"},
    {"zero_optimization", "zero"},
    {"parallel.virtual_pipeline_model_parallel_size",
     ".num_virtual_stages_per_pipeline_rank .num_model_chunks .vpp"},
    {"parallel.pipeline_schedule", ".pipeline_parallel_schedule .pp_schedule .pp_engine"},
    {"parallel.pipeline_schedule_file", ".pipeline_parallel_schedule_csv"},
    {"parallel.pipeline_partition", ".partition_method .pipeline_model_parallel_layout"},
    {"zero_optimization.offload_optimizer.device",
     ".offload_optimizer_device .optimizer_cpu_offload"},
    {"zero_optimization.offload_optimizer.nvme_path", ".offload_optimizer_nvme_path"},
    {"zero_optimization.offload_optimizer.buffer_count", ".optimizer_buffer_count"},
    {"zero_optimization.offload_optimizer.ratio", ".optimizer_offload_fraction"},
    {"zero_optimization.offload_param.device", ".offload_param_device .offload_params_device"},
    {"zero_optimization.offload_param.nvme_path", ".offload_param_nvme_path"},
    {"lora.r", "lora.rank .lora_rank .lora_r"},
    {"lora.lora_alpha", "lora.alpha"},
    {"lora.lora_dropout", "lora.dropout"},
    {"lora.target_modules", "lora.targets .lora_target_modules"},
};

const char *config_nearest_option(const char *options, const char *text, char *buf, size_t size) {
    char option[Z3D_WORD];
    int best = 1 + (int)strlen(text) / 3;
    const char *nearest = NULL;
    for (int i = 0; config_option(options, i, option, sizeof option); i++) {
        int d = z3d_word_distance(text, option);
        if (strlen(text) > 2 && strcasestr(option, text)) d = 1; /* "cosine" */
        if (d <= best && (size_t)d < strlen(option)) {
            best = d - 1;
            config_option(options, i, buf, size);
            nearest = buf;
        }
    }
    return nearest;
}

/* If we have the section of `path`, the user means a key of that section. */
static bool is_elsewhere(const char *path, const char *candidate) {
    char section[2 * Z3D_WORD];
    const size_t length = (size_t)(config_leaf(path) - path);
    if (length == 0 || length > sizeof section) return false;
    snprintf(section, sizeof section, "%.*s", (int)(length - 1), path);
    return config_is_section(section) && strncmp(path, candidate, length) != 0;
}

/* The distance of `candidate` from the path that was written: twice that of the last words, plus 1
 * in another section: the same section wins. */
static int score(const char *path, const char *candidate) {
    const char *leaf = config_leaf(path);
    if (is_elsewhere(path, candidate)) return Z3D_FAR_AWAY;
    int d = z3d_word_distance(leaf, config_leaf(candidate));
    int allowed = 1 + (int)strlen(leaf) / 4;
    if (d > allowed || (d > 0 && (size_t)d >= strlen(leaf))) return Z3D_FAR_AWAY;
    return 2 * d + !config_is_beside(path, candidate);
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
    char name[2 * Z3D_WORD];
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
        for (const char *at = renamed[i].names; z3d_next_word(&at, name, sizeof name);) {
            const bool leaf = name[0] == '.';
            if (z3d_word_distance(leaf ? config_leaf(path) : path, name + leaf) == 0)
                return renamed[i].path;
        }
    return NULL;
}

const char *config_nearest(const char *path, char *buf, size_t size) {
    nearest search = {path, buf, size, Z3D_FAR_AWAY};
    const char *known = known_elsewhere(path);
    if (known) return known;
    for (int i = 0; i < CONFIG_KEY_COUNT; i++) take_nearer(&search, config_table[i].path);
    for (int i = 0; i < CONFIG_NOTE_COUNT; i++)
        if (!config_notes[i].off) take_nearer(&search, config_notes[i].path);
    return search.best < Z3D_FAR_AWAY ? buf : NULL;
}

const char *z3d_config_key_named(const char *name) {
    const char *known = known_elsewhere(name);
    for (int i = 0; i < CONFIG_KEY_COUNT && !known; i++) {
        if (z3d_word_distance(config_leaf(config_table[i].path), name) == 0)
            known = config_table[i].path;
    }
    return known && config_find(known) >= 0 ? known : NULL;
}
