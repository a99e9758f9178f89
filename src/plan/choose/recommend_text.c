/* What plan --fit and --recommend find: tables with keys to paste, and JSON. */
#include <string.h>

#include "parallel/schedule/schedule.h"
#include "src/plan/choose/ways.h"
#include "src/plan/price/accuracy.h"

static const char *const losses[Z3D_LOSS_COUNT] = {"pipeline bubble",
                                                   "tensor communication",
                                                   "data communication",
                                                   "pipeline communication",
                                                   "recompute",
                                                   "copies to host memory",
                                                   "host's optimizer step",
                                                   "disk",
                                                   "nearly full device",
                                                   "launches"};
static const char *const devices[] = {"none", "cpu", "nvme"}; /* by z3d_offload_device */
static const char *const gathers[] = {"auto", "per_step", "per_microbatch"};

/* "-" with one pipeline stage. */
static const char *schedule_of(const z3d_fit_layout *layout) {
    return layout->schedule == Z3D_PIPELINE_AUTO
               ? "-"
               : z3d_schedule_name((z3d_schedule_kind)(layout->schedule - 1));
}

/* "-", "cpu", "nvme, cpu": optimizer states, and parameters. */
typedef struct tiers_text {
    char text[16];
} tiers_text;

static tiers_text tiers_of(const z3d_fit_row *row) {
    tiers_text out = {"-"};
    if (row->tiers.optimizer)
        snprintf(out.text, sizeof out.text, "%s%s%s", devices[row->tiers.optimizer],
                 row->tiers.parameters ? ", " : "",
                 row->tiers.parameters ? devices[row->tiers.parameters] : "");
    return out;
}

static bool is_offloaded(const z3d_fit_row *row) {
    return row->tiers.optimizer || row->tiers.parameters;
}

static bool any_offloaded(const z3d_recommendation *r) {
    for (int i = 0; i < r->count; i++)
        if (is_offloaded(&r->row[i])) return true;
    return false;
}

/* -1: unknown peak. */
static double mfu_of(const z3d_recommendation *r, const z3d_fit_row *row) {
    return r->peak > 0 ? r->flops / row->seconds / r->ranks / r->peak : -1;
}

static double least_sent(const z3d_recommendation *r) {
    double least = r->row[0].bytes_sent;
    for (int i = 1; i < r->count; i++)
        if (r->row[i].bytes_sent < least) least = r->row[i].bytes_sent;
    return least;
}

static double used_of(const z3d_fit_row *row) {
    return row->memory.capacity - row->memory.free;
}

/* ---- text ---- */

static double unit(const z3d_recommendation *r) {
    return r->row[0].memory.capacity >= 1e9 ? 1e-9 : 1e-6;
}

/* A number, with a mark if it rests on estimates. */
typedef struct marked {
    char text[32];
} marked;

static marked number_of(bool estimate, const char *format, double value) {
    marked out;
    int mark = snprintf(out.text, sizeof out.text, "%s", estimate && value != 0 ? "~" : "");
    snprintf(out.text + mark, sizeof out.text - (size_t)mark, format, value);
    return out;
}

static bool estimates_time(const z3d_recommendation *r) {
    return z3d_hardware_estimates(&r->hardware, true, NULL);
}

static bool estimates_room(const z3d_recommendation *r) {
    return z3d_hardware_estimates(&r->hardware, false, NULL);
}

static void append_limit(const z3d_recommendation *r, const z3d_fit_row *row, z3d_string *out) {
    int most = 0;
    for (int k = 1; k < Z3D_LOSS_COUNT; k++)
        if (row->loss[k] > row->loss[most]) most = k;
    double share = row->loss[most] / row->seconds;
    if (share < 5e-4)
        z3d_string_append(out, "-");
    else
        z3d_string_append(out, "%s %s", losses[most],
                          number_of(estimates_time(r), "%.1f %%", 100 * share).text);
}

static const char *sequence_of(const z3d_fit_layout *layout) {
    return layout->tensor == 1 ? "-" : layout->sequence_parallel ? "yes" : "no";
}

/* granularity auto leaves a tenth: a run may need more than its plan. */
static bool is_tight(const z3d_fit_row *row) {
    return row->memory.free < 0.1 * row->memory.capacity;
}

static void print_row(const z3d_recommendation *r, int index, z3d_string *out) {
    const z3d_fit_row *row = &r->row[index];
    const z3d_fit_layout *l = &row->layout;
    const bool time = estimates_time(r), room = estimates_room(r);
    char batch[48], schedule[32], replay[32];
    snprintf(batch, sizeof batch, "%lld x %lld", (long long)row->micro_batch,
             (long long)row->accumulation);
    snprintf(schedule, sizeof schedule, l->chunks > 1 ? "%s x %d" : "%s", schedule_of(l),
             l->chunks);
    snprintf(replay, sizeof replay, "%s%s%s", z3d_fit_granularities[row->granularity],
             row->partition ? " P_a" : "", row->offload ? " cpu" : "");
    z3d_string_append(
        out, "%2d %3d %3s %3d %4d  %-15s %d%-5s %-10s %10s  %-12s %8s %8s %9s %8s %10s ", index + 1,
        l->tensor, sequence_of(l), l->pipeline, l->data, schedule, row->stage,
        row->gather == Z3D_PIPELINE_GATHER_PER_STEP ? " once" : "", tiers_of(row).text, batch,
        replay, number_of(room, "%.2f", used_of(row) * unit(r)).text,
        number_of(room, "%.2f", row->memory.free * unit(r)).text,
        number_of(time, "%.4g", row->seconds).text,
        r->peak > 0 ? number_of(time, "%.1f %%", 100 * mfu_of(r, row)).text : "n/a",
        number_of(time, "%.4g", r->tokens / row->seconds).text);
    for (int k = 0; k <= Z3D_LOSS_PIPELINE; k++)
        z3d_string_append(out, " %6s",
                          number_of(time, "%.1f", 100 * row->loss[k] / row->seconds).text);
    z3d_string_append(out, "  ");
    append_limit(r, row, out);
    z3d_string_append(out, "%s\n", is_tight(row) ? "; tight" : "");
}

/* Where the memory goes, and what a way costs beyond the cheapest. */
static void print_memory(const z3d_recommendation *r, z3d_string *out) {
    int64_t most = 0;
    for (int i = 0; i < r->count; i++)
        if (r->row[i].memory.arena > most) most = r->row[i].memory.arena;
    const double scale = most >= 1000000000 ? 1e-9 : 1e-6;
    const char *name = scale == 1e-9 ? "GB" : "MB";
    z3d_string_append(out, "\n   %s %-80s %-19s %s\n%2s", name,
                      "of the rank that needs most: peaks by category", "packed", "extra a step",
                      "");
    for (int category = 0; category < Z3D_CATEGORY_COUNT; category++)
        z3d_string_append(out, " %12s", z3d_category_name((z3d_category)category));
    z3d_string_append(out, " %9s %9s %9s %8s\n", "device", "host", "sent", "FLOPs");
    for (int i = 0; i < r->count; i++) {
        const z3d_fit_row *row = &r->row[i];
        z3d_string_append(out, "%2d", i + 1);
        for (int category = 0; category < Z3D_CATEGORY_COUNT; category++)
            z3d_string_append(out, " %12.2f", (double)row->ledger.peak[category] * scale);
        z3d_string_append(out, " %9.2f %9.2f %9.2f %6.1f %%\n", (double)row->memory.arena * scale,
                          (double)(row->memory.host_arena + row->memory.snapshot) * scale,
                          (row->bytes_sent - least_sent(r)) * scale, 100 * row->recompute);
    }
    z3d_string_append(out,
                      "Extra: what a rank sends more than the line that sends least (%.2f %s), and "
                      "FLOPs beyond the model's.\n",
                      least_sent(r) * scale, name);
}

/* What each way's offload costs. */
static void print_offload(const z3d_recommendation *r, z3d_string *out) {
    const bool time = estimates_time(r);
    if (!any_offloaded(r)) return;
    z3d_string_append(out,
                      "\n   seconds of a step in which the device stands still for offload; GB of "
                      "the rank that needs most\n%2s  %-10s %10s %10s %10s %9s %9s\n",
                      "", "offload", "host link", "host step", "disk", "host", "disk");
    for (int i = 0; i < r->count; i++) {
        const z3d_fit_row *row = &r->row[i];
        z3d_string_append(out, "%2d  %-10s %10s %10s %10s %9.2f %9.2f\n", i + 1, tiers_of(row).text,
                          number_of(time, "%.4g", row->loss[Z3D_LOSS_TRANSFER]).text,
                          number_of(time, "%.4g", row->loss[Z3D_LOSS_HOST]).text,
                          number_of(time, "%.4g", row->loss[Z3D_LOSS_DISK]).text,
                          (double)(row->memory.host_arena + row->memory.snapshot) * 1e-9,
                          (double)row->memory.disk_arena * 1e-9);
    }
    z3d_string_append(out, "offload: where optimizer states lie; after the comma, parameters\n");
}

static void print_block(const char *block, int device, const char *folder, z3d_string *out) {
    if (device == Z3D_OFFLOAD_DEVICE_NONE) return;
    z3d_string_append(out, "  %s: { device: %s", block, devices[device]);
    if (device == Z3D_OFFLOAD_DEVICE_NVME) z3d_string_append(out, ", nvme_path: %s", folder);
    z3d_string_append(out, " }\n");
}

static void print_keys(const z3d_recommendation *r, const z3d_fit_row *row, z3d_string *out) {
    const z3d_fit_layout *l = &row->layout;
    z3d_string_append(out,
                      "parallel:\n"
                      "  tensor_model_parallel_size: %d\n"
                      "  sequence_parallel: %s\n"
                      "  pipeline_model_parallel_size: %d\n",
                      l->tensor, l->sequence_parallel ? "true" : "false", l->pipeline);
    if (l->pipeline > 1)
        z3d_string_append(out,
                          "  virtual_pipeline_model_parallel_size: %d\n"
                          "  pipeline_schedule: %s\n",
                          l->chunks, schedule_of(l));
    z3d_string_append(out, "zero_optimization:\n  stage: %d\n", row->stage);
    if (row->gather != Z3D_PIPELINE_GATHER_AUTO)
        z3d_string_append(out, "  pipeline_gather: %s\n", gathers[row->gather]);
    print_block("offload_optimizer", row->tiers.optimizer, r->folder, out);
    print_block("offload_param", row->tiers.parameters, r->folder, out);
    z3d_string_append(out, "activation_checkpointing:\n  granularity: %s\n",
                      z3d_fit_granularities[row->granularity]);
    if (row->partition) z3d_string_append(out, "  partition_activations: true\n");
    if (row->offload) z3d_string_append(out, "  cpu_checkpointing: true\n");
    if (strcmp(r->hardware.kind, "gpu") == 0) z3d_string_append(out, "training:\n  device: cuda\n");
    z3d_string_append(out,
                      "train_batch_size: %lld\n"
                      "train_micro_batch_size_per_gpu: %lld\n"
                      "gradient_accumulation_steps: %lld\n",
                      (long long)r->samples, (long long)row->micro_batch,
                      (long long)row->accumulation);
}

/* What does not fit, and what was not tried. */
static void print_misses(const z3d_recommendation *r, z3d_string *out) {
    const z3d_misses *m = &r->misses;
    if (m->device + m->elsewhere > 0) {
        z3d_string_append(out,
                          "\n%d ways do not fit: %d lack device memory, %d host memory or disk",
                          m->device + m->elsewhere, m->device, m->elsewhere);
        if (m->nearest.accumulation + m->nearest_elsewhere.accumulation > 0)
            z3d_string_append(out, ". The nearest miss: ");
        z3d_misses_say(m, out);
        z3d_string_append(out, "\n");
    }
    if (r->largest_tensor)
        z3d_string_append(out,
                          "Tensor sizes above %d, which leave a node, were left out: "
                          "parallel.allow_tensor_across_nodes: true prices them over the network\n",
                          r->largest_tensor);
}

static z3d_run_kind kind_of(const z3d_recommendation *r, const z3d_fit_row *row) {
    const bool states = row->tiers.optimizer != Z3D_OFFLOAD_DEVICE_NONE ||
                        row->tiers.parameters != Z3D_OFFLOAD_DEVICE_NONE;
    return (z3d_run_kind){.ranks = r->ranks,
                          .stage = row->layout.data > 1 ? row->stage : 0,
                          .pipeline = row->layout.pipeline,
                          .offload = z3d_offload_kind(states, row->offload),
                          .parameters = r->parameters};
}

/* What the mark means, and how far one may trust the numbers. */
static void print_trust(const z3d_recommendation *r, z3d_string *out) {
    const bool time = estimates_time(r), room = estimates_room(r);
    z3d_string_append(out, "\n");
    if (time || room) {
        z3d_string_append(out, "~ rests on estimates of the machine: ");
        z3d_hardware_estimates(&r->hardware, false, out);
        z3d_string_append(out, time && room ? ", " : "");
        z3d_hardware_estimates(&r->hardware, true, out);
        z3d_string_append(out, " (doctor --measure measures a machine)\n");
    }
    z3d_string_append(out, "1: ");
    const z3d_run_kind kind = kind_of(r, &r->row[0]);
    z3d_compared_print(&r->hardware, &kind, r->row[0].seconds, out);
    z3d_string_append(out, "Predicted steps have been off by (median, most): ");
    bool some = false;
    for (int i = 0; i < Z3D_ACCURACIES; i++) {
        const z3d_accuracy *a = &z3d_accuracies[i];
        if (a->measured == time) continue;
        z3d_string_append(out, "%s%g %% and %g %% in %d %s (%s)", some ? "; " : "", a->median,
                          a->most, a->count, a->runs, a->source);
        some = true;
    }
    z3d_string_append(out, "\n");
}

static void print_head(const z3d_recommendation *r, z3d_string *out) {
    const z3d_hardware *h = &r->hardware;
    const bool room = estimates_room(r);
    char capacity[32];
    z3d_format_bytes((int64_t)(h->memory_gib * 1073741824.0), capacity, sizeof capacity);
    z3d_string_append(
        out,
        "%d rank%s, %lld samples a step; %s%s a device, %s GB of it outside the arena\n"
        "predicted on %s",
        r->ranks, r->ranks == 1 ? "" : "s", (long long)r->samples, room ? "~" : "", capacity,
        number_of(room, "%.3g", h->overhead_gb).text, h->name);
    z3d_software_print(h, out);
    z3d_string_append(
        out,
        "\narrangements of the ranks: %d; ways in all: %d; of them %d do not fit, %d were priced, "
        "the others cannot be among these\n\n"
        "%99s%s of a device%34s%% of the step lost to\n"
        "%2s %3s %3s %3s %4s  %-15s %-6s %-10s %10s  %-12s %8s %8s %9s %8s %10s  %6s %6s %6s %6s  "
        "%s\n",
        r->layouts, r->ways, r->misses.device + r->misses.elsewhere, r->priced, "",
        unit(r) == 1e-9 ? "GB" : "MB", "", "", "tp", "sp", "pp", "dp", "schedule", "ZeRO",
        "offload", "batch x n", "recompute", "used", "free", "seconds", "MFU", "tokens/s", "bubble",
        "tensor", "data", "sends", "largest loss");
}

void z3d_recommend_print(const z3d_recommendation *r, z3d_string *out) {
    bool once = false, tight = false;
    print_head(r, out);
    for (int i = 0; i < r->count; i++) {
        print_row(r, i, out);
        once = once || r->row[i].gather == Z3D_PIPELINE_GATHER_PER_STEP;
        tight = tight || is_tight(&r->row[i]);
    }
    if (tight)
        z3d_string_append(out,
                          "tight: less than a tenth of the device stays free; a run that needs "
                          "more than its plan fails: take a line with more free, or try it\n");
    if (once) z3d_string_append(out, "once: parameters are gathered once a step, and kept\n");
    print_memory(r, out);
    print_offload(r, out);
    print_misses(r, out);
    print_trust(r, out);
    const z3d_fit_tiers *tiers = &r->row[0].tiers;
    bool disk = tiers->optimizer == Z3D_OFFLOAD_DEVICE_NVME;
    z3d_string_append(out, "\nRecommended: the first line, the fastest. Its keys%s:\n\n",
                      disk && strcmp(r->folder, z3d_tiers_folder) == 0
                          ? " (nvme_path: write a folder on a local disk of each node)"
                          : "");
    print_keys(r, &r->row[0], out);
}

/* ---- JSON ---- */

static void number(z3d_string *out, const char *name, double value) {
    z3d_string_append(out, ", \"%s\": ", name);
    z3d_string_append_number(out, value);
}

static void row_json(const z3d_recommendation *r, const z3d_fit_row *row, z3d_string *out) {
    static const char *const name[Z3D_LOSS_COUNT] = {"bubble",    "tensor",    "data",
                                                     "pipeline",  "recompute", "transfer",
                                                     "host_step", "disk",      "full_device"};
    const z3d_fit_layout *l = &row->layout;
    z3d_string_append(
        out,
        "{\"tensor\": %d, \"pipeline\": %d, \"data\": %d, \"chunks\": %d, \"schedule\": \"%s\", "
        "\"sequence_parallel\": %s, \"stage\": %d, \"offload_optimizer\": \"%s\", "
        "\"offload_param\": \"%s\", \"pipeline_gather\": \"%s\", \"granularity\": \"%s\", "
        "\"partition_activations\": %s, \"cpu_checkpointing\": %s, \"micro_batch\": %lld, "
        "\"accumulation\": %lld, \"memory\": {",
        l->tensor, l->pipeline, l->data, l->chunks, schedule_of(l),
        l->sequence_parallel ? "true" : "false", row->stage, devices[row->tiers.optimizer],
        devices[row->tiers.parameters], gathers[row->gather],
        z3d_fit_granularities[row->granularity], row->partition ? "true" : "false",
        row->offload ? "true" : "false", (long long)row->micro_batch, (long long)row->accumulation);
    for (int category = 0; category < Z3D_CATEGORY_COUNT; category++)
        z3d_string_append(out, "%s\"%s\": %lld", category ? ", " : "",
                          z3d_category_name((z3d_category)category),
                          (long long)row->ledger.peak[category]);
    number(out, "arena", (double)row->memory.arena);
    number(out, "host_arena", (double)row->memory.host_arena);
    number(out, "disk_arena", (double)row->memory.disk_arena);
    number(out, "checkpoint_copy", (double)row->memory.snapshot);
    z3d_string_append(out, "}");
    number(out, "used", used_of(row));
    number(out, "free", row->memory.free);
    number(out, "seconds", row->seconds);
    if (r->peak > 0) number(out, "mfu", mfu_of(r, row));
    number(out, "tokens_per_second", r->tokens / row->seconds);
    number(out, "bytes_sent", row->bytes_sent);
    number(out, "extra_bytes_sent", row->bytes_sent - least_sent(r));
    number(out, "recompute", row->recompute);
    z3d_string_append(out, ", \"lost_shares\": {");
    for (int k = 0; k < Z3D_LOSS_COUNT; k++) {
        z3d_string_append(out, "%s\"%s\": ", k ? ", " : "", name[k]);
        z3d_string_append_number(out, row->loss[k] / row->seconds);
    }
    z3d_string_append(out, "}}");
}

/* The keys in one text. */
static void estimates_json(const z3d_hardware *hardware, z3d_string *out) {
    z3d_string paths = {0};
    bool room = z3d_hardware_estimates(hardware, false, &paths);
    if (room && z3d_hardware_estimates(hardware, true, NULL)) z3d_string_append(&paths, ", ");
    z3d_hardware_estimates(hardware, true, &paths);
    z3d_string_append_json(out, paths.text ? paths.text : "");
    if (paths.failed) out->failed = true;
    z3d_string_free(&paths);
}

void z3d_recommend_json(const z3d_recommendation *r, z3d_string *out) {
    z3d_string_append(out, "{\"hardware\": ");
    z3d_string_append_json(out, r->hardware.name);
    z3d_string_append(out, ", \"software\": ");
    z3d_string_append_json(out, r->hardware.software[0] ? r->hardware.software : NULL);
    z3d_string_append(out,
                      ", \"ranks\": %d, \"train_batch_size\": %lld, \"layouts\": %d, \"ways\": %d, "
                      "\"too_large\": %d, \"priced\": %d, \"estimates\": ",
                      r->ranks, (long long)r->samples, r->layouts, r->ways,
                      r->misses.device + r->misses.elsewhere, r->priced);
    estimates_json(&r->hardware, out);
    z3d_string_append(out, ", \"best\": ");
    row_json(r, &r->row[0], out);
    z3d_string_append(out, ", \"rows\": [");
    for (int i = 0; i < r->count; i++) {
        if (i) z3d_string_append(out, ", ");
        row_json(r, &r->row[i], out);
    }
    z3d_string_append(out, "]}\n");
}
