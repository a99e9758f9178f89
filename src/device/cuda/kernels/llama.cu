// Keys and values of generated tokens, and kernels of Llama that the cuda device does not have yet.
#include "src/device/cuda/kernels/each.cuh"

namespace {

// Starts are known on the device only: rows outside the cache are dropped.
template <class T> struct store_operation {
    const T *x;
    T *cache;
    const int32_t *starts;
    int64_t seq, capacity, cols, stride;
    template <int N> __device__ void at(int64_t row, int64_t column) const {
        const int64_t sample = row / seq, position = starts[sample] + row % seq;
        if (position < 0 || position >= capacity) return;
        float v[N];
        load(v, x + row * stride + column);
        store(cache + (sample * capacity + position) * cols + column, v);
    }
};

} // namespace

z3d_status z3d_cuda_cache_store(const z3d_cuda_lane *lane, const z3d_cache_store *kernel) {
    REQUIRE_FLOAT(cache_store, kernel->dtype);
    const bool wide = kernel->stride % WIDE == 0 && aligned(kernel->x, kernel->cache);
    return with_type(kernel->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return each_row(lane, "cache_store", kernel->batch * kernel->seq, kernel->cols, wide,
                        store_operation<T>{static_cast<const T *>(kernel->x),
                                           static_cast<T *>(kernel->cache), kernel->starts,
                                           kernel->seq, kernel->capacity, kernel->cols,
                                           kernel->stride});
    });
}

#define REFUSED(name)                                                                              \
    z3d_status z3d_cuda_##name(const z3d_cuda_lane *lane, const z3d_##name *kernel) {              \
        (void)lane, (void)kernel;                                                                  \
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "kernel " #name " is not on the cuda device yet");   \
    }

REFUSED(rmsnorm_forward)
REFUSED(rmsnorm_backward)
REFUSED(rotary)
REFUSED(swiglu_forward)
REFUSED(swiglu_backward)
