/* zero3d prove: whether two configurations train equally to the bit. */
#include <string.h>

#include "src/cli/cli.h"
#include "src/plan/prove/prove.h"

static const char help[] =
    "usage: zero3d prove A.yaml B.yaml [--ranks N[,M]] [key=value...]\n"
    "\n"
    "Says whether two configurations train equally to the bit: in losses, gradient norms and\n"
    "parameters of every step. It compares their step programs, which have every sum and its\n"
    "order, and the keys that are no sums (seed, data, learning rate). It runs nothing, and names\n"
    "each difference: keys with both values, sums with both orders.\n"
    "\n"
    "  --ranks N,M   ranks of A and of B; N: of both; default: as `zero3d plan` finds them\n"
    "  key=value     overrides a key of both files\n"
    "\n"
    "Exit code: 0: equality is proved; 1: it is not, or a file is wrong; 2: wrong usage.\n"
    "\n"
    "examples: zero3d prove a.yaml b.yaml --ranks 4,8\n"
    "          zero3d prove runs/a/config.yaml runs/b/config.yaml\n";

static z3d_status read_one(const char *text, size_t length, const char *all, int *out) {
    char number[32] = "";
    int64_t value;
    if (length < sizeof number) memcpy(number, text, length);
    if (z3d_parse_int(number, &value) == Z3D_OK && value >= 1 && value <= INT32_MAX) {
        *out = (int)value;
        return Z3D_OK;
    }
    return Z3D_ERROR(Z3D_ERR_USAGE,
                     "--ranks %.60s: expected one or two whole numbers of at least 1, as 4 or 4,8",
                     all);
}

static z3d_status read_ranks(const char *text, int ranks[2]) {
    const char *comma = text ? strchr(text, ',') : NULL;
    if (!text) return Z3D_OK;
    size_t first = comma ? (size_t)(comma - text) : strlen(text);
    Z3D_TRY(read_one(text, first, text, &ranks[0]));
    ranks[1] = ranks[0];
    return comma ? read_one(comma + 1, strlen(comma + 1), text, &ranks[1]) : Z3D_OK;
}

static z3d_status check_arguments(int count, char **argv) {
    if (count >= 2 && !strchr(argv[1], '=') && !strchr(argv[2], '=')) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_USAGE, "expected two configuration files, then key=value arguments");
}

static z3d_status answer(int argc, char **argv, cli_answer *out) {
    const char *ranks_text = NULL;
    const cli_option options[] = {{"ranks", .value = &ranks_text}, {.name = NULL}};
    int count, ranks[2] = {0, 0};
    z3d_config *config[2] = {NULL, NULL};
    z3d_proof proof = {.open = false};
    Z3D_TRY(cli_parse(argc, argv, options, &count));
    Z3D_TRY(check_arguments(count, argv));
    Z3D_TRY(read_ranks(ranks_text, ranks));
    z3d_status status = cli_read_config(argv[1], count - 2, argv + 3, 0, &config[0]);
    if (status == Z3D_OK) status = cli_read_config(argv[2], count - 2, argv + 3, 0, &config[1]);
    if (status == Z3D_OK)
        status = z3d_prove(&(z3d_prove_side){config[0], ranks[0], argv[1]},
                           &(z3d_prove_side){config[1], ranks[1], argv[2]}, &proof);
    z3d_config_destroy(config[0]);
    z3d_config_destroy(config[1]);
    out->text = proof.text;
    out->code = z3d_proof_is_equal(&proof) ? CLI_OK : CLI_FAILED;
    return status;
}

const cli_command cli_prove = {
    "prove", "say whether two configurations train equally to the bit, without a run",
    help,    answer,
    NULL,    false,
    NULL,    false};
