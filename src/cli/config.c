/* zero3d config */
#include <stdio.h>

#include "src/cli/cli.h"
#include "src/model/model.h"

static const char help[] =
    "usage: zero3d config [--markdown | --keys]\n"
    "       zero3d config CONFIG [key=value ...]\n"
    "       zero3d config --from-deepspeed FILE | --from-megatron FILE\n"
    "\n"
    "Without CONFIG prints every key of a configuration with its type, default and meaning.\n"
    "With CONFIG checks what can be checked without the number of ranks, and prints all keys with\n"
    "the values that a run would use.\n"
    "\n"
    "  --markdown              prints the reference page docs/configuration.md\n"
    "  --keys                  prints only the keys, one per line\n"
    "  --from-deepspeed FILE   converts a DeepSpeed JSON file to YAML on standard output. A\n"
    "                          table on standard error says what is taken, what has no effect\n"
    "                          and what is not supported (then the exit code is 1)\n"
    "  --from-megatron FILE    the same for Megatron-LM's arguments: a command line, or a part\n"
    "                          of a shell script\n"
    "\n"
    "Names are those of DeepSpeed (zero_optimization, fp16, train_batch_size, ...) and "
    "Megatron-LM\n"
    "(num_layers, hidden_size, ...). An unknown key is an error with file, line and column.\n"
    "\n"
    "example: zero3d config configs/demo.yaml zero_optimization.stage=3\n"
    "         zero3d config --from-deepspeed ds.json > run.yaml\n";

static z3d_status describe(int count, char **arguments, bool markdown, bool keys,
                           z3d_string *text) {
    if (count == 0) {
        if (keys)
            z3d_config_list_keys(text);
        else
            z3d_config_describe(markdown, text);
        return Z3D_OK;
    }
    if (markdown || keys)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--markdown and --keys do not take a CONFIG");
    z3d_config *config;
    Z3D_TRY(cli_read_any_config(count, arguments, 0, &config));
    z3d_status status = z3d_config_check(config, &z3d_model_rules);
    if (status == Z3D_OK) z3d_config_write(config, text);
    z3d_config_destroy(config);
    return status;
}

/* The YAML goes to standard output, the table to standard error. */
static int convert(const char *deepspeed, const char *megatron) {
    z3d_string yaml = {0}, table = {0};
    bool complete = false;
    z3d_status status =
        deepspeed ? z3d_config_from_deepspeed(deepspeed, &z3d_model_rules, &yaml, &table, &complete)
                  : z3d_config_from_megatron(megatron, &z3d_model_rules, &yaml, &table, &complete);
    int code = status == Z3D_OK ? cli_print(&yaml) : cli_finish(status, "config");
    if (status == Z3D_OK) fputs(table.text, stderr);
    z3d_string_free(&yaml);
    z3d_string_free(&table);
    return code == CLI_OK && !complete ? CLI_FAILED : code;
}

static int run(int argc, char **argv) {
    bool markdown = false, keys = false;
    const char *deepspeed = NULL, *megatron = NULL;
    const cli_option options[] = {{"markdown", NULL, &markdown, NULL},
                                  {"keys", NULL, &keys, NULL},
                                  {"from-deepspeed", &deepspeed, NULL, NULL},
                                  {"from-megatron", &megatron, NULL, NULL},
                                  {NULL, NULL, NULL, NULL}};
    int count;
    z3d_string text = {0};
    z3d_status status = cli_parse(argc, argv, options, &count);
    bool converts = deepspeed || megatron;
    if (status == Z3D_OK && converts && (count || keys || markdown || (deepspeed && megatron)))
        status = Z3D_ERROR(Z3D_ERR_USAGE, "--from-deepspeed and --from-megatron take one FILE and "
                                          "nothing else");
    if (status == Z3D_OK && converts) return convert(deepspeed, megatron);
    if (status == Z3D_OK) status = describe(count, argv + 1, markdown, keys, &text);
    int code = status == Z3D_OK ? cli_print(&text) : cli_finish(status, "config");
    z3d_string_free(&text);
    return code;
}

const cli_command cli_config = {
    "config", "list all keys; check a configuration", help, run, false, NULL, true};
