/* Guesses which of our keys an unknown setting may be about, by the words in its name. These keys
 * get no default of the other framework. */
#include "src/base/config/convert/convert.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *path, *words;
} matters[] = {
    {"model.attention_dropout", "dropout"},
    {"model.hidden_dropout", "dropout"},
    {"model.intermediate_size", "ffn intermediate mlp"},
    {"model.num_key_value_heads", "heads groups kv"},
    {"model.rope_scaling", "rope rotary"},
    {"model.tie_word_embeddings", "tie tied untie share"},
    {"gradient_clipping", "clip clipping grad-norm gradient-norm"},
    {"zero_optimization.stage", "zero fsdp shard sharding"},
    {"activation_checkpointing.granularity", "recompute recomputation checkpointing"},
    {"data_types.grad_accum_dtype", "accum accumulate accumulation dtype"},
    {"communication_data_type", "reduce allreduce communication"},
    {"fp16.initial_scale_power", "scale"},
    {"optimizer.params.lr", "lr learning-rate"},
    {"optimizer.params.betas", "beta betas beta1 beta2"},
    {"optimizer.params.momentum", "momentum"},
    {"optimizer.params.weight_decay", "wd decay"},
    {"scheduler.type", "lr learning-rate schedule scheduler anneal annealing"},
    {"scheduler.params.warmup_num_steps", "warmup"},
    {"training.seed", "seed"},
    {"training.eval_interval", "eval evaluation"},
    {"training.eval_steps", "eval evaluation"},
    {"checkpoint.interval", "save"},
    {"checkpoint.resume", "load resume"},
};

/* Whether "-lr-decay-" has one of the words. */
static bool speaks_of(const char *name, const char *words) {
    char word[40], part[44];
    while (z3d_next_word(&words, word, sizeof word)) {
        snprintf(part, sizeof part, "-%s-", word);
        if (strstr(name, part)) return true;
    }
    return false;
}

void config_doubt(z3d_config *config, const char *name) {
    char plain[128];
    snprintf(plain, sizeof plain, "-%.120s-", name);
    for (char *c = plain; *c; c++) *c = isalnum((unsigned char)*c) ? (char)tolower(*c) : '-';
    for (size_t i = 0; i < sizeof matters / sizeof *matters; i++)
        if (speaks_of(plain, matters[i].words)) config_mark_wrong(config, matters[i].path);
}
