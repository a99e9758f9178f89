/* Megatron-LM's arguments of the model. Together four of them make a Llama; without them it is a
 * GPT-2, which has none of a Llama's own. */
#include "src/base/config/megatron.h"

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

static const char theirs[] = "Megatron-LM's default";

/* What makes a Llama; "": a switch. */
static const struct sign {
    const char *name, *value;
} signs[] = {{"swiglu", ""},
             {"normalization", "RMSNorm"},
             {"position-embedding-type", "rope"},
             {"disable-bias-linear", ""}};
enum { SIGNS = sizeof signs / sizeof *signs };

typedef struct converter {
    config_conversion *v;
    const megatron_text *text;
} converter;

static const char *value_of(const converter *m, const char *name) {
    return megatron_value(m->text, name);
}

static bool says(const converter *m, const char *name, const char *wanted) {
    const char *value = value_of(m, name);
    return value && strcasecmp(value, wanted) == 0;
}

static bool number_of(const converter *m, const char *name, double *out) {
    const char *value = value_of(m, name);
    return value && z3d_parse_float(value, out) == Z3D_OK;
}

/* A row, if the argument is given. */
static void row(const converter *m, config_verdict verdict, const char *name, const char *what) {
    char flag[80];
    snprintf(flag, sizeof flag, "--%.70s", name);
    if (value_of(m, name)) config_report_add(&m->v->report, verdict, flag, "%s", what);
}

/* Takes the argument for our key, if it is given; `text` NULL: its own value. */
static bool take(const converter *m, const char *name, const char *path, const char *text) {
    char flag[80];
    const char *value = value_of(m, name);
    snprintf(flag, sizeof flag, "--%.70s", name);
    if (value) config_take(m->v, flag, path, text ? text : value);
    return value != NULL;
}

static void take_or_default(const converter *m, const char *name, const char *path,
                            const char *text) {
    if (!take(m, name, path, NULL) && !megatron_is_unknown(m->text, name))
        config_take_default(m->v, path, text, theirs);
}

/* An argument that may have one value only. */
static void must_be(const converter *m, const char *name, double only, const char *why) {
    double value;
    bool same = number_of(m, name, &value) && value == only;
    row(m, same ? CONFIG_TAKEN : CONFIG_REFUSED, name, same ? "same as zero3d" : why);
}

static bool has_sign(const converter *m, int i) {
    bool rotary = strcmp(signs[i].value, "rope") == 0 && value_of(m, ROTARY);
    return rotary || (*signs[i].value ? says(m, signs[i].name, signs[i].value)
                                      : value_of(m, signs[i].name) != NULL);
}

/* ---- GPT-2 ---- */

/* What another argument switches on. */
static void refuse_or_ignore(const converter *m, const char *name, const char *with,
                             const char *why) {
    char ignored[80];
    snprintf(ignored, sizeof ignored, "it is for --%s", with);
    bool on = value_of(m, with) != NULL;
    row(m, on ? CONFIG_REFUSED : CONFIG_NO_EFFECT, name, on ? why : ignored);
}

/* "it is a Llama's, which also needs --disable-bias-linear": the signs that are missing. */
static void name_missing_signs(const converter *m, char *out, size_t size) {
    size_t length = (size_t)snprintf(out, size, "it is a Llama's, which also needs");
    for (int i = 0; i < SIGNS; i++) {
        if (has_sign(m, i) || length >= size) continue;
        length += (size_t)snprintf(out + length, size - length, " --%s%s%s", signs[i].name,
                                   *signs[i].value ? " " : "", signs[i].value);
    }
}

/* What a GPT-2 has anyway, and what only rotary positions read. */
static void convert_heads(const converter *m, const char *llama) {
    static const char *const rotary[] = {"rotary-base", PERCENT};
    double width, hidden, heads;
    bool same = number_of(m, "kv-channels", &width) && number_of(m, "hidden-size", &hidden) &&
                number_of(m, "num-attention-heads", &heads) && width * heads == hidden;
    bool turns = value_of(m, ROTARY) || says(m, "position-embedding-type", "rope");
    row(m, same ? CONFIG_TAKEN : CONFIG_REFUSED, "kv-channels", same ? "same as zero3d" : llama);
    for (size_t i = 0; i < 2; i++)
        row(m, turns ? CONFIG_REFUSED : CONFIG_NO_EFFECT, rotary[i],
            turns ? llama : "it is for --position-embedding-type rope");
    bool biases = !value_of(m, "disable-bias-linear");
    row(m, biases ? CONFIG_TAKEN : CONFIG_REFUSED, "add-qkv-bias",
        biases ? "a GPT-2 has all biases" : llama);
}

static void convert_positions(const converter *m) {
    double length, positions;
    if (!number_of(m, POSITIONS, &positions)) return;
    bool same = number_of(m, "seq-length", &length) && length == positions;
    row(m, same ? CONFIG_TAKEN : CONFIG_REFUSED, POSITIONS,
        same ? "model.seq_length" : "positions are those of a sample; write --seq-length's");
}

static void convert_gpt(const converter *m) {
    static const char *const of_llama[] = {
        "swiglu", "disable-bias-linear", ROTARY, GROUPED, "qk-layernorm",
        SCALING,  INTERPOLATION,         UNTIED};
    char llama[256];
    double hidden, inner;
    name_missing_signs(m, llama, sizeof llama);
    take_or_default(m, DROPOUT, "model.hidden_dropout", "0.1");
    convert_positions(m);
    if (number_of(m, INNER, &inner)) {
        bool same = number_of(m, "hidden-size", &hidden) && inner == 4 * hidden;
        row(m, same ? CONFIG_TAKEN : CONFIG_REFUSED, INNER,
            same ? "same as zero3d" : "a GPT-2 has 4 x hidden size here: it is another model");
    }
    for (size_t i = 0; i < sizeof of_llama / sizeof *of_llama; i++)
        row(m, CONFIG_REFUSED, of_llama[i], llama);
    refuse_or_ignore(m, GROUPS, GROUPED, llama);
    refuse_or_ignore(m, FACTOR, SCALING, llama);
    convert_heads(m, llama);
    bool layer_norm = says(m, "normalization", "LayerNorm");
    bool learned = says(m, "position-embedding-type", "learned_absolute");
    row(m, layer_norm ? CONFIG_TAKEN : CONFIG_REFUSED, "normalization",
        layer_norm ? "same as zero3d" : llama);
    row(m, learned ? CONFIG_TAKEN : CONFIG_REFUSED, "position-embedding-type",
        learned ? "same as zero3d" : llama);
    row(m, CONFIG_REFUSED, NO_POSITIONS, llama);
    must_be(m, "norm-epsilon", 1e-5, "a GPT-2 has 1e-5 here: it is another model");
}

/* ---- Llama ---- */

static void convert_inner(const converter *m) {
    double hidden;
    char text[32];
    if (take(m, INNER, "model.intermediate_size", NULL) || !number_of(m, "hidden-size", &hidden))
        return;
    snprintf(text, sizeof text, "%lld", (long long)(4 * hidden * 2 / 3 / 64) * 64);
    config_take_default(m->v, "model.intermediate_size", text, theirs);
}

static void convert_groups(const converter *m) {
    static const char key[] = "model.num_key_value_heads";
    if (!value_of(m, GROUPED)) {
        row(m, CONFIG_NO_EFFECT, GROUPS, "it is for --" GROUPED);
        return;
    }
    row(m, CONFIG_TAKEN, GROUPED, key);
    take_or_default(m, GROUPS, key, "1");
}

/* What --use-rope-scaling has beside its factor are constants there. */
static void convert_rope(const converter *m) {
    static const char type[] = "model.rope_scaling.rope_type",
                      factor[] = "model.rope_scaling.factor";
    take(m, "rotary-base", "model.rope_theta", NULL);
    must_be(m, PERCENT, 1, "a whole head is turned here: it is another model");
    if (value_of(m, SCALING) && value_of(m, INTERPOLATION)) {
        row(m, CONFIG_REFUSED, INTERPOLATION,
            "positions are stretched once: leave out this or --" SCALING);
    } else if (take(m, INTERPOLATION, factor, NULL)) {
        config_take_quietly(m->v, type, "linear");
    }
    if (!take(m, SCALING, type, "llama3")) {
        row(m, CONFIG_NO_EFFECT, FACTOR, "it is for --" SCALING);
        return;
    }
    take_or_default(m, FACTOR, factor, "8");
    config_take_default(m->v, "model.rope_scaling.original_max_position_embeddings", "8192",
                        theirs);
}

static void convert_dropout(const converter *m) {
    double dropout = 0.1;
    number_of(m, DROPOUT, &dropout);
    if (!value_of(m, DROPOUT))
        config_report_add(&m->v->report, CONFIG_DIFFERENT, "--" DROPOUT, "%s",
                          "not given, so it is 0.1 there; a Llama has none here");
    row(m, dropout == 0 ? CONFIG_TAKEN : CONFIG_REFUSED, DROPOUT,
        dropout == 0 ? "same as zero3d" : "a Llama has none here; write 0");
}

static void convert_llama(const converter *m) {
    config_take_quietly(m->v, "model.type", "llama");
    for (int i = 0; i < SIGNS; i++) row(m, CONFIG_TAKEN, signs[i].name, "model.type: llama");
    row(m, CONFIG_TAKEN, ROTARY, "model.type: llama");
    row(m, CONFIG_NO_EFFECT, POSITIONS, "rotary positions have no table");
    row(m, CONFIG_TAKEN, NO_POSITIONS, "rotary positions have no table");
    convert_dropout(m);
    convert_inner(m);
    convert_groups(m);
    convert_rope(m);
    take(m, "kv-channels", "model.head_dim", NULL);
    take(m, "norm-epsilon", "model.rms_norm_eps", NULL);
    take(m, "qk-layernorm", "model.qk_norm", "true");
    take(m, "add-qkv-bias", "model.attention_bias", "true");
    if (!take(m, UNTIED, "model.tie_word_embeddings", "false"))
        config_take_default(m->v, "model.tie_word_embeddings", "true", theirs);
}

/* ---- all ---- */

static void convert_sequence_parallel(const converter *m) {
    static const char name[] = "sequence-parallel";
    if (megatron_is_unknown(m->text, "tensor-model-parallel-size"))
        row(m, CONFIG_REFUSED, name,
            "--tensor-model-parallel-size is not known; with more than 1 write "
            "parallel.sequence_parallel: true");
    else if (m->v->config->parallel_tensor_model_parallel_size > 1)
        take(m, name, "parallel.sequence_parallel", "true");
    else
        row(m, CONFIG_NO_EFFECT, name, "only tensor ranks share a sequence");
}

void megatron_convert_model(config_conversion *v, const megatron_text *text) {
    const converter m = {v, text};
    int found = 0;
    for (int i = 0; i < SIGNS; i++) found += has_sign(&m, i);
    if (!value_of(&m, "attention-dropout"))
        config_take_default(v, "model.attention_dropout", "0.1", theirs);
    if (found == SIGNS)
        convert_llama(&m);
    else
        convert_gpt(&m);
    must_be(&m, "context-parallel-size", 1, "there is no context parallelism: write 1");
    must_be(&m, "ds-sequence-parallel-size", 1, "there is no context parallelism: write 1");
    must_be(&m, "expert-model-parallel-size", 1, "there are no experts: write 1");
    must_be(&m, "moe-expert-parallel-size", 1, "there are no experts: write 1");
    must_be(&m, "num-distributed-optimizer-instances", 1, "shards are those of the data group");
    must_be(&m, "lr-warmup-init", 0, "the warm-up begins at 0 here: it is another run");
    convert_sequence_parallel(&m);
}
