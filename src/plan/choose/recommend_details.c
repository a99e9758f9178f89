/* The results of plan --fit and --recommend: the tables of --verbose. */
#include "src/plan/choose/ways.h"

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

static const double GIB = 1.0 / 1073741824;

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

static void print_losses(const z3d_recommendation *r, z3d_string *out) {
    z3d_string_append(out, "\n   %% of the step lost to\n%2s %10s %6s %6s %6s %6s  %s\n", "",
                      "tokens/s", "bubble", "tensor", "data", "sends", "largest loss");
    for (int i = 0; i < r->count; i++) {
        const z3d_fit_row *row = &r->row[i];
        z3d_string_append(out, "%2d %10.4g", i + 1, r->tokens / row->seconds);
        for (int k = 0; k <= Z3D_LOSS_PIPELINE; k++)
            z3d_string_append(out, " %6.1f", 100 * row->loss[k] / row->seconds);
        z3d_string_append(out, "  ");
        append_limit(row, out);
        z3d_string_append(out, "\n");
    }
}

/* Each row's memory by category, and its communication and FLOPs beyond the cheapest row. */
static void print_memory(const z3d_recommendation *r, z3d_string *out) {
    z3d_string_append(out, "\n   GiB %-80s %-19s %s\n%2s",
                      "of the rank that needs most: peaks by category", "packed", "extra a step",
                      "");
    for (int category = 0; category < Z3D_CATEGORY_COUNT; category++)
        z3d_string_append(out, " %12s", z3d_category_name((z3d_category)category));
    z3d_string_append(out, " %9s %9s %9s %8s\n", "device", "host", "GB sent", "FLOPs");
    for (int i = 0; i < r->count; i++) {
        const z3d_fit_row *row = &r->row[i];
        z3d_string_append(out, "%2d", i + 1);
        for (int category = 0; category < Z3D_CATEGORY_COUNT; category++)
            z3d_string_append(out, " %12.4g", (double)row->ledger.peak[category] * GIB);
        z3d_string_append(out, " %9.4g %9.4g %9.2f %6.1f %%\n", (double)row->memory.arena * GIB,
                          (double)(row->memory.host_arena + row->memory.snapshot) * GIB,
                          (row->bytes_sent - z3d_least_sent(r)) * 1e-9, 100 * row->recompute);
    }
    z3d_string_append(out,
                      "Extra: what a rank sends more than the line that sends least (%.4g GB), and "
                      "FLOPs beyond the model's.\n",
                      z3d_least_sent(r) * 1e-9);
}

static bool any_offloaded(const z3d_recommendation *r) {
    for (int i = 0; i < r->count; i++)
        if (r->row[i].tiers.optimizer || r->row[i].tiers.parameters) return true;
    return false;
}

static void print_offload(const z3d_recommendation *r, z3d_string *out) {
    if (!any_offloaded(r)) return;
    z3d_string_append(out,
                      "\n   seconds of a step in which the device stands still for offload; GiB of "
                      "the rank that needs most\n%2s  %-10s %10s %10s %10s %9s %9s\n",
                      "", "offload", "host link", "host step", "disk", "host", "disk");
    for (int i = 0; i < r->count; i++) {
        const z3d_fit_row *row = &r->row[i];
        z3d_string_append(out, "%2d  %-10s %10.4g %10.4g %10.4g %9.2f %9.2f\n", i + 1,
                          z3d_row_tiers(row).text, row->loss[Z3D_LOSS_TRANSFER],
                          row->loss[Z3D_LOSS_HOST], row->loss[Z3D_LOSS_DISK],
                          (double)(row->memory.host_arena + row->memory.snapshot) * GIB,
                          (double)row->memory.disk_arena * GIB);
    }
    z3d_string_append(out, "offload: where optimizer states lie; after the comma, parameters\n");
}

/* The candidate that lacks least, and the sizes that were not tried. */
static void print_misses(const z3d_recommendation *r, z3d_string *out) {
    const z3d_misses *m = &r->misses;
    z3d_string_append(out,
                      "\narrangements of the ranks: %d; candidates: %d; %d were priced, the others "
                      "that fit cannot be among these\n",
                      r->layouts, r->ways, r->priced);
    if (m->nearest.accumulation + m->nearest_elsewhere.accumulation > 0) {
        z3d_string_append(out, "The nearest miss: ");
        z3d_misses_say(m, out);
        z3d_string_append(out, "\n");
    }
    if (r->largest_tensor)
        z3d_string_append(out,
                          "Tensor sizes above %d, which leave a node, were left out: "
                          "parallel.allow_tensor_across_nodes: true prices them over the network\n",
                          r->largest_tensor);
}

static void print_estimates(const z3d_recommendation *r, z3d_string *out) {
    const bool time = z3d_hardware_estimates(&r->hardware, true, NULL),
               room = z3d_hardware_estimates(&r->hardware, false, NULL);
    if (!time && !room) return;
    z3d_string_append(out, "\nestimates in the machine's description: ");
    z3d_hardware_estimates(&r->hardware, false, out);
    z3d_string_append(out, time && room ? ", " : "");
    z3d_hardware_estimates(&r->hardware, true, out);
    z3d_string_append(out, " (doctor --measure measures a machine)\n");
}

void z3d_recommend_details(const z3d_recommendation *r, z3d_string *out) {
    print_losses(r, out);
    print_memory(r, out);
    print_offload(r, out);
    print_misses(r, out);
    print_estimates(r, out);
}
