/* plan --fit: the fastest way of training a configuration's model that fits. */
#include <stdlib.h>

#include "src/plan/choose/fit.h"

z3d_status z3d_nominal_machine(const z3d_config *config, z3d_hardware *out) {
    static const char text[] =
        "name: a nominal machine (100 TFLOP/s, 1 TB/s, links of 100 GB/s)\n"
        "device: { name: a nominal device, kind: gpu, memory_gib: 1, gemm_efficiency: 0.6, "
        "gemm_half: 64, memory_gb_per_s: 1000, memory_efficiency: 0.8, launch_us: 5, "
        "attention_efficiency: 0.4, peak_tflops: { fp16: 100, bf16: 100, fp32: 50 } }\n"
        "node: { devices: 8, link_gb_per_s: 100, link_efficiency: 0.8, link_latency_us: 5, "
        "network_gb_per_s: 50, network_efficiency: 0.7, network_latency_us: 20, "
        "host_gb_per_s: 16, host_memory_gib: 1024 }\n"
        "software: { overlap: 0.8 }\n";
    Z3D_TRY(z3d_hardware_read_text(text, sizeof text - 1, "the nominal machine", out));
    double tensor = (double)config->parallel_tensor_model_parallel_size;
    if (tensor > out->devices) out->devices = tensor;
    return Z3D_OK;
}

/* The largest micro-batch that fits, by halving; without one the smallest stays. *index: which. */
static z3d_status find_micro_batch(const z3d_fit_frame *w, z3d_fit_row *row, int *index) {
    int low = 0, high = w->divisors; /* low fits, high does not */
    Z3D_TRY(z3d_fit_try(w, row, w->divisor[0]));
    z3d_fit_row best = *row;
    while (best.fits && high - low > 1) {
        int middle = high == w->divisors ? high - 1 : low + (high - low) / 2;
        z3d_status status = z3d_fit_try(w, row, w->divisor[middle]);
        if (status != Z3D_OK && status != Z3D_ERR_CONFIG) return status;
        row->fits = row->fits && status == Z3D_OK; /* ERR_CONFIG: sizes beyond 64 bits */
        if (row->fits) best = *row;
        *(row->fits ? &low : &high) = middle;
    }
    *row = best;
    *index = low;
    return Z3D_OK;
}

/* ---- the walk ---- */

/* The fastest micro-batch that fits: the largest, or a smaller one that leaves a nearly full device
 * some air, or a pipeline more micro-batches to fill it. */
static z3d_status find_row(const z3d_fit_frame *w, z3d_fit_row *row) {
    int index;
    bool nearly_full, goes_on = true, pipeline = z3d_fit_period(w) > 1;
    Z3D_TRY(find_micro_batch(w, row, &index));
    if (!row->fits) return Z3D_OK;
    Z3D_TRY(z3d_fit_time(w, row, &nearly_full));
    while (index > 0 && (nearly_full || (pipeline && goes_on))) {
        z3d_fit_row smaller = *row;
        Z3D_TRY(z3d_fit_try(w, &smaller, w->divisor[--index]));
        Z3D_TRY(z3d_fit_time(w, &smaller, &nearly_full));
        goes_on = smaller.seconds < row->seconds;
        if (goes_on) *row = smaller;
    }
    return Z3D_OK;
}

static int by_worth(const void *a, const void *b) {
    const z3d_fit_row *x = a, *y = b;
    if (x->fits != y->fits) return x->fits ? -1 : 1;
    double worse = x->fits ? x->seconds - y->seconds : y->memory.free - x->memory.free;
    return (worse > 0) - (worse < 0);
}

/* Without a choice along an axis the values are alike: one tensor rank has nothing to share, nor
 * have ranks whose checkpoints are parts by nature (sequence parallelism); one data rank no shards.
 */
static z3d_status walk_rows(const z3d_fit_frame *w, z3d_fit *out) {
    bool shards = z3d_mesh_size(&w->mesh, Z3D_AXES_DATA) > 1;
    bool shares =
        z3d_mesh_size(&w->mesh, Z3D_AXES_TENSOR) > 1 && !w->config->parallel_sequence_parallel;
    int given = (int)w->config->zero_optimization_stage;
    for (int stage = shards ? 0 : given; stage <= (shards ? 3 : given); stage++)
        for (int granularity = 0; granularity <= Z3D_GRANULARITY_NONE; granularity++) {
            bool full = granularity == Z3D_GRANULARITY_FULL;
            for (int partition = 0; partition <= (full && shares); partition++)
                for (int offload = 0; offload <= full; offload++) {
                    z3d_fit_row *row = &out->row[out->count++];
                    *row = (z3d_fit_row){.layout = w->layout,
                                         .stage = stage,
                                         .granularity = granularity,
                                         .partition = partition,
                                         .offload = offload};
                    Z3D_TRY(find_row(w, row));
                }
        }
    return Z3D_OK;
}

/* The row whose whole step fits; packing a longer step could have gone a little worse. */
static z3d_status settle_best(const z3d_fit_frame *w, z3d_fit *out) {
    for (;;) {
        z3d_fit_row *best = &out->row[0];
        qsort(out->row, (size_t)out->count, sizeof *out->row, by_worth);
        if (!best->fits || best->accumulation <= z3d_fit_few(w, best->accumulation)) return Z3D_OK;
        Z3D_TRY(z3d_fit_memory(w, best, best->accumulation));
        if (best->fits) return Z3D_OK;
    }
}

static z3d_status refuse(const z3d_fit *fit) {
    char capacity[32], need[32], missing[32];
    const z3d_fit_row *row = &fit->row[0];
    const z3d_memory_need *m = &row->memory;
    if (m->free >= 0)
        return Z3D_ERROR(Z3D_ERR_MEMORY,
                         "no configuration fits: the device has enough memory, but the host does "
                         "not; use more ranks, or a larger tensor or pipeline size");
    return Z3D_ERROR(Z3D_ERR_MEMORY,
                     "no configuration fits into %s: the smallest needs %s, which is %s too much "
                     "(ZeRO-%d, granularity %s%s%s, micro-batch %lld; its largest part is %s); use "
                     "more ranks, or a larger tensor or pipeline size",
                     z3d_format_bytes((int64_t)m->capacity, capacity, sizeof capacity),
                     z3d_format_bytes((int64_t)(m->capacity - m->free), need, sizeof need),
                     z3d_format_bytes((int64_t)-m->free, missing, sizeof missing), row->stage,
                     z3d_fit_granularities[row->granularity], row->partition ? ", P_a" : "",
                     row->offload ? ", cpu" : "", (long long)row->micro_batch,
                     z3d_category_name(z3d_fit_largest(&row->ledger)));
}

z3d_status z3d_fit_walk(z3d_config *config, int ranks, const z3d_hardware *hardware, z3d_fit *out) {
    z3d_fit_frame w = {.config = config, .hardware = hardware};
    *out = (z3d_fit){.hardware = *hardware};
    z3d_status status = z3d_fit_open(&w, ranks);
    if (status == Z3D_OK) {
        out->ranks = z3d_mesh_size(&w.mesh, Z3D_AXES_WORLD);
        out->samples = w.samples;
        status = walk_rows(&w, out);
    }
    if (status == Z3D_OK) status = settle_best(&w, out);
    if (status == Z3D_OK && !out->row[0].fits) status = refuse(out);
    if (status == Z3D_OK) {
        int data;
        z3d_fit_apply(&w, &out->row[0], out->row[0].accumulation);
        status = z3d_config_resolve(config, &z3d_model_rules, out->ranks, &data);
    }
    z3d_fit_close(&w);
    return status;
}
