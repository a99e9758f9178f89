/* zero3d trace: reads the timelines of a run's ranks. */
#include "src/train/trace/trace.h"
#include "src/cli/cli.h"

static const char help[] =
    "usage: zero3d trace RUN_FOLDER [--step N] [--schedule FILE.svg] [--merge FILE.json]\n"
    "                    [--force]\n"
    "\n"
    "Reads the timelines that all ranks of a run with `zero3d train --trace` wrote, and says\n"
    "where one step's time went on each rank:\n"
    "\n"
    "  compute   in instructions, outside of waits\n"
    "  exposed   waits for communication and copies\n"
    "  bubble    waits for another pipeline stage\n"
    "  outside   before the rank's first instruction and between two: the next batch, the\n"
    "            trace itself\n"
    "\n"
    "  --step N              the step; the default is the last one that all ranks have\n"
    "  --schedule FILE.svg   draws the step, ranks x time, as `zero3d plan --schedule` draws\n"
    "                        the predicted step\n"
    "  --merge FILE.json     writes all events of all ranks as one timeline for Perfetto\n"
    "                        (ui.perfetto.dev): a process for each rank, on one clock; a transfer\n"
    "                        beside compute is a bar from its start to the end of its wait\n"
    "  --force               FILE may replace a file of another kind\n"
    "\n"
    "If the ranks ran on several nodes, copy all trace-rank*.json into one folder.\n"
    "\n"
    "example: zero3d-launch -n 8 zero3d train configs/demo-3d.yaml --trace run.dir=runs/traced\n"
    "         zero3d trace runs/traced --schedule step.svg --merge all.json\n";

typedef struct asked {
    const char *folder, *schedule, *merge;
    int64_t step;
} asked;

static z3d_status write_outputs(const asked *asked, const z3d_trace_run *run, z3d_string *text) {
    z3d_string drawn = {0}, merged = {0};
    if (!asked->schedule)
        Z3D_TRY(z3d_trace_step_report(run, text, NULL));
    else
        Z3D_TRY(cli_save(z3d_trace_step_report(run, text, &drawn), asked->schedule, &drawn));
    return asked->merge ? cli_save(z3d_trace_merge(run, &merged), asked->merge, &merged) : Z3D_OK;
}

static z3d_status answer(int argc, char **argv, cli_answer *out) {
    asked asked = {0};
    bool force = false;
    const cli_option options[] = {{"step", .number = &asked.step, .least = 1},
                                  {"schedule", .value = &asked.schedule},
                                  {"merge", .value = &asked.merge},
                                  {"force", .flag = &force},
                                  {.name = NULL}};
    int count;
    Z3D_TRY(cli_parse(argc, argv, options, &count));
    if (count != 1) return Z3D_ERROR(Z3D_ERR_USAGE, "expected one run folder, got %d", count);
    asked.folder = argv[1];
    const cli_output outputs[] = {{asked.schedule, &z3d_output_picture},
                                  {asked.merge, &z3d_output_timeline}};
    Z3D_TRY(cli_check_outputs(outputs, 2, &asked.folder, 1, force));
    z3d_trace_run run;
    z3d_status status = z3d_trace_run_read(asked.folder, asked.step, &run);
    if (status == Z3D_OK) status = write_outputs(&asked, &run, &out->text);
    z3d_trace_run_release(&run);
    return status;
}

const cli_command cli_trace = {
    "trace", "say where a traced step's time went; draw it", help, answer, NULL, false, NULL,
    false};
