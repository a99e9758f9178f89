/* Keys and values of generated tokens. */
#include "src/device/cpu/isa/isa.h"

static void store_rows(const void *context, int64_t first, int64_t end) {
    const z3d_cache_store *store = context;
    const size_t bytes = (size_t)store->cols * z3d_dtype_size(store->dtype);
    for (int64_t row = first; row < end; row++) {
        const int64_t sample = row / store->seq;
        const int64_t position = store->starts[sample] + row % store->seq;
        if (position >= store->capacity) continue;
        memcpy(element_to_write(store->cache, store->dtype,
                                (sample * store->capacity + position) * store->cols),
               element(store->x, store->dtype, row * store->stride), bytes);
    }
}

z3d_status Z3D_CPU_NAME(cache_store)(z3d_cpu *cpu, const z3d_kernel *kernel) {
    const z3d_cache_store *store = &kernel->as.cache_store;
    REQUIRE_FLOAT(cache_store, store->dtype);
    for (int64_t sample = 0; sample < store->batch; sample++)
        Z3D_REQUIRE(store->starts[sample] >= 0, "kernel cache_store: sample %lld begins at %d",
                    (long long)sample, (int)store->starts[sample]);
    for_rows(cpu, store->batch * store->seq, store->cols, store_rows, store);
    return Z3D_OK;
}
