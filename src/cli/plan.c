/* zero3d plan */
#include "src/plan/plan.h"
#include "src/cli/cli.h"

static const char help[] =
    "usage: zero3d plan CONFIG [key=value ...] [--ranks N] [--rank R] [--print-program]\n"
    "\n"
    "Says what a run would take, without running it and without its ranks: one process makes the\n"
    "step program of any rank of any world. Prints that rank's memory by tenant (parameters,\n"
    "gradients, optimizer states, activations, temporary, communication), the arena they are "
    "packed\n"
    "into, the elements it sends along each axis, and its work.\n"
    "\n"
    "  --ranks N         size of the world; default: parallel.world_size, or what the tensor size "
    "and\n"
    "                    the batch keys imply\n"
    "  --rank R          the rank to plan (default 0)\n"
    "  --print-program   also print its training step, one instruction a line\n"
    "\n"
    "examples: zero3d plan configs/demo.yaml --print-program\n"
    "          zero3d plan configs/gpt2-124m.yaml --ranks 64 --rank 37 zero_optimization.stage=3\n";

static z3d_status read_number(const char *text, const char *option, int64_t low, int *out) {
    int64_t value;
    if (!text) return Z3D_OK;
    if (z3d_parse_int(text, &value) != Z3D_OK || value < low || value > INT32_MAX)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--%s %s: a whole number from %lld on is wanted", option,
                         text, (long long)low);
    *out = (int)value;
    return Z3D_OK;
}

static z3d_status make(int argc, char **argv, z3d_string *text) {
    const char *ranks_text = NULL, *rank_text = NULL;
    bool print_program = false;
    const cli_option options[] = {{"ranks", &ranks_text, NULL},
                                  {"rank", &rank_text, NULL},
                                  {"print-program", NULL, &print_program},
                                  {NULL, NULL, NULL}};
    int count, ranks = 0, rank = 0;
    Z3D_TRY(cli_parse(argc, argv, options, &count));
    Z3D_TRY(read_number(ranks_text, "ranks", 1, &ranks));
    Z3D_TRY(read_number(rank_text, "rank", 0, &rank));
    z3d_config *config;
    z3d_plan *plan;
    Z3D_TRY(cli_read_config(count, argv + 1, &config));
    z3d_status status = z3d_plan_create(config, ranks, rank, &plan);
    if (status == Z3D_OK) z3d_plan_print(plan, print_program, text);
    z3d_plan_destroy(plan);
    z3d_config_destroy(config);
    return status;
}

static int run(int argc, char **argv) {
    z3d_string text = {0};
    z3d_status status = make(argc, argv, &text);
    int code = status == Z3D_OK ? cli_print(&text) : cli_finish(status, "plan");
    z3d_string_free(&text);
    return code;
}

const cli_command cli_plan = {
    "plan", "memory, communication and program of any rank, without a run", help, run};
