#include "bench/parts/model.h"

#include "src/model/gpt/gpt.h"
#include "src/model/llama/llama.h"

static const bench_product gpt2_products[] = {
    {HIDDEN, 3 * HIDDEN}, {HIDDEN, HIDDEN}, {HIDDEN, 4 * HIDDEN}, {4 * HIDDEN, HIDDEN}};
static const bench_product llama_products[] = {{HIDDEN, (HEADS + 2 * KV_HEADS) * HEAD_DIM},
                                               {HIDDEN, HIDDEN},
                                               {HIDDEN, 2 * LLAMA_INNER},
                                               {LLAMA_INNER, HIDDEN}};

const bench_product *bench_model_products(bool llama) {
    return llama ? llama_products : gpt2_products;
}

z3d_status bench_model_create(bool llama_shape, int64_t seq, bool packed, z3d_model **out) {
    const z3d_gpt_config gpt = {.num_layers = LAYERS,
                                .hidden_size = HIDDEN,
                                .num_heads = HEADS,
                                .seq_length = seq,
                                .vocab_size = VOCABULARY,
                                .vocab_multiple = 128,
                                .init_std = 0.02,
                                .packed = packed,
                                .tensor_size = 1};
    const z3d_llama_config llama = {.num_layers = LAYERS,
                                    .hidden_size = HIDDEN,
                                    .num_heads = HEADS,
                                    .num_key_value_heads = KV_HEADS,
                                    .head_dim = HEAD_DIM,
                                    .intermediate_size = LLAMA_INNER,
                                    .seq_length = seq,
                                    .vocab_size = VOCABULARY,
                                    .vocab_multiple = 128,
                                    .init_std = 0.02,
                                    .rms_norm_eps = 1e-5,
                                    .rope = {.theta = 10000},
                                    .tie_word_embeddings = true,
                                    .packed = packed,
                                    .tensor_size = 1};
    return llama_shape ? z3d_llama_create(&llama, out) : z3d_gpt_create(&gpt, out);
}
