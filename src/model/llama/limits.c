/* Llama's limits: one list for z3d_llama_create and for the configuration's checks. */
#include "src/model/limits.h"

#include <math.h>
#include <stdio.h>

#include "src/model/llama/private.h"

static const char heads[] = "model.num_attention_heads", kv_heads[] = "model.num_key_value_heads",
                  tensor[] = "parallel.tensor_model_parallel_size", head_dim[] = "model.head_dim",
                  inner[] = "model.intermediate_size", factor[] = "model.rope_scaling.factor",
                  original[] = "model.rope_scaling.original_max_position_embeddings";

static void check_numbers(const z3d_llama_config *c, const z3d_config_judge *judge) {
    const z3d_count_limit count[] = {{"model.num_layers", c->num_layers, 1},
                                     {"model.hidden_size", c->hidden_size, 1},
                                     {heads, c->num_heads, 1},
                                     {kv_heads, c->num_key_value_heads, 1},
                                     {head_dim, c->head_dim, 1},
                                     {inner, c->intermediate_size, 1},
                                     {"model.seq_length", c->seq_length, 1},
                                     {"model.vocab_size", c->vocab_size, 2},
                                     {"model.make_vocab_size_divisible_by", c->vocab_multiple, 1},
                                     {"model.sliding_window", c->sliding_window, 0},
                                     {tensor, c->tensor_size, 1}};
    z3d_limits_counts(judge, count, sizeof count / sizeof *count);
    z3d_limits_dropout(judge, "model.attention_dropout", c->attention_dropout);
    z3d_limits_init_std(judge, c->init_std);
    if (!(c->rms_norm_eps > 0 && c->rms_norm_eps <= 1))
        z3d_limits_complain(judge, "model.rms_norm_eps",
                            "%g is out of range; write above 0, at most 1", c->rms_norm_eps);
    if (!(c->rope.theta >= 1 && isfinite(c->rope.theta)))
        z3d_limits_complain(judge, "model.rope_theta", "%g is out of range; write at least 1",
                            c->rope.theta);
}

/* Rotary embeddings rotate pairs of a head's elements. */
static void check_head(const z3d_llama_config *c, const z3d_config_judge *judge) {
    char wrong[160];
    if (!z3d_limits_sound(judge, head_dim) || !z3d_limits_sound(judge, heads) ||
        !z3d_limits_sound(judge, "model.hidden_size") || c->head_dim % 2 == 0)
        return;
    snprintf(wrong, sizeof wrong, "%lld is odd, but rotary embeddings turn pairs of elements",
             (long long)c->head_dim);
    z3d_limits_complain_of(judge, head_dim, wrong,
                           c->head_dim > 1 ? c->head_dim - 1 : c->head_dim + 1, c->head_dim + 1);
}

/* Whether `size` tensor ranks can divide this model's heads and its MLP equally. */
static bool can_split(const z3d_llama_config *c, int64_t size) {
    bool heads_split = c->num_heads % size == 0 && c->intermediate_size % size == 0;
    return heads_split &&
           (c->num_key_value_heads % size == 0 || size % c->num_key_value_heads == 0);
}

/* All tensor ranks have equally many key/value heads; or each head is shared by equally many ranks.
 */
static void check_tensor(const z3d_llama_config *c, const z3d_config_judge *judge) {
    const char *const keys[] = {tensor, heads, kv_heads, inner};
    char wrong[240];
    int64_t size = c->tensor_size, below = size < c->num_heads ? size : c->num_heads, above;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!z3d_limits_sound(judge, keys[i])) return;
    if (can_split(c, size)) return;
    while (!can_split(c, below) || !z3d_limits_shares(judge, below)) below--;
    for (above = size;
         above <= c->num_heads && !(can_split(c, above) && z3d_limits_shares(judge, above));)
        above++;
    snprintf(wrong, sizeof wrong,
             "%lld ranks cannot share %lld attention heads, %lld key/value heads and %lld columns "
             "of the MLP equally",
             (long long)size, (long long)c->num_heads, (long long)c->num_key_value_heads,
             (long long)c->intermediate_size);
    z3d_limits_complain_of(judge, tensor, wrong, below, above <= c->num_heads ? above : below);
}

static void check_rope(const z3d_llama_config *c, const z3d_config_judge *judge) {
    const z3d_rope *rope = &c->rope;
    bool llama3 = rope->type == Z3D_ROPE_LLAMA3, yarn = rope->type == Z3D_ROPE_YARN;
    if (!z3d_limits_sound(judge, "model.rope_scaling.rope_type")) return;
    if (rope->type != Z3D_ROPE_DEFAULT && !(rope->factor >= 1 && isfinite(rope->factor)))
        z3d_limits_complain(judge, factor, "%g is out of range; write at least 1", rope->factor);
    if ((llama3 || yarn) && rope->original_positions < 1 && z3d_limits_sound(judge, original))
        z3d_limits_complain(judge, original,
                            "rope_type %s needs it; write the context that the model had before "
                            "it was stretched",
                            llama3 ? "llama3" : "yarn");
    if (llama3 && !(rope->low_freq_factor > 0 && rope->high_freq_factor > rope->low_freq_factor))
        z3d_limits_complain(judge, "model.rope_scaling.high_freq_factor",
                            "%g is not above low_freq_factor %g", rope->high_freq_factor,
                            rope->low_freq_factor);
    if (yarn && !(rope->beta_slow > 0 && rope->beta_fast > rope->beta_slow))
        z3d_limits_complain(judge, "model.rope_scaling.beta_fast", "%g is not above beta_slow %g",
                            rope->beta_fast, rope->beta_slow);
    if (yarn && !(rope->theta > 1))
        z3d_limits_complain(judge, "model.rope_theta", "rope_type yarn needs more than 1");
}

/* *sum += a * b; false: beyond 64 bits. */
static bool add_product(int64_t a, int64_t b, int64_t *sum) {
    int64_t product;
    return z3d_mul_i64(a, b, &product) && z3d_add_i64(*sum, product, sum);
}

/* Without padding: the table (or two), the layers, the final norm. */
int64_t z3d_llama_parameters(const z3d_llama_config *c) {
    int64_t h = c->hidden_size, layer = 2 * h, total = h;
    int64_t q = c->num_heads * c->head_dim, kv = c->num_key_value_heads * c->head_dim;
    if (c->attention_bias) layer += q + 2 * kv;
    if (c->qk_norm) layer += 2 * c->head_dim;
    bool fits = add_product(2 * q + 2 * kv, h, &layer) &&
                add_product(3 * c->intermediate_size, h, &layer) &&
                add_product(layer, c->num_layers, &total) &&
                add_product((c->tie_word_embeddings ? 1 : 2) * c->vocab_size, h, &total);
    return fits ? total : INT64_MAX;
}

void z3d_llama_check(const z3d_llama_config *c, const z3d_config_judge *judge) {
    check_numbers(c, judge);
    check_head(c, judge);
    z3d_limits_divisor(judge, kv_heads, c->num_key_value_heads, c->num_heads, heads);
    check_tensor(c, judge);
    check_rope(c, judge);
    z3d_limits_sequence(judge, c->sequence_parallel, c->seq_length, c->tensor_size);
    if (!z3d_limits_sizes_sound(judge)) return;
    z3d_limits_tiling(judge, c->tiling, c->intermediate_size, c->tensor_size, c->num_layers);
    z3d_limits_size(judge, z3d_llama_parameters(c), c->num_layers, c->hidden_size, c->vocab_size);
}
