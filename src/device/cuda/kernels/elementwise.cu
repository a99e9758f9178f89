// fill, cast, accumulate, scale and GELU: limited by memory alone.
#include "src/device/cuda/kernels/each.cuh"

namespace {

template <class T> struct fill_operation {
    z3d_fill k;
    template <int N> __device__ void at(int64_t i) const {
        float values[N];
#pragma unroll
        for (int j = 0; j < N; j++) values[j] = k.value;
        store<T>(k.x, i, values);
    }
};

template <class To, class From> struct cast_operation {
    z3d_cast k;
    template <int N> __device__ void at(int64_t i) const {
        float values[N];
        load<From>(values, k.source, i);
        store<To>(k.destination, i, values);
    }
};

template <class Y, class X> struct accumulate_operation {
    z3d_accumulate k;
    template <int N> __device__ void at(int64_t i) const {
        float sum[N];
        load<Y>(sum, k.y, i);
        add<X>(sum, k.x, i);
        store<Y>(k.y, i, sum);
    }
};

template <class T> struct scale_operation {
    z3d_scale k;
    template <int N> __device__ void at(int64_t i) const {
        float v[N];
        load<T>(v, k.x, i);
#pragma unroll
        for (int j = 0; j < N; j++) v[j] *= k.factor;
        store<T>(k.x, i, v);
    }
};

// 0.5 (1 + tanh(u)) = 1 / (1 + e^-2u): one exponential, and no cancellation for negative x. 2u = x
// (GELU_LINEAR + GELU_CUBIC x^2).
constexpr float GELU_LINEAR = 1.59576912f; // 2 sqrt(2 / pi)
constexpr float GELU_CUBIC = 0.0713548163f;

template <class T> struct gelu_forward_operation {
    z3d_gelu_forward k;
    template <int N> __device__ void at(int64_t i) const {
        float v[N];
        load<T>(v, k.x, i);
#pragma unroll
        for (int j = 0; j < N; j++)
            v[j] = v[j] / (1.0f + expf(-(v[j] * (GELU_LINEAR + GELU_CUBIC * (v[j] * v[j])))));
        store<T>(k.y, i, v);
    }
};

// Beyond +-10 the derivative is 1 or 0 in fp32; the clamp prevents inf * 0.
__device__ inline float gelu_slope(float x) {
    const float v = fminf(fmaxf(x, -10.0f), 10.0f), square = v * v;
    const float e = expf(-(v * (GELU_LINEAR + GELU_CUBIC * square)));
    const float s = 1.0f / (1.0f + e); // 1 - s = s e
    return s + v * (GELU_LINEAR + 3.0f * GELU_CUBIC * square) * (s * (s * e));
}

template <class T> struct gelu_backward_operation {
    z3d_gelu_backward k;
    template <int N> __device__ void at(int64_t i) const {
        float v[N], gradient[N];
        load<T>(v, k.x, i);
        load<T>(gradient, k.dy, i);
#pragma unroll
        for (int j = 0; j < N; j++)
            gradient[j] *= v[j] == v[j] ? gelu_slope(v[j]) : v[j]; // fmax would lose a NaN
        store<T>(k.dx, i, gradient);
    }
};

} // namespace

z3d_status z3d_cuda_fill(const z3d_cuda_lane *lane, const z3d_fill *kernel) {
    const auto of = [&](auto type) {
        return each_element(lane, "fill", kernel->count, aligned(kernel->x),
                            fill_operation<decltype(type)>{*kernel});
    };
    switch (kernel->dtype) {
    case Z3D_F64:
        return of(double());
    case Z3D_I32:
        return of(int32_t());
    case Z3D_U8:
        return of(uint8_t());
    default:
        return with_type("fill", kernel->dtype, of);
    }
}

z3d_status z3d_cuda_cast(const z3d_cuda_lane *lane, const z3d_cast *kernel) {
    if (kernel->count <= 0) return Z3D_OK;
    const size_t bytes = (size_t)kernel->count * z3d_dtype_size(kernel->source_dtype);
    if (kernel->rows > 1) {
        Z3D_REQUIRE(kernel->source_dtype == kernel->destination_dtype,
                    "cast: one row, or equal types");
        const size_t size = z3d_dtype_size(kernel->source_dtype);
        return check("cast", cudaMemcpy2DAsync(
                                 kernel->destination, (size_t)kernel->destination_stride * size,
                                 kernel->source, (size_t)kernel->source_stride * size, bytes,
                                 (size_t)kernel->rows, cudaMemcpyDeviceToDevice, stream_of(lane)));
    }
    if (kernel->source_dtype == kernel->destination_dtype)
        return check("cast", cudaMemcpyAsync(kernel->destination, kernel->source, bytes,
                                             cudaMemcpyDeviceToDevice, stream_of(lane)));
    return each_element<cast_operation>(lane, "cast", kernel,
                                        aligned(kernel->destination, kernel->source),
                                        kernel->destination_dtype, kernel->source_dtype);
}

z3d_status z3d_cuda_accumulate(const z3d_cuda_lane *lane, const z3d_accumulate *kernel) {
    return each_element<accumulate_operation>(lane, "accumulate", kernel,
                                              aligned(kernel->y, kernel->x), kernel->y_dtype,
                                              kernel->x_dtype);
}

z3d_status z3d_cuda_scale(const z3d_cuda_lane *lane, const z3d_scale *kernel) {
    return each_element<scale_operation>(lane, "scale", kernel, aligned(kernel->x), kernel->dtype);
}

z3d_status z3d_cuda_gelu_forward(const z3d_cuda_lane *lane, const z3d_gelu_forward *kernel) {
    return each_element<gelu_forward_operation>(lane, "gelu_forward", kernel,
                                                aligned(kernel->x, kernel->y), kernel->dtype);
}

z3d_status z3d_cuda_gelu_backward(const z3d_cuda_lane *lane, const z3d_gelu_backward *kernel) {
    return each_element<gelu_backward_operation>(
        lane, "gelu_backward", kernel, aligned(kernel->x, kernel->dy, kernel->dx), kernel->dtype);
}
