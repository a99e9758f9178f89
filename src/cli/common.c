/* Shared by the commands: arguments, reading a configuration, printing, exit codes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/cli/cli.h"
#include "src/model/model.h"

static const cli_option *find_option(const cli_option *options, const char *name, size_t length) {
    for (; options->name; options++)
        if (strlen(options->name) == length && memcmp(options->name, name, length) == 0)
            return options;
    return NULL;
}

/* "max-new-tokens" ends in "-tokens"; "top_p" is "top-p". */
static bool resembles(const char *given, size_t length, const char *name) {
    size_t size = strlen(name);
    if (length < size ||
        (length > size && given[length - size - 1] != '-' && given[length - size - 1] != '_'))
        return false;
    for (size_t i = 0; i < size; i++) {
        char c = given[length - size + i];
        if ((c == '_' ? '-' : c) != name[i]) return false;
    }
    return true;
}

bool cli_is_near(const char *given, const char *name) {
    const int far = z3d_word_distance(given, name);
    return far <= 1 + (int)strlen(name) / 5 && far < (int)strlen(name);
}

/* argv[i] is an option that the command does not have: suggests the right one. */
static z3d_status refuse_option(int argc, char **argv, int i, const cli_option *options) {
    const char *given = argv[i] + 2, *value = strchr(given, '=');
    size_t length = value ? (size_t)(value - given) : strlen(given);
    bool configured = z3d_has_word("train plan generate evaluate submit", argv[0]);
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : 0), given);
    for (const cli_option *o = options; o->name; o++)
        if (resembles(given, length, o->name) || cli_is_near(name, o->name))
            return Z3D_ERROR(Z3D_ERR_USAGE, "unknown option %s; did you mean --%s?", argv[i],
                             o->name);
    if (configured && length == 6 && strncmp(given, "config", 6) == 0)
        return Z3D_ERROR(Z3D_ERR_USAGE, "unknown option %s; the file comes without an option",
                         argv[i]);
    const char *key = configured ? z3d_config_key_named(name) : NULL;
    if (!key && strcmp(argv[0], "submit") == 0)
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "unknown option %s; if it is sbatch's, write --sbatch --%s=VALUE", argv[i],
                         name);
    if (!key) return Z3D_ERROR(Z3D_ERR_USAGE, "unknown option %s", argv[i]);
    if (value)
        value++;
    else
        value = i + 1 < argc && strncmp(argv[i + 1], "--", 2) != 0 ? argv[i + 1] : "VALUE";
    return Z3D_ERROR(Z3D_ERR_USAGE, "unknown option %s; write %s=%s", argv[i], key, value);
}

static bool is_picture(const char *argument) {
    size_t length = argument ? strlen(argument) : 0;
    return length > 4 && strcmp(argument + length - 4, ".svg") == 0 && !strchr(argument, '=');
}

static z3d_status store_number(const cli_option *option, const char *value) {
    const bool good = z3d_parse_int(value, option->number) == Z3D_OK;
    const bool above = good && option->most && *option->number > option->most;
    if (good && *option->number >= option->least && !above) return Z3D_OK;
    /* INT32_MAX is the limit of a type: only a number above it needs to know. */
    if (!option->most || (option->most == INT32_MAX && !above))
        return Z3D_ERROR(Z3D_ERR_USAGE, "--%s %s: expected a whole number of at least %lld",
                         option->name, value, (long long)option->least);
    return Z3D_ERROR(Z3D_ERR_USAGE, "--%s %s: expected a whole number from %lld to %lld",
                     option->name, value, (long long)option->least, (long long)option->most);
}

static z3d_status store_choice(const cli_option *option, const char *value) {
    z3d_string all = {0};
    for (int i = 0; option->names[i]; i++) {
        if (strcmp(value, option->names[i]) == 0) {
            *option->choice = i;
            z3d_string_free(&all);
            return Z3D_OK;
        }
        z3d_string_append(&all, "%s%s",
                          i == 0                 ? ""
                          : option->names[i + 1] ? ", "
                                                 : " or ",
                          option->names[i]);
    }
    z3d_status status = Z3D_ERROR(Z3D_ERR_USAGE, "--%s %s: expected %s", option->name, value,
                                  all.text ? all.text : "another value");
    z3d_string_free(&all);
    return status;
}

static z3d_status store(const cli_option *option, const char *value) {
    cli_values *all = option->values;
    if (option->number) return store_number(option, value);
    if (option->choice) return store_choice(option, value);
    if (!all) {
        *option->value = value;
        return Z3D_OK;
    }
    if (all->count == CLI_MAX_VALUES)
        return Z3D_ERROR(Z3D_ERR_USAGE, "option --%s is given more than %d times", option->name,
                         CLI_MAX_VALUES);
    all->value[all->count++] = value;
    return Z3D_OK;
}

/* argv[*i] is an option: stores it and moves *i to its value, if it has one. */
static z3d_status take_option(int argc, char **argv, int *i, const cli_option *options) {
    const char *name = argv[*i] + 2, *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    const cli_option *option = find_option(options, name, length);
    if (!option) return refuse_option(argc, argv, *i, options);
    if (option->flag && option->value) {
        *option->flag = true;
        if (equals)
            *option->value = equals + 1;
        else if (*i + 1 < argc && is_picture(argv[*i + 1]))
            *option->value = argv[++*i];
    } else if (option->flag) {
        if (equals) return Z3D_ERROR(Z3D_ERR_USAGE, "option --%s takes no value", option->name);
        *option->flag = true;
    } else if (equals) {
        return store(option, equals + 1);
    } else {
        if (*i + 1 >= argc)
            return Z3D_ERROR(Z3D_ERR_USAGE, "option --%s needs a value", option->name);
        return store(option, argv[++*i]);
    }
    return Z3D_OK;
}

z3d_status cli_parse(int argc, char **argv, const cli_option *options, int *count) {
    bool only_arguments = false;
    *count = 0;
    for (int i = 1; i < argc; i++) {
        if (!only_arguments && strcmp(argv[i], "--") == 0)
            only_arguments = true;
        else if (!only_arguments && strncmp(argv[i], "--", 2) == 0)
            Z3D_TRY(take_option(argc, argv, &i, options));
        else if (!only_arguments && argv[i][0] == '-' && argv[i][1] != '\0')
            return Z3D_ERROR(Z3D_ERR_USAGE, "unknown option %s", argv[i]);
        else
            argv[++*count] = argv[i];
    }
    return Z3D_OK;
}

bool cli_is_in_path(const char *name) {
    const char *at = getenv("PATH");
    bool found = false;
    for (size_t length; at && *at && !found; at += length + strspn(at + length, ":")) {
        z3d_string file = {0};
        length = strcspn(at, ":");
        z3d_string_append(&file, "%.*s/%s", (int)length, at, name);
        found = !file.failed && access(file.text, X_OK) == 0;
        z3d_string_free(&file);
    }
    return found;
}

/* Reads a configuration, or a part of one without a model. */
static z3d_status read_any(const char *file, int count, char *const *assignments, int ranks,
                           z3d_config **out) {
    *out = NULL;
    if (!file)
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "a configuration file is missing, for example configs/demo.yaml");
    for (int i = 0; i < count; i++)
        if (!strchr(assignments[i], '='))
            return Z3D_ERROR(
                Z3D_ERR_USAGE,
                "'%s' is not key=value (usage: one configuration file, then key=value arguments)",
                assignments[i]);
    if (z3d_is_folder(file))
        return Z3D_ERROR(Z3D_ERR_IO,
                         "%s is a folder; a configuration is a file: write %s/config.yaml", file,
                         file);
    z3d_config *config;
    Z3D_TRY(z3d_config_create(&config));
    int data;
    z3d_status status = z3d_config_read_file(config, file);
    for (int i = 0; i < count && (status == Z3D_OK || status == Z3D_ERR_CONFIG); i++)
        status = z3d_config_override(config, assignments[i]);
    /* Reports all errors at once. */
    if (status == Z3D_ERR_CONFIG)
        status = ranks > 0 ? z3d_config_settle(config, &z3d_model_rules, ranks, &data)
                           : z3d_config_check(config, &z3d_model_rules);
    if (status == Z3D_OK)
        *out = config;
    else
        z3d_config_destroy(config);
    return status;
}

/* The error for a configuration without a model, such as a DeepSpeed file. */
static z3d_status refuse_without_model(const char *path) {
    const size_t length = strlen(path);
    const bool json = length > 5 && strcmp(path + length - 5, ".json") == 0;
    z3d_string convert = {0};
    if (json) {
        z3d_string_append(&convert, "; for a DeepSpeed file `zero3d config --from-deepspeed ");
        z3d_string_append_shell(&convert, path);
        z3d_string_append(&convert, " > run.yaml` writes one to complete");
    }
    z3d_status status =
        Z3D_ERROR(Z3D_ERR_CONFIG,
                  "%s: there is no model; write its sizes in a section `model`: num_layers, "
                  "hidden_size, num_attention_heads, seq_length, vocab_size (or one of them, "
                  "to change GPT-2 124M)%s",
                  path, convert.text && !convert.failed ? convert.text : "");
    z3d_string_free(&convert);
    return status;
}

z3d_status cli_read_config(const char *file, int count, char *const *assignments, int ranks,
                           z3d_config **out) {
    Z3D_TRY(read_any(file, count, assignments, ranks, out));
    for (int i = 0; i < Z3D_CONFIG_KEY_COUNT; i++) {
        const char *path = z3d_config_meanings[i].path;
        if (strncmp(path, "model.", 6) == 0 && z3d_config_is_set(*out, path)) return Z3D_OK;
    }
    z3d_config_tell(*out);
    z3d_config_destroy(*out);
    *out = NULL;
    return refuse_without_model(file);
}

/* Indents all lines of a message after the first. */
static void append_message(z3d_string *line, const char *message) {
    z3d_string_append(line, "zero3d: error: ");
    for (const char *end; (end = strchr(message, '\n')); message = end + 1)
        z3d_string_append(line, "%.*s\n        ", (int)(end - message), message);
    z3d_string_append(line, "%s", message);
}

static int finish(z3d_status status, const char *command, bool told_here) {
    if (status == Z3D_OK) return CLI_OK;
    /* The command's help is useful only for errors in its arguments. */
    bool usage = status == Z3D_ERR_USAGE && strstr(z3d_error_place(), "src/cli/");
    if (told_here) {
        z3d_string line = {0};
        append_message(&line, z3d_error_message());
        if (usage && command) z3d_string_append(&line, "; see `zero3d %s --help`", command);
        z3d_string_append(&line, "\n");
        fputs(line.failed ? "zero3d: error: out of memory\n" : line.text, stderr);
        z3d_string_free(&line);
    }
    return usage ? CLI_USAGE : CLI_FAILED;
}

int cli_finish(z3d_status status, const char *command) {
    return finish(status, command, true);
}

int cli_finish_rank(const z3d_world *world, z3d_status status, const char *command) {
    int rank = world ? z3d_world_rank(world) : z3d_launched_rank();
    /* Rank 0 knows every failure except those of ranks that never connected to it. */
    return finish(status, command, rank == 0 || status == Z3D_ERR_START);
}

z3d_status cli_check_outputs(const cli_output *outputs, int count, const char *const *inputs,
                             int input_count, bool force) {
    for (int i = 0; i < count; i++) {
        const char *path = outputs[i].path;
        const z3d_output_kind *kind = outputs[i].kind;
        if (!path) continue;
        for (int k = 0; k < i; k++)
            if (outputs[k].path && z3d_same_place(outputs[k].path, path))
                return Z3D_ERROR(Z3D_ERR_USAGE, "%s is given for two outputs; name two files",
                                 path);
        const bool own = z3d_file_begins(path, kind->begins, strlen(kind->begins));
        Z3D_TRY(z3d_output_is_no_input(path, own, inputs, input_count));
        Z3D_TRY(z3d_output_check(path, kind->name, own, force));
    }
    return Z3D_OK;
}

z3d_status cli_write(const char *path, const z3d_string *text) {
    if (text->failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory to write %.200s", path);
    FILE *file = fopen(path, "w");
    bool written = file && fwrite(text->text, 1, text->length, file) == text->length;
    if (file && fclose(file) != 0) written = false;
    return written ? Z3D_OK
                   : Z3D_ERROR(Z3D_ERR_IO, "cannot write %.200s: %s", path, strerror(errno));
}

z3d_status cli_save(z3d_status status, const char *path, z3d_string *text) {
    if (status == Z3D_OK) status = cli_write(path, text);
    z3d_string_free(text);
    return status;
}

int cli_print(const z3d_string *text) {
    if (text->failed)
        return cli_finish(Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory for the text to print"),
                          NULL);
    if (!text->length) return CLI_OK; /* an earlier error of standard output was told then */
    errno = 0;
    fwrite(text->text, 1, text->length, stdout);
    bool failed = fflush(stdout) != 0 || ferror(stdout);
    if (failed && errno == EPIPE) return CLI_FAILED; /* the reader needs no more: `| head` */
    if (failed)
        return cli_finish(
            Z3D_ERROR(Z3D_ERR_IO, "cannot write to standard output: %s", strerror(errno)), NULL);
    return CLI_OK;
}
