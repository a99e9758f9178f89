/* The results of plan --fit and --recommend, as JSON. */
#include "src/plan/choose/ways.h"

static void row_json(const z3d_recommendation *r, const z3d_fit_row *row, z3d_string *out) {
    static const char *const name[Z3D_LOSS_COUNT] = {
        "bubble",   "tensor",    "data", "pipeline",    "recompute",
        "transfer", "host_step", "disk", "full_device", "launches"};
    const z3d_fit_layout *l = &row->layout;
    z3d_string_append(
        out,
        "{\"tensor\": %d, \"pipeline\": %d, \"data\": %d, \"chunks\": %d, \"schedule\": \"%s\", "
        "\"sequence_parallel\": %s, \"stage\": %d, \"offload_optimizer\": \"%s\", "
        "\"offload_param\": \"%s\", \"pipeline_gather\": \"%s\", \"granularity\": \"%s\", "
        "\"partition_activations\": %s, \"cpu_checkpointing\": %s, \"micro_batch\": %lld, "
        "\"accumulation\": %lld, \"communication\": \"%s\", \"memory\": {",
        l->tensor, l->pipeline, l->data, l->chunks, z3d_row_schedule(l),
        l->sequence_parallel ? "true" : "false", row->stage,
        z3d_offload_names[row->tiers.optimizer], z3d_offload_names[row->tiers.parameters],
        z3d_gather_names[row->gather], z3d_fit_granularities[row->granularity],
        row->partition ? "true" : "false", row->offload ? "true" : "false",
        (long long)row->micro_batch, (long long)row->accumulation, z3d_cut_names[l->cut]);
    for (int category = 0; category < Z3D_CATEGORY_COUNT; category++)
        z3d_string_append(out, "%s\"%s\": %lld", category ? ", " : "",
                          z3d_category_name((z3d_category)category),
                          (long long)row->ledger.peak[category]);
    z3d_string_append_member(out, "arena", (double)row->memory.arena);
    z3d_string_append_member(out, "host_arena", (double)row->memory.host_arena);
    z3d_string_append_member(out, "disk_arena", (double)row->memory.disk_arena);
    z3d_string_append_member(out, "checkpoint_copy", (double)row->memory.snapshot);
    z3d_string_append(out, "}");
    z3d_string_append_member(out, "used", z3d_row_used(row));
    z3d_string_append_member(out, "free", row->memory.free);
    z3d_string_append_member(out, "seconds", row->seconds);
    z3d_string_append_member(out, "mfu", z3d_row_mfu(r, row));
    z3d_string_append_member(out, "tokens_per_second", r->tokens / row->seconds);
    z3d_string_append_member(out, "mechanisms", z3d_row_mechanisms(row));
    if (r->goal.tokens > 0) {
        const z3d_bill bill = z3d_row_bill(r, row);
        z3d_bill_json(&bill, out);
    }
    z3d_string_append_member(out, "bytes_sent", row->bytes_sent);
    z3d_string_append_member(out, "extra_bytes_sent", row->bytes_sent - z3d_least_sent(r));
    z3d_string_append_member(out, "recompute", row->recompute);
    z3d_string_append(out, ", \"lost_shares\": {");
    for (int k = 0; k < Z3D_LOSS_COUNT; k++)
        z3d_string_append_member(out, name[k], row->loss[k] / row->seconds);
    z3d_string_append(out, "}}");
}

/* The paths of the estimates, as one string. */
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
    z3d_string_append(out, "{");
    z3d_string_append_member_text(out, "hardware", r->hardware.name);
    z3d_string_append_member_text(out, "software",
                                  r->hardware.software[0] ? r->hardware.software : NULL);
    z3d_string_append(
        out,
        ", \"ranks\": %d, \"train_batch_size\": %lld, \"layouts\": %d, \"candidates\": %d, "
        "\"too_large\": %d, \"priced\": %d, \"estimates\": ",
        r->ranks, (long long)r->samples, r->layouts, r->ways,
        r->misses.device + r->misses.elsewhere, r->priced);
    estimates_json(&r->hardware, out);
    z3d_string_append_key(out, "best");
    row_json(r, &r->row[0], out);
    z3d_string_append(out, ", \"rows\": [");
    for (int i = 0; i < r->count; i++) {
        if (i) z3d_string_append(out, ", ");
        row_json(r, &r->row[i], out);
    }
    z3d_string_append(out, "]}\n");
}
