/* FLOPs per token, counted as for GPT (src/model/gpt/flops.c): all products, and attention without
 * its causal half, but only inside its window. */
#include "src/model/llama/units.h"

z3d_model_flops z3d_llama_flops(const z3d_llama_config *c) {
    double l = (double)c->num_layers, h = (double)c->hidden_size, v = (double)c->vocab_size;
    double q = (double)(c->num_heads * c->head_dim),
           kv = (double)(c->num_key_value_heads * c->head_dim);
    double inner = (double)c->intermediate_size, seen = (double)c->seq_length;
    if (c->sliding_window > 0 && c->sliding_window < c->seq_length)
        seen = (double)c->sliding_window;
    /* Backward is twice forward; recompute repeats the blocks once, the logits never. Only a
     * block's output needs its last matrix, down_proj. */
    double attention = 4 * seen * q, down = 2 * inner * h;
    double block = 2 * h * (2 * q + 2 * kv) + 3 * down + attention;
    return (z3d_model_flops){.step = l * block * 3 + 6 * v * h,
                             .recomputed_step = l * block * 4 + 6 * v * h,
                             .replay = block - down,
                             .replay_with_output = block,
                             .attention = attention};
}
