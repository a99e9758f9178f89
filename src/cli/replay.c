/* zero3d replay */
#include <string.h>

#include "src/cli/cli.h"
#include "src/train/train.h"

static const char help[] =
    "usage: zero3d replay FILE [--until INSTRUCTION] [--step S] [key=value ...]\n"
    "\n"
    "Runs one rank of a run again, alone, in one process, to the bit. FILE is what\n"
    "`zero3d train CONFIG --record-rank R --steps A:B` has written: the rank's state before\n"
    "step A, its data, and what other ranks sent it. Every instruction's output is compared with\n"
    "the recorded one; the first difference ends the replay.\n"
    "\n"
    "  --until INSTRUCTION  stops after it and shows its buffers: its number in the step program,\n"
    "                       or its first words: \"backward block.3\", \"reduce_grads wte\"\n"
    "  --step S             the step of --until (default: the first)\n"
    "  key=value            folders on this machine: "
    "zero_optimization.offload_optimizer.nvme_path,\n"
    "                       zero_optimization.offload_param.nvme_path,\n"
    "                       activation_checkpointing.nvme_path, parallel.pipeline_schedule_file;\n"
    "                       or training.threads; other keys stay as recorded\n"
    "\n"
    "Exit code: 0: all as recorded; 1: an output differs, or FILE was changed; 2: wrong usage.\n"
    "\n"
    "example: zero3d replay runs/demo/replay-rank3.z3d --until \"backward block.1\"\n";

static z3d_status read_arguments(int argc, char **argv, z3d_replay_request *request) {
    const cli_option options[] = {{"until", .value = &request->until},
                                  {"step", .number = &request->step, .least = 1},
                                  {.name = NULL}};
    int count;
    Z3D_TRY(cli_parse(argc, argv, options, &count));
    if (count < 1) return Z3D_ERROR(Z3D_ERR_USAGE, "no recording: give its file");
    request->path = argv[1];
    request->assignments = argv + 2;
    request->count = count - 1;
    for (int i = 0; i < request->count; i++)
        if (!strchr(request->assignments[i], '='))
            return Z3D_ERROR(Z3D_ERR_USAGE, "'%s' is not key=value", request->assignments[i]);
    return Z3D_OK;
}

static void say(const z3d_replay_result *r, z3d_string *text) {
    z3d_string_append(text, "rank %lld of %lld, steps %lld to %lld\n", (long long)r->rank,
                      (long long)r->ranks, (long long)r->first, (long long)r->last);
    if (r->text.text) z3d_string_append(text, "%s", r->text.text);
    z3d_string_append(text, "equal: %lld instructions, %lld whole step%s", (long long)r->entries,
                      (long long)r->steps, r->steps == 1 ? "" : "s");
    if (r->steps > 0) z3d_string_append(text, "; loss %.17g, ", r->loss);
    if (r->steps > 0 && r->skipped) z3d_string_append(text, "skipped: overflow");
    if (r->steps > 0 && !r->skipped) z3d_string_append(text, "gradient norm %.17g", r->grad_norm);
    z3d_string_append(text, "\n");
}

static z3d_status answer(int argc, char **argv, cli_answer *out) {
    z3d_replay_request request = {0};
    z3d_replay_result result = {0};
    z3d_log_configure(Z3D_LOG_WARN, 0);
    Z3D_TRY(read_arguments(argc, argv, &request));
    const z3d_status status = z3d_replay_rank(&request, &result);
    if (status == Z3D_OK) say(&result, &out->text);
    z3d_string_free(&result.text);
    return status;
}

const cli_command cli_replay = {
    "replay", "run one recorded rank again, alone", help, answer, NULL, true, NULL, false};
