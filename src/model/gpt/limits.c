/* GPT's limits: one list, for z3d_gpt_create and for the configuration's checks. */
#include <stdarg.h>
#include <stdio.h>

#include "src/model/gpt/units.h"

static bool sound(const z3d_config_judge *judge, const char *key) {
    return judge->sound(judge->context, key);
}

static void complain(const z3d_config_judge *judge, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void complain(const z3d_config_judge *judge, const char *key, const char *format, ...) {
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    judge->complain(judge->context, key, message);
}

/* The nearest valid numbers below and above (equal: only one). */
static void complain_of(const z3d_config_judge *judge, const char *key, const char *what,
                        int64_t below, int64_t above) {
    if (below == above)
        complain(judge, key, "%s; write %lld", what, (long long)above);
    else
        complain(judge, key, "%s; write %lld or %lld", what, (long long)below, (long long)above);
}

/* `value` of `key` must divide n, which is `what`. The error names the nearest divisors. */
static void check_divisor(const z3d_config_judge *judge, const char *key, int64_t value, int64_t n,
                          const char *what) {
    char wrong[160];
    int64_t below = value < n ? value : n, above = below;
    if (!sound(judge, key) || !sound(judge, what) || n % value == 0) return;
    while (n % below != 0) below--;
    while (n % above != 0) above++;
    snprintf(wrong, sizeof wrong, "%lld does not divide %s %lld", (long long)value, what,
             (long long)n);
    complain_of(judge, key, wrong, below, above);
}

/* Limits of the arithmetic here; the table of keys (src/base/config/keys.h) is stricter. */
static void check_numbers(const z3d_gpt_config *c, const z3d_config_judge *judge) {
    enum { MOST = 1 << 24 };
    const struct {
        const char *key;
        int64_t value, least;
    } count[] = {{"model.num_layers", c->num_layers, 1},
                 {"model.hidden_size", c->hidden_size, 1},
                 {"model.num_attention_heads", c->num_heads, 1},
                 {"model.seq_length", c->seq_length, 1},
                 {"model.vocab_size", c->vocab_size, 2},
                 {"model.make_vocab_size_divisible_by", c->vocab_multiple, 1},
                 {"parallel.tensor_model_parallel_size", c->tensor_size, 1}};
    for (size_t i = 0; i < sizeof count / sizeof *count; i++)
        if (count[i].value < count[i].least || count[i].value > MOST)
            complain(judge, count[i].key, "%lld is out of range; write %lld to %d",
                     (long long)count[i].value, (long long)count[i].least, MOST);
    const char *const dropout[] = {"model.hidden_dropout", "model.attention_dropout"};
    const double p[] = {c->hidden_dropout, c->attention_dropout};
    for (int i = 0; i < 2; i++)
        if (!(p[i] >= 0 && p[i] < 1))
            complain(judge, dropout[i], "%g is out of range; write at least 0 and below 1", p[i]);
    if (!(c->init_std > 0 && c->init_std <= 10))
        complain(judge, "model.init_method_std", "%g is out of range; write above 0, at most 10",
                 c->init_std);
}

/* Without padding: 12 h^2 + 13 h a block, embeddings, final norm. */
int64_t z3d_gpt_parameters(const z3d_gpt_config *c) {
    int64_t h = c->hidden_size, block, blocks, table, positions, total;
    bool fits = z3d_mul_i64(12 * h + 13, h, &block) && z3d_mul_i64(block, c->num_layers, &blocks) &&
                z3d_mul_i64(c->vocab_size, h, &table) &&
                z3d_mul_i64(c->seq_length, h, &positions) && z3d_add_i64(blocks, table, &total) &&
                z3d_add_i64(total, positions, &total) && z3d_add_i64(total, 2 * h, &total);
    return fits ? total : INT64_MAX;
}

/* All bytes of the parameters (16 each) and activations are counted in int64_t, so a model beyond
 * that is refused. */
static void check_size(const z3d_gpt_config *c, const z3d_config_judge *judge) {
    static const char *const keys[] = {"model.num_layers", "model.hidden_size", "model.vocab_size",
                                       "model.seq_length"};
    int64_t unused;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!sound(judge, keys[i])) return;
    if (!z3d_mul_i64(z3d_gpt_parameters(c), 1024, &unused))
        complain(judge, "model.num_layers",
                 "%lld layers of hidden size %lld with %lld tokens are too large a model for "
                 "64-bit sizes",
                 (long long)c->num_layers, (long long)c->hidden_size, (long long)c->vocab_size);
}

/* It checks the sequence, not a micro-batch's tokens, because generation has one sample. */
static void check_sequence(const z3d_gpt_config *c, const z3d_config_judge *judge) {
    static const char key[] = "model.seq_length", tensor[] = "parallel.tensor_model_parallel_size",
                      parallel[] = "parallel.sequence_parallel";
    char wrong[160];
    if (!c->sequence_parallel || !sound(judge, parallel) || !sound(judge, tensor)) return;
    if (c->tensor_size == 1)
        complain(judge, parallel, "it needs a tensor_model_parallel_size above 1");
    int64_t below = c->seq_length / c->tensor_size * c->tensor_size, above = below + c->tensor_size;
    if (below == c->seq_length || !sound(judge, key)) return;
    snprintf(wrong, sizeof wrong, "%s cannot divide %lld tokens by %d tensor ranks", parallel,
             (long long)c->seq_length, c->tensor_size);
    complain_of(judge, key, wrong, below > 0 ? below : above, above);
}

void z3d_gpt_check(const z3d_gpt_config *c, const z3d_config_judge *judge) {
    check_numbers(c, judge);
    check_divisor(judge, "model.num_attention_heads", c->num_heads, c->hidden_size,
                  "model.hidden_size");
    check_divisor(judge, "parallel.tensor_model_parallel_size", c->tensor_size, c->num_heads,
                  "model.num_attention_heads");
    check_sequence(c, judge);
    check_size(c, judge);
}
