/* zero3d report: the history of runs, as text or as a page. */
#include <stdlib.h>

#include "src/cli/cli.h"
#include "src/train/history/history.h"

static const char help[] =
    "usage: zero3d report RUN... [--html FILE [--force]]\n"
    "\n"
    "Reads the folders of runs (metrics.jsonl, events.jsonl) and tells for each: steps, losses,\n"
    "learning rate, throughput, MFU, exposed communication, memory by category, checkpoints,\n"
    "resumes, and how it ended. RUN may also be one file of metrics (RUN/metrics.1.jsonl). The\n"
    "run may still be running.\n"
    "\n"
    "  --html FILE   writes a page with these facts and with curves, the runs over each other.\n"
    "                The page is one file without scripts that refers to nothing outside of it\n"
    "  --force       FILE may replace a file that is no page of zero3d\n"
    "\n"
    "example: zero3d report runs/mine runs/second --html report.html\n";

static z3d_status tell(const z3d_history *history, int count, const char *html, z3d_string *text) {
    if (!html) {
        for (int r = 0; r < count; r++) {
            if (r) z3d_string_append(text, "\n");
            z3d_history_text(&history[r], text);
        }
        return Z3D_OK;
    }
    z3d_string page = {0};
    z3d_status status = cli_save(z3d_history_page(history, count, &page), html, &page);
    if (status == Z3D_OK)
        z3d_string_append(text, "%d run%s: written to %s\n", count, count == 1 ? "" : "s", html);
    return status;
}

static z3d_status report(int count, char **names, const char *html, z3d_string *text) {
    z3d_history *history;
    int read = 0;
    z3d_status status = z3d_new((size_t)count, sizeof *history, "runs", &history);
    while (status == Z3D_OK && read < count) {
        status = z3d_history_read(names[read], &history[read]);
        read++;
    }
    if (status == Z3D_OK) status = tell(history, count, html, text);
    while (read > 0) z3d_history_release(&history[--read]);
    free(history);
    return status;
}

static z3d_status answer(int argc, char **argv, cli_answer *out) {
    const char *html = NULL;
    bool force = false;
    const cli_option options[] = {
        {"html", .value = &html}, {"force", .flag = &force}, {.name = NULL}};
    int count;
    Z3D_TRY(cli_parse(argc, argv, options, &count));
    if (count == 0) return Z3D_ERROR(Z3D_ERR_USAGE, "expected the folder of a run");
    Z3D_TRY(cli_check_outputs(&(cli_output){html, &z3d_output_page}, 1,
                              (const char *const *)(argv + 1), count, force));
    return report(count, argv + 1, html, &out->text);
}

const cli_command cli_report = {
    "report", "say and draw what runs did: losses, speed, memory", help, answer, NULL, false, NULL,
    false};
