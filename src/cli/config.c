/* zero3d config */
#include "src/cli/cli.h"

static const char help[] =
    "usage: zero3d config [--markdown | --keys]\n"
    "       zero3d config CONFIG [key=value ...]\n"
    "\n"
    "Without CONFIG prints every key of a configuration with its type, default and meaning.\n"
    "With CONFIG reads it, checks it as far as that goes without knowing the number of ranks, and\n"
    "prints it back whole, defaults filled in: what a run with it would use.\n"
    "\n"
    "  --markdown  as the reference page in docs/configuration.md\n"
    "  --keys      only the keys, one a line\n"
    "\n"
    "Names are those of DeepSpeed (zero_optimization, fp16, train_batch_size, ...) and "
    "Megatron-LM\n"
    "(num_layers, hidden_size, ...). Unknown keys are refused with file, line and column.\n"
    "\n"
    "example: zero3d config configs/demo.yaml zero_optimization.stage=3\n";

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
        return Z3D_ERROR(Z3D_ERR_USAGE, "--markdown and --keys go without CONFIG");
    z3d_config *config;
    Z3D_TRY(cli_read_config(count, arguments, &config));
    z3d_status status = z3d_config_check(config);
    if (status == Z3D_OK) z3d_config_write(config, text);
    z3d_config_destroy(config);
    return status;
}

static int run(int argc, char **argv) {
    bool markdown = false, keys = false;
    const cli_option options[] = {
        {"markdown", NULL, &markdown}, {"keys", NULL, &keys}, {NULL, NULL, NULL}};
    int count;
    z3d_string text = {0};
    z3d_status status = cli_parse(argc, argv, options, &count);
    if (status == Z3D_OK) status = describe(count, argv + 1, markdown, keys, &text);
    int code = status == Z3D_OK ? cli_print(&text) : cli_finish(status, "config");
    z3d_string_free(&text);
    return code;
}

const cli_command cli_config = {"config", "list all keys; check a configuration", help, run};
