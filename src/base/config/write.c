/* Writes the configuration as YAML that reads back to the same values, and the table as text for
 * the terminal, as the reference page and as a list of keys. */
#include "src/base/config/table.h"

#include <stdio.h>
#include <string.h>

/* ---- values as YAML ---- */

/* The character at `text` (well-formed UTF-8), and its length. */
static uint32_t decode(const unsigned char *text, size_t *length) {
    if (text[0] < 0x80) {
        *length = 1;
        return text[0];
    }
    *length = text[0] < 0xE0 ? 2 : text[0] < 0xF0 ? 3 : 4;
    uint32_t code = text[0] & (0xFFu >> (*length + 1));
    for (size_t i = 1; i < *length; i++) code = code << 6 | (text[i] & 0x3Fu);
    return code;
}

/* Whether the character needs no escape between YAML's double quotes. */
static bool is_plain_character(uint32_t code) {
    if (code < 0x20 || code == '"' || code == '\\') return false;
    if (code >= 0x7F && code < 0xA0) return false;
    if (code == 0x2028 || code == 0x2029 || code == 0xFEFF) return false;
    return code != 0xFFFE && code != 0xFFFF;
}

static void append_text(z3d_string *out, const char *text) {
    const unsigned char *at = (const unsigned char *)text;
    size_t length;
    z3d_string_append(out, "\"");
    for (; *at; at += length) {
        uint32_t code = decode(at, &length);
        if (is_plain_character(code)) {
            z3d_string_append_bytes(out, (const char *)at, length);
        } else if (code == '"' || code == '\\') {
            z3d_string_append(out, "\\%c", (char)code);
        } else if (code == '\n' || code == '\t') {
            z3d_string_append(out, code == '\n' ? "\\n" : "\\t");
        } else {
            z3d_string_append(out, "\\u%04X", (unsigned)code);
        }
    }
    z3d_string_append(out, "\"");
}

static void append_list(z3d_string *out, const z3d_data_list *list, bool texts, int indent) {
    if (list->count == 0) z3d_string_append(out, " []");
    for (int i = 0; i < list->count; i++) {
        z3d_string_append(out, "\n%*s- %s", indent, "", texts ? "" : "{path: ");
        append_text(out, list->path[i]);
        if (texts) continue;
        z3d_string_append(out, ", weight: ");
        z3d_string_append_number(out, list->weight[i]);
        z3d_string_append(out, "}");
    }
}

static void append_pair(z3d_string *out, const z3d_config_FLOAT2 *pair) {
    z3d_string_append_number(out, pair->value[0]);
    z3d_string_append(out, ", ");
    z3d_string_append_number(out, pair->value[1]);
}

void config_append_value(z3d_string *out, const z3d_config *config, const config_key *key,
                         int indent) {
    const void *field = config_field(config, key);
    char option[64];
    if (key->type != CONFIG_LIST) z3d_string_append(out, " ");
    switch (key->type) {
    case CONFIG_INT:
        if (*(const int64_t *)field == Z3D_AUTO) {
            z3d_string_append(out, "auto");
        } else if (*(const int64_t *)field == Z3D_EPOCH) {
            z3d_string_append(out, "epoch");
        } else {
            z3d_string_append(out, "%lld", (long long)*(const int64_t *)field);
        }
        break;
    case CONFIG_FLOAT:
        if (z3d_is_auto(*(const double *)field))
            z3d_string_append(out, "auto");
        else
            z3d_string_append_number(out, *(const double *)field);
        break;
    case CONFIG_BOOL:
        z3d_string_append(out, *(const bool *)field ? "true" : "false");
        break;
    case CONFIG_STRING:
        append_text(out, *(const char *const *)field);
        break;
    case CONFIG_ENUM:
        if (config_option(key->rule, *(const int *)field, option, sizeof option)) {
            z3d_string_append(out, "%s", option);
        }
        break;
    case CONFIG_FLOAT2:
        z3d_string_append(out, "[");
        append_pair(out, field);
        z3d_string_append(out, "]");
        break;
    case CONFIG_LIST:
        append_list(out, field, key->rule[0] != '\0', indent);
        break;
    }
}

void z3d_config_value(const z3d_config *config, const char *path, z3d_string *out) {
    z3d_string value = {0};
    config_append_value(&value, config, &config_table[config_find(path)], 0);
    for (size_t i = 1; i < value.length; i++) /* after the first space or line break */
        z3d_string_append(out, "%c", value.text[i] == '\n' ? ' ' : value.text[i]);
    out->failed = out->failed || value.failed;
    z3d_string_free(&value);
}

static void append_texts(z3d_string *out, const z3d_data_list *list) {
    for (int i = 0; i < list->count; i++)
        z3d_string_append(out, "%s%s", i ? ", " : "", list->path[i]);
    if (list->count == 0) z3d_string_append(out, "none");
}

static void append_weights(z3d_string *out, const z3d_data_list *list) {
    z3d_string_append(out, "%d file%s with weights", list->count, z3d_plural(list->count));
    for (int i = 0; i < list->count; i++) {
        z3d_string_append(out, " ");
        z3d_string_append_number(out, list->weight[i]);
    }
}

void z3d_config_value_to_compare(const z3d_config *config, const char *path, z3d_string *out) {
    const config_key *key = &config_table[config_find(path)];
    const void *field = config_field(config, key);
    if (key->type == CONFIG_FLOAT2)
        append_pair(out, field);
    else if (key->type == CONFIG_LIST && key->rule[0])
        append_texts(out, field);
    else if (key->type == CONFIG_LIST)
        append_weights(out, field);
    else if (key->type == CONFIG_STRING && *(const char *const *)field)
        z3d_string_append(out, "%s", *(const char *const *)field);
    else
        z3d_config_value(config, path, out);
}

bool config_is_standard(const z3d_config *config, const char *path) {
    const config_key *key = &config_table[config_find(path)];
    z3d_config standard = {0}; /* only this key is set */
    z3d_string here = {0}, there = {0};
    bool equal = false;
    if (config_set_text(&standard, key, key->standard) == Z3D_OK) {
        config_append_value(&here, config, key, 0);
        config_append_value(&there, &standard, key, 0);
        equal = !here.failed && !there.failed && strcmp(here.text, there.text) == 0;
    }
    config_release_value(&standard, key);
    z3d_string_free(&here);
    z3d_string_free(&there);
    return equal;
}

/* Writes the section lines of `path` that `before` does not share; returns the key's depth. */
static int open_sections(z3d_string *out, const char *before, const char *path) {
    int depth = 0;
    size_t start = 0;
    bool shared = true;
    for (size_t i = 0; path[i]; i++) {
        if (path[i] != '.') continue;
        shared = shared && strncmp(before, path, i + 1) == 0;
        if (!shared) {
            z3d_string_append(out, "%*s%.*s:\n", 2 * depth, "", (int)(i - start), path + start);
        }
        start = i + 1;
        depth++;
    }
    return depth;
}

/* Which keys are written. CHANGED: those without their default's value, and those in `also`. */
typedef enum written { ALL, SET, CHANGED } written;

static bool is_written(const z3d_config *config, int key, written keys, const char *const *also) {
    if (keys != CHANGED) return keys == ALL || config->origin->place[key].source >= 0;
    for (; *also; also++)
        if (strcmp(*also, config_table[key].path) == 0) return true;
    return !config_is_standard(config, config_table[key].path);
}

static void write_keys(const z3d_config *config, written keys, const char *const *also,
                       z3d_string *out) {
    const char *before = "";
    for (int i = 0; i < CONFIG_KEY_COUNT; i++) {
        const config_key *key = &config_table[i];
        if (!is_written(config, i, keys, also)) continue;
        int depth = open_sections(out, before, key->path);
        z3d_string_append(out, "%*s%s:", 2 * depth, "", config_leaf(key->path));
        config_append_value(out, config, key, 2 * depth + 2);
        z3d_string_append(out, "\n");
        before = key->path;
    }
}

void z3d_config_write(const z3d_config *config, z3d_string *out) {
    write_keys(config, ALL, NULL, out);
}

void config_write_set(const z3d_config *config, z3d_string *out) {
    write_keys(config, SET, NULL, out);
}

z3d_status z3d_config_copy(const z3d_config *config, z3d_config **out) {
    z3d_string text = {0};
    *out = NULL;
    config_write_set(config, &text);
    z3d_status status = text.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory for a text")
                                    : z3d_config_create(out);
    if (status == Z3D_OK && text.length > 0)
        status = z3d_config_read_text(*out, text.text, text.length, "the configuration");
    z3d_string_free(&text);
    if (status == Z3D_OK) return Z3D_OK;
    z3d_config_destroy(*out);
    *out = NULL;
    return status;
}

void z3d_config_write_changed(const z3d_config *config, const char *const *also, z3d_string *out) {
    write_keys(config, CHANGED, also, out);
}

/* ---- the table as text ---- */

/* The part before the first dot: "zero_optimization". */
static size_t section_length(const char *path) {
    size_t length = strcspn(path, ".");
    return path[length] == '.' ? length : 0;
}

static bool same_section(const char *a, const char *b) {
    size_t m = section_length(a), n = section_length(b);
    return m == n && strncmp(a, b, m) == 0;
}

static void describe_text(z3d_string *out) {
    for (int i = 0; i < CONFIG_KEY_COUNT; i++) {
        const config_key *key = &config_table[i];
        if (i > 0 && !same_section(config_table[i - 1].path, key->path))
            z3d_string_append(out, "\n");
        z3d_string_append(out, "%s: %s\n    ", key->path, key->help);
        config_expected(key, out);
        z3d_string_append(out, "; default %s\n", key->standard[0] ? key->standard : "unset");
    }
}

/* Escapes text in a Markdown table: | would end the cell, < begin a tag, _ begin emphasis. */
static void append_cell(z3d_string *out, const char *text) {
    for (; *text; text++) {
        if (*text == '|' || *text == '<' || *text == '_') z3d_string_append(out, "\\");
        z3d_string_append_bytes(out, text, 1);
    }
}

static void describe_key(z3d_string *out, const config_key *key) {
    static const char *const types[] = {"integer", "number",      "bool", "text",
                                        "choice",  "two numbers", "list"};
    z3d_string expected = {0};
    config_expected(key, &expected);
    z3d_string_append(out, "| `%s` | %s | ", key->path, types[key->type]);
    z3d_string_append(out, key->standard[0] ? "`%s` | " : "unset | ", key->standard);
    append_cell(out, expected.failed ? "" : expected.text);
    z3d_string_append(out, " | ");
    append_cell(out, key->help);
    z3d_string_append(out, " |\n");
    if (expected.failed) out->failed = true;
    z3d_string_free(&expected);
}

static void describe_notes(z3d_string *out, bool later) {
    z3d_string_append(out, "\n| key | %s |\n|-|-|\n", later ? "what it is for" : "why");
    for (int i = 0; i < CONFIG_NOTE_COUNT; i++) {
        if ((config_notes[i].off != NULL) != later) continue;
        z3d_string_append(out, "| `%s` | ", config_notes[i].path);
        append_cell(out, config_notes[i].why);
        z3d_string_append(out, " |\n");
    }
}

static const char page_head[] =
    "# Configuration\n"
    "\n"
    "<!-- Made by `zero3d config --markdown` from src/base/config/keys.h; do not edit. -->\n"
    "\n"
    "One YAML file describes a run (JSON is YAML too). On the command line, `key.path=value`\n"
    "overrides one key of the file: `model.num_layers=24`,\n"
    "`data.train='[a.bin, {path: b.bin, weight: 2}]'`. If an override makes a key of the file\n"
    "useless, one line says so and the run starts: with `data.validation=` you need not delete\n"
    "`training.eval_interval`.\n"
    "\n"
    "Unknown keys, keys set twice, wrong types, values out of range and options without effect\n"
    "are errors. All errors are reported at once, one line each: file, line, column, key, what\n"
    "is wrong, what to write. Every value must be valid as a whole: `5e8` is the integer\n"
    "500000000; `010`, `1_000` and `maybe` are refused. Anchors, aliases and tags are not\n"
    "supported. `null` means the default. You can paste a DeepSpeed block: see\n"
    "[Coming from DeepSpeed and Megatron-LM](coming-from-deepspeed-and-megatron.md).\n"
    "\n"
    "Any two of `train_batch_size`, `train_micro_batch_size_per_gpu` and\n"
    "`gradient_accumulation_steps` give the third: batch = micro-batch x accumulation x\n"
    "data-parallel size. The data-parallel size is the number of ranks / (tensor size x\n"
    "pipeline size). The run folder gets the resolved configuration.\n";

static void describe_markdown(z3d_string *out) {
    z3d_string_append(out, "%s", page_head);
    for (int i = 0; i < CONFIG_KEY_COUNT; i++) {
        const config_key *key = &config_table[i];
        if (i == 0 || !same_section(config_table[i - 1].path, key->path)) {
            int length = (int)section_length(key->path);
            z3d_string_append(out, "\n## %.*s\n\n", length ? length : 9,
                              length ? key->path : "top level");
            z3d_string_append(out, "| key | type | default | values | meaning |\n|-|-|-|-|-|\n");
        }
        describe_key(out, key);
    }
    z3d_string_append(
        out, "\n## Accepted without effect\n\nThese keys of transformers' and of pasted DeepSpeed "
             "blocks change nothing here. One line says so.\n");
    describe_notes(out, false);
    z3d_string_append(
        out, "\n## Not supported yet\n\nThese keys are refused, unless the value asks for nothing\n"
             "(`false`, `null`, `enabled: false`).\n");
    describe_notes(out, true);
}

void z3d_config_describe(bool markdown, z3d_string *out) {
    if (markdown) {
        describe_markdown(out);
    } else {
        describe_text(out);
    }
}

void z3d_config_list_keys(z3d_string *out) {
    for (int i = 0; i < CONFIG_KEY_COUNT; i++) {
        z3d_string_append(out, "%s\n", config_table[i].path);
    }
}
