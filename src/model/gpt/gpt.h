/* GPT-2 as a list of units, forward and backward written out. Start reading at gpt.c, then
 * src/model/block.c. */
#ifndef ZERO3D_MODEL_GPT_GPT_H
#define ZERO3D_MODEL_GPT_GPT_H

#include "src/model/lora.h"
#include "src/model/model.h"

typedef struct z3d_gpt_config {
    int64_t num_layers, hidden_size, num_heads, seq_length, vocab_size, vocab_multiple;
    double hidden_dropout, attention_dropout, init_std;
    int tensor_size;
    bool packed; /* a sample has several documents; tokens attend only to their own document */
    bool sequence_parallel; /* layernorms, dropout and residuals on 1/tensor_size of the tokens */
    int64_t tiling;         /* tiles of each MLP; 0 means 1 */
    z3d_lora lora;          /* targets: bits of z3d_gpt_modules */
} z3d_gpt_config;

/* Creates the model. Groups: "wte" (the tied table, [vocab, hidden], split along the vocabulary),
 * "wpe", "block.0" ..., "ln_f". Units: "embedding", "block.0" ..., "head". With tiling a block has
 * several units: "block.0.attention" with group "block.0", then "block.0.mlp.0" ..., each with a
 * group of the same name. Parameters have the names of Hugging Face's GPT-2 without
 * "transformer.h.N." ("ln_1.weight", "attn.c_attn.weight", ...), but matrices are stored [out, in]
 * (attn.c_attn.weight [3, heads, head_dim, hidden]). Fields: tokens and targets, int32[seq]
 * (z3d_model_take_tokens). In generation the head's output is the logits of one row of each sample,
 * T[batch, padded vocabulary], and each block has a cache, T[2, batch, seq, local heads' columns]:
 * keys, then values. Errors: ERR_CONFIG with the first limit (limits.c) that does not hold. Not
 * collective. */
z3d_status z3d_gpt_create(const z3d_gpt_config *config, z3d_model **out);

/* The layers that may have adapters. */
extern const z3d_lora_module z3d_gpt_modules[];

/* GPT-2's entry in the registry (model.h). */
extern const z3d_model_type z3d_gpt_type;

#endif
