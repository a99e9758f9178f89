/* src/model: the unit type (unit.h, which zero/ runs and which knows no GPT) and GPT-2 as a list of
 * units, forward and backward written out. It may call tensor_parallel/, parallel/, src/device and
 * src/base. Start reading at unit.h, then gpt/block.c. */
#ifndef ZERO3D_MODEL_MODEL_H
#define ZERO3D_MODEL_MODEL_H

#include "src/model/unit.h"

typedef struct z3d_gpt_config {
    int64_t num_layers, hidden_size, num_heads, seq_length, vocab_size, vocab_multiple;
    double hidden_dropout, attention_dropout, init_std;
    int tensor_size;
    bool sequence_parallel; /* layernorms, dropout and residuals on 1/tensor_size of the tokens */
} z3d_gpt_config;

/* GPT-2: groups "wte" (the tied table, [vocab, hidden], split along the vocabulary), "wpe",
 * "block.0" ..., "ln_f"; units "embedding", "block.0" ..., "head". Parameter names are Hugging
 * Face's GPT-2 ones without "transformer.h.N." ("ln_1.weight", "attn.c_attn.weight", ...), but
 * matrices are stored [out, in] (attn.c_attn.weight [3, heads, head_dim, hidden]). Fields: tokens
 * and targets, int32[seq]. In mode GENERATE the head's output is the logits T[batch, padded
 * vocabulary] of row state->position. Errors: ERR_CONFIG (heads do not divide hidden, tensor size
 * does not divide heads; nor, with sequence parallelism, the sequence length). Not collective. */
z3d_status z3d_gpt_create(const z3d_gpt_config *config, z3d_model **out);

/* Vocabulary rounded up to a multiple of vocab_multiple x tensor_size. */
int64_t z3d_gpt_padded_vocab(const z3d_gpt_config *config);

/* Model FLOPs per token, forward and backward, no recompute: 72 l h^2 (1 + s/6h + V/12lh)
 * (Narayanan et al., 2104.04473, eq. 3 without recompute, no causal half); with recompute (HFU) 96
 * l h^2 (1 + s/6h + V/16lh). */
double z3d_gpt_flops_per_token(const z3d_gpt_config *config, bool recompute);
/* Of one block that is replayed from its activation checkpoint, per token: its forward; without its
 * output, which only the next block's replay reads, the last matrix (8 h^2) is left out. */
double z3d_gpt_replay_flops_per_token(const z3d_gpt_config *config, bool output);
/* Of one block's attention, its two products alone, forward: 4 s h, no causal half. */
double z3d_gpt_attention_flops_per_token(const z3d_gpt_config *config);

#endif
