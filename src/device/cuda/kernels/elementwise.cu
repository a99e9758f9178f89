// fill, cast, accumulate, add_bias and GELU: limited by memory alone.
#include "src/device/cuda/kernels/each.cuh"

namespace {

template <class S> struct fill_operation {
    S *x, value;
    template <int N> __device__ void at(int64_t i) const {
        pack<S, N> values;
#pragma unroll
        for (int j = 0; j < N; j++) values.at[j] = value;
        *reinterpret_cast<pack<S, N> *>(x + i) = values;
    }
};

// S has the type's size; `value` its bytes.
template <class S>
z3d_status fill_bytes(const z3d_cuda_lane *lane, const z3d_fill *fill, const void *value) {
    fill_operation<S> operation = {static_cast<S *>(fill->x), 0};
    memcpy(&operation.value, value, sizeof(S));
    return each_element(lane, "fill", fill->count, aligned(fill->x), operation);
}

// One element in the 16-bit type, on the device: its conversion is the one place that rounds.
template <class T> struct narrow_fill_operation {
    T *x;
    float value;
    template <int N> __device__ void at(int64_t i) const {
        float values[N];
#pragma unroll
        for (int j = 0; j < N; j++) values[j] = value;
        store(x + i, values);
    }
};

} // namespace

z3d_status z3d_cuda_fill(const z3d_cuda_lane *lane, const z3d_fill *kernel) {
    const double f64 = (double)kernel->value;
    const bool whole = kernel->dtype == Z3D_I32 || kernel->dtype == Z3D_U8;
    const int32_t i32 = whole ? (int32_t)kernel->value : 0;
    const uint8_t u8 = (uint8_t)i32;
    switch (kernel->dtype) {
    case Z3D_F64:
        return fill_bytes<uint64_t>(lane, kernel, &f64);
    case Z3D_F32:
        return fill_bytes<uint32_t>(lane, kernel, &kernel->value);
    case Z3D_I32:
        return fill_bytes<uint32_t>(lane, kernel, &i32);
    case Z3D_U8:
        return fill_bytes<uint8_t>(lane, kernel, &u8);
    default:
        REQUIRE_FLOAT(fill, kernel->dtype);
        return with_type(kernel->dtype, [&](auto tag) {
            using T = typename decltype(tag)::type;
            return each_element(
                lane, "fill", kernel->count, aligned(kernel->x),
                narrow_fill_operation<T>{static_cast<T *>(kernel->x), kernel->value});
        });
    }
}

namespace {

template <class To, class From> struct cast_operation {
    To *to;
    const From *from;
    template <int N> __device__ void at(int64_t i) const {
        float values[N];
        load(values, from + i);
        store(to + i, values);
    }
};

size_t size_of(z3d_dtype dtype) {
    return dtype == Z3D_F64                       ? 8
           : dtype == Z3D_U8                      ? 1
           : dtype == Z3D_F32 || dtype == Z3D_I32 ? 4
                                                  : 2;
}

} // namespace

z3d_status z3d_cuda_cast(const z3d_cuda_lane *lane, const z3d_cast *kernel) {
    if (kernel->count <= 0) return Z3D_OK;
    if (kernel->source_dtype == kernel->destination_dtype)
        return check("cast", cudaMemcpyAsync(kernel->destination, kernel->source,
                                             (size_t)kernel->count * size_of(kernel->source_dtype),
                                             cudaMemcpyDeviceToDevice, stream_of(lane)));
    REQUIRE_FLOAT(cast, kernel->source_dtype);
    REQUIRE_FLOAT(cast, kernel->destination_dtype);
    return with_type(kernel->destination_dtype, [&](auto to_tag) {
        return with_type(kernel->source_dtype, [&](auto from_tag) {
            using To = typename decltype(to_tag)::type;
            using From = typename decltype(from_tag)::type;
            return each_element(
                lane, "cast", kernel->count, aligned(kernel->destination, kernel->source),
                cast_operation<To, From>{static_cast<To *>(kernel->destination),
                                         static_cast<const From *>(kernel->source)});
        });
    });
}

namespace {

template <class Y, class X> struct accumulate_operation {
    Y *y;
    const X *x;
    template <int N> __device__ void at(int64_t i) const {
        float sum[N], added[N];
        load(sum, y + i);
        load(added, x + i);
#pragma unroll
        for (int j = 0; j < N; j++) sum[j] += added[j];
        store(y + i, sum);
    }
};

} // namespace

z3d_status z3d_cuda_accumulate(const z3d_cuda_lane *lane, const z3d_accumulate *kernel) {
    REQUIRE_FLOAT(accumulate, kernel->x_dtype);
    REQUIRE_FLOAT(accumulate, kernel->y_dtype);
    return with_type(kernel->y_dtype, [&](auto y_tag) {
        return with_type(kernel->x_dtype, [&](auto x_tag) {
            using Y = typename decltype(y_tag)::type;
            using X = typename decltype(x_tag)::type;
            return each_element(lane, "accumulate", kernel->count, aligned(kernel->y, kernel->x),
                                accumulate_operation<Y, X>{static_cast<Y *>(kernel->y),
                                                           static_cast<const X *>(kernel->x)});
        });
    });
}

namespace {

template <class T> struct add_bias_operation {
    T *y;
    const T *bias;
    int64_t cols;
    template <int N> __device__ void at(int64_t row, int64_t column) const {
        float sum[N], added[N];
        load(sum, y + row * cols + column);
        load(added, bias + column);
#pragma unroll
        for (int j = 0; j < N; j++) sum[j] += added[j];
        store(y + row * cols + column, sum);
    }
};

} // namespace

z3d_status z3d_cuda_add_bias(const z3d_cuda_lane *lane, const z3d_add_bias *kernel) {
    REQUIRE_FLOAT(add_bias, kernel->dtype);
    return with_type(kernel->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return each_row(lane, "add_bias", kernel->rows, kernel->cols,
                        aligned(kernel->y, kernel->bias),
                        add_bias_operation<T>{static_cast<T *>(kernel->y),
                                              static_cast<const T *>(kernel->bias), kernel->cols});
    });
}

namespace {

// 0.5 (1 + tanh(u)) = 1 / (1 + e^-2u): one exponential, and no cancellation where x is negative.
// 2u = x (GELU_LINEAR + GELU_CUBIC x^2).
constexpr float GELU_LINEAR = 1.59576912f; // 2 sqrt(2 / pi)
constexpr float GELU_CUBIC = 0.0713548163f;

template <class T> struct gelu_forward_operation {
    const T *x;
    T *y;
    template <int N> __device__ void at(int64_t i) const {
        float v[N];
        load(v, x + i);
#pragma unroll
        for (int j = 0; j < N; j++)
            v[j] = v[j] / (1.0f + expf(-(v[j] * (GELU_LINEAR + GELU_CUBIC * (v[j] * v[j])))));
        store(y + i, v);
    }
};

// Beyond +-10 the derivative is 1 or 0 in fp32; the clamp keeps inf * 0 away.
__device__ inline float gelu_slope(float x) {
    const float v = fminf(fmaxf(x, -10.0f), 10.0f), square = v * v;
    const float e = expf(-(v * (GELU_LINEAR + GELU_CUBIC * square)));
    const float s = 1.0f / (1.0f + e); // and 1 - s is s e
    return s + v * (GELU_LINEAR + 3.0f * GELU_CUBIC * square) * (s * (s * e));
}

template <class T> struct gelu_backward_operation {
    const T *x, *dy;
    T *dx;
    template <int N> __device__ void at(int64_t i) const {
        float v[N], gradient[N];
        load(v, x + i);
        load(gradient, dy + i);
#pragma unroll
        for (int j = 0; j < N; j++)
            gradient[j] *= v[j] == v[j] ? gelu_slope(v[j]) : v[j]; // fmax would lose a NaN
        store(dx + i, gradient);
    }
};

} // namespace

z3d_status z3d_cuda_gelu_forward(const z3d_cuda_lane *lane, const z3d_gelu_forward *kernel) {
    REQUIRE_FLOAT(gelu_forward, kernel->dtype);
    return with_type(kernel->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return each_element(lane, "gelu_forward", kernel->count, aligned(kernel->x, kernel->y),
                            gelu_forward_operation<T>{static_cast<const T *>(kernel->x),
                                                      static_cast<T *>(kernel->y)});
    });
}

z3d_status z3d_cuda_gelu_backward(const z3d_cuda_lane *lane, const z3d_gelu_backward *kernel) {
    REQUIRE_FLOAT(gelu_backward, kernel->dtype);
    return with_type(kernel->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return each_element(lane, "gelu_backward", kernel->count,
                            aligned(kernel->x, kernel->dy, kernel->dx),
                            gelu_backward_operation<T>{static_cast<const T *>(kernel->x),
                                                       static_cast<const T *>(kernel->dy),
                                                       static_cast<T *>(kernel->dx)});
    });
}
