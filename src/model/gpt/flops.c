/* FLOPs per token as Narayanan et al. (2104.04473, equation 3) count them; attention is counted in
 * full, without its causal half. 72 l h^2 (1 + s/6h + V/12lh) without recompute, 96 l h^2 (1 + s/6h
 * + V/16lh) with recompute. */
#include "src/model/gpt/units.h"

z3d_model_flops z3d_gpt_flops(const z3d_gpt_config *config) {
    double l = (double)config->num_layers, h = (double)config->hidden_size;
    double v = (double)config->vocab_size, s = (double)config->seq_length;
    /* Forward: a block's matrices 24 h^2, its attention 4 s h; the logits 2 V h. Backward is twice
     * forward; recompute repeats the blocks once, the logits never. Only a block's output needs its
     * last matrix, 8 h^2. */
    double attention = 4 * s * h, block = 24 * h * h + attention;
    return (z3d_model_flops){.step = l * block * 3 + 6 * v * h,
                             .recomputed_step = l * block * 4 + 6 * v * h,
                             .replay = 16 * h * h + attention,
                             .replay_with_output = block,
                             .attention = attention};
}
