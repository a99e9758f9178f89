/* Keys without a field: settings of other frameworks that have no effect, are not supported, or
 * have another name here; and the keys that an unknown setting may be about. */
#include "src/base/config/yaml.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

z3d_status reader_peer(config_reader *r, int index, yaml_mark_t mark, const config_node *value) {
    config_scalar scalar;
    double number;
    const config_key *key = &config_peer_key[index];
    config_peer *peer = &r->config->origin->peer[index];
    const char *path = key->path;
    if (value->event.type != YAML_SCALAR_EVENT) {
        return reader_refuse(r, value->event.start_mark, "%s: expected %s", path,
                             key->type == CONFIG_BOOL ? "true or false" : "a number");
    }
    Z3D_TRY(reader_scalar(r, value, &scalar));
    peer->place.source = -1;
    const bool open = config_is_null(scalar) || strcmp(scalar.text, "auto") == 0;
    z3d_status status = open ? Z3D_OK : config_parse_peer(key, scalar, &number);
    if (status != Z3D_OK) return reader_refuse_stored(r, value->event.start_mark, path, status);
    if (r->config->origin->report)
        config_report_add(r->config->origin->report, CONFIG_TAKEN, path, "%s", scalar.text);
    if (open) return Z3D_OK;
    const bool says = key->type != CONFIG_BOOL || number != 0 || index == CONFIG_PEER_TENSORBOARD;
    if (says) *peer = (config_peer){reader_place(r, mark), number};
    return Z3D_OK;
}

/* Compares as text and as numbers: 0.0 is 0. */
static bool is_option(const char *options, const char *text) {
    char option[64];
    double wanted, given;
    bool number = z3d_parse_float(text, &given) == Z3D_OK;
    for (int i = 0; config_option(options, i, option, sizeof option); i++) {
        if (option[0] && strcmp(option, text) == 0) return true;
        if (number && z3d_parse_float(option, &wanted) == Z3D_OK && wanted == given) return true;
    }
    return false;
}

/* Looks at the fields of a block; *says: one is `enabled`, *is_off: with a value in `off`. */
static z3d_status read_switch(config_reader *r, const char *off, const config_node *block,
                              bool *says, bool *is_off) {
    const config_node *end = block + block->size;
    for (const config_node *name = block + 1, *value; name < end; name = value + value->size) {
        Z3D_TRY(reader_skip(r, name, false));
        value = name + name->size;
        const yaml_event_t *event = &value->event;
        const bool is_switch = name->event.type == YAML_SCALAR_EVENT &&
                               strcmp((const char *)name->event.data.scalar.value, "enabled") == 0;
        if (!is_switch || event->type != YAML_SCALAR_EVENT) {
            Z3D_TRY(reader_skip(r, value, false));
            continue;
        }
        Z3D_TRY(reader_look(r, value));
        *says = true;
        *is_off = is_option(off, (const char *)event->data.scalar.value);
    }
    return Z3D_OK;
}

/* Reads a later key's value. *is_off: it asks for nothing: it is in `off`, or a mapping that is
 * empty or has such an `enabled` (or none, if `off` has "unsaid"). */
static z3d_status read_off(config_reader *r, const char *off, const config_node *value,
                           bool *is_off) {
    const char *text = (const char *)value->event.data.scalar.value;
    bool says = false;
    *is_off = false;
    if (value->event.type == YAML_SCALAR_EVENT) {
        *is_off = is_option(off, text[0] ? text : "null");
        return Z3D_OK;
    }
    if (value->event.type != YAML_MAPPING_START_EVENT) return reader_skip(r, value, false);
    Z3D_TRY(read_switch(r, off, value, &says, is_off));
    if (!says) *is_off = value->size == 1 || is_option(off, "unsaid");
    return Z3D_OK;
}

/* Appends what to write instead of a later key's value. */
static void append_remedy(const config_note *note, z3d_string *out) {
    char first[64];
    config_option(note->off, 0, first, sizeof first);
    if (!is_option(note->off, "unsaid")) {
        z3d_string_append(out, "leave it out or write %s", first);
        return;
    }
    if (strcmp(first, "false") == 0) z3d_string_append(out, "write \"enabled\": false, or ");
    z3d_string_append(out, "leave the block out");
}

static z3d_status refuse_later(config_reader *r, const config_note *note, yaml_mark_t mark) {
    z3d_string right = {0};
    bool plain = note->instead[0] == '\0';
    append_remedy(note, &right);
    z3d_status status =
        reader_refuse(r, mark, "%s: %s%s; %s", note->path, plain ? note->why : note->instead,
                      plain ? ": not supported yet" : "", right.failed ? "" : right.text);
    z3d_string_free(&right);
    char **error = &r->config->origin->later[note - config_notes];
    if (!r->is_override && !*error) *error = strdup(z3d_error_message());
    return status;
}

/* Removes the error of the file's entry if an override switches the key off. */
static void withdraw(config_reader *r, const config_note *note) {
    struct z3d_config_origin *origin = r->config->origin;
    char **error = &origin->later[note - config_notes];
    if (!r->is_override || !*error) return;
    config_errors_remove(&origin->errors, *error);
    free(*error);
    *error = NULL;
}

static z3d_status read_later(config_reader *r, const config_note *note, yaml_mark_t mark,
                             const config_node *value) {
    bool off;
    Z3D_TRY(read_off(r, note->off, value, &off));
    if (!off) return refuse_later(r, note, mark);
    withdraw(r, note);
    if (r->config->origin->report) {
        config_report_add(r->config->origin->report, CONFIG_TAKEN, note->path, "same as zero3d");
    }
    return Z3D_OK;
}

z3d_status reader_note(config_reader *r, const config_note *note, yaml_mark_t mark,
                       const config_node *value) {
    if (note->off) return read_later(r, note, mark, value);
    Z3D_TRY(reader_skip(r, value, false));
    config_tell(r->config, reader_place(r, mark), note->path, CONFIG_IDLE_HERE, note->why);
    return Z3D_OK;
}

z3d_status reader_below_note(config_reader *r, const char *path, yaml_mark_t mark,
                             const config_node *value, bool *known) {
    const config_note *above = NULL; /* its path is a section of `path` */
    for (int i = 0; i < CONFIG_NOTE_COUNT && !above; i++)
        if (config_is_below(path, config_notes[i].path)) above = &config_notes[i];
    *known = above != NULL;
    if (!above) return Z3D_OK;
    const bool is_switch = strcmp(config_leaf(path), "enabled") == 0;
    return above->off && !is_switch ? refuse_later(r, above, mark)
                                    : reader_note(r, above, mark, value);
}

static bool is_comment(const char *path) {
    return strncmp(path, "//", 2) == 0 || strstr(path, ".//") || strncmp(path, "/*", 2) == 0 ||
           strstr(path, "./*");
}

/* Advice about frequent mistakes that are not misspelt keys. */
static const char *advice_on(const char *path) {
    static const struct {
        const char *leaf, *advice;
    } known[] = {
        {"<<", "merge keys (<<) are not supported; write the values themselves"},
        {"report_to", "unknown key report_to; a run writes TensorBoard's files (run.tensorboard), "
                      "and examples/follow.py sends its metrics to Weights & Biases or MLflow"},
        {"save_strategy", "unknown key save_strategy; checkpoint.interval is a number of steps or "
                          "epoch, checkpoint.keep_best: true keeps the best checkpoint, too"},
    };
    const char *leaf = config_leaf(path);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(leaf, known[i].leaf) == 0) return known[i].advice;
    return NULL;
}

z3d_status reader_unknown(config_reader *r, yaml_mark_t mark, const char *path) {
    char buf[128];
    const char *advice = advice_on(path), *near = config_nearest(path, buf, sizeof buf);
    if (is_comment(path)) {
        r->broken = true; /* a comment's other lines would give more errors */
        return reader_refuse(r, mark, "a comment in a configuration begins with #, not with %.2s",
                             strchr(path, '/'));
    }
    if (advice) return reader_refuse(r, mark, "%s", advice);
    if (near) return reader_refuse(r, mark, "unknown key %.120s; did you mean %s?", path, near);
    return reader_refuse(r, mark, "unknown key %.120s; 'zero3d config' lists all keys", path);
}

/* Refuses a value of a section, and names the key that the user probably means. */
z3d_status reader_refuse_section(config_reader *r, const char *path, const config_node *value) {
    const yaml_event_t *event = &value->event;
    static const struct {
        const char *section, *key, *value;
    } meant[] = {{"bf16", "enabled", "true"},
                 {"fp16", "enabled", "true"},
                 {"optimizer", "type", "AdamW"},
                 {"scheduler", "type", "WarmupLR"},
                 {"data", "train", "FILE"},
                 {"zero_optimization", "stage", "2"},
                 {"checkpoint", "dir", "FOLDER"},
                 {"run", "dir", "FOLDER"},
                 {"model", "num_layers", "12"},
                 {"zero_optimization.offload_optimizer", "device", "cpu"},
                 {"zero_optimization.offload_param", "device", "cpu"}};
    z3d_string right = {0};
    bool scalar = event->type == YAML_SCALAR_EVENT && event->data.scalar.value[0];
    for (size_t i = 0; scalar && i < sizeof meant / sizeof *meant; i++) {
        if (strcmp(path, meant[i].section) != 0) continue;
        z3d_string_append(&right, r->is_override ? "; write %s.%s=%s" : "; write %s: {%s: %s}",
                          path, meant[i].key, meant[i].value);
    }
    z3d_status status = reader_refuse(r, event->start_mark,
                                      "%s is a section: expected keys below it, not %s%s", path,
                                      event->type == YAML_SEQUENCE_START_EVENT ? "a list"
                                      : scalar                                 ? "a value"
                                                                               : "nothing",
                                      right.text && !right.failed ? right.text : "");
    z3d_string_free(&right);
    return status;
}

/* ---- unknown settings ---- */

/* Words in the name of a setting that may be about a key. Such a key gets no default of the other
 * framework. */
static const struct {
    const char *path, *words;
} matters[] = {
    {"model.attention_dropout", "dropout"},
    {"model.hidden_dropout", "dropout"},
    {"model.intermediate_size", "ffn intermediate mlp"},
    {"model.num_key_value_heads", "heads groups kv"},
    {"model.rope_scaling", "rope rotary"},
    {"model.tie_word_embeddings", "tie tied untie share"},
    {"gradient_clipping", "clip clipping grad-norm gradient-norm"},
    {"zero_optimization.stage", "zero fsdp shard sharding"},
    {"activation_checkpointing.granularity", "recompute recomputation checkpointing"},
    {"data_types.grad_accum_dtype", "accum accumulate accumulation dtype"},
    {"communication_data_type", "reduce allreduce communication"},
    {"fp16.initial_scale_power", "scale"},
    {"optimizer.params.lr", "lr learning-rate"},
    {"optimizer.params.betas", "beta betas beta1 beta2"},
    {"optimizer.params.momentum", "momentum"},
    {"optimizer.params.weight_decay", "wd decay"},
    {"scheduler.type", "lr learning-rate schedule scheduler anneal annealing"},
    {"scheduler.params.warmup_num_steps", "warmup"},
    {"training.seed", "seed"},
    {"training.eval_interval", "eval evaluation"},
    {"training.eval_steps", "eval evaluation"},
    {"checkpoint.interval", "save"},
    {"checkpoint.resume", "load resume"},
};

/* Whether "-lr-decay-" has one of the words. */
static bool speaks_of(const char *name, const char *words) {
    char word[40], part[44];
    while (z3d_next_word(&words, word, sizeof word)) {
        snprintf(part, sizeof part, "-%s-", word);
        if (strstr(name, part)) return true;
    }
    return false;
}

void config_doubt(z3d_config *config, const char *name) {
    char plain[128];
    snprintf(plain, sizeof plain, "-%.120s-", name);
    for (char *c = plain; *c; c++) *c = isalnum((unsigned char)*c) ? (char)tolower(*c) : '-';
    for (size_t i = 0; i < sizeof matters / sizeof *matters; i++)
        if (speaks_of(plain, matters[i].words)) config_mark_wrong(config, matters[i].path);
}
