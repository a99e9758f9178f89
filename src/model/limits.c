/* Limits that several models share. */
#include "src/model/limits.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool z3d_limits_sound(const z3d_config_judge *judge, const char *key) {
    return judge->sound(judge->context, key);
}

void z3d_limits_complain(const z3d_config_judge *judge, const char *key, const char *format, ...) {
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    judge->complain(judge->context, key, message);
}

void z3d_limits_complain_of(const z3d_config_judge *judge, const char *key, const char *what,
                            int64_t below, int64_t above) {
    if (below == above)
        z3d_limits_complain(judge, key, "%s; write %lld", what, (long long)above);
    else
        z3d_limits_complain(judge, key, "%s; write %lld or %lld", what, (long long)below,
                            (long long)above);
}

void z3d_limits_counts(const z3d_config_judge *judge, const z3d_count_limit *limits, size_t count) {
    enum { MOST = 1 << 24 };
    for (size_t i = 0; i < count; i++)
        if (limits[i].value < limits[i].least || limits[i].value > MOST)
            z3d_limits_complain(judge, limits[i].key, "%lld is out of range; write %lld to %d",
                                (long long)limits[i].value, (long long)limits[i].least, MOST);
}

void z3d_limits_dropout(const z3d_config_judge *judge, const char *key, double p) {
    if (!(p >= 0 && p < 1))
        z3d_limits_complain(judge, key, "%g is out of range; write at least 0 and below 1", p);
}

void z3d_limits_init_std(const z3d_config_judge *judge, double std) {
    if (!(std > 0 && std <= 10))
        z3d_limits_complain(judge, "model.init_method_std",
                            "%g is out of range; write above 0, at most 10", std);
}

bool z3d_limits_shares(const z3d_config_judge *judge, int64_t tensor_size) {
    return judge->ranks == 0 || judge->ranks % tensor_size == 0;
}

/* A proposed tensor size must divide the number of ranks too. */
static bool is_right(const z3d_config_judge *judge, const char *key, int64_t value, int64_t n) {
    return n % value == 0 && (strcmp(key, "parallel.tensor_model_parallel_size") != 0 ||
                              z3d_limits_shares(judge, value));
}

void z3d_limits_divisor(const z3d_config_judge *judge, const char *key, int64_t value, int64_t n,
                        const char *what) {
    char wrong[160];
    int64_t below = value < n ? value : n, above = below;
    if (!z3d_limits_sound(judge, key) || !z3d_limits_sound(judge, what) || n % value == 0) return;
    while (!is_right(judge, key, below, n)) below--;
    while (above <= n && !is_right(judge, key, above, n)) above++;
    snprintf(wrong, sizeof wrong, "%lld does not divide %s %lld", (long long)value, what,
             (long long)n);
    z3d_limits_complain_of(judge, key, wrong, below, above <= n ? above : below);
}

void z3d_limits_sequence(const z3d_config_judge *judge, bool sequence_parallel, int64_t seq_length,
                         int tensor_size) {
    static const char key[] = "model.seq_length", tensor[] = "parallel.tensor_model_parallel_size",
                      parallel[] = "parallel.sequence_parallel";
    char wrong[160];
    if (!sequence_parallel || !z3d_limits_sound(judge, parallel) ||
        !z3d_limits_sound(judge, tensor))
        return;
    if (tensor_size == 1)
        z3d_limits_complain(judge, parallel, "it needs a tensor_model_parallel_size above 1");
    int64_t below = seq_length / tensor_size * tensor_size, above = below + tensor_size;
    if (below == seq_length || !z3d_limits_sound(judge, key)) return;
    snprintf(wrong, sizeof wrong, "%s cannot divide %lld tokens by %d tensor ranks", parallel,
             (long long)seq_length, tensor_size);
    z3d_limits_complain_of(judge, key, wrong, below > 0 ? below : above, above);
}

int64_t z3d_tiling_of(const z3d_config *config, int64_t attention, int64_t mlp, int64_t inner) {
    int64_t tiles = 1, local = inner / config->parallel_tensor_model_parallel_size;
    if (config->model_tiling != Z3D_AUTO) return config->model_tiling;
    if (config->lora_r > 0) return 1; /* adapters are not in tiles */
    while (tiles < local && (local % tiles != 0 || mlp / tiles > attention)) tiles++;
    return tiles;
}

void z3d_limits_tiling(const z3d_config_judge *judge, int64_t tiling, int64_t inner,
                       int tensor_size, int64_t num_layers) {
    enum { MOST = 1 << 24 };
    static const char key[] = "model.tiling", tensor[] = "parallel.tensor_model_parallel_size";
    char wrong[160];
    if (tiling <= 1 || !z3d_limits_sound(judge, key) || !z3d_limits_sound(judge, tensor) ||
        !z3d_limits_sound(judge, "model.num_layers") || inner % tensor_size != 0)
        return;
    if (tiling > MOST / num_layers)
        z3d_limits_complain(judge, key,
                            "%lld tiles in each of %lld layers are more than %d; write at most "
                            "%lld",
                            (long long)tiling, (long long)num_layers, MOST,
                            (long long)(MOST / num_layers));
    int64_t local = inner / tensor_size, below = tiling < local ? tiling : local, above = below;
    if (local % tiling == 0) return;
    while (local % below != 0) below--;
    while (local % above != 0) above++;
    snprintf(wrong, sizeof wrong, "%lld tiles cannot share the MLP's %lld columns%s equally",
             (long long)tiling, (long long)local, tensor_size > 1 ? " of a tensor rank" : "");
    z3d_limits_complain_of(judge, key, wrong, below, above);
}

bool z3d_limits_sizes_sound(const z3d_config_judge *judge) {
    static const char *const keys[] = {
        "model.num_layers", "model.hidden_size",         "model.vocab_size",
        "model.seq_length", "model.num_attention_heads", "model.num_key_value_heads",
        "model.head_dim",   "model.intermediate_size"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!z3d_limits_sound(judge, keys[i])) return false;
    return true;
}

void z3d_limits_size(const z3d_config_judge *judge, int64_t parameters, int64_t num_layers,
                     int64_t hidden_size, int64_t vocab_size) {
    int64_t unused;
    if (!z3d_mul_i64(parameters, 1024, &unused))
        z3d_limits_complain(judge, "model.num_layers",
                            "%lld layers of hidden size %lld with %lld tokens are too large a "
                            "model for 64-bit sizes",
                            (long long)num_layers, (long long)hidden_size, (long long)vocab_size);
}

/* ---- a model without a configuration ---- */

static bool nothing_refused(void *context, const char *key) {
    (void)key;
    return !((z3d_refusal *)context)->any;
}

static void refuse(void *context, const char *key, const char *message) {
    z3d_refusal *r = context;
    if (!r->any) (void)Z3D_ERROR(Z3D_ERR_CONFIG, "%s: %s: %s", r->title, key, message);
    r->any = true;
}

static void ignore_idle(void *context, const char *key, const char *cause, const char *because) {
    (void)context;
    (void)key;
    (void)cause;
    (void)because;
}

z3d_config_judge z3d_refusal_judge(z3d_refusal *refusal) {
    return (z3d_config_judge){refusal, nothing_refused, refuse, ignore_idle, 0};
}
