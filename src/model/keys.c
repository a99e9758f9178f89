/* Keys and values in generation: the cache of a block. */
#include "src/model/transformer.h"

z3d_status z3d_keys_find(const z3d_unit_run *run, int64_t columns, z3d_keys *keys) {
    const int64_t capacity = run->positions;
    const int64_t sample = capacity * z3d_row_bytes(run, columns);
    const void *part[] = {keys->k, keys->v};
    keys->capacity = run->tokens;
    if (!run->cache) return Z3D_OK;
    char *first = (char *)run->cache + run->cache_first * sample;
    void *cache[] = {first, first + run->cache_samples * sample};
    for (int i = 0; i < 2; i++)
        Z3D_TRY(Z3D_LAUNCH(run->device, cache_store, .x = part[i], .cache = cache[i],
                           .starts = z3d_unit_starts(run), .batch = run->batch, .seq = run->tokens,
                           .capacity = capacity, .cols = columns, .stride = keys->stride,
                           .dtype = run->dtype));
    *keys = (z3d_keys){cache[0], cache[1], columns, capacity};
    return Z3D_OK;
}
