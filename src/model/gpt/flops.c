/* What a token costs, as the papers count. */
#include "src/model/model.h"

double z3d_gpt_flops_per_token(const z3d_gpt_config *config, bool recompute) {
    double l = (double)config->num_layers, h = (double)config->hidden_size;
    double v = (double)config->vocab_size;
    /* Forward: a block's matrices 24 h^2, its attention 4 s h; the logits 2 V h. Backward is twice
     * that; recompute repeats the blocks once and never the logits. */
    double block = 24 * h * h + z3d_gpt_attention_flops_per_token(config);
    return l * block * (recompute ? 4 : 3) + 6 * v * h;
}

double z3d_gpt_replay_flops_per_token(const z3d_gpt_config *config, bool output) {
    double h = (double)config->hidden_size;
    return (output ? 24 : 16) * h * h + z3d_gpt_attention_flops_per_token(config);
}

double z3d_gpt_attention_flops_per_token(const z3d_gpt_config *config) {
    return 4 * (double)config->seq_length * (double)config->hidden_size;
}
