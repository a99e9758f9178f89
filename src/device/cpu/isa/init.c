/* Initial values by global index. */
#include "src/device/cpu/isa/isa.h"

static void init_block(const void *context, int64_t first, int64_t end) {
    const z3d_init_normal *init = context;
    int64_t i = first;
    while (i < end) { /* a run within one slice of the middle dimension: contiguous globally too */
        const int64_t slice = init->local * init->inner;
        const int64_t local = init->first + i;
        const int64_t outer = local / slice, within = local % slice;
        const int64_t run = min_int64(end - i, slice - within);
        const int64_t global = (outer * init->global + init->offset) * init->inner + within;
        z3d_philox_normal_fill(init->key, (uint64_t)global, run, init->x + i);
        for (int64_t j = 0; j < run; j++) init->x[i + j] *= init->standard_deviation;
        i += run;
    }
}

z3d_status Z3D_CPU_NAME(init_normal)(z3d_cpu *cpu, const z3d_kernel *kernel) {
    const z3d_init_normal *init = &kernel->as.init_normal;
    Z3D_REQUIRE(init->local > 0 && init->inner > 0 && init->offset >= 0 &&
                    init->offset + init->local <= init->global,
                "kernel init_normal: rows %lld + %lld of %lld, inner %lld", (long long)init->offset,
                (long long)init->local, (long long)init->global, (long long)init->inner);
    for_blocks(cpu, init->count, TILE, 64, init_block, init);
    return Z3D_OK;
}
