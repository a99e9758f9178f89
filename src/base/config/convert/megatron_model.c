/* Megatron-LM's arguments of the model. Four of them together mean a Llama. Otherwise it is a
 * GPT-2, and a Llama's arguments are refused. */
#include "src/base/config/convert/megatron.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define ROTARY "use-rotary-position-embeddings"
#define PERCENT "rotary-percent"
#define GROUPED "group-query-attention"
#define GROUPS "num-query-groups"
#define INNER "ffn-hidden-size"
#define POSITIONS "max-position-embeddings"
#define DROPOUT "hidden-dropout"
#define SCALING "use-rope-scaling"
#define FACTOR "rope-scaling-factor"
#define INTERPOLATION "rotary-seq-len-interpolation-factor"
#define NO_POSITIONS "no-position-embedding"
#define UNTIED "untie-embeddings-and-output-weights"

/* The arguments that together mean a Llama; "": a switch. */
static const struct sign {
    const char *name, *value;
} signs[] = {{"swiglu", ""},
             {"normalization", "RMSNorm"},
             {"position-embedding-type", "rope"},
             {"disable-bias-linear", ""}};
enum { SIGNS = sizeof signs / sizeof *signs };

static bool says(megatron_converter *m, const char *name, const char *wanted) {
    const char *value = megatron_value(&m->text, name);
    return value && strcasecmp(value, wanted) == 0;
}

/* Refuses an argument unless it has the value `only`. */
static void must_be(megatron_converter *m, const char *name, double only, const char *why) {
    double value;
    megatron_must(m, name, megatron_number(m, name, &value) && value == only, why);
}

static bool has_sign(megatron_converter *m, int i) {
    bool rotary = strcmp(signs[i].value, "rope") == 0 && megatron_value(&m->text, ROTARY);
    return rotary || (*signs[i].value ? says(m, signs[i].name, signs[i].value)
                                      : megatron_has(m, signs[i].name));
}

/* ---- GPT-2 ---- */

/* Refuses `name` if the argument `with` switches it on; else it has no effect. */
static void refuse_or_ignore(megatron_converter *m, const char *name, const char *with,
                             const char *why) {
    char ignored[80];
    snprintf(ignored, sizeof ignored, "it is for --%s", with);
    bool on = megatron_has(m, with);
    megatron_rows(m, on ? CONFIG_REFUSED : CONFIG_NO_EFFECT, name, on ? why : ignored);
}

/* "it is only for a Llama, which also needs --disable-bias-linear": the missing arguments. */
static void name_missing_signs(megatron_converter *m, char *out, size_t size) {
    size_t length = (size_t)snprintf(out, size, "it is only for a Llama, which also needs");
    for (int i = 0; i < SIGNS; i++) {
        if (has_sign(m, i) || length >= size) continue;
        length += (size_t)snprintf(out + length, size - length, " --%s%s%s", signs[i].name,
                                   *signs[i].value ? " " : "", signs[i].value);
    }
}

/* Arguments that must have a GPT-2's value, and arguments of rotary positions. */
static void convert_heads(megatron_converter *m, const char *llama) {
    double width, hidden, heads;
    bool same = megatron_number(m, "kv-channels", &width) &&
                megatron_number(m, "hidden-size", &hidden) &&
                megatron_number(m, "num-attention-heads", &heads) && width * heads == hidden;
    bool turns = megatron_value(&m->text, ROTARY) || says(m, "position-embedding-type", "rope");
    megatron_must(m, "kv-channels", same, llama);
    megatron_rows(m, turns ? CONFIG_REFUSED : CONFIG_NO_EFFECT, "rotary-base " PERCENT,
                  turns ? llama : "it is for --position-embedding-type rope");
    bool biases = !megatron_value(&m->text, "disable-bias-linear");
    megatron_rows(m, biases ? CONFIG_TAKEN : CONFIG_REFUSED, "add-qkv-bias",
                  biases ? "a GPT-2 has all biases" : llama);
}

static void convert_positions(megatron_converter *m) {
    double length, positions;
    if (!megatron_number(m, POSITIONS, &positions)) return;
    bool same = megatron_number(m, "seq-length", &length) && length == positions;
    megatron_rows(m, same ? CONFIG_TAKEN : CONFIG_REFUSED, POSITIONS,
                  same ? "model.seq_length"
                       : "positions are the tokens of a sample; write the value of --seq-length");
}

static void convert_gpt(megatron_converter *m) {
    char llama[256];
    double hidden, inner;
    name_missing_signs(m, llama, sizeof llama);
    megatron_take_or_default(m, DROPOUT, "model.hidden_dropout", "0.1");
    convert_positions(m);
    if (megatron_number(m, INNER, &inner))
        megatron_must(m, INNER, megatron_number(m, "hidden-size", &hidden) && inner == 4 * hidden,
                      "a GPT-2 has 4 x hidden size here: the model differs");
    megatron_rows(m, CONFIG_REFUSED,
                  "swiglu disable-bias-linear qk-layernorm " ROTARY " " GROUPED " " SCALING
                  " " INTERPOLATION " " UNTIED " " NO_POSITIONS,
                  llama);
    refuse_or_ignore(m, GROUPS, GROUPED, llama);
    refuse_or_ignore(m, FACTOR, SCALING, llama);
    convert_heads(m, llama);
    megatron_must(m, "normalization", says(m, "normalization", "LayerNorm"), llama);
    megatron_must(m, "position-embedding-type",
                  says(m, "position-embedding-type", "learned_absolute"), llama);
    must_be(m, "norm-epsilon", 1e-5, "a GPT-2 has 1e-5 here: the model differs");
}

/* ---- Llama ---- */

static void convert_inner(megatron_converter *m) {
    double hidden;
    char text[32];
    if (megatron_take(m, INNER, "model.intermediate_size") ||
        !megatron_number(m, "hidden-size", &hidden))
        return;
    snprintf(text, sizeof text, "%lld", (long long)(4 * hidden * 2 / 3 / 64) * 64);
    config_take_default(&m->v, "model.intermediate_size", text, megatron_default);
}

static void convert_groups(megatron_converter *m) {
    static const char key[] = "model.num_key_value_heads";
    if (!megatron_value(&m->text, GROUPED)) {
        megatron_rows(m, CONFIG_NO_EFFECT, GROUPS, "it is for --" GROUPED);
        return;
    }
    megatron_rows(m, CONFIG_TAKEN, GROUPED, key);
    megatron_take_or_default(m, GROUPS, key, "1");
}

/* The numbers of --use-rope-scaling, except its factor, are constants in Megatron-LM. */
static void convert_rope(megatron_converter *m) {
    static const char type[] = "model.rope_scaling.rope_type",
                      factor[] = "model.rope_scaling.factor";
    megatron_take(m, "rotary-base", "model.rope_theta");
    must_be(m, PERCENT, 1, "a whole head is turned here: the model differs");
    if (megatron_value(&m->text, SCALING) && megatron_value(&m->text, INTERPOLATION)) {
        megatron_rows(m, CONFIG_REFUSED, INTERPOLATION,
                      "positions are stretched once: leave out this or --" SCALING);
    } else if (megatron_take(m, INTERPOLATION, factor)) {
        config_take_quietly(&m->v, type, "linear");
    }
    if (!megatron_take_as(m, SCALING, type, "llama3")) {
        megatron_rows(m, CONFIG_NO_EFFECT, FACTOR, "it is for --" SCALING);
        return;
    }
    megatron_take_or_default(m, FACTOR, factor, "8");
    config_take_default(&m->v, "model.rope_scaling.original_max_position_embeddings", "8192",
                        megatron_default);
}

static void convert_dropout(megatron_converter *m) {
    double dropout = 0.1;
    megatron_number(m, DROPOUT, &dropout);
    if (!megatron_value(&m->text, DROPOUT))
        config_report_add(&m->v.report, CONFIG_DIFFERENT, "--" DROPOUT, "%s",
                          "not given, so it is 0.1 there; a Llama has none here");
    megatron_rows(m, dropout == 0 ? CONFIG_TAKEN : CONFIG_REFUSED, DROPOUT,
                  dropout == 0 ? "same as zero3d" : "a Llama has none here; write 0");
}

static void convert_llama(megatron_converter *m) {
    config_take_quietly(&m->v, "model.type", "llama");
    for (int i = 0; i < SIGNS; i++)
        megatron_rows(m, CONFIG_TAKEN, signs[i].name, "model.type: llama");
    megatron_rows(m, CONFIG_TAKEN, ROTARY, "model.type: llama");
    megatron_rows(m, CONFIG_NO_EFFECT, POSITIONS, "rotary positions have no table");
    megatron_rows(m, CONFIG_TAKEN, NO_POSITIONS, "rotary positions have no table");
    convert_dropout(m);
    convert_inner(m);
    convert_groups(m);
    convert_rope(m);
    megatron_take(m, "kv-channels", "model.head_dim");
    megatron_take(m, "norm-epsilon", "model.rms_norm_eps");
    megatron_take_as(m, "qk-layernorm", "model.qk_norm", "true");
    megatron_take_as(m, "add-qkv-bias", "model.attention_bias", "true");
    if (!megatron_take_as(m, UNTIED, "model.tie_word_embeddings", "false"))
        config_take_default(&m->v, "model.tie_word_embeddings", "true", megatron_default);
}

/* ---- all ---- */

static void convert_sequence_parallel(megatron_converter *m) {
    static const char name[] = "sequence-parallel";
    if (megatron_is_unknown(&m->text, "tensor-model-parallel-size"))
        megatron_rows(m, CONFIG_REFUSED, name,
                      "--tensor-model-parallel-size is not known; with more than 1 write "
                      "parallel.sequence_parallel: true");
    else if (m->v.config->parallel_tensor_model_parallel_size > 1)
        megatron_take_as(m, name, "parallel.sequence_parallel", "true");
    else
        megatron_rows(m, CONFIG_NO_EFFECT, name, "only tensor ranks share a sequence");
}

void megatron_convert_model(megatron_converter *m) {
    int found = 0;
    for (int i = 0; i < SIGNS; i++) found += has_sign(m, i);
    if (!megatron_value(&m->text, "attention-dropout"))
        config_take_default(&m->v, "model.attention_dropout", "0.1", megatron_default);
    if (found == SIGNS)
        convert_llama(m);
    else
        convert_gpt(m);
    must_be(m, "context-parallel-size", 1, "there is no context parallelism: write 1");
    must_be(m, "ds-sequence-parallel-size", 1, "there is no context parallelism: write 1");
    must_be(m, "expert-model-parallel-size", 1, "there are no experts: write 1");
    must_be(m, "moe-expert-parallel-size", 1, "there are no experts: write 1");
    must_be(m, "num-distributed-optimizer-instances", 1,
            "states are sharded over the whole data group");
    must_be(m, "lr-warmup-init", 0, "the first rate of a warm-up is fixed here: the run differs");
    convert_sequence_parallel(m);
}
