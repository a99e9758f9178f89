/* zero3d train */
#include "src/train/train.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/cli/cli.h"

static const char help[] =
    "usage: zero3d train CONFIG [key=value ...] [options]\n"
    "       zero3d-launch -n RANKS zero3d train CONFIG ...\n"
    "\n"
    "Trains the model that CONFIG (a YAML file) describes. Without a launcher it trains on one\n"
    "rank. zero3d-launch, mpirun --bind-to none and srun start several ranks; so does any\n"
    "launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each process\n"
    "(docs/launching.md).\n"
    "\n"
    "  key=value   overrides one key of the file: zero_optimization.stage=3\n"
    "  --extend    trains a run with a decaying learning rate further: raise training.steps. The\n"
    "              schedule keeps its end; the steps after it use its final learning rate. If\n"
    "              that is 0, the schedule's end moves to the new training.steps\n"
    "  --digest    sets training.digest=true: writes a hash of each instruction's output;\n"
    "              `zero3d digest` compares two runs\n"
    "  --trace     sets training.trace_steps=3: timelines of the first steps, for `zero3d trace`\n"
    "  --record-rank R  records all data that rank R receives, in RUN/replay-rankR.z3d: `zero3d\n"
    "              replay` runs this rank alone\n"
    "  --steps A:B  the steps of --record-rank\n"
    "  --verbose   tells decisions and their reasons at the start, and shows all tables of memory\n"
    "              and communication at the end (they are in summary.json too)\n"
    "\n"
    "The run folder (run.dir) gets config.yaml (all keys with their values), metrics.jsonl (one\n"
    "JSON object per step), events.jsonl, summary.json and TensorBoard files; `zero3d report`\n"
    "reads them. Files of an earlier run there are kept as metrics.1.jsonl, config.1.yaml and so\n"
    "on. One job at a time can use a run folder.\n"
    "\n"
    "checkpoint.interval=N saves a checkpoint every N steps. The same command, started again,\n"
    "resumes from the latest checkpoint, on any number of ranks. By default N is 1000, and the\n"
    "run saves at its end too; with checkpoint.interval=0 the model is never saved.\n"
    "\n"
    "SIGUSR1, SIGTERM, Ctrl-C and training.time_limit stop the run after the current step; if the\n"
    "run saves checkpoints, it saves one then. A second signal stops it immediately.\n"
    "\n"
    "Exit code: 0: the run is complete, or it was stopped and saves no checkpoints; 1: it failed;\n"
    "2: wrong usage; 75: it was stopped and saved a checkpoint: start it again. (After SIGTERM\n"
    "and Ctrl-C, mpirun without zero3d-launch has its own code, 1.)\n"
    "\n"
    "example: zero3d-launch -n 4 zero3d train configs/demo.yaml zero_optimization.stage=3\n";

static bool read_whole(const char *text, size_t length, int64_t *out) {
    char number[24];
    if (length == 0 || length >= sizeof number) return false;
    snprintf(number, sizeof number, "%.*s", (int)length, text);
    return z3d_parse_int(number, out) == Z3D_OK && *out >= 0;
}

/* Reads --record-rank R --steps A:B; both or neither must be given. */
static z3d_status read_recording(const char *rank, const char *steps, z3d_train_options *asked) {
    const char *colon = steps ? strchr(steps, ':') : NULL;
    if (!rank && !steps) return Z3D_OK;
    if (!rank)
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "--steps %s is what --record-rank R records (--steps A:B); for the length "
                         "of the run write training.steps=%s",
                         steps, colon ? "N" : steps);
    if (!steps)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--record-rank %s needs --steps A:B: the steps to record",
                         rank);
    if (!read_whole(rank, strlen(rank), &asked->record_rank))
        return Z3D_ERROR(Z3D_ERR_USAGE, "--record-rank %s: write the number of a rank", rank);
    if (!colon || !read_whole(steps, (size_t)(colon - steps), &asked->record_first) ||
        !read_whole(colon + 1, strlen(colon + 1), &asked->record_last) || asked->record_first < 1 ||
        asked->record_last < asked->record_first)
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "--steps %s: write the first and the last step: --steps 5:8", steps);
    return Z3D_OK;
}

static z3d_status read_arguments(int argc, char **argv, int ranks, z3d_config **config,
                                 z3d_train_options *asked) {
    bool digest = false, trace = false;
    const char *rank = NULL, *steps = NULL;
    const cli_option options[] = {{"digest", .flag = &digest},
                                  {"trace", .flag = &trace},
                                  {"extend", .flag = &asked->extend},
                                  {"record-rank", .value = &rank},
                                  {"steps", .value = &steps},
                                  {"verbose", .flag = &asked->verbose},
                                  {.name = NULL}};
    int count;
    Z3D_TRY(cli_parse(argc, argv, options, &count));
    Z3D_TRY(cli_read_config(count ? argv[1] : NULL, count - 1, argv + 2, ranks, config));
    Z3D_TRY(read_recording(rank, steps, asked));
    if (digest) Z3D_TRY(z3d_config_override(*config, "training.digest=true"));
    if (trace && !z3d_config_is_set(*config, "training.trace_steps"))
        Z3D_TRY(z3d_config_override(*config, "training.trace_steps=3"));
    return Z3D_OK;
}

static bool by_srun(int ranks) {
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS");
    int64_t count;
    return tasks && z3d_parse_int(tasks, &count) == Z3D_OK && count == ranks;
}

/* Appends the launcher: srun, or the one in the program's folder. */
static void write_launcher(int ranks, z3d_string *out) {
    const char *slash = strrchr(program_invocation_name, '/');
    z3d_string path = {0};
    z3d_string_append(&path, "%.*szero3d-launch",
                      slash ? (int)(slash + 1 - program_invocation_name) : 0,
                      program_invocation_name);
    if (by_srun(ranks))
        z3d_string_append(out, "srun");
    else if (!path.failed)
        z3d_string_append_shell(out, path.text);
    z3d_string_free(&path);
    z3d_string_append(out, " -n %d ", ranks);
}

/* The command as the user typed it, without --extend. */
static void write_command(int argc, char **argv, int ranks, z3d_string *out) {
    if (ranks > 1) write_launcher(ranks, out);
    z3d_string_append_shell(out, program_invocation_name);
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--extend") == 0) continue;
        z3d_string_append(out, " ");
        z3d_string_append_shell(out, argv[i]);
    }
}

/* All ranks learn whether every rank could read its arguments. A rank's own error stays its
 * message: it is the same on all ranks, except on broken file systems. */
static z3d_status agree(z3d_world *world, z3d_status mine) {
    const z3d_kept_error own = z3d_error_keep(mine);
    z3d_status status = z3d_world_agree(world, mine);
    (void)z3d_error_restore(&own);
    return status;
}

/* Every failure of a run is agreed, except if the agreement itself failed. Then the other ranks
 * wait somewhere, and an orderly end would wait for them forever. */
static void end_if_alone_in_failure(z3d_world *world, z3d_status status) {
    if (status != Z3D_ERR_COMM || z3d_world_size(world) == 1) return;
    z3d_world_abort(world, status, z3d_error_message());
}

static int run(int argc, char **argv) {
    z3d_config *config = NULL;
    z3d_world *world = NULL;
    z3d_train_options options = {0};
    z3d_string command = {0};
    bool unfinished = false;
    /* Creates the world first, so that an error in the arguments ends all ranks in order and is
     * printed once. */
    z3d_status status = z3d_world_create_or_alone(NULL, NULL, &world);
    if (status != Z3D_OK) return cli_finish_rank(NULL, status, NULL);
    /* Before cli_parse removes the options. */
    write_command(argc, argv, z3d_world_size(world), &command);
    options.command = command.failed ? NULL : command.text;
    options.program = program_invocation_name;
    z3d_log_configure(Z3D_LOG_INFO, z3d_world_rank(world));
    status = agree(world, read_arguments(argc, argv, z3d_world_size(world), &config, &options));
    if (status == Z3D_OK && config->parallel_world_size != 1) status = z3d_world_check_alone(world);
    if (status == Z3D_OK) status = z3d_train_part(world, config, &options, &unfinished);
    end_if_alone_in_failure(world, status);
    int code = cli_finish_rank(world, status, "train");
    if (code == CLI_OK && unfinished) code = CLI_UNFINISHED;
    z3d_string_free(&command);
    z3d_config_destroy(config);
    z3d_world_destroy(world);
    return code;
}

const cli_command cli_train = {"train", "train a model", help, NULL, run, true, NULL, true};
