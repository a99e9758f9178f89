/* Llama as a list of units, forward and backward written out. Keys turn it into Mistral (a sliding
 * window), Qwen2 (biases of queries, keys and values) or Qwen3 (norms of queries and keys). Start
 * reading at llama.c, then src/model/block.c. */
#ifndef ZERO3D_MODEL_LLAMA_LLAMA_H
#define ZERO3D_MODEL_LLAMA_LLAMA_H

#include "src/model/lora.h"
#include "src/model/model.h"

typedef struct z3d_llama_config {
    int64_t num_layers, hidden_size, num_heads, num_key_value_heads, head_dim, intermediate_size;
    int64_t seq_length, vocab_size, vocab_multiple;
    /* A token attends to this many latest tokens, itself included; 0: to all. */
    int64_t sliding_window;
    double attention_dropout, init_std, rms_norm_eps;
    z3d_rope rope;
    bool attention_bias; /* of queries, keys and values */
    bool qk_norm;
    bool tie_word_embeddings;
    int tensor_size;
    bool packed;            /* as in z3d_gpt_config */
    bool sequence_parallel; /* norms and residuals on 1/tensor_size of the tokens */
    int64_t tiling;         /* tiles of each MLP; 0 means 1 */
    z3d_lora lora;          /* targets: bits of z3d_llama_modules */
} z3d_llama_config;

/* The keys of section `model`, with `auto` resolved. */
z3d_llama_config z3d_llama_config_of(const z3d_config *config);

/* Creates the model. Groups: "embed_tokens" (the table, [vocab, hidden], split along the
 * vocabulary), "layers.0" ..., "norm", and "lm_head" if the head has its own table. Units:
 * "embedding", "layers.0" ..., "head". With tiling a block has several units: "layers.0.attention"
 * with group "layers.0", then "layers.0.mlp.0" ..., each with a group of the same name. Parameters
 * have Hugging Face's names without "model.layers.N." ("self_attn.q_proj.weight", ...) and Hugging
 * Face's shapes, [out, in]. With more tensor ranks than key/value heads, keys and values are
 * replicated parameters. Fields: tokens and targets, int32[seq] (z3d_model_take_tokens). In
 * generation the head's output is the logits of one row of each sample, T[batch, padded
 * vocabulary], and each block has a cache, T[2, batch, seq, local key/value heads' columns]: keys,
 * then values. Errors: ERR_CONFIG with the first limit (limits.c) that does not hold. Not
 * collective. */
z3d_status z3d_llama_create(const z3d_llama_config *config, z3d_model **out);

/* The layers that may have adapters. */
extern const z3d_lora_module z3d_llama_modules[];

/* Llama's entry in the registry (model.h). */
extern const z3d_model_type z3d_llama_type;

#endif
