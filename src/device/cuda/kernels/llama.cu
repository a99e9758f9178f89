// Rotary positions, SwiGLU, and the cache of keys and values.
#include "src/device/cuda/kernels/each.cuh"
#include "src/device/interface/rope.h"

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

namespace {

// Columns are pairs of all heads. Frequencies come from the host: they are the same bits as the
// cpu's, and a few for a launch.
template <class T> struct rotary_operation {
    static constexpr int MOST = 128;
    T *x;
    const int32_t *starts;
    int64_t first, seq, head_dim, stride;
    int first_pair, pairs; // of each head
    float sine_factor, cosine_factor, frequency[MOST];
    template <int N> __device__ void at(int64_t row, int64_t column) const {
        const int64_t index = first + row;
        const float position = (float)(starts ? starts[index / seq] + index % seq : index % seq);
        const int pair = (int)((uint32_t)column % (uint32_t)pairs);
        T *to =
            x + row * stride + (uint32_t)column / (uint32_t)pairs * head_dim + first_pair + pair;
        float a[N], b[N];
        load(a, to);
        load(b, to + head_dim / 2);
#pragma unroll
        for (int j = 0; j < N; j++) {
            float sine, cosine;
            sincosf(position * frequency[pair + j], &sine, &cosine);
            sine *= sine_factor, cosine *= cosine_factor;
            const float old = a[j];
            a[j] = old * cosine - b[j] * sine;
            b[j] = b[j] * cosine + old * sine;
        }
        store(to, a);
        store(to + head_dim / 2, b);
    }
};

} // namespace

z3d_status z3d_cuda_rotary(const z3d_cuda_lane *lane, const z3d_rotary *kernel) {
    REQUIRE_FLOAT(rotary, kernel->dtype);
    Z3D_REQUIRE(kernel->head_dim % 2 == 0 && kernel->heads * kernel->head_dim <= INT32_MAX,
                "kernel rotary: %lld heads of %lld elements", (long long)kernel->heads,
                (long long)kernel->head_dim);
    const float factor = z3d_rope_attention_factor(&kernel->rope);
    return with_type(kernel->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        using operation = rotary_operation<T>;
        const int half = (int)kernel->head_dim / 2;
        for (int pair = 0; pair < half; pair += operation::MOST) {
            const int pairs = half - pair < operation::MOST ? half - pair : operation::MOST;
            operation turn = {static_cast<T *>(kernel->x),
                              kernel->starts,
                              kernel->first,
                              kernel->seq,
                              kernel->head_dim,
                              kernel->stride,
                              pair,
                              pairs,
                              kernel->inverse ? -factor : factor,
                              factor,
                              {}};
            for (int i = 0; i < pairs; i++)
                turn.frequency[i] = z3d_rope_frequency(&kernel->rope, kernel->head_dim, pair + i);
            const bool wide = pairs % WIDE == 0 && half % WIDE == 0 && kernel->stride % WIDE == 0 &&
                              aligned(kernel->x);
            Z3D_TRY(each_row(lane, "rotary", kernel->rows, kernel->heads * pairs, wide, turn));
        }
        return (z3d_status)Z3D_OK;
    });
}

namespace {

template <class T> struct swiglu_forward_operation {
    const T *x;
    T *y;
    int64_t cols;
    template <int N> __device__ void at(int64_t row, int64_t column) const {
        float gate[N], up[N];
        load(gate, x + row * 2 * cols + column);
        load(up, x + (row * 2 + 1) * cols + column);
#pragma unroll
        for (int j = 0; j < N; j++) up[j] *= gate[j] / (1.0f + expf(-gate[j]));
        store(y + row * cols + column, up);
    }
};

// Beyond +-80 the sigmoid is 0 or 1 beside what it is multiplied by; the clamp keeps inf * 0 away.
template <class T> struct swiglu_backward_operation {
    const T *x, *dy;
    T *dx;
    int64_t cols;
    template <int N> __device__ void at(int64_t row, int64_t column) const {
        float gate[N], up[N], d[N];
        load(gate, x + row * 2 * cols + column);
        load(up, x + (row * 2 + 1) * cols + column);
        load(d, dy + row * cols + column);
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float clamped = fminf(fmaxf(gate[j], -80.0f), 80.0f);
            const float v = gate[j] == gate[j] ? clamped : gate[j]; // fmax would lose a NaN
            const float e = expf(-v), s = 1.0f / (1.0f + e);        // and 1 - s is s e
            const float to_gate = d[j] * up[j] * (s + v * (s * (s * e)));
            up[j] = d[j] * (gate[j] * s);
            gate[j] = to_gate;
        }
        store(dx + row * 2 * cols + column, gate);
        store(dx + (row * 2 + 1) * cols + column, up);
    }
};

} // namespace

z3d_status z3d_cuda_swiglu_forward(const z3d_cuda_lane *lane, const z3d_swiglu_forward *kernel) {
    REQUIRE_FLOAT(swiglu_forward, kernel->dtype);
    return with_type(kernel->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return each_row(lane, "swiglu_forward", kernel->rows, kernel->cols,
                        aligned(kernel->x, kernel->y),
                        swiglu_forward_operation<T>{static_cast<const T *>(kernel->x),
                                                    static_cast<T *>(kernel->y), kernel->cols});
    });
}

z3d_status z3d_cuda_swiglu_backward(const z3d_cuda_lane *lane, const z3d_swiglu_backward *kernel) {
    REQUIRE_FLOAT(swiglu_backward, kernel->dtype);
    return with_type(kernel->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return each_row(lane, "swiglu_backward", kernel->rows, kernel->cols,
                        aligned(kernel->x, kernel->dy, kernel->dx),
                        swiglu_backward_operation<T>{static_cast<const T *>(kernel->x),
                                                     static_cast<const T *>(kernel->dy),
                                                     static_cast<T *>(kernel->dx), kernel->cols});
    });
}
