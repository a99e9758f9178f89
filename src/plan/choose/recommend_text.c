/* What plan --fit and --recommend find: tables with keys to paste, and JSON. */
#include <string.h>

#include "parallel/schedule/schedule.h"
#include "src/plan/choose/fit.h"

static const char *const losses[Z3D_LOSS_COUNT] = {
    "pipeline bubble",   "tensor communication",  "data communication",    "pipeline communication",
    "recompute",         "copies to host memory", "host's optimizer step", "disk",
    "nearly full device"};
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

static void append_limit(const z3d_fit_row *row, z3d_string *out) {
    int most = 0;
    for (int k = 1; k < Z3D_LOSS_COUNT; k++)
        if (row->loss[k] > row->loss[most]) most = k;
    double share = row->loss[most] / row->seconds;
    if (share < 5e-4)
        z3d_string_append(out, "-");
    else
        z3d_string_append(out, "%s %.1f %%", losses[most], 100 * share);
}

static void print_row(const z3d_recommendation *r, int index, z3d_string *out) {
    const z3d_fit_row *row = &r->row[index];
    const z3d_fit_layout *l = &row->layout;
    char batch[48], schedule[32], replay[32], mfu[16] = "n/a";
    snprintf(batch, sizeof batch, "%lld x %lld", (long long)row->micro_batch,
             (long long)row->accumulation);
    snprintf(schedule, sizeof schedule, l->chunks > 1 ? "%s x %d" : "%s", schedule_of(l),
             l->chunks);
    snprintf(replay, sizeof replay, "%s%s%s", z3d_fit_granularities[row->granularity],
             row->partition ? " P_a" : "", row->offload ? " cpu" : "");
    if (r->peak > 0) snprintf(mfu, sizeof mfu, "%.1f %%", 100 * mfu_of(r, row));
    z3d_string_append(
        out, "%2d %3d %3d %4d  %-15s %d%-5s %-10s %10s  %-12s %7.2f %7.2f %9.4g %7s %9.4g ",
        index + 1, l->tensor, l->pipeline, l->data, schedule, row->stage,
        row->gather == Z3D_PIPELINE_GATHER_PER_STEP ? " once" : "", tiers_of(row).text, batch,
        replay, used_of(row) * unit(r), row->memory.free * unit(r), row->seconds, mfu,
        r->tokens / row->seconds);
    for (int k = 0; k <= Z3D_LOSS_PIPELINE; k++)
        z3d_string_append(out, k <= Z3D_LOSS_TENSOR ? " %6.1f" : " %5.1f",
                          100 * row->loss[k] / row->seconds);
    z3d_string_append(out, "  ");
    append_limit(row, out);
    z3d_string_append(out, "\n");
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
    if (!any_offloaded(r)) return;
    z3d_string_append(out,
                      "\n   seconds of a step in which the device stands still for offload; GB of "
                      "the rank that needs most\n%2s  %-10s %10s %10s %10s %9s %9s\n",
                      "", "offload", "host link", "host step", "disk", "host", "disk");
    for (int i = 0; i < r->count; i++) {
        const z3d_fit_row *row = &r->row[i];
        z3d_string_append(out, "%2d  %-10s %10.4g %10.4g %10.4g %9.2f %9.2f\n", i + 1,
                          tiers_of(row).text, row->loss[Z3D_LOSS_TRANSFER],
                          row->loss[Z3D_LOSS_HOST], row->loss[Z3D_LOSS_DISK],
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
    z3d_string_append(out,
                      "train_batch_size: %lld\n"
                      "train_micro_batch_size_per_gpu: %lld\n"
                      "gradient_accumulation_steps: %lld\n",
                      (long long)r->samples, (long long)row->micro_batch,
                      (long long)row->accumulation);
}

void z3d_recommend_print(const z3d_recommendation *r, z3d_string *out) {
    const z3d_hardware *h = &r->hardware;
    char capacity[32];
    const char *name = unit(r) == 1e-9 ? "GB" : "MB";
    bool once = false;
    z3d_string_append(
        out,
        "%d rank%s, %lld samples a step; %s a device, %.3g GB of it outside the arena\n"
        "predicted on %s\n"
        "arrangements of the ranks: %d; ways in all: %d; of them %d do not fit, %d were priced, "
        "the "
        "others cannot be among these\n\n",
        r->ranks, r->ranks == 1 ? "" : "s", (long long)r->samples,
        z3d_format_bytes((int64_t)(h->memory_gib * 1073741824.0), capacity, sizeof capacity),
        h->overhead_gb, h->name, r->layouts, r->ways, r->too_large, r->priced);
    z3d_string_append(
        out,
        "%92s%s of a device%30s%% of the step lost to\n"
        "%2s %3s %3s %4s  %-15s %-6s %-10s %10s  %-12s %7s %7s %9s %7s %9s  %6s %6s %5s %5s  %s\n",
        "", name, "", "", "tp", "pp", "dp", "schedule", "ZeRO", "offload", "batch x n", "recompute",
        "used", "free", "seconds", "MFU", "tokens/s", "bubble", "tensor", "data", "sends",
        "largest loss");
    for (int i = 0; i < r->count; i++) {
        print_row(r, i, out);
        once = once || r->row[i].gather == Z3D_PIPELINE_GATHER_PER_STEP;
    }
    if (once) z3d_string_append(out, "once: parameters are gathered once a step, and kept\n");
    print_memory(r, out);
    print_offload(r, out);
    z3d_string_append(out, "\nThe first line is the fastest. Its keys:\n\n");
    print_keys(r, &r->row[0], out);
    const z3d_fit_tiers *tiers = &r->row[0].tiers;
    bool disk = tiers->optimizer == Z3D_OFFLOAD_DEVICE_NVME;
    if (disk && strcmp(r->folder, z3d_tiers_folder) == 0)
        z3d_string_append(out, "\nnvme_path: write a folder on a local disk of each node\n");
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

void z3d_recommend_json(const z3d_recommendation *r, z3d_string *out) {
    z3d_string_append(out, "{\"hardware\": ");
    z3d_string_append_json(out, r->hardware.name);
    z3d_string_append(out,
                      ", \"ranks\": %d, \"train_batch_size\": %lld, \"layouts\": %d, \"ways\": %d, "
                      "\"too_large\": %d, \"priced\": %d, \"best\": ",
                      r->ranks, (long long)r->samples, r->layouts, r->ways, r->too_large,
                      r->priced);
    row_json(r, &r->row[0], out);
    z3d_string_append(out, ", \"rows\": [");
    for (int i = 0; i < r->count; i++) {
        if (i) z3d_string_append(out, ", ");
        row_json(r, &r->row[i], out);
    }
    z3d_string_append(out, "]}\n");
}
