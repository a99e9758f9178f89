/* Keys: the model and its sizes. src/base/config/keys.h says what a row is. */
#ifndef ZERO3D_BASE_CONFIG_KEYS_MODEL_H
#define ZERO3D_BASE_CONFIG_KEYS_MODEL_H

/* clang-format off */
#define Z3D_CONFIG_MODEL_KEYS(X) \
    X(model_type, "model.type", \
      STRING, "gpt2", "", DIFFER_SUMS, SIZE, STAYS, \
      "the model: gpt2, or llama, whose keys also describe Mistral, Qwen2 and Qwen3") \
    X(model_num_layers, "model.num_layers", \
      INT, "12", "[1,1000000]", DIFFER_SUMS, SIZE, STAYS, \
      "transformer blocks") \
    X(model_hidden_size, "model.hidden_size", \
      INT, "768", "[1,1048576]", DIFFER_SUMS, SIZE, STAYS, \
      "width of the residual stream") \
    X(model_num_attention_heads, "model.num_attention_heads", \
      INT, "12", "[1,65536]", DIFFER_SUMS, SIZE, STAYS, \
      "attention heads; must divide hidden_size, unless model.head_dim is set") \
    X(model_seq_length, "model.seq_length", \
      INT, "1024", "[1,16777216]", DIFFER_SUMS, SIZE, STAYS, \
      "tokens per sample") \
    X(model_vocab_size, "model.vocab_size", \
      INT, "50257", "[2,16777216]", DIFFER_SUMS, SIZE, STAYS, \
      "token ids; padded to a multiple of make_vocab_size_divisible_by x tensor size; padding is " \
      "masked") \
    X(model_make_vocab_size_divisible_by, "model.make_vocab_size_divisible_by", \
      INT, "128", "[1,65536]", DECIDE_SUMS, FREE, STAYS, \
      "vocabulary padding unit, as in Megatron-LM") \
    X(model_hidden_dropout, "model.hidden_dropout", \
      FLOAT, "0", "[0,1)", DECIDE_SUMS, KEPT, STAYS, \
      "gpt2: dropout after the embedding and on each residual branch") \
    X(model_attention_dropout, "model.attention_dropout", \
      FLOAT, "0", "[0,1)", DECIDE_SUMS, KEPT, STAYS, \
      "dropout on attention probabilities") \
    X(model_init_method_std, "model.init_method_std", \
      FLOAT, "0.02", "(0,10]", WEIGHTS_SUMS, KEPT, STAYS, \
      "standard deviation of initial weights; residual projections use this / sqrt(2 " \
      "num_layers), as in GPT-2") \
    X(model_num_key_value_heads, "model.num_key_value_heads", \
      INT, "auto", "[1,65536] auto", DIFFER_SUMS, SIZE, STAYS, \
      "llama: heads of keys and values, each for a group of attention heads (grouped-query " \
      "attention); auto: num_attention_heads") \
    X(model_head_dim, "model.head_dim", \
      INT, "auto", "[2,1048576] auto", DIFFER_SUMS, SIZE, STAYS, \
      "llama: width of a head; auto: hidden_size / num_attention_heads") \
    X(model_intermediate_size, "model.intermediate_size", \
      INT, "auto", "[1,16777216] auto", DIFFER_SUMS, SIZE, STAYS, \
      "llama: width inside of the MLP; auto: 4 x hidden_size") \
    X(model_rms_norm_eps, "model.rms_norm_eps", \
      FLOAT, "1e-5", "(0,1]", DECIDE_SUMS, KEPT, STAYS, \
      "llama: epsilon of the RMSNorms") \
    X(model_rope_theta, "model.rope_theta", \
      FLOAT, "10000", "[1,1e15]", DECIDE_SUMS, KEPT, STAYS, \
      "llama: base of the rotary position embedding") \
    X(model_rope_scaling_rope_type, "model.rope_scaling.rope_type", \
      ENUM, "default", "default|linear|llama3|yarn", DECIDE_SUMS, KEPT, STAYS, \
      "llama: how rotary frequencies are stretched for longer contexts, as in Hugging Face's " \
      "transformers. default: not at all") \
    X(model_rope_scaling_factor, "model.rope_scaling.factor", \
      FLOAT, "1", "[1,1e6]", DECIDE_SUMS, KEPT, STAYS, \
      "linear, llama3, yarn: how many times longer the context is") \
    X(model_rope_scaling_original_max_position_embeddings, \
      "model.rope_scaling.original_max_position_embeddings", \
      INT, "auto", "[1,16777216] auto", DECIDE_SUMS, KEPT, STAYS, \
      "llama3, yarn: the context of the model before it was stretched; auto only for the other " \
      "types, which do not need it") \
    X(model_rope_scaling_low_freq_factor, "model.rope_scaling.low_freq_factor", \
      FLOAT, "1", "(0,1e6]", DECIDE_SUMS, KEPT, STAYS, \
      "llama3: waves longer than original_max_position_embeddings / this are stretched by the " \
      "whole factor") \
    X(model_rope_scaling_high_freq_factor, "model.rope_scaling.high_freq_factor", \
      FLOAT, "4", "(0,1e6]", DECIDE_SUMS, KEPT, STAYS, \
      "llama3: waves shorter than original_max_position_embeddings / this stay as they are") \
    X(model_rope_scaling_beta_fast, "model.rope_scaling.beta_fast", \
      FLOAT, "32", "(0,1e6]", DECIDE_SUMS, KEPT, STAYS, \
      "yarn: dimensions with more turns than this in the original context stay as they are") \
    X(model_rope_scaling_beta_slow, "model.rope_scaling.beta_slow", \
      FLOAT, "1", "(0,1e6]", DECIDE_SUMS, KEPT, STAYS, \
      "yarn: dimensions with fewer turns than this are stretched by the whole factor") \
    X(model_rope_scaling_attention_factor, "model.rope_scaling.attention_factor", \
      FLOAT, "0", "[0,1e6]", DECIDE_SUMS, KEPT, STAYS, \
      "yarn: factor of queries and keys; 0: from factor, mscale and mscale_all_dim") \
    X(model_rope_scaling_mscale, "model.rope_scaling.mscale", \
      FLOAT, "0", "[0,1e6]", DECIDE_SUMS, KEPT, STAYS, \
      "yarn: m in the attention factor's numerator 0.1 m ln(factor) + 1; with mscale_all_dim") \
    X(model_rope_scaling_mscale_all_dim, "model.rope_scaling.mscale_all_dim", \
      FLOAT, "0", "[0,1e6]", DECIDE_SUMS, KEPT, STAYS, \
      "yarn: m in the attention factor's denominator 0.1 m ln(factor) + 1; with mscale") \
    X(model_sliding_window, "model.sliding_window", \
      INT, "0", "[0,16777216]", DECIDE_SUMS, KEPT, STAYS, \
      "llama: number of latest tokens that a token attends to, itself included; 0: all") \
    X(model_attention_bias, "model.attention_bias", \
      BOOL, "false", "", DIFFER_SUMS, KEPT, STAYS, \
      "llama: queries, keys and values have biases, as in Qwen2") \
    X(model_qk_norm, "model.qk_norm", \
      BOOL, "false", "", DIFFER_SUMS, KEPT, STAYS, \
      "llama: an RMSNorm of each head's queries and keys, as in Qwen3") \
    X(model_tie_word_embeddings, "model.tie_word_embeddings", \
      BOOL, "false", "", DIFFER_SUMS, KEPT, STAYS, \
      "llama: embedding and head share a table; in gpt2 they always do") \
    X(model_tiling, "model.tiling", \
      INT, "1", "[1,1024] auto", SUM, FREE, STAYS, \
      "number of tiles of each block's MLP, which run one after the other; ZeRO-3 gathers the " \
      "parameters of one at a time. 1: whole blocks; auto: the least number with no tile larger " \
      "than the attention. Checkpoints do not depend on it")
/* clang-format on */

#endif
