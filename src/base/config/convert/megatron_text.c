/* Finds Megatron-LM's arguments in the words of a command, in a list, in YAML with --names as keys,
 * or in the log of a run. A text with shell syntax is refused, since only a shell can expand it. */
#include "src/base/config/convert/megatron.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_BEGIN "- arguments -"
#define LOG_END "- end of arguments -"

/* ---- words ---- */

static const struct {
    const char *old, *name;
} renamed[] = {
    {"batch-size", "micro-batch-size"},
    {"model-parallel-size", "tensor-model-parallel-size"},
    {"warmup", "lr-warmup-fraction"},
    {"encoder-num-layers", "num-layers"},
    {"encoder-seq-length", "seq-length"},
    {"layernorm-epsilon", "norm-epsilon"},
    {"checkpoint-num-layers", "recompute-num-layers"},
    {"activations-checkpoint-num-layers", "recompute-num-layers"},
    {"activations-checkpoint-method", "recompute-method"},
    {"activations-checkpoint-granularity", "recompute-granularity"},
    {"distribute-checkpointed-activations", "distribute-saved-activations"},
    {"partition-activations", "distribute-saved-activations"},
    {"cpu-optimizer", "optimizer-cpu-offload"},
    {"zero-reduce-bucket-size", "ddp-bucket-size"},
    {"local-rank", "node-rank"},
};

static bool is_flag(const char *word) {
    return word[0] == '-' && word[1] == '-' && isalpha((unsigned char)word[2]);
}

static bool is_script(const char *word) {
    size_t length = strlen(word);
    return length > 3 && strcmp(word + length - 3, ".py") == 0;
}

/* Whether a word is a placeholder for a value. */
static bool is_placeholder(const char *word) {
    return word[0] == '<' || strchr(word, '$') || strncmp(word, "{{", 2) == 0 ||
           strcmp(word, "...") == 0;
}

/* Removes the underscores of Python's 220_000_000. */
static void tidy_number(char *word) {
    char *to = word;
    bool number = isdigit((unsigned char)word[0]) && word[strspn(word, "0123456789_")] == '\0';
    for (char *from = word; number && (*to = *from); from++) to += *from != '_';
}

static z3d_status add_value(megatron_text *out, const char *word) {
    megatron_given *g = &out->given[out->count - 1];
    z3d_string joined = {0};
    const size_t before = strlen(g->values);
    z3d_string_append(&joined, "%s%s%s", g->values, before ? " " : "", word);
    if (joined.failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for an argument");
    tidy_number(joined.text + before + (before > 0));
    g->unknown = g->unknown || is_placeholder(word);
    free(g->values);
    g->values = joined.text;
    return config_list_append(&g->words, joined.text + before + (before > 0), 1);
}

/* Begins the argument "--name" or "--name=value". */
static z3d_status begin_argument(megatron_text *out, const char *word, const char *source) {
    const size_t length = strcspn(word, "=");
    if (out->count == MEGATRON_GIVEN)
        return Z3D_ERROR(Z3D_ERR_DATA, "%.200s: more than %d arguments", source, MEGATRON_GIVEN);
    megatron_given *g = &out->given[out->count];
    *g = (megatron_given){.name = strndup(word + 2, length - 2), .values = strdup("")};
    out->count++;
    if (!g->name || !g->values) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for an argument");
    for (char *c = g->name; *c; c++)
        if (*c == '_') *c = '-';
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++) {
        if (strcmp(renamed[i].old, g->name) != 0) continue;
        free(g->name);
        g->old = renamed[i].old;
        g->name = strdup(renamed[i].name);
        if (!g->name) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for an argument");
    }
    return word[length] ? add_value(out, word + length + 1) : Z3D_OK;
}

static void free_given(megatron_given *given) {
    free(given->name);
    free(given->values);
    config_list_free(&given->words);
}

static z3d_status check_some(const megatron_text *out, const char *source) {
    if (out->count > 0) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_DATA, "%.200s has no arguments such as --num-layers 24", source);
}

z3d_status megatron_read_words(const char *const *words, int count, const char *source,
                               megatron_text *out) {
    int script = -1;
    for (int i = 0; i < count; i++) {
        if (!is_script(words[i])) continue;
        if (script >= 0)
            return Z3D_ERROR(Z3D_ERR_DATA,
                             "%.200s: %.100s and %.100s are two programs; give the command of one "
                             "training script",
                             source, words[script], words[i]);
        script = i;
    }
    if (script < 0 && count > 0 && !is_flag(words[0]))
        return Z3D_ERROR(
            Z3D_ERR_DATA,
            "%.200s: '%.100s' is no argument, and there is no training script (NAME.py); give the "
            "whole command, or only arguments such as --num-layers 24",
            source, words[0]);
    for (int i = script + 1; i < count; i++) {
        if (is_flag(words[i]))
            Z3D_TRY(begin_argument(out, words[i], source));
        else if (out->count > 0)
            Z3D_TRY(add_value(out, words[i]));
    }
    return check_some(out, source);
}

/* ---- a list in a file ---- */

typedef struct list {
    const char *at, *source;
    int line;
    bool starts_line, script, ended; /* ended: the script's line is over */
} list;

static z3d_status refuse_shell(const list *l, const char *what) {
    return Z3D_ERROR(Z3D_ERR_DATA,
                     "%.200s:%d: %.40s: only a shell can read this; write `zero3d config "
                     "--from-megatron --` in front of the script's launch command and run the "
                     "script, or give the log of a run, which begins with all arguments",
                     l->source, l->line, what);
}

/* Skips blanks, comments and the ends of continued lines. */
static void skip_blanks(list *l) {
    for (;; l->at++) {
        bool continued = l->at[0] == '\\' && l->at[1 + (l->at[1] == '\r')] == '\n';
        if (continued) {
            l->at += 1 + (l->at[1] == '\r');
            l->line++;
        } else if (l->at[0] == '\\' && !l->at[1]) {
            continue; /* nothing follows */
        } else if (*l->at == '#') {
            while (l->at[1] && l->at[1] != '\n') l->at++;
        } else if (*l->at == '\n') {
            l->line++;
            l->starts_line = true;
            l->ended = l->script;
        } else if (!*l->at || !isspace((unsigned char)*l->at)) {
            return;
        }
    }
}

/* Reads a word. A placeholder <PATH TO A> is one word. */
static z3d_status read_word(list *l, z3d_string *word) {
    char quote = *l->at == '<' ? '>' : '\0';
    if (quote && l->at[1] == '<') return refuse_shell(l, "<<");
    for (; *l->at && (quote || !isspace((unsigned char)*l->at)); l->at++) {
        const char c = *l->at;
        if (quote != '\'' && quote != '>' && strchr("$`\\", c))
            return refuse_shell(l, "$, ` or a backslash");
        if (!quote && strchr(";|&()>", c)) return refuse_shell(l, (const char[]){c, '\0'});
        if (!quote && (c == '"' || c == '\'')) {
            quote = c;
        } else if (quote && c == quote) {
            if (c == '>') z3d_string_append(word, ">");
            quote = '\0';
        } else {
            l->line += c == '\n';
            z3d_string_append_bytes(word, &c, 1);
        }
    }
    if (quote && quote != '>') return refuse_shell(l, "a quote without its end");
    z3d_string_append(word, "%s", "");
    return word->failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for an argument") : Z3D_OK;
}

/* Refuses a line whose first word is a shell's. */
static z3d_status check_first_word(const list *l, const char *word) {
    const char *equals = strchr(word, '=');
    if (l->ended) return refuse_shell(l, "more than one command");
    if (z3d_has_word("if then else elif fi case esac for while until do done { } function export "
                     "source eval",
                     word))
        return refuse_shell(l, word);
    return equals && !is_flag(word) && !memchr(word, '/', (size_t)(equals - word))
               ? refuse_shell(l, "an assignment")
               : Z3D_OK;
}

static z3d_status read_list(const char *text, const char *source, megatron_text *out) {
    list l = {.at = text, .source = source, .line = 1, .starts_line = true};
    z3d_data_list words = {0};
    z3d_status status = Z3D_OK;
    while (status == Z3D_OK && (skip_blanks(&l), *l.at)) {
        z3d_string word = {0};
        status = read_word(&l, &word);
        if (status == Z3D_OK && l.starts_line) status = check_first_word(&l, word.text);
        l.starts_line = false;
        l.script = l.script || (status == Z3D_OK && is_script(word.text));
        if (status == Z3D_OK) status = config_list_append(&words, word.text, 1);
        z3d_string_free(&word);
    }
    if (status == Z3D_OK) status = megatron_read_words(words.path, words.count, source, out);
    config_list_free(&words);
    return status;
}

/* ---- lines of name and value ---- */

/* Cuts the next line out of the text, without blanks around it; NULL at the end. */
static char *next_line(char **at) {
    char *line = *at;
    if (!*line) return NULL;
    size_t length = strcspn(line, "\n");
    *at = line + length + (line[length] == '\n');
    while (length > 0 && isspace((unsigned char)*line)) line++, length--;
    while (length > 0 && isspace((unsigned char)line[length - 1])) length--;
    line[length] = '\0';
    return line;
}

/* Whether a log's name and False stand for a flag with no- or disable-. */
static bool is_negated(const megatron_text *out, const char *name, const char *value) {
    return out->is_log && strcmp(value, "False") == 0 &&
           (strcmp(name, "add_bias_linear") == 0 || strcmp(name, "add_position_embedding") == 0);
}

/* The end of the value at `at`, which ends at a blank, or in a list at , or ]. */
static const char *end_of_value(const char *at, bool in_list) {
    if (*at == '"' || *at == '\'') {
        const char *end = strchr(at + 1, *at);
        return end ? end + 1 : NULL;
    }
    return at + strcspn(at, in_list ? ",]" : " \t");
}

/* Adds each value of "[0.3, 'a b']" or "0.3 'a b'". */
static z3d_status add_each(megatron_text *out, const char *text, const char *source) {
    const bool list = *text == '[';
    for (const char *at = text + list, *end; at[strspn(at, " \t,")]; at = end) {
        at += strspn(at, list ? " \t," : " \t");
        if (list && *at == ']') return Z3D_OK;
        end = end_of_value(at, list);
        if (!end)
            return Z3D_ERROR(Z3D_ERR_DATA, "%.200s: %.80s: a quote without its end", source, text);
        const size_t quoted = *at == '"' || *at == '\'';
        size_t length = (size_t)(end - at) - 2 * quoted;
        while (!quoted && length > 0 && isspace((unsigned char)at[length - 1])) length--;
        char *word = strndup(at + quoted, length);
        z3d_status status =
            word ? add_value(out, word) : Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for an argument");
        free(word);
        Z3D_TRY(status);
    }
    return !list ? Z3D_OK
                 : Z3D_ERROR(Z3D_ERR_DATA,
                             "%.200s: %.80s: a list without its end; write it on one line", source,
                             text);
}

/* Adds a value as YAML and Python write it. False and None remove the argument. */
static z3d_status add_values(megatron_text *out, const char *value, const char *source) {
    if (z3d_has_word("false False None null []", value)) {
        free_given(&out->given[--out->count]);
        return Z3D_OK;
    }
    if (z3d_has_word("true True", value)) return Z3D_OK;
    if (!out->is_log && *value && strchr("|>&*!{", *value))
        return Z3D_ERROR(Z3D_ERR_DATA, "%.200s: '%.80s' is not read; write the value itself",
                         source, value);
    const bool whole = *value == '<' || (out->is_log && *value != '[');
    return whole ? add_value(out, value) : add_each(out, value, source);
}

static z3d_status add_line(megatron_text *out, const char *name, size_t length, const char *value,
                           const char *source) {
    z3d_string flag = {0};
    z3d_string_append(&flag, "--%.*s", (int)length, name);
    if (flag.failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for an argument");
    const bool negated = is_negated(out, flag.text + 2, value);
    const char *negation =
        flag.text[6] == 'b' ? "--disable-bias-linear" : "--no-position-embedding";
    z3d_status status = begin_argument(out, negated ? negation : flag.text, source);
    z3d_string_free(&flag);
    return status == Z3D_OK && !negated ? add_values(out, value, source) : status;
}

/* ---- YAML ---- */

/* Reads lines "--num-layers: 24"; "- a" adds a value. Other lines are other settings. */
static z3d_status read_yaml(char *text, const char *source, megatron_text *out) {
    bool open = false;
    size_t depth = SIZE_MAX; /* of the last argument */
    for (char *line, *begin = text; (line = next_line(&text)); begin = text) {
        const bool comment = line[0] == '#' || !line[0];
        const size_t here = (size_t)(line - begin);
        const char *cut = config_comment(line);
        if (cut) line[cut - line] = '\0';
        size_t name = is_flag(line) ? strcspn(line, ":") : 0;
        if (name > 0 && line[name] == ':') {
            char *value = line + name + 1;
            const int before = out->count;
            Z3D_TRY(add_line(out, line + 2, name - 2, value + strspn(value, " \t"), source));
            open = out->count > before;
            depth = here;
        } else if (open && line[0] == '-' && line[1] == ' ') {
            Z3D_TRY(add_values(out, line + 2, source));
        } else if (!comment && here > depth && line[0] != '-') {
            return Z3D_ERROR(Z3D_ERR_DATA,
                             "%.200s: '%.80s' continues the value above; write one value on one "
                             "line, or several as a list",
                             source, line);
        } else if (!comment) {
            open = false;
            depth = SIZE_MAX;
        }
    }
    return Z3D_OK;
}

static const char *line_after(const char *line) {
    const char *end = strchr(line, '\n');
    return end ? end + 1 : NULL;
}

/* Whether a line is "--name: VALUE". */
static bool is_yaml_argument(const char *line) {
    line += strspn(line, " \t");
    return is_flag(line) && line[2 + strcspn(line + 2, ": =\t\n")] == ':';
}

static bool is_yaml(const char *text) {
    while (text && !is_yaml_argument(text)) text = line_after(text);
    return text != NULL;
}

/* The nearest line above that is less indented or begins a document; NULL: none. */
static const char *parent_of(const char *text, const char *line) {
    const size_t depth = strspn(line, " ");
    while (line > text) {
        for (line--; line > text && line[-1] != '\n';) line--;
        const size_t here = strspn(line, " ");
        if (strncmp(line, "---", 3) == 0 || (here < depth && !strchr("#\r\n", line[here])))
            return line;
    }
    return NULL;
}

/* Writes the name of a mapping, such as "MODEL_ARGS". */
static void name_mapping(const char *line, char *out, size_t size) {
    line = line ? line + strspn(line, " ") : "the top of the file";
    snprintf(out, size, "%.*s", (int)strcspn(line, ":\r\n"), line);
}

/* Refuses arguments in two mappings: they are two runs. */
static z3d_status check_one_mapping(const char *text, const char *source) {
    const char *first = NULL;
    int count = 0;
    for (const char *line = text; line && count <= MEGATRON_GIVEN; line = line_after(line)) {
        char one[64], other[64];
        if (!is_yaml_argument(line)) continue;
        const char *parent = parent_of(text, line);
        if (count++ == 0) first = parent;
        if (parent == first) continue;
        name_mapping(first, one, sizeof one);
        name_mapping(parent, other, sizeof other);
        return Z3D_ERROR(
            Z3D_ERR_DATA,
            "%.200s: %s and %s both have --arguments, as two runs; leave one of them in the file",
            source, one, other);
    }
    return Z3D_OK;
}

/* ---- the log of a run ---- */

/* The blanks after a name that is too long for dots; NULL: none. */
static char *end_of_long_name(char *line) {
    enum { ROOM = 47 };
    for (char *word = line; *word;) {
        char *end = word + strcspn(word, " ");
        if (end - word >= ROOM) return end;
        word = end + strspn(end, " ");
    }
    return NULL;
}

/* Reads lines "  num_layers ............ 24"; a launcher may write a prefix. */
static z3d_status read_log(char *begin, const char *source, megatron_text *out) {
    char *end = strstr(begin, LOG_END), *at = begin + strcspn(begin, "\n");
    if (!end)
        return Z3D_ERROR(Z3D_ERR_DATA, "%.200s: the list of arguments is cut: no '%s' follows",
                         source, LOG_END);
    *end = '\0';
    out->is_log = true;
    for (char *line; (line = next_line(&at));) {
        char *dots = strstr(line, " .");
        if (!dots || dots[1 + strspn(dots + 1, ".")] != ' ') dots = end_of_long_name(line);
        if (!dots || dots == line) continue;
        char *value = dots + 1 + strspn(dots + 1, "."), *name = dots;
        while (name > line && !isspace((unsigned char)name[-1])) name--;
        Z3D_TRY(add_line(out, name, (size_t)(dots - name), value + strspn(value, " "), source));
    }
    return Z3D_OK;
}

/* The last list of arguments: a restarted run appends to its log. */
static char *log_of(char *text) {
    char *found = NULL;
    for (char *at = text; (at = strstr(at, LOG_BEGIN)); at++) found = at;
    return found;
}

z3d_status megatron_read_text(char *text, const char *source, megatron_text *out) {
    char *log = log_of(text);
    if (log) {
        Z3D_TRY(read_log(log, source, out));
        return check_some(out, source);
    }
    Z3D_TRY(config_refuse_format(text, source, "--from-megatron"));
    if (!is_yaml(text)) return read_list(text, source, out);
    Z3D_TRY(check_one_mapping(text, source));
    Z3D_TRY(read_yaml(text, source, out));
    return check_some(out, source);
}

void megatron_text_free(megatron_text *text) {
    for (int i = 0; i < text->count; i++) free_given(&text->given[i]);
}

static const megatron_given *last_of(const megatron_text *text, const char *name) {
    for (int i = text->count - 1; i >= 0; i--)
        if (strcmp(text->given[i].name, name) == 0) return &text->given[i];
    return NULL;
}

const char *megatron_value(const megatron_text *text, const char *name) {
    const megatron_given *g = last_of(text, name);
    return g && !g->unknown ? g->values : NULL;
}

const z3d_data_list *megatron_words(const megatron_text *text, const char *name) {
    return megatron_value(text, name) ? &last_of(text, name)->words : NULL;
}

bool megatron_is_unknown(const megatron_text *text, const char *name) {
    const megatron_given *g = last_of(text, name);
    return g && g->unknown;
}

bool megatron_is_renamed(const megatron_text *text, const char *name) {
    const megatron_given *g = last_of(text, name);
    return g && g->old;
}
