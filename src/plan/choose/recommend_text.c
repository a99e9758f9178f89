/* The results of plan --fit and --recommend: the answer's keys, and a table of the other
 * candidates. */
#include "src/plan/choose/ways.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "parallel/schedule/schedule.h"
#include "src/plan/price/accuracy.h"

const char *const z3d_offload_names[] = {"none", "cpu", "nvme"};
const char *const z3d_gather_names[] = {"auto", "per_step", "per_microbatch"};

const char *const z3d_cut_names[] = {"ring", "hier", "hpZ", "MiCS"};

static const double GIB = 1.0 / 1073741824;

const char *z3d_row_schedule(const z3d_fit_layout *layout) {
    return layout->schedule == Z3D_PIPELINE_AUTO
               ? "-"
               : z3d_schedule_name((z3d_schedule_kind)(layout->schedule - 1));
}

z3d_row_text z3d_row_tiers(const z3d_fit_row *row) {
    z3d_row_text out = {"-"};
    if (row->tiers.optimizer)
        snprintf(out.text, sizeof out.text, "%s%s%s", z3d_offload_names[row->tiers.optimizer],
                 row->tiers.parameters ? ", " : "",
                 row->tiers.parameters ? z3d_offload_names[row->tiers.parameters] : "");
    return out;
}

double z3d_row_mfu(const z3d_recommendation *r, const z3d_fit_row *row) {
    return r->flops / row->seconds / r->ranks / r->peak;
}

double z3d_least_sent(const z3d_recommendation *r) {
    double least = r->row[0].bytes_sent;
    for (int i = 1; i < r->count; i++)
        if (r->row[i].bytes_sent < least) least = r->row[i].bytes_sent;
    return least;
}

double z3d_row_used(const z3d_fit_row *row) {
    return row->memory.capacity - row->memory.free;
}

z3d_bill z3d_row_bill(const z3d_recommendation *r, const z3d_fit_row *row) {
    return z3d_bill_make(&r->hardware, r->ranks, r->goal.tokens, r->tokens / row->seconds);
}

/* ---- the answer ---- */

static void print_block(const char *block, int device, const char *folder, z3d_string *out) {
    if (device == Z3D_OFFLOAD_DEVICE_NONE) return;
    z3d_string_append(out, "  %s: { device: %s", block, z3d_offload_names[device]);
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
                          l->chunks, z3d_row_schedule(l));
    if (l->cut == Z3D_CUT_HIERARCHICAL && l->cut_open)
        z3d_string_append(out,
                          "  collective_algorithm: hierarchical\n"
                          "  ranks_per_node: %d\n",
                          l->inner * l->tensor);
    z3d_string_append(out, "zero_optimization:\n  stage: %d\n", row->stage);
    if (l->cut == Z3D_CUT_HPZ) z3d_string_append(out, "  zero_hpz_partition_size: %d\n", l->inner);
    if (l->cut == Z3D_CUT_HYBRID) z3d_string_append(out, "  mics_shard_size: %d\n", l->inner);
    if (row->gather != Z3D_PIPELINE_GATHER_AUTO)
        z3d_string_append(out, "  pipeline_gather: %s\n", z3d_gather_names[row->gather]);
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

static z3d_run_kind kind_of(const z3d_recommendation *r, const z3d_fit_row *row) {
    const bool states = row->tiers.optimizer != Z3D_OFFLOAD_DEVICE_NONE ||
                        row->tiers.parameters != Z3D_OFFLOAD_DEVICE_NONE;
    return (z3d_run_kind){.ranks = r->ranks,
                          .stage = row->layout.data > 1 ? row->stage : 0,
                          .offload = z3d_offload_kind(states, row->offload),
                          .parameters = r->parameters};
}

static bool is_estimated(const z3d_recommendation *r) {
    return z3d_hardware_estimates(&r->hardware, true, NULL) ||
           z3d_hardware_estimates(&r->hardware, false, NULL);
}

static void print_answer(const z3d_recommendation *r, z3d_string *out) {
    const z3d_fit_row *row = &r->row[0];
    z3d_string_append(out,
                      "\n%s%.4g s a step of %lld samples, %s tokens/s, MFU %.1f %%; %.4g of %.4g "
                      "GiB a device%s\n",
                      is_estimated(r) ? "~" : "", row->seconds, (long long)r->samples,
                      z3d_count_text(r->tokens / row->seconds).text, 100 * z3d_row_mfu(r, row),
                      z3d_row_used(row) * GIB, row->memory.capacity * GIB,
                      z3d_row_is_tight(row) ? " (tight: less than a tenth is free)" : "");
    if (r->goal.tokens > 0) {
        const z3d_bill bill = z3d_row_bill(r, row);
        z3d_bill_print(&r->hardware, &bill, out);
    }
}

static void print_trust(const z3d_recommendation *r, z3d_string *out) {
    const bool estimated = is_estimated(r);
    const z3d_run_kind kind = kind_of(r, &r->row[0]);
    z3d_string_append(out, "1: ");
    z3d_compared_print(&r->hardware, &kind, r->row[0].seconds, out);
    if (estimated)
        z3d_string_append(out, "Times and memory rest on estimates in the machine's description; "
                               "--verbose names them.\n");
    z3d_string_append(out, "Predicted steps have been off by (median, most):\n");
    for (int i = 0; i < Z3D_ACCURACIES; i++) {
        const z3d_accuracy *a = &z3d_accuracies[i];
        if (a->measured == z3d_hardware_estimates(&r->hardware, true, NULL)) continue;
        z3d_string_append(out, "  %g %% and %g %% in %d %s (%s)\n", a->median, a->most, a->count,
                          a->runs, a->source);
    }
    z3d_compared_others_print(&r->hardware, out);
}

static void print_head(const z3d_recommendation *r, z3d_string *out) {
    const z3d_hardware *h = &r->hardware;
    const int nodes = (int)ceil(r->ranks / h->devices);
    const bool disk = r->row[0].tiers.optimizer == Z3D_OFFLOAD_DEVICE_NVME;
    z3d_string_append(out, "# Recommended for %d rank%s (%d node%s) of %s\n# predicted", r->ranks,
                      z3d_plural(r->ranks), nodes, z3d_plural(nodes), h->name);
    z3d_software_print(h, out);
    z3d_string_append(out, "\n%s",
                      disk && strcmp(r->folder, z3d_tiers_folder) == 0
                          ? "# nvme_path: write a folder on a local disk of each node\n"
                          : "");
    print_keys(r, &r->row[0], out);
}

/* ---- the table ---- */

static z3d_row_text stage_of(const z3d_fit_row *row) {
    z3d_row_text out;
    snprintf(out.text, sizeof out.text, "%d%s", row->stage,
             row->gather == Z3D_PIPELINE_GATHER_PER_STEP ? " once" : "");
    if (row->layout.cut != Z3D_CUT_NONE)
        snprintf(out.text, sizeof out.text, "%d %s", row->stage, z3d_cut_names[row->layout.cut]);
    return out;
}

static void print_row(const z3d_recommendation *r, int index, z3d_string *out) {
    const z3d_fit_row *row = &r->row[index];
    const z3d_fit_layout *l = &row->layout;
    const char *sequence = l->tensor == 1 ? "-" : l->sequence_parallel ? "yes" : "no";
    char batch[48], stages[32], replay[32];
    snprintf(batch, sizeof batch, "%lld x %lld", (long long)row->micro_batch,
             (long long)row->accumulation);
    snprintf(stages, sizeof stages, l->chunks > 1 ? "%d x %d" : "%d", l->pipeline, l->chunks);
    snprintf(replay, sizeof replay, "%s%s%s", z3d_fit_granularities[row->granularity],
             row->partition ? " P_a" : "", row->offload ? " cpu" : "");
    z3d_string_append(out, "%2d %3d %3s %-7s %4d %-11s %-6s %-10s %9s %-12s %5.3g %7.4g %5.1f %%\n",
                      index + 1, l->tensor, sequence, stages, l->data, z3d_row_schedule(l),
                      stage_of(row).text, z3d_row_tiers(row).text, batch, replay,
                      row->memory.free * GIB, row->seconds, 100 * z3d_row_mfu(r, row));
}

static void print_table(const z3d_recommendation *r, z3d_string *out) {
    const double tenth = 0.1 * r->row[0].memory.capacity * GIB;
    const int misses = r->misses.device + r->misses.elsewhere;
    bool once = false, cut = false;
    z3d_string_append(out, "\n%2s %3s %3s %-7s %4s %-11s %-6s %-10s %9s %-12s %5s %7s %7s\n", "",
                      "tp", "sp", "pp", "dp", "schedule", "ZeRO", "offload", "batch x n",
                      "recompute", "free", "seconds", "MFU");
    for (int i = 0; i < r->count; i++) {
        print_row(r, i, out);
        once = once || r->row[i].gather == Z3D_PIPELINE_GATHER_PER_STEP;
        cut = cut || r->row[i].layout.cut != Z3D_CUT_NONE;
    }
    z3d_string_append(
        out,
        "With less than %.3g GiB free a candidate is tight: a run that needs more than its "
        "plan fails\n"
        "Within 2 %% of the fastest, candidates that are not tight, have fewer mechanisms and "
        "leave more\nmemory free come first.\n",
        tenth);
    if (cut)
        z3d_string_append(out, "hier, hpZ, MiCS: how data ranks communicate over nodes "
                               "(docs/communication.md)\n");
    if (once) z3d_string_append(out, "once: parameters are gathered once a step, and kept\n");
    if (misses > 0)
        z3d_string_append(
            out, "%d of %d candidates do not fit: %d lack device memory, %d host memory or disk\n",
            misses, r->ways, r->misses.device, r->misses.elsewhere);
}

void z3d_recommend_print(const z3d_recommendation *r, bool verbose, z3d_string *out) {
    print_head(r, out);
    print_answer(r, out);
    print_table(r, out);
    print_trust(r, out);
    if (verbose) z3d_recommend_details(r, out);
}
