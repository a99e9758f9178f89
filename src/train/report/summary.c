/* The end of a run. */
#include "src/train/report/summary.h"

#include <math.h>
#include <stdlib.h>

#include "src/train/trainer.h"

/* ---- tables ---- */

static void append_used(z3d_string *out, const char *what, int64_t planned, int64_t measured) {
    char plan[32], real[32];
    if (planned || measured)
        z3d_string_append(out, "  %-14s  %12s%12s\n", what,
                          z3d_format_bytes(planned, plan, sizeof plan),
                          z3d_format_bytes(measured, real, sizeof real));
}

static void append_memory(z3d_string *out, const z3d_rank_memory *memory) {
    const z3d_ledger *planned = memory->planned, *measured = memory->measured;
    char bytes[32], title[32];
    snprintf(title, sizeof title, "memory of rank %d", memory->rank);
    z3d_string_append(out, "%-16s  %12s%12s\n", title, "planned", "measured");
    for (int category = 0; category < Z3D_CATEGORY_COUNT; category++)
        append_used(out, z3d_category_name((z3d_category)category),
                    planned[Z3D_SPACE_DEVICE].peak[category],
                    measured[Z3D_SPACE_DEVICE].peak[category]);
    append_used(out, "total peak", planned[Z3D_SPACE_DEVICE].total_peak,
                measured[Z3D_SPACE_DEVICE].total_peak);
    append_used(out, "in host memory", planned[Z3D_SPACE_HOST].total_peak,
                measured[Z3D_SPACE_HOST].total_peak);
    append_used(out, "on the disk", planned[Z3D_SPACE_DISK].total_peak,
                measured[Z3D_SPACE_DISK].total_peak);
    if (memory->outside >= 0)
        z3d_string_append(out, "  %-14s  %12s%12s  (MPI, oneDNN, the program itself)\n", "outside",
                          "-", z3d_format_bytes(memory->outside, bytes, sizeof bytes));
}

static void append_differences(z3d_string *out, const z3d_rank_memory *memory) {
    static const char *const where[] = {"", " in host memory", " on the disk"};
    for (int space = 0; space < Z3D_SPACE_COUNT; space++)
        for (int category = 0; category < Z3D_CATEGORY_COUNT; category++) {
            int64_t planned = memory->planned[space].peak[category];
            int64_t measured = memory->measured[space].peak[category];
            if (planned != measured)
                z3d_string_append(out, "  ! %s%s: %lld bytes planned, %lld used\n",
                                  z3d_category_name((z3d_category)category), where[space],
                                  (long long)planned, (long long)measured);
        }
}

/* Appends the process's memory as the system counts it. */
static void append_resident(z3d_string *out, const z3d_resident *r) {
    char text[32], other[32];
    z3d_string_append(out, "resident memory of rank 0 now\n");
    for (int part = 0; part < Z3D_RESIDENT_COUNT; part++)
        if (r->bytes[part] > 0)
            z3d_string_append(out, "  %-30s%11s\n", z3d_resident_name((z3d_resident_part)part),
                              z3d_format_bytes(r->bytes[part], text, sizeof text));
    z3d_string_append(out, "  %-30s%11s  (the system reports %s)\n", "total",
                      z3d_format_bytes(r->sum, text, sizeof text),
                      z3d_format_bytes(r->system, other, sizeof other));
}

static void append_unexplained(z3d_string *out, const z3d_run_end *end) {
    char text[32];
    const z3d_resident *r = end->resident;
    if (llabs((long long)(r->sum - r->system)) > Z3D_RESIDENT_TOLERANCE)
        z3d_string_append(out,
                          "  ! rank 0's resident memory and its parts differ by more than %d MiB: "
                          "some memory is not accounted for\n",
                          Z3D_RESIDENT_TOLERANCE >> 20);
    int64_t missing = z3d_trainer_arena_bytes(end->trainer) - r->bytes[Z3D_RESIDENT_ARENAS];
    if (missing > 0)
        z3d_string_append(out, "  ! %s of the arenas are not in memory: the machine swaps\n",
                          z3d_format_bytes(missing, text, sizeof text));
}

static void append_traffic(z3d_string *out, z3d_axes axes, z3d_collective_kind kind,
                           const z3d_traffic *traffic) {
    char name[48], inside[32], between[32], seconds[32], exposed[32];
    const double bytes = (double)(traffic->bytes + traffic->scalar_bytes);
    const int64_t across = (int64_t)traffic->bytes_between_nodes;
    snprintf(name, sizeof name, "%s %s", z3d_axes_name(axes).text, z3d_collective_name(kind));
    z3d_string_append(out, "  %-26s %10lld %14s %14s %11s %11s\n", name,
                      (long long)(traffic->calls + traffic->scalar_calls),
                      z3d_format_bytes((int64_t)bytes - across, inside, sizeof inside),
                      z3d_format_bytes(across, between, sizeof between),
                      z3d_format_seconds(traffic->seconds, seconds, sizeof seconds),
                      z3d_format_seconds(traffic->exposed_seconds, exposed, sizeof exposed));
}

/* all: also kinds that comms_logger does not report. */
static void append_communication(z3d_string *out, const z3d_run_end *end, bool all) {
    bool any = false;
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++) {
        const z3d_group *group = end->trainer->group[axes];
        if (!group || z3d_group_size(group) < 2) continue;
        for (int kind = 0; kind < Z3D_COLLECTIVE_COUNT; kind++) {
            const z3d_traffic *traffic = z3d_group_traffic(group, (z3d_collective_kind)kind);
            if (traffic->calls + traffic->scalar_calls == 0) continue;
            if (!all && !z3d_config_logs_collective(end->trainer->config,
                                                    z3d_collective_name((z3d_collective_kind)kind)))
                continue;
            if (!any)
                z3d_string_append(out, "communication of rank 0           calls  inside a node  "
                                       "between nodes        time     exposed\n");
            any = true;
            append_traffic(out, (z3d_axes)axes, (z3d_collective_kind)kind, traffic);
        }
    }
}

static void append_share(z3d_string *out, const z3d_run_end *end, const char *what, const char *how,
                         double seconds) {
    char text[32];
    z3d_string_append(out, "%s: %s%s, %.2f %% of the steps' time\n", what,
                      z3d_format_seconds(seconds, text, sizeof text), how,
                      100 * seconds / fmax(end->sums->step_seconds, 1e-9));
}

/* Appends the times of transfers, by lane of the timeline. */
static void append_transfers(z3d_string *out, const z3d_run_end *end) {
    const z3d_run_sums *sums = end->sums;
    if (!end->offloaded) return;
    if (isfinite(sums->transfer_seconds))
        append_share(out, end, "host transfers", " exposed", sums->transfer_seconds);
    if (sums->disk_seconds > 0) append_share(out, end, "disk", " exposed", sums->disk_seconds);
    if (sums->host_step_seconds > 0)
        append_share(out, end, "host step", "", sums->host_step_seconds);
}

void z3d_summary_tables(const z3d_run_end *end, bool all, z3d_string *out) {
    if (all) append_memory(out, end->memory);
    append_differences(out, end->memory);
    if (all && end->resident) append_resident(out, end->resident);
    if (end->resident) append_unexplained(out, end);
    append_communication(out, end, all);
    if (all) append_transfers(out, end);
}

/* ---- JSON ---- */

static void append_ledger(z3d_string *out, const char *name, const z3d_ledger *ledger) {
    z3d_string_append(out, "\"%s\":{", name);
    for (int category = 0; category < Z3D_CATEGORY_COUNT; category++)
        z3d_string_append(out, "\"%s\":%lld,", z3d_category_name((z3d_category)category),
                          (long long)ledger->peak[category]);
    z3d_string_append(out, "\"total\":%lld}", (long long)ledger->total_peak);
}

static void append_json_memory(z3d_string *out, const z3d_rank_memory *memory) {
    static const char *const where[] = {"device", "host", "disk"};
    z3d_string_append(out, ",\n\"memory\":{\"rank\":%d,\"buffers\":%lld,\"outside\":", memory->rank,
                      (long long)memory->buffer_bytes);
    z3d_string_append_number(out, memory->outside >= 0 ? (double)memory->outside : NAN);
    for (int space = 0; space < Z3D_SPACE_COUNT; space++) {
        z3d_string_append(out, ",\n \"%s\":{", where[space]);
        append_ledger(out, "planned", &memory->planned[space]);
        z3d_string_append(out, ",");
        append_ledger(out, "measured", &memory->measured[space]);
        z3d_string_append(out, "}");
    }
    z3d_string_append(out, "}");
}

static void append_json_resident(z3d_string *out, const z3d_resident *r) {
    z3d_string_append(out, ",\n\"resident\":{");
    for (int part = 0; part < Z3D_RESIDENT_COUNT; part++) {
        z3d_string_append_json(out, z3d_resident_name((z3d_resident_part)part));
        z3d_string_append(out, ":%lld,", (long long)r->bytes[part]);
    }
    z3d_string_append(out, "\"total\":%lld,\"system\":%lld}", (long long)r->sum,
                      (long long)r->system);
}

void z3d_summary_json(const z3d_run_end *end, z3d_string *out) {
    const z3d_run_sums *sums = end->sums;
    const z3d_trainer *trainer = end->trainer;
    z3d_string_append(out, "{\"end\":\"%s\",\"last_step\":%lld,\"steps\":%lld,\"skipped\":%lld",
                      end->early          ? "early"
                      : !end->stopped     ? "complete"
                      : end->time_is_over ? "time_limit"
                                          : "signal",
                      (long long)(trainer->resumed_step + sums->steps), (long long)sums->steps,
                      (long long)sums->skipped);
    z3d_metrics_number("seconds", end->seconds, out);
    z3d_metrics_number("first_loss", sums->first_loss, out);
    z3d_metrics_number("last_loss", sums->last_loss, out);
    z3d_metrics_number("validation_loss", sums->validation_loss, out);
    if (end->best) {
        z3d_metrics_number("best_validation_loss", trainer->evaluations.best_loss, out);
        z3d_string_append(out, ",\"best_step\":%lld", (long long)trainer->evaluations.best_step);
    }
    z3d_metrics_number("tokens_per_second", end->tokens_per_second, out);
    z3d_metrics_number("mfu", end->mfu, out);
    z3d_metrics_number("step_seconds", sums->step_seconds, out);
    z3d_metrics_number("exposed_comm_seconds", sums->comm_seconds, out);
    z3d_metrics_number("exposed_transfer_seconds", sums->transfer_seconds, out);
    z3d_metrics_number("exposed_disk_seconds", sums->disk_seconds, out);
    z3d_metrics_number("host_step_seconds", sums->host_step_seconds, out);
    append_json_memory(out, end->memory);
    if (end->resident) append_json_resident(out, end->resident);
    z3d_string_append(out, ",\n\"communication\":");
    z3d_metrics_traffic(trainer->group, sums->steps, out);
    z3d_string_append(out, "}\n");
}

/* ---- the next commands ---- */

/* "export:   PROGRAM WORDS PATH" */
static void append_next(z3d_string *out, const char *between, const char *what,
                        const z3d_run_end *end, const char *words, const char *path) {
    const char *program = end->trainer->options->program;
    z3d_string_append(out, "%s%-9s ", out->length ? between : "", what);
    z3d_string_append_shell(out, program ? program : "zero3d");
    z3d_string_append(out, " %s ", words);
    z3d_string_append_shell(out, path);
}

/* Whether generation would find the model's tokenizer. */
static bool can_generate(const z3d_config *config) {
    if (config->data_vocab && *config->data_vocab) return true;
    return config->data_tokenizer == Z3D_TOKENIZER_BYTES && config->model_vocab_size >= 257;
}

void z3d_summary_next(const z3d_run_end *end, const char *between, z3d_string *out) {
    const char *checkpoints = end->best ? end->best : end->checkpoint_dir;
    const char *run = end->trainer->config->run_dir, *command = end->trainer->options->command;
    z3d_string exported = {0};
    z3d_string_append(&exported, "%s/exported", run);
    if (end->stopped && checkpoints && command) z3d_string_append(out, "resume:   %s", command);
    if (!end->stopped && checkpoints && can_generate(end->trainer->config)) {
        append_next(out, between, "generate:", end, "generate", checkpoints);
        z3d_string_append(out, end->chats ? " --chat --prompt Hello" : " --prompt The");
    }
    if (!end->stopped && checkpoints) {
        append_next(out, between, "export:", end, "checkpoint export", checkpoints);
        z3d_string_append(out, " ");
        z3d_string_append_shell(out, exported.text ? exported.text : "exported");
    }
    append_next(out, between, "report:", end, "report", run);
    z3d_string_append(out, " --html report.html");
    z3d_string_free(&exported);
}
