/* plan --fit and --recommend: the candidates that do not fit. */
#include "src/plan/choose/ways.h"

void z3d_misses_add(z3d_misses *misses, const z3d_fit_row *row) {
    z3d_fit_row *nearest = row->memory.free < 0 ? &misses->nearest : &misses->nearest_elsewhere;
    if (!row->fits && (nearest->accumulation == 0 ||
                       z3d_memory_room(&row->memory) > z3d_memory_room(&nearest->memory)))
        *nearest = *row;
}

/* ---- text ---- */

static void say_way(const z3d_fit_row *row, z3d_string *out) {
    const z3d_fit_layout *l = &row->layout;
    z3d_string_append(out, "%s with ZeRO-%d, granularity %s%s%s",
                      z3d_sizes_name(l->tensor, l->pipeline, l->data).text, row->stage,
                      z3d_fit_granularities[row->granularity], row->partition ? ", P_a" : "",
                      row->offload ? ", cpu" : "");
    if (row->tiers.optimizer)
        z3d_string_append(out, ", offload_optimizer %s", z3d_offload_names[row->tiers.optimizer]);
    if (row->tiers.parameters)
        z3d_string_append(out, ", offload_param %s", z3d_offload_names[row->tiers.parameters]);
    z3d_string_append(out, " and micro-batch %lld", (long long)row->micro_batch);
}

static void say_device(const z3d_fit_row *row, z3d_string *out) {
    const z3d_memory_need *m = &row->memory;
    say_way(row, out);
    z3d_string_append(out, " needs %s, which is %s too much (its largest part is %s)",
                      z3d_bytes_text((int64_t)(m->capacity - m->free)).text,
                      z3d_bytes_text((int64_t)-m->free).text,
                      z3d_category_name(z3d_fit_largest(&row->ledger)));
}

static void say_elsewhere(const z3d_fit_row *row, z3d_string *out) {
    const z3d_memory_need *m = &row->memory;
    say_way(row, out);
    z3d_string_append(out, " fits the device, but a rank's share of %s is %s too small",
                      z3d_memory_host_free(m) < 0 ? "host memory" : "the disks",
                      z3d_bytes_text((int64_t)-z3d_memory_room(m)).text);
}

void z3d_misses_say(const z3d_misses *misses, z3d_string *out) {
    const bool device = misses->nearest.accumulation > 0;
    if (device) say_device(&misses->nearest, out);
    if (misses->nearest_elsewhere.accumulation == 0) return;
    if (device) z3d_string_append(out, "; ");
    say_elsewhere(&misses->nearest_elsewhere, out);
}
