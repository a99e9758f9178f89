/* zero3d train */
#include "src/train/train.h"

#include "parallel/parallel.h"
#include "src/cli/cli.h"

static const char help[] =
    "usage: zero3d train CONFIG [key=value ...] [--digest] [--trace]\n"
    "       scripts/launch -n RANKS zero3d train CONFIG ...\n"
    "\n"
    "Trains the model that CONFIG (YAML) describes. Started alone it is a world of one rank; "
    "under\n"
    "scripts/launch, mpirun --bind-to none or srun, or with RANK, WORLD_SIZE, MASTER_ADDR and\n"
    "MASTER_PORT set for every process (docs/launching.md), the ranks form tensor x data groups "
    "as\n"
    "the configuration says.\n"
    "\n"
    "  key=value   sets one key over the file: zero_optimization.stage=3 training.steps=50\n"
    "  --digest    training.digest=true: hashes what every instruction wrote, to compare two runs\n"
    "              with `zero3d digest`\n"
    "  --trace     training.trace_steps=3: the timeline of the first steps, for ui.perfetto.dev\n"
    "\n"
    "The run folder (run.dir) receives config.yaml (resolved), metrics.jsonl (one object a step) "
    "and\n"
    "TensorBoard event files.\n"
    "\n"
    "With checkpoint.interval=N checkpoints are saved every N steps, and the same command started "
    "again\n"
    "goes on from the newest, on any number of ranks.\n"
    "\n"
    "SIGUSR1, SIGTERM, Ctrl-C or training.time_limit end the run cleanly after the current step, "
    "with a\n"
    "checkpoint where there are any; a second signal at once.\n"
    "Exit code: 0 the run ended as asked, 1 it failed, 2 wrong usage, 75 it saved a checkpoint "
    "before its\n"
    "end: start it again.\n"
    "\n"
    "example: scripts/launch -n 4 build/bin/zero3d train configs/demo.yaml "
    "zero_optimization.stage=3\n";

static z3d_status read_arguments(int argc, char **argv, int ranks, z3d_config **config) {
    bool digest = false, trace = false;
    const cli_option options[] = {
        {"digest", NULL, &digest}, {"trace", NULL, &trace}, {NULL, NULL, NULL}};
    int count;
    Z3D_TRY(cli_parse(argc, argv, options, &count));
    Z3D_TRY(cli_read_config_for(count, argv + 1, ranks, config));
    if (digest) Z3D_TRY(z3d_config_override(*config, "training.digest=true"));
    if (trace && !z3d_config_is_set(*config, "training.trace_steps"))
        Z3D_TRY(z3d_config_override(*config, "training.trace_steps=3"));
    return Z3D_OK;
}

/* All ranks learn whether every rank could read its arguments. What this rank itself found wrong
 * stays the message, since it is the same everywhere but for broken file systems. */
static z3d_status agree(z3d_world *world, z3d_status mine) {
    const z3d_kept_error own = z3d_error_keep(mine);
    z3d_status status = z3d_world_agree(world, mine);
    (void)z3d_error_restore(&own);
    return status;
}

/* Every failure of a run is agreed, save when agreeing itself failed: then the others wait
 * somewhere, and a goodbye would wait for theirs. */
static void end_if_alone_in_failure(z3d_world *world, z3d_status status) {
    if (status != Z3D_ERR_COMM || z3d_world_size(world) == 1) return;
    z3d_world_abort(world, status, z3d_error_message());
}

static int run(int argc, char **argv) {
    z3d_config *config = NULL;
    z3d_world *world = NULL;
    bool unfinished = false;
    /* The world comes first, so that a mistake ends all ranks in order and is told once. */
    z3d_status status = z3d_world_create_or_alone(NULL, NULL, &world);
    if (status != Z3D_OK) return cli_finish_rank(NULL, status, NULL);
    z3d_log_configure(Z3D_LOG_INFO, z3d_world_rank(world));
    status = agree(world, read_arguments(argc, argv, z3d_world_size(world), &config));
    if (status == Z3D_OK && config->parallel_world_size != 1) status = z3d_world_check_alone(world);
    if (status == Z3D_OK) {
        z3d_world_catch_signals(world);
        status = z3d_train_part(world, config, &unfinished);
    }
    end_if_alone_in_failure(world, status);
    int code = cli_finish_rank(world, status, "train");
    if (code == CLI_OK && unfinished) code = CLI_UNFINISHED;
    z3d_config_destroy(config);
    z3d_world_destroy(world);
    return code;
}

const cli_command cli_train = {"train", "train a model", help, run};
