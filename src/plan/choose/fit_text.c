/* plan --fit as a table and as JSON. */
#include <string.h>

#include "src/plan/choose/fit.h"

static double least_bytes(const z3d_fit *fit) {
    double least = fit->row[0].bytes_sent;
    for (int i = 1; i < fit->count; i++)
        if (fit->row[i].fits && fit->row[i].bytes_sent < least) least = fit->row[i].bytes_sent;
    return least;
}

/* Columns are of one unit, by the device's size. */
static double unit(const z3d_fit *fit) {
    return fit->row[0].memory.capacity >= 1e9 ? 1e-9 : 1e-6;
}

static void print_row(const z3d_fit *fit, const z3d_fit_row *row, z3d_string *out) {
    char batch[48];
    double scale = unit(fit);
    snprintf(batch, sizeof batch, "%lld x %lld", (long long)row->micro_batch,
             (long long)row->accumulation);
    z3d_string_append(out, "%4d  %-9s %3s %3s %11s", row->stage,
                      z3d_fit_granularities[row->granularity], row->partition ? "yes" : "-",
                      row->offload ? "yes" : "-", batch);
    for (int category = 0; category < Z3D_CATEGORY_COUNT; category++)
        z3d_string_append(out, " %8.2f", (double)row->ledger.peak[category] * scale);
    z3d_string_append(out, " %8.2f %8.2f", (double)row->memory.arena * scale,
                      (double)(row->memory.host_arena + row->memory.snapshot) * scale);
    if (row->fits)
        z3d_string_append(out, " %8.2f %8.2f %7.1f %% %10.4g\n", row->memory.free * scale,
                          (row->bytes_sent - least_bytes(fit)) * scale, 100 * row->recompute,
                          row->seconds);
    else if (row->memory.free < 0)
        z3d_string_append(out, " does not fit, %.2f too much\n", -row->memory.free * scale);
    else
        z3d_string_append(out, " no room in host memory\n");
}

void z3d_fit_print(const z3d_fit *fit, z3d_string *out) {
    const z3d_hardware *h = &fit->hardware;
    char capacity[32];
    const z3d_fit_layout *layout = &fit->row[0].layout;
    const char *name = unit(fit) == 1e-9 ? "GB" : "MB";
    z3d_string_append(
        out,
        "%d ranks = %s, %lld samples a data rank and step; %s a "
        "device, %.3g GB of it outside the arena\npredicted on %s\n\n",
        fit->ranks, z3d_sizes_name(layout->tensor, layout->pipeline, layout->data).text,
        (long long)fit->samples,
        z3d_format_bytes((int64_t)(h->memory_gib * 1073741824.0), capacity, sizeof capacity),
        h->overhead_gb, h->name);
    z3d_string_append(
        out,
        "%s of a rank                             peaks by category%38s packed%14s     extra a "
        "step\n%4s  %-9s %3s %3s %11s %8s %8s %8s %8s %8s %8s %8s %8s %8s %8s %9s %10s\n",
        name, "", "", "ZeRO", "recompute", "P_a", "cpu", "batch x n", "params", "grads", "optim",
        "activ", "temp", "comm", "device", "host", "free", "sent", "FLOPs", "seconds");
    for (int i = 0; i < fit->count; i++) print_row(fit, &fit->row[i], out);
    z3d_string_append(out,
                      "\n"
                      "The first line is the fastest that fits. Extra: what a rank sends more than "
                      "the line that sends least (%.2f %s), and FLOPs beyond the model's.\n",
                      least_bytes(fit) * unit(fit), name);
}

/* ---- JSON ---- */

static void number(z3d_string *out, const char *name, double value) {
    z3d_string_append(out, ", \"%s\": ", name);
    z3d_string_append_number(out, value);
}

static void row_json(const z3d_fit *fit, const z3d_fit_row *row, z3d_string *out) {
    z3d_string_append(out,
                      "{\"stage\": %d, \"granularity\": \"%s\", \"partition_activations\": %s, "
                      "\"cpu_checkpointing\": %s, \"micro_batch\": %lld, \"accumulation\": %lld, "
                      "\"fits\": %s, \"memory\": {",
                      row->stage, z3d_fit_granularities[row->granularity],
                      row->partition ? "true" : "false", row->offload ? "true" : "false",
                      (long long)row->micro_batch, (long long)row->accumulation,
                      row->fits ? "true" : "false");
    for (int category = 0; category < Z3D_CATEGORY_COUNT; category++)
        z3d_string_append(out, "%s\"%s\": %lld", category ? ", " : "", z3d_category_name(category),
                          (long long)row->ledger.peak[category]);
    number(out, "arena", (double)row->memory.arena);
    number(out, "host_arena", (double)row->memory.host_arena);
    number(out, "checkpoint_copy", (double)row->memory.snapshot);
    number(out, "free", row->memory.free);
    z3d_string_append(out, "}");
    if (row->fits) {
        number(out, "seconds", row->seconds);
        number(out, "bytes_sent", row->bytes_sent);
        number(out, "extra_bytes_sent", row->bytes_sent - least_bytes(fit));
        number(out, "recompute", row->recompute);
    }
    z3d_string_append(out, "}");
}

void z3d_fit_json(const z3d_fit *fit, z3d_string *out) {
    z3d_string_append(out, "{\"hardware\": ");
    z3d_string_append_json(out, fit->hardware.name);
    z3d_string_append(out, ", \"ranks\": %d, \"tensor\": %d, \"data\": %d", fit->ranks,
                      fit->row[0].layout.tensor, fit->row[0].layout.data);
    number(out, "capacity", fit->row[0].memory.capacity);
    z3d_string_append(out, ", \"best\": ");
    row_json(fit, &fit->row[0], out);
    z3d_string_append(out, ", \"rows\": [");
    for (int i = 0; i < fit->count; i++) {
        if (i) z3d_string_append(out, ", ");
        row_json(fit, &fit->row[i], out);
    }
    z3d_string_append(out, "]}\n");
}
