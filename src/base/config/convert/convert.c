/* The steps that all converters share: refuse another program's file, take a setting, write out a
 * default that differs from ours, drop keys that the checks refuse, write the YAML and the report.
 */
#include "src/base/config/convert/convert.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHECK_ROUNDS = 4 };

/* ---- files of other programs, which no converter reads: each has a key at the top level ---- */

#define ACCELERATE                                                                                 \
    "a file of Accelerate; convert its deepspeed_config block, written as JSON, or the file that " \
    "its deepspeed_config_file names"
#define MODEL "the description of a model; `zero3d checkpoint import FOLDER TO` reads its folder"
#define NEOX                                                                                       \
    "a file of GPT-NeoX, which is not read; convert its DeepSpeed keys as a file of their own"
#define NEMO                                                                                       \
    ", which is not read; convert the run's log, with Megatron-LM's arguments (--from-megatron "   \
    "LOG)"

static const struct {
    const char *key, *what; /* key: with - instead of _ */
} formats[] = {
    {"distributed-type", ACCELERATE},
    {"compute-environment", ACCELERATE},
    {"deepspeed", "a program's own settings; convert the file that its key deepspeed names"},
    {"architectures", MODEL},
    {"model-type", MODEL},
    {"exp-manager", "a file of NeMo" NEMO},
    {"trainer", "a file of NeMo or another trainer" NEMO},
    {"pipe-parallel-size", NEOX},
    {"model-parallel-size", NEOX},
    {"per-device-train-batch-size",
     "a Trainer's arguments; convert the DeepSpeed file that they name"},
};

/* The length of a top-level key's name at `at`; 0: no key begins here. */
static size_t key_at(const char *at, int depth, bool starts_line) {
    const bool quoted = *at == '"';
    size_t length = 0;
    at += quoted;
    while (isalnum((unsigned char)at[length]) || at[length] == '_' || at[length] == '-') length++;
    const char *end = at + length + quoted;
    if (length == 0 || (quoted && at[length] != '"') || end[strspn(end, " ")] != ':') return 0;
    return depth == 1 || (depth == 0 && starts_line && isalpha((unsigned char)*at)) ? length : 0;
}

static bool is_key(const char *at, size_t length, const char *key) {
    size_t i = 0;
    for (; i < length && key[i]; i++)
        if ((at[i] == '_' ? '-' : at[i]) != key[i]) return false;
    return i == length && !key[i];
}

z3d_status config_refuse_format(const char *text, const char *file, const char *option) {
    int depth = 0;
    for (const char *at = text; *at; at++) {
        const bool starts_line = at == text || at[-1] == '\n';
        const bool starts_word = starts_line || strchr(" {,\t", at[-1]);
        const size_t length = starts_word ? key_at(at, depth, starts_line) : 0;
        const char *name = at + (*at == '"');
        depth += *at == '{' || *at == '[';
        depth -= *at == '}' || *at == ']';
        for (size_t i = 0; length && i < sizeof formats / sizeof *formats; i++)
            if (is_key(name, length, formats[i].key))
                return Z3D_ERROR(Z3D_ERR_DATA, "%s %.200s: this is %s", option, file,
                                 formats[i].what);
        if (*at == '"') { /* skip the string: its braces are text */
            for (at++; *at && *at != '"' && *at != '\n'; at++) at += *at == '\\' && at[1];
            if (!*at) break;
        }
    }
    return Z3D_OK;
}

/* ---- settings ---- */

z3d_status config_conversion_begin(config_conversion *v, const char *file, const char *peer) {
    int source;
    *v = (config_conversion){.file = file, .peer = peer};
    Z3D_TRY(z3d_config_create(&v->config));
    v->config->origin->report = &v->report;
    return config_add_source(v->config, file, &source);
}

void config_conversion_end(config_conversion *v) {
    z3d_config_destroy(v->config);
    for (int i = 0; i < CONFIG_VERDICTS; i++) z3d_string_free(&v->report.rows[i]);
}

bool config_is_mentioned(const config_conversion *v, const char *name) {
    char row[160], long_row[160];
    snprintf(row, sizeof row, "  %s ", name);
    snprintf(long_row, sizeof long_row, "  %s\n", name);
    for (int i = 0; i < CONFIG_VERDICTS; i++) {
        const char *rows = v->report.rows[i].text;
        if (rows && (strstr(rows, row) || strstr(rows, long_row))) return true;
    }
    return false;
}

static z3d_status set(config_conversion *v, const char *path, const char *text) {
    int key = config_find(path);
    Z3D_REQUIRE(key >= 0, "a converter names %s", path);
    Z3D_TRY(config_set_text(v->config, &config_table[key], text));
    v->config->origin->place[key] = (config_place){0, 1, 1};
    return Z3D_OK;
}

void config_take(config_conversion *v, const char *name, const char *path, const char *text) {
    if (set(v, path, text) == Z3D_OK) {
        config_report_add(&v->report, CONFIG_TAKEN, name, "%s: %s", path, text);
    } else {
        config_report_add(&v->report, CONFIG_REFUSED, name, "%s: %s", path, z3d_error_message());
    }
}

void config_take_quietly(config_conversion *v, const char *path, const char *text) {
    if (set(v, path, text) != Z3D_OK) {
        config_report_add(&v->report, CONFIG_REFUSED, path, "%s", z3d_error_message());
    }
}

static void append_key(const config_conversion *v, int key, z3d_string *out) {
    config_append_value(out, v->config, &config_table[key], 2);
}

bool config_is_doubted(const config_conversion *v, const char *path) {
    return v->config->origin->wrong[config_find(path)];
}

void config_take_device(config_conversion *v) {
    static const char path[] = "training.device";
    if (config_is_mentioned(v, path)) return;
    config_take_quietly(v, path, "cuda");
    config_report_add(
        &v->report, CONFIG_DEFAULTED, path,
        "cuda: %s trains on GPUs, and zero3d's default is cpu; to train on CPUs write cpu",
        v->peer);
}

void config_take_default(config_conversion *v, const char *path, const char *text,
                         const char *whose) {
    int key = config_find(path);
    z3d_string ours = {0}, theirs = {0};
    if (key < 0) return;
    config_unset(v->config, key);
    if (config_is_doubted(v, path)) {
        config_report_add(&v->report, CONFIG_DIFFERENT, path,
                          "%s, %s, is not written: an unknown setting may be about this key", whose,
                          text);
        return;
    }
    append_key(v, key, &ours);
    if (set(v, path, text) == Z3D_OK) append_key(v, key, &theirs);
    if (ours.failed || theirs.failed || !theirs.text) {
        config_report_add(&v->report, CONFIG_REFUSED, path, "no memory");
    } else if (strcmp(ours.text, theirs.text) == 0) {
        config_unset(v->config, key);
    } else {
        config_report_add(&v->report, CONFIG_DEFAULTED, path, "%s is %s, zero3d's is%s", whose,
                          text, ours.text);
    }
    z3d_string_free(&ours);
    z3d_string_free(&theirs);
}

/* The text after "<file>:3:5: ". */
static char *after_place(const config_conversion *v, char *line) {
    const size_t length = strlen(v->file);
    if (strncmp(line, v->file, length) != 0 || line[length] != ':') return line;
    char *rest = line + length + strspn(line + length, ":0123456789");
    return *rest == ' ' ? rest + 1 : line;
}

/* Adds a row for each line "key: text" of a check's message. */
static void report_lines(config_conversion *v, char *lines) {
    static const char idles[] = "has no effect ";
    for (char *line = lines; line;) {
        char *end = strchr(line, '\n');
        if (end) *end = '\0';
        char *what = after_place(v, line), *text = strstr(what, ": ");
        bool idle = text && strncmp(text + 2, idles, strlen(idles)) == 0;
        if (text) *text = '\0';
        if (idle) text[2 + strcspn(text + 2, ";")] = '\0'; /* without the remedy */
        config_report_add(&v->report, idle ? CONFIG_NO_EFFECT : CONFIG_REFUSED,
                          text ? what : "check", "%s",
                          idle   ? text + 2 + strlen(idles)
                          : text ? text + 2
                                 : what);
        line = end ? end + 1 : NULL;
    }
}

/* No check may use the default of a key that the file leaves open, such as the model's sizes. */
static void open_what_is_missing(config_checker *k) {
    static const int open[] = {
        CONFIG_KEY_model_num_layers,          CONFIG_KEY_model_hidden_size,
        CONFIG_KEY_model_num_attention_heads, CONFIG_KEY_model_seq_length,
        CONFIG_KEY_model_vocab_size,          CONFIG_KEY_training_steps,
        CONFIG_KEY_train_batch_size,          CONFIG_KEY_train_micro_batch_size_per_gpu};
    for (size_t i = 0; i < sizeof open / sizeof *open; i++)
        k->wrong[open[i]] = k->wrong[open[i]] || k->c->origin->place[open[i]].source < 0;
}

/* Unsets a key, and removes its rows: a refused key has only the row of its error. */
static void drop(config_conversion *v, int key) {
    if (v->config->origin->place[key].source < 0) return;
    config_report_remove(&v->report, CONFIG_TAKEN, config_table[key].path);
    config_report_remove(&v->report, CONFIG_DEFAULTED, config_table[key].path);
    config_unset(v->config, key);
}

/* Drops keys until the rest is valid; true if it is. */
static bool drop_what_is_refused(config_conversion *v, const z3d_config_rules *rules) {
    for (int round = 0; round < CHECK_ROUNDS; round++) {
        config_errors found = {0};
        config_checker k;
        memset(v->config->origin->wrong, 0, sizeof v->config->origin->wrong);
        config_checker_begin(&k, v->config, rules, &found);
        k.trains = true;
        open_what_is_missing(&k);
        config_check_into(&k);
        if (found.total && found.text.text) report_lines(v, found.text.text);
        z3d_string_free(&found.text);
        if (found.total == 0) return true;
        for (int i = 0; i < CONFIG_KEY_COUNT; i++) {
            if (k.wrong[i]) drop(v, i);
        }
        /* Other frameworks' keys have set ours, and must not set them again. */
        for (int i = 0; i < CONFIG_PEER_COUNT; i++) v->config->origin->peer[i].place.source = -1;
    }
    return false;
}

z3d_status config_conversion_finish(config_conversion *v, const z3d_config_rules *rules,
                                    z3d_string *yaml, z3d_string *table, bool *complete) {
    static const char *const titles[CONFIG_VERDICTS] = {
        "Taken:", "No effect here:", "Written out, because the defaults differ:",
        "Not the same here:", "Not supported:"};
    bool valid = drop_what_is_refused(v, rules);
    *complete = valid && v->report.count[CONFIG_REFUSED] == 0;
    z3d_string_append(yaml, "# From the %s settings in %s.\n", v->peer, v->file);
    if (v->remark) z3d_string_append(yaml, "# %s\n", v->remark);
    config_write_set(v->config, yaml);
    for (int i = 0; i < CONFIG_VERDICTS; i++) {
        const z3d_string *rows = &v->report.rows[i];
        if (rows->failed) table->failed = true;
        if (rows->length == 0) continue;
        z3d_string_append(table, "%s%s\n%s", table->length ? "\n" : "", titles[i], rows->text);
    }
    return yaml->failed || table->failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a text")
                                         : Z3D_OK;
}
