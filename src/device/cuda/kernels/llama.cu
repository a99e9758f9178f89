// Rotary positions, SwiGLU, and the cache of keys and values.
#include "src/device/cuda/kernels/each.cuh"
#include "src/device/interface/rope.h"

namespace {

// Only the device knows the starts; rows outside the cache are dropped.
template <class T> struct store_operation {
    z3d_cache_store k;
    template <int N> __device__ void at(int64_t row, int64_t column) const {
        const int64_t sample = row / k.seq, position = k.starts[sample] + row % k.seq;
        if (position < 0 || position >= k.capacity) return;
        float v[N];
        load<T>(v, k.x, row * k.stride + column);
        store<T>(k.cache, (sample * k.capacity + position) * k.cols + column, v);
    }
};

// A part of each head's pairs; a row has the columns of all heads. Frequencies come from the host,
// with the cpu's bits, a few for each launch.
struct some_pairs {
    static constexpr int MOST = 128;
    int first, count;
    float sine_factor, cosine_factor, frequency[MOST];
};

template <class T> struct rotary_operation {
    z3d_rotary k;
    some_pairs pairs;
    template <int N> __device__ void at(int64_t row, int64_t column) const {
        const int64_t index = k.first + row;
        const float position = (float)(k.row_position ? k.row_position[index]
                                       : k.starts     ? k.starts[index / k.seq] + index % k.seq
                                                      : index % k.seq);
        const int pair = (int)((uint32_t)column % (uint32_t)pairs.count);
        T *to = static_cast<T *>(k.x) + row * k.stride +
                (uint32_t)column / (uint32_t)pairs.count * k.head_dim + pairs.first + pair;
        float a[N], b[N];
        load<T>(a, to, 0);
        load<T>(b, to + k.head_dim / 2, 0);
#pragma unroll
        for (int j = 0; j < N; j++) {
            float sine, cosine;
            sincosf(position * pairs.frequency[pair + j], &sine, &cosine);
            sine *= pairs.sine_factor, cosine *= pairs.cosine_factor;
            const float old = a[j];
            a[j] = old * cosine - b[j] * sine;
            b[j] = b[j] * cosine + old * sine;
        }
        store<T>(to, 0, a);
        store<T>(to + k.head_dim / 2, 0, b);
    }
};

some_pairs pairs_of(const z3d_rotary *kernel, int first) {
    const int half = (int)kernel->head_dim / 2, rest = half - first;
    const float factor = z3d_rope_attention_factor(&kernel->rope);
    some_pairs pairs = {first,
                        rest < some_pairs::MOST ? rest : some_pairs::MOST,
                        kernel->inverse ? -factor : factor,
                        factor,
                        {}};
    for (int i = 0; i < pairs.count; i++)
        pairs.frequency[i] = z3d_rope_frequency(&kernel->rope, kernel->head_dim, first + i);
    return pairs;
}

template <class T> struct swiglu_forward_operation {
    z3d_swiglu_forward k;
    template <int N> __device__ void at(int64_t row, int64_t column) const {
        float gate[N], up[N];
        load<T>(gate, k.x, row * 2 * k.cols + column);
        load<T>(up, k.x, (row * 2 + 1) * k.cols + column);
#pragma unroll
        for (int j = 0; j < N; j++) up[j] *= gate[j] / (1.0f + expf(-gate[j]));
        store<T>(k.y, row * k.cols + column, up);
    }
};

// Beyond +-80 the sigmoid counts as 0 or 1 in its products; the clamp prevents inf * 0.
template <class T> struct swiglu_backward_operation {
    z3d_swiglu_backward k;
    template <int N> __device__ void at(int64_t row, int64_t column) const {
        float gate[N], up[N], d[N];
        load<T>(gate, k.x, row * 2 * k.cols + column);
        load<T>(up, k.x, (row * 2 + 1) * k.cols + column);
        load<T>(d, k.dy, row * k.cols + column);
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float clamped = fminf(fmaxf(gate[j], -80.0f), 80.0f);
            const float v = gate[j] == gate[j] ? clamped : gate[j]; // fmax would lose a NaN
            const float e = expf(-v), s = 1.0f / (1.0f + e);        // 1 - s = s e
            const float to_gate = d[j] * up[j] * (s + v * (s * (s * e)));
            up[j] = d[j] * (gate[j] * s);
            gate[j] = to_gate;
        }
        store<T>(k.dx, row * 2 * k.cols + column, gate);
        store<T>(k.dx, (row * 2 + 1) * k.cols + column, up);
    }
};

} // namespace

z3d_status z3d_cuda_cache_store(const z3d_cuda_lane *lane, const z3d_cache_store *kernel) {
    const bool wide = kernel->stride % WIDE == 0 && aligned(kernel->x, kernel->cache);
    return each_row<store_operation>(lane, "cache_store", kernel, kernel->batch * kernel->seq,
                                     wide);
}

z3d_status z3d_cuda_rotary(const z3d_cuda_lane *lane, const z3d_rotary *kernel) {
    Z3D_REQUIRE(kernel->head_dim % 2 == 0 && kernel->heads * kernel->head_dim <= INT32_MAX,
                "kernel rotary: %lld heads of %lld elements", (long long)kernel->heads,
                (long long)kernel->head_dim);
    return with_type("rotary", kernel->dtype, [&](auto type) {
        const int half = (int)kernel->head_dim / 2;
        for (int first = 0; first < half; first += some_pairs::MOST) {
            const some_pairs pairs = pairs_of(kernel, first);
            const bool wide = pairs.count % WIDE == 0 && half % WIDE == 0 &&
                              kernel->stride % WIDE == 0 && aligned(kernel->x);
            Z3D_TRY(each_row(lane, "rotary", kernel->rows, kernel->heads * pairs.count, wide,
                             rotary_operation<decltype(type)>{*kernel, pairs}));
        }
        return Z3D_OK;
    });
}

z3d_status z3d_cuda_swiglu_forward(const z3d_cuda_lane *lane, const z3d_swiglu_forward *kernel) {
    return each_row<swiglu_forward_operation>(lane, "swiglu_forward", kernel, kernel->rows,
                                              aligned(kernel->x, kernel->y));
}

z3d_status z3d_cuda_swiglu_backward(const z3d_cuda_lane *lane, const z3d_swiglu_backward *kernel) {
    return each_row<swiglu_backward_operation>(lane, "swiglu_backward", kernel, kernel->rows,
                                               aligned(kernel->x, kernel->dy, kernel->dx));
}
