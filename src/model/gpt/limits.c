/* GPT's limits: one list for z3d_gpt_create and for the configuration's checks. */
#include "src/model/limits.h"
#include "src/model/gpt/private.h"

static void check_numbers(const z3d_gpt_config *c, const z3d_config_judge *judge) {
    const z3d_count_limit count[] = {{"model.num_layers", c->num_layers, 1},
                                     {"model.hidden_size", c->hidden_size, 1},
                                     {"model.num_attention_heads", c->num_heads, 1},
                                     {"model.seq_length", c->seq_length, 1},
                                     {"model.vocab_size", c->vocab_size, 2},
                                     {"model.make_vocab_size_divisible_by", c->vocab_multiple, 1},
                                     {"parallel.tensor_model_parallel_size", c->tensor_size, 1}};
    z3d_limits_counts(judge, count, sizeof count / sizeof *count);
    z3d_limits_dropout(judge, "model.hidden_dropout", c->hidden_dropout);
    z3d_limits_dropout(judge, "model.attention_dropout", c->attention_dropout);
    z3d_limits_init_std(judge, c->init_std);
}

/* Without padding: 12 h^2 + 13 h for each block, embeddings, final norm. */
int64_t z3d_gpt_parameters(const z3d_gpt_config *c) {
    int64_t h = c->hidden_size, block, blocks, table, positions, total;
    bool fits = z3d_mul_i64(12 * h + 13, h, &block) && z3d_mul_i64(block, c->num_layers, &blocks) &&
                z3d_mul_i64(c->vocab_size, h, &table) &&
                z3d_mul_i64(c->seq_length, h, &positions) && z3d_add_i64(blocks, table, &total) &&
                z3d_add_i64(total, positions, &total) && z3d_add_i64(total, 2 * h, &total);
    return fits ? total : INT64_MAX;
}

void z3d_gpt_check(const z3d_gpt_config *c, const z3d_config_judge *judge) {
    check_numbers(c, judge);
    z3d_limits_divisor(judge, "model.num_attention_heads", c->num_heads, c->hidden_size,
                       "model.hidden_size");
    z3d_limits_divisor(judge, "parallel.tensor_model_parallel_size", c->tensor_size, c->num_heads,
                       "model.num_attention_heads");
    z3d_limits_sequence(judge, c->sequence_parallel, c->seq_length, c->tensor_size);
    if (!z3d_limits_sizes_sound(judge)) return;
    z3d_limits_tiling(judge, c->tiling, 4 * c->hidden_size, c->tensor_size, c->num_layers);
    z3d_limits_size(judge, z3d_gpt_parameters(c), c->num_layers, c->hidden_size, c->vocab_size);
}
