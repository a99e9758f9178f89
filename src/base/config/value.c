/* Reads one value and checks its rule. An error says what the key accepts. Gets values that are a
 * word of their rule or a list. */
#include "src/base/config/table.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static z3d_status parse_number(config_type type, const char *text, int64_t *integer,
                               double *number) {
    return type == CONFIG_INT ? z3d_parse_int(text, integer) : z3d_parse_float(text, number);
}

/* Whether the rule goes on with `word`; moves *rule after it. */
static bool take_word(const char **rule, const char *word) {
    const bool is = strncmp(*rule, word, strlen(word)) == 0;
    if (is) *rule += strlen(word);
    return is;
}

z3d_status config_parse_range(const config_key *key, config_range *out) {
    char open, low[32], high[32], close;
    int end = 0;
    *out = (config_range){0};
    if (sscanf(key->rule, "%c%31[^,],%31[^])]%c%n", &open, low, high, &close, &end) < 4 ||
        !strchr("[(", open) || !strchr("])", close))
        return Z3D_ERROR(Z3D_ERR_INTERNAL, "rule of %s: %s", key->path, key->rule);
    const char *at = key->rule + end;
    out->low_open = open == '(';
    out->high_open = close == ')';
    out->allow_auto = take_word(&at, " auto");
    out->allow_epoch = take_word(&at, " epoch");
    if (*at) return Z3D_ERROR(Z3D_ERR_INTERNAL, "rule of %s: %s", key->path, key->rule);
    Z3D_TRY(parse_number(key->type, low, &out->low_int, &out->low));
    return parse_number(key->type, high, &out->high_int, &out->high);
}

/* Appends "from 1 to 65536", "of at least 0 and below 1". */
static void append_interval(const config_key *key, const config_range *range, z3d_string *out) {
    char number[40];
    if (key->type == CONFIG_INT) {
        if (range->high_int == INT64_MAX) {
            z3d_string_append(out, "of at least %lld", (long long)range->low_int);
        } else {
            z3d_string_append(out, "from %lld to %lld", (long long)range->low_int,
                              (long long)range->high_int);
        }
        return;
    }
    z3d_string_append(out, "%s %s", range->low_open ? "above" : "of at least",
                      z3d_format_number(range->low, number, sizeof number));
    z3d_string_append(out, " and %s %s", range->high_open ? "below" : "at most",
                      z3d_format_number(range->high, number, sizeof number));
}

bool config_option(const char *options, int index, char *buf, size_t size) {
    const char *at = options;
    for (; index > 0; index--) {
        at = strchr(at, '|');
        if (!at) return false;
        at++;
    }
    size_t length = strcspn(at, "|");
    const char *list = strstr(at, " ["); /* a STRING's example of a list is no option */
    if (list && (size_t)(list - at) < length) length = (size_t)(list - at);
    if (length >= size) length = size - 1;
    memcpy(buf, at, length);
    buf[length] = '\0';
    return true;
}

static void append_options(const char *options, z3d_string *out) {
    char option[64];
    for (int i = 0; config_option(options, i, option, sizeof option); i++) {
        z3d_string_append(out, "%s%s", i ? ", " : "", option);
    }
}

/* The type of the numbers in a list: INT or FLOAT. */
static config_type list_type(const config_key *key) {
    return strchr(key->rule, '.') ? CONFIG_FLOAT : CONFIG_INT;
}

static void append_list_rule(const config_key *key, z3d_string *out) {
    const char *example = strchr(key->rule, '[');
    if (example)
        z3d_string_append(out, " or a list of %s, as %s",
                          list_type(key) == CONFIG_INT ? "integers" : "numbers", example);
    else
        z3d_string_append(out, "text");
}

void config_expected(const config_key *key, z3d_string *out) {
    static const char *const begins[] = {[CONFIG_INT] = "an integer ",
                                         [CONFIG_FLOAT] = "a number ",
                                         [CONFIG_BOOL] = "true or false",
                                         [CONFIG_STRING] = "",
                                         [CONFIG_ENUM] = "",
                                         [CONFIG_FLOAT2] = "a list of two numbers, each ",
                                         [CONFIG_LIST] = "a "};
    config_range range = {0};
    bool number =
        key->type == CONFIG_INT || key->type == CONFIG_FLOAT || key->type == CONFIG_FLOAT2;
    if (number && config_parse_range(key, &range) != Z3D_OK) return;
    z3d_string_append(out, "%s", begins[key->type]);
    if (key->type == CONFIG_ENUM && strchr(key->rule, '|')) z3d_string_append(out, "one of ");
    if (key->type == CONFIG_ENUM || key->type == CONFIG_STRING) append_options(key->rule, out);
    if (key->type == CONFIG_STRING) append_list_rule(key, out);
    if (key->type == CONFIG_LIST)
        z3d_string_append(out, "%s",
                          strcmp(key->rule, "groups") == 0
                              ? "list of {params: [...], lr or lr_scale or weight_decay: ...}"
                          : key->rule[0] ? "text, or a list of texts"
                                         : "path, or a list of paths or {path: ..., weight: ...}");
    if (number) append_interval(key, &range, out);
    if (range.allow_auto && range.allow_epoch)
        z3d_string_append(out, ", auto or epoch");
    else if (range.allow_auto || range.allow_epoch)
        z3d_string_append(out, " or %s", range.allow_auto ? "auto" : "epoch");
}

z3d_status config_refuse(const config_key *key, const char *problem) {
    z3d_string text = {0};
    z3d_string_append(&text, "%s; expected ", problem);
    config_expected(key, &text);
    z3d_status status = Z3D_ERROR(Z3D_ERR_CONFIG, "%s", text.failed ? key->path : text.text);
    z3d_string_free(&text);
    return status;
}

static z3d_status refuse_value(const config_key *key, config_scalar scalar, const char *why) {
    z3d_string problem = {0};
    z3d_string_append(&problem, "'%.80s%s' %s", scalar.text, strlen(scalar.text) > 80 ? "..." : "",
                      why);
    z3d_status status = config_refuse(key, problem.failed ? why : problem.text);
    z3d_string_free(&problem);
    return status;
}

bool config_is_null(config_scalar scalar) {
    return !scalar.quoted && (strcmp(scalar.text, "~") == 0 || strcmp(scalar.text, "null") == 0);
}

bool config_is_empty(config_scalar scalar) {
    return config_is_null(scalar) || (!scalar.quoted && scalar.text[0] == '\0');
}

static const char no_auto[] = "'auto' is not supported here";

static z3d_status set_int(const config_key *key, config_scalar scalar, int64_t *out) {
    config_range range;
    int64_t value;
    Z3D_TRY(config_parse_range(key, &range));
    if (range.allow_auto && strcmp(scalar.text, "auto") == 0) {
        *out = Z3D_AUTO;
        return Z3D_OK;
    }
    if (range.allow_epoch && strcmp(scalar.text, "epoch") == 0) {
        *out = Z3D_EPOCH;
        return Z3D_OK;
    }
    if (strcmp(scalar.text, "auto") == 0) return config_refuse(key, no_auto);
    if (scalar.quoted) return refuse_value(key, scalar, "is text; write the number without quotes");
    if (z3d_parse_int(scalar.text, &value) != Z3D_OK)
        return config_refuse(key, z3d_error_message());
    if (value < range.low_int || value > range.high_int) {
        return refuse_value(key, scalar, "is out of range");
    }
    *out = value;
    return Z3D_OK;
}

z3d_status config_set_float(const config_key *key, config_scalar scalar, double *out) {
    config_range range;
    double value;
    Z3D_TRY(config_parse_range(key, &range));
    if (range.allow_auto && strcmp(scalar.text, "auto") == 0) {
        *out = NAN;
        return Z3D_OK;
    }
    if (strcmp(scalar.text, "auto") == 0) return config_refuse(key, no_auto);
    if (scalar.quoted) return refuse_value(key, scalar, "is text; write the number without quotes");
    if (z3d_parse_float(scalar.text, &value) != Z3D_OK)
        return config_refuse(key, z3d_error_message());
    bool low = range.low_open ? value > range.low : value >= range.low;
    bool high = range.high_open ? value < range.high : value <= range.high;
    if (!low || !high) return refuse_value(key, scalar, "is out of range");
    *out = value == 0 ? 0 : value; /* -0 would print as -0 */
    return Z3D_OK;
}

static z3d_status set_bool(const config_key *key, config_scalar scalar, bool *out) {
    bool yes = strcmp(scalar.text, "true") == 0 || strcmp(scalar.text, "True") == 0;
    bool no = strcmp(scalar.text, "false") == 0 || strcmp(scalar.text, "False") == 0;
    if (strcmp(scalar.text, "auto") == 0) return config_refuse(key, no_auto);
    if (!yes && !no) {
        return refuse_value(key, scalar, "is neither true nor false");
    }
    if (scalar.quoted) return refuse_value(key, scalar, "is text; write it without quotes");
    *out = yes;
    return Z3D_OK;
}

static bool is_optimizer(const config_key *key) {
    return strcmp(key->path, "optimizer.type") == 0;
}

/* The option for a name of an older version, its checkpoints, or another framework. */
static const char *option_now(const config_key *key, const char *text) {
    if (strcmp(key->path, "training.collectives") == 0 && strcmp(text, "mpi") == 0) return "host";
    if (strcmp(key->path, "scheduler.type") == 0) return z3d_lr_schedule_named(text);
    return is_optimizer(key) ? z3d_optimizer_named(text) : text;
}

static z3d_status set_enum(const config_key *key, config_scalar scalar, int *out) {
    char option[64];
    const char *text = option_now(key, scalar.text);
    for (int i = 0; config_option(key->rule, i, option, sizeof option); i++) {
        if (strcmp(option, text) == 0) {
            *out = i;
            return Z3D_OK;
        }
    }
    bool gpu = strcmp(key->path, "training.device") == 0 && strcasecmp(scalar.text, "gpu") == 0;
    bool planned = is_optimizer(key) && z3d_optimizer_is_planned(scalar.text);
    bool near = !planned &&
                config_nearest_option(key->rule, gpu ? "cuda" : scalar.text, option, sizeof option);
    z3d_string right = {0};
    if (!near) config_expected(key, &right);
    z3d_status status =
        Z3D_ERROR(Z3D_ERR_CONFIG, "'%.80s%s' is not %s; use %s", scalar.text,
                  strlen(scalar.text) > 80 ? "..." : "", planned ? "built yet" : "supported",
                  near || right.failed ? option : right.text);
    z3d_string_free(&right);
    return status;
}

/* ---- a word or a list of numbers, as text: "[4, 3, 3, 4]" or "4,3,3,4" ---- */

static bool is_numbers(const char *text) {
    text += strspn(text, " \t");
    return strchr("[-.,", *text) ? *text != '\0' : isdigit((unsigned char)*text) != 0;
}

/* Parses one entry of a list, without the spaces around it. */
static z3d_status parse_entry(const char *start, size_t length, config_type type, int64_t *integer,
                              double *number) {
    char text[32];
    while (length > 0 && isspace((unsigned char)*start)) start++, length--;
    while (length > 0 && isspace((unsigned char)start[length - 1])) length--;
    if (length == 0) return Z3D_ERROR(Z3D_ERR_CONFIG, "an entry of the list is empty");
    if (length >= sizeof text)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "'%.*s...' is not %s", (int)sizeof text, start,
                         type == CONFIG_INT ? "an integer" : "a number");
    memcpy(text, start, length);
    text[length] = '\0';
    return parse_number(type, text, integer, number);
}

/* out: int64_t for INT, double for FLOAT. Keeps the first `capacity` numbers, counts all. */
static z3d_status parse_numbers(const char *text, config_type type, void *out, int capacity,
                                int *count) {
    const char *at = text + strspn(text, " \t");
    bool bracket = *at == '[';
    *count = 0;
    for (at += bracket;;) {
        int64_t integer = 0;
        double number = 0;
        size_t length = strcspn(at, ",]");
        Z3D_TRY(parse_entry(at, length, type, &integer, &number));
        if (*count < capacity && type == CONFIG_INT) ((int64_t *)out)[*count] = integer;
        if (*count < capacity && type == CONFIG_FLOAT) ((double *)out)[*count] = number;
        ++*count;
        at += length;
        if (*at != ',') break;
        at++;
    }
    bool closed = *at == ']';
    at += closed;
    at += strspn(at, " \t");
    if (closed != bracket || *at) return Z3D_ERROR(Z3D_ERR_CONFIG, "'%.80s' is not a list", text);
    return Z3D_OK;
}

/* Checks that a text is one of the rule's words or a list of numbers. */
static z3d_status check_word(const config_key *key, config_scalar scalar) {
    int index, count;
    if (!is_numbers(scalar.text)) return set_enum(key, scalar, &index);
    z3d_status status = parse_numbers(scalar.text, list_type(key), NULL, 0, &count);
    return status == Z3D_OK ? status : config_refuse(key, z3d_error_message());
}

static z3d_status set_string(const config_key *key, config_scalar scalar, const char **out) {
    const char *text = config_is_empty(scalar) ? "" : scalar.text;
    if (key->rule[0]) Z3D_TRY(check_word(key, scalar));
    char *copy = strdup(text);
    if (!copy) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the value of %s", key->path);
    free((void *)(uintptr_t)*out);
    *out = copy;
    return Z3D_OK;
}

static z3d_status set_list(const config_key *key, config_scalar scalar, z3d_data_list *out) {
    z3d_data_list list = {0};
    if (!config_is_empty(scalar)) {
        if (scalar.text[0] == '\0')
            return config_refuse(key, key->rule[0] ? "the text is empty" : "the path is empty");
        Z3D_TRY(config_list_append(&list, scalar.text, 1));
    }
    config_list_free(out);
    *out = list;
    return Z3D_OK;
}

z3d_status config_set_scalar(z3d_config *config, const config_key *key, config_scalar scalar) {
    void *field = config_field(config, key);
    bool may_be_null = key->type == CONFIG_LIST || (key->type == CONFIG_STRING && !key->rule[0]);
    if (config_is_empty(scalar) && !may_be_null) return config_refuse(key, "the key has no value");
    switch (key->type) {
    case CONFIG_INT:
        return set_int(key, scalar, field);
    case CONFIG_FLOAT:
        return config_set_float(key, scalar, field);
    case CONFIG_BOOL:
        return set_bool(key, scalar, field);
    case CONFIG_STRING:
        return set_string(key, scalar, field);
    case CONFIG_ENUM:
        return set_enum(key, scalar, field);
    case CONFIG_LIST:
        return set_list(key, scalar, field);
    case CONFIG_FLOAT2:
        break;
    }
    return refuse_value(key, scalar, "is one value");
}

z3d_status config_parse_peer(const config_key *key, config_scalar scalar, double *out) {
    bool on = false;
    if (key->type == CONFIG_FLOAT) return config_set_float(key, scalar, out);
    z3d_status status = set_bool(key, scalar, &on);
    *out = on;
    return status;
}

z3d_status config_list_append(z3d_data_list *list, const char *path, double weight) {
    size_t count = (size_t)list->count + 1;
    const char **paths = realloc(list->path, count * sizeof *paths);
    if (paths) list->path = paths;
    double *weights = realloc(list->weight, count * sizeof *weights);
    if (weights) list->weight = weights;
    char *copy = strdup(path);
    if (!paths || !weights || !copy) {
        free(copy);
        return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a list of %zu texts", count);
    }
    list->path[list->count] = copy;
    list->weight[list->count] = weight;
    list->count++;
    return Z3D_OK;
}

void config_list_free(z3d_data_list *list) {
    for (int i = 0; i < list->count; i++) free((void *)(uintptr_t)list->path[i]);
    free(list->path);
    free(list->weight);
    *list = (z3d_data_list){0};
}

/* ---- values that are a word or a list ---- */

/* The index of a text among its rule's words. For a list: the number of these words; *count is its
 * length, and out (may be NULL) gets the first `capacity` numbers. */
static int word_or_list(const config_key *key, const char *text, void *out, int capacity,
                        int *count) {
    char word[32];
    int words = 0;
    *count = 0;
    for (; config_option(key->rule, words, word, sizeof word); words++)
        if (strcmp(word, text) == 0) return words;
    if (parse_numbers(text, list_type(key), out, out ? capacity : 0, count) != Z3D_OK) *count = 0;
    return words;
}

z3d_partition z3d_config_partition(const z3d_config *config, int64_t *units, int capacity,
                                   int *count) {
    const config_key *key = &config_table[CONFIG_KEY_parallel_pipeline_partition];
    return (z3d_partition)word_or_list(key, config->parallel_pipeline_partition, units, capacity,
                                       count);
}

z3d_device_speeds z3d_config_device_speeds(const z3d_config *config, double *speed, int capacity,
                                           int *count) {
    const config_key *key = &config_table[CONFIG_KEY_parallel_device_speeds];
    return (z3d_device_speeds)word_or_list(key, config->parallel_device_speeds, speed, capacity,
                                           count);
}

z3d_gemm_policy z3d_config_cuda_gemm(const z3d_config *config) {
    const z3d_data_list *list = &config->training_gemm_cuda;
    if (list->count == 0 || (list->count == 1 && strcmp(list->path[0], "heuristic") == 0))
        return Z3D_CUDA_GEMM_HEURISTIC;
    return list->count == 1 && strcmp(list->path[0], "timed") == 0 ? Z3D_CUDA_GEMM_TIMED
                                                                   : Z3D_CUDA_GEMM_LIST;
}
