/* zero3d config */
#include <stdio.h>
#include <string.h>

#include "src/cli/cli.h"
#include "src/model/model.h"

static const char help[] =
    "usage: zero3d config [--markdown | --keys]\n"
    "       zero3d config CONFIG [--all] [key=value ...]\n"
    "       zero3d config --from-deepspeed FILE [--bf16 | --fp16]\n"
    "       zero3d config --from-megatron FILE\n"
    "       zero3d config --from-megatron -- COMMAND...\n"
    "\n"
    "Without CONFIG prints every key of a configuration with its type, default and meaning.\n"
    "With CONFIG checks it as far as possible without the number of ranks. Prints the model's\n"
    "sizes and the keys that differ from their defaults; auto: the run decides this key (the\n"
    "config.yaml in its folder has the decision).\n"
    "\n"
    "  --all                   prints all keys with their values\n"
    "  --markdown              prints the reference page docs/configuration.md\n"
    "  --keys                  prints only the keys, one per line\n"
    "  --from-deepspeed FILE   converts a DeepSpeed JSON file to YAML on standard output. A\n"
    "                          table on standard error says which settings are converted, have no\n"
    "                          effect or are not supported (then the exit code is 1)\n"
    "  --bf16, --fp16          the type that your script passes, if the DeepSpeed file says auto\n"
    "  --from-megatron FILE    the same for Megatron-LM's arguments: a list of them, YAML with\n"
    "                          --names as keys, or the log of a run, which begins with them.\n"
    "                          With -- COMMAND... in place of FILE: the arguments of the command\n"
    "                          that starts a run. Write `zero3d config --from-megatron --` before\n"
    "                          it in its script and run the script: the shell fills in the values\n"
    "\n"
    "Keys have the names of DeepSpeed (zero_optimization, fp16, train_batch_size, ...) and of\n"
    "Megatron-LM (num_layers, hidden_size, ...). An unknown key is an error with file, line\n"
    "and column.\n"
    "\n"
    "example: zero3d config configs/demo.yaml zero_optimization.stage=3\n"
    "         zero3d config --from-deepspeed ds.json > run.yaml\n"
    "         zero3d config --from-megatron -- torchrun pretrain_gpt.py $ARGS > run.yaml\n";

typedef struct wanted {
    bool markdown, keys, all;
} wanted;

static void write(const z3d_config *config, const char *name, bool all, z3d_string *text) {
    static const char *const sizes[] = {"model.num_layers",          "model.hidden_size",
                                        "model.num_attention_heads", "model.seq_length",
                                        "model.vocab_size",          NULL};
    if (all) {
        z3d_config_write(config, text);
        return;
    }
    z3d_string_append(text, "# ");
    for (; *name; name++) z3d_string_append(text, "%c", (unsigned char)*name < ' ' ? ' ' : *name);
    z3d_string_append(text, " is valid. The model's sizes, and the keys that differ from their "
                            "defaults (--all: all):\n");
    z3d_config_write_changed(config, sizes, text);
}

static z3d_status describe(int count, char **arguments, const wanted *wanted, z3d_string *text) {
    if (count == 0) {
        if (wanted->all) return Z3D_ERROR(Z3D_ERR_USAGE, "--all needs a CONFIG");
        if (wanted->keys)
            z3d_config_list_keys(text);
        else
            z3d_config_describe(wanted->markdown, text);
        return Z3D_OK;
    }
    if (wanted->markdown || wanted->keys)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--markdown and --keys do not take a CONFIG");
    z3d_config *config;
    Z3D_TRY(cli_read_config(arguments[0], count - 1, arguments + 1, 0, &config));
    z3d_status status = z3d_config_check_training(config, &z3d_model_rules);
    if (status == Z3D_OK) write(config, arguments[0], wanted->all, text);
    z3d_config_destroy(config);
    return status;
}

typedef struct source {
    const char *deepspeed, *megatron;
    char **command; /* the words after --from-megatron -- */
    int words;
    bool bf16, fp16;
} source;

/* The YAML goes to standard output, the table to standard error. */
static z3d_status convert(const source *from, cli_answer *out) {
    const char *type = from->bf16 ? "bf16" : from->fp16 ? "fp16" : NULL;
    z3d_string yaml = {0}, table = {0};
    bool complete = false;
    z3d_status status =
        from->deepspeed ? z3d_config_from_deepspeed(from->deepspeed, type, &z3d_model_rules, &yaml,
                                                    &table, &complete)
        : from->command
            ? z3d_config_from_megatron_command((const char *const *)from->command, from->words,
                                               &z3d_model_rules, &yaml, &table, &complete)
            : z3d_config_from_megatron(from->megatron, &z3d_model_rules, &yaml, &table, &complete);
    if (status == Z3D_OK) {
        out->code = cli_print(&yaml);
        fputs(table.text, stderr);
        if (!complete) out->code = CLI_FAILED;
    }
    z3d_string_free(&yaml);
    z3d_string_free(&table);
    return status;
}

/* Cuts off "--from-megatron -- COMMAND...", because the words of COMMAND are not our options. */
static int cut_command(int argc, char **argv, source *from) {
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], "--from-megatron") != 0 || strcmp(argv[i + 1], "--") != 0) continue;
        from->command = argv + i + 2;
        from->words = argc - i - 2;
        return i;
    }
    return argc;
}

static z3d_status check_source(const source *from, bool others) {
    const int sources =
        (from->deepspeed != NULL) + (from->megatron != NULL) + (from->command != NULL);
    if ((from->bf16 || from->fp16) && (!from->deepspeed || (from->bf16 && from->fp16)))
        return Z3D_ERROR(Z3D_ERR_USAGE, "one of --bf16 and --fp16 goes with --from-deepspeed FILE");
    return sources < 2 && !(sources && others)
               ? Z3D_OK
               : Z3D_ERROR(Z3D_ERR_USAGE, "--from-deepspeed and --from-megatron take one FILE and "
                                          "nothing else");
}

static z3d_status answer(int argc, char **argv, cli_answer *out) {
    wanted wanted = {0};
    source from = {0};
    const cli_option options[] = {{"all", .flag = &wanted.all},
                                  {"markdown", .flag = &wanted.markdown},
                                  {"keys", .flag = &wanted.keys},
                                  {"from-deepspeed", .value = &from.deepspeed},
                                  {"from-megatron", .value = &from.megatron},
                                  {"bf16", .flag = &from.bf16},
                                  {"fp16", .flag = &from.fp16},
                                  {.name = NULL}};
    int count;
    argc = cut_command(argc, argv, &from);
    Z3D_TRY(cli_parse(argc, argv, options, &count));
    Z3D_TRY(check_source(&from, count || wanted.all || wanted.keys || wanted.markdown));
    if (from.deepspeed || from.megatron || from.command) return convert(&from, out);
    return describe(count, argv + 1, &wanted, &out->text);
}

const cli_command cli_config = {
    "config", "list all keys; check a configuration", help, answer, NULL, false, NULL, true};
