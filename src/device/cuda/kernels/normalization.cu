// Layer normalization, and rmsnorm (without mean and bias): forward with a warp per vector,
// backward with a block per chunk of vectors.
#include "src/device/cuda/kernels/fold.cuh"

namespace {

// Where vectors of `cols` elements lie: a row has `heads` of them (layernorm: one).
struct vectors {
    int64_t count, cols, heads, x_stride, y_stride, dx_stride;
    __device__ int64_t at(int64_t index, int64_t stride) const {
        return heads == 1 ? index * stride : index / heads * stride + index % heads * cols;
    }
};

constexpr int FORWARD_WARPS = 4;

// Mean first, then the squares around it: no cancellation. The second and third time a vector is
// read it comes from the first-level cache. RMS: the mean counts as 0.
template <bool RMS, int N, class T>
__global__ void __launch_bounds__(FORWARD_WARPS *WARP)
    forward_kernel(vectors all, const T *x, const T *weight, const T *bias, T *y, float *mean_out,
                   float *rstd_out, float epsilon) {
    const int64_t index = (int64_t)blockIdx.x * FORWARD_WARPS + threadIdx.x / WARP;
    if (index >= all.count) return;
    const int64_t first = threadIdx.x % WARP * N, cols = all.cols;
    x += all.at(index, all.x_stride);
    y += all.at(index, all.y_stride);
    float v[N], sum = 0.0f, squares = 0.0f;
    for (int64_t column = first; column < cols && !RMS; column += WARP * N) {
        load(v, x + column);
#pragma unroll
        for (int i = 0; i < N; i++) sum += v[i];
    }
    const float mean = RMS ? 0.0f : warp_sum(sum) / (float)cols;
    for (int64_t column = first; column < cols; column += WARP * N) {
        load(v, x + column);
#pragma unroll
        for (int i = 0; i < N; i++) squares += (v[i] - mean) * (v[i] - mean);
    }
    const float rstd = 1.0f / sqrtf(warp_sum(squares) / (float)cols + epsilon);
    for (int64_t column = first; column < cols; column += WARP * N) {
        float w[N], b[N] = {0};
        load(v, x + column);
        load(w, weight + column);
        if (!RMS) load(b, bias + column);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = (v[i] - mean) * rstd * w[i] + b[i];
        store(y + column, v);
    }
    if (threadIdx.x % WARP > 0) return;
    if (!RMS) mean_out[index] = mean;
    if (rstd_out) rstd_out[index] = rstd;
}

struct forward_operands {
    const void *x, *weight, *bias;
    void *y;
    float *mean, *rstd;
};

template <bool RMS>
z3d_status forward_vectors(const z3d_cuda_lane *lane, const char *name, const vectors &all,
                           const forward_operands &of, float epsilon, z3d_dtype dtype) {
    if (all.count <= 0) return Z3D_OK;
    const bool wide = all.cols % WIDE == 0 && all.x_stride % WIDE == 0 &&
                      all.y_stride % WIDE == 0 && aligned(of.x, of.weight, of.bias, of.y);
    return with_type(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return with_width(wide, [&](auto width) {
            constexpr int N = decltype(width)::value;
            return launch(lane, name, divide_up(all.count, FORWARD_WARPS),
                          dim3(FORWARD_WARPS * WARP), 0, forward_kernel<RMS, N, T>, all,
                          static_cast<const T *>(of.x), static_cast<const T *>(of.weight),
                          static_cast<const T *>(of.bias), static_cast<T *>(of.y), of.mean, of.rstd,
                          epsilon);
        });
    });
}

} // namespace

z3d_status z3d_cuda_layernorm_forward(const z3d_cuda_lane *lane,
                                      const z3d_layernorm_forward *kernel) {
    REQUIRE_FLOAT(layernorm_forward, kernel->dtype);
    const int64_t cols = kernel->cols;
    return forward_vectors<false>(
        lane, "layernorm_forward", {kernel->rows, cols, 1, cols, cols, cols},
        {kernel->x, kernel->weight, kernel->bias, kernel->y, kernel->mean, kernel->rstd},
        kernel->epsilon, kernel->dtype);
}

z3d_status z3d_cuda_rmsnorm_forward(const z3d_cuda_lane *lane, const z3d_rmsnorm_forward *kernel) {
    REQUIRE_FLOAT(rmsnorm_forward, kernel->dtype);
    return forward_vectors<true>(
        lane, "rmsnorm_forward",
        {kernel->rows * kernel->heads, kernel->cols, kernel->heads, kernel->x_stride,
         kernel->y_stride, 0},
        {kernel->x, kernel->weight, nullptr, kernel->y, nullptr, kernel->rstd}, kernel->epsilon,
        kernel->dtype);
}

namespace {

// A thread has PACKS packs of WIDE columns, `threads across * WIDE` apart. Fewer threads have more
// registers.
constexpr int MOST_PACKS = 6;

constexpr int backward_threads(int packs) {
    return packs == 1 ? 512 : 384;
}

// Of two values for each warp, twice in turns.
constexpr int BACKWARD_SLOTS = 2 * 2 * backward_threads(1) / WARP;

// What a vector's backward reads.
template <class T> struct backward_inputs {
    const T *dy, *x, *weight, *add_to; // add_to may be NULL, or dx
    const float *mean, *rstd;
};

// `count` of WIDE elements, the rest are zeros; WHOLE: all of them, aligned.
template <bool WHOLE, class T>
__device__ inline void load_part(float (&to)[WIDE], const T *from, int64_t count) {
    if constexpr (WHOLE)
        load(to, from);
    else
#pragma unroll
        for (int i = 0; i < WIDE; i++) to[i] = i < count ? widen(from[i]) : 0.0f;
}

template <bool WHOLE, class T>
__device__ inline void store_part(T *to, const float (&from)[WIDE], int64_t count) {
    if constexpr (WHOLE)
        store(to, from);
    else
#pragma unroll
        for (int i = 0; i < WIDE; i++)
            if (i < count) narrow(from[i], to + i);
}

// The sums of two values over the threads of each row of the block (threadIdx.y), on all of them:
// within a warp if a row is a power of two up to it, else of whole warps. `slots`:
// [rows][2][warps], not used by anything else since the last barrier but one.
__device__ inline void row_sums(float &a, float &b, float *slots) {
    const int across = (int)blockDim.x, warps = across / WARP;
    for (int lane = (across < WARP ? across : WARP) / 2; lane > 0; lane /= 2) {
        a += __shfl_xor_sync(ALL_LANES, a, lane);
        b += __shfl_xor_sync(ALL_LANES, b, lane);
    }
    if (warps <= 1) return;
    slots += threadIdx.y * 2 * warps;
    if (threadIdx.x % WARP == 0) {
        slots[threadIdx.x / WARP] = a;
        slots[warps + threadIdx.x / WARP] = b;
    }
    __syncthreads();
    a = b = 0.0f;
    for (int warp = 0; warp < warps; warp++) {
        a += slots[warp];
        b += slots[warps + warp];
    }
}

// The columns' sums of all rows of the block, added in order, to `partials`.
template <int PACKS, bool WHOLE>
__device__ inline void add_rows(float (&sum)[PACKS][WIDE], float *partials, int64_t cols,
                                float *shared) {
    const int across = (int)blockDim.x, row = (int)threadIdx.y, rows = (int)blockDim.y;
    float *mine = shared + threadIdx.x; // [rows - 1][PACKS * WIDE][across]: no bank conflicts
    __syncthreads();
    for (int i = 0; i < PACKS * WIDE && row > 0; i++)
        mine[((row - 1) * PACKS * WIDE + i) * across] = sum[i / WIDE][i % WIDE];
    __syncthreads();
    if (row > 0) return;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const int64_t column = (p * across + threadIdx.x) * WIDE;
        for (int other = 0; other < rows - 1; other++)
#pragma unroll
            for (int i = 0; i < WIDE; i++)
                sum[p][i] += mine[((other * PACKS + p) * WIDE + i) * across];
        if (column < cols) store_part<WHOLE>(partials + column, sum[p], cols - column);
    }
}

// With g = dy * weight and x^ = (x - mean) * rstd: dx = rstd * (g - mean(g) - x^ * mean(g x^));
// RMS: without mean and mean(g). A block has a chunk of the vectors, a row of threads has one at a
// time and keeps its columns' sums in registers. The second time a vector is read it comes from the
// first-level cache.
template <bool RMS, int PACKS, bool WHOLE, class T>
__global__ void __launch_bounds__(backward_threads(PACKS), 1) // all registers: none spills
    backward_kernel(vectors all, backward_inputs<T> in, T *dx, float *partials) {
    const int64_t cols = all.cols, chunks = gridDim.x, chunk = blockIdx.x;
    const int64_t end = all.count * (chunk + 1) / chunks, step = blockDim.x * WIDE;
    float *const shared = shared_memory<float>(), *slots = shared;
    float weight_sum[PACKS][WIDE] = {}, bias_sum[PACKS][WIDE] = {};
    for (int64_t begin = all.count * chunk / chunks; begin < end; begin += blockDim.y) {
        const int64_t index = begin + threadIdx.y;
        const int64_t last = index < end ? cols : 0; // rows of threads without a vector only sum
        const int64_t from = last ? all.at(index, all.x_stride) : 0;
        const int64_t dy_from = last ? all.at(index, all.y_stride) : 0;
        const float mean = RMS || !last ? 0.0f : in.mean[index],
                    rstd = last ? in.rstd[index] : 0.0f;
        float x[WIDE], dy[WIDE], weight[WIDE], sum_g = 0.0f, sum_gx = 0.0f;
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            const int64_t column = threadIdx.x * WIDE + p * step;
            if (column >= last) break;
            load_part<WHOLE>(x, in.x + from + column, cols - column);
            load_part<WHOLE>(dy, in.dy + dy_from + column, cols - column);
            load_part<WHOLE>(weight, in.weight + column, cols - column);
#pragma unroll
            for (int i = 0; i < WIDE; i++) {
                const float normalized = (x[i] - mean) * rstd, g = dy[i] * weight[i];
                weight_sum[p][i] += dy[i] * normalized;
                if (!RMS) bias_sum[p][i] += dy[i];
                sum_g += g;
                sum_gx += g * normalized;
            }
        }
        row_sums(sum_g, sum_gx, slots);
        const float mean_g = RMS ? 0.0f : sum_g / (float)cols, mean_gx = sum_gx / (float)cols;
        const int64_t to = last ? all.at(index, all.dx_stride) : 0;
        for (int64_t column = threadIdx.x * WIDE; column < last; column += step) {
            float add[WIDE] = {0};
            load_part<WHOLE>(x, in.x + from + column, cols - column);
            load_part<WHOLE>(dy, in.dy + dy_from + column, cols - column);
            load_part<WHOLE>(weight, in.weight + column, cols - column);
            if (in.add_to) load_part<WHOLE>(add, in.add_to + to + column, cols - column);
#pragma unroll
            for (int i = 0; i < WIDE; i++)
                add[i] += rstd * (dy[i] * weight[i] - mean_g - (x[i] - mean) * rstd * mean_gx);
            store_part<WHOLE>(dx + to + column, add, cols - column);
        }
        slots = slots == shared ? shared + BACKWARD_SLOTS / 2 : shared;
    }
    add_rows<PACKS, WHOLE>(weight_sum, partials + chunk * cols, cols, shared);
    if (!RMS) add_rows<PACKS, WHOLE>(bias_sum, partials + (chunks + chunk) * cols, cols, shared);
}

// Threads across for one vector (a power of two within a warp, else whole warps), and vectors.
inline dim3 backward_shape(int64_t cols, int packs) {
    const int64_t wanted = divide_up(cols, (int64_t)packs * WIDE);
    unsigned across = 1;
    while (across < WARP && across < wanted) across *= 2;
    if (wanted > WARP) across = (unsigned)divide_up(wanted, WARP) * WARP;
    return dim3(across, across < 256 ? 256 / across : 1);
}

// Leaves the chunks' sums for the weight, and behind them those for the bias, in scratch.
template <bool RMS, class Kernel>
z3d_status backward_vectors(const z3d_cuda_lane *lane, const char *name, const Kernel *kernel,
                            const float *mean, const vectors &all, int64_t chunks) {
    const bool whole = all.cols % WIDE == 0 && all.x_stride % WIDE == 0 &&
                       all.y_stride % WIDE == 0 && all.dx_stride % WIDE == 0 &&
                       aligned(kernel->dy, kernel->x, kernel->weight, kernel->add_to, kernel->dx);
    const int64_t few = backward_threads(1) * WIDE;
    const int64_t most = MOST_PACKS * backward_threads(MOST_PACKS) * WIDE;
    if (all.cols > most)
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "kernel %s: %lld columns; at most %lld are possible",
                         name, (long long)all.cols, (long long)most);
    return with_type(kernel->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const backward_inputs<T> in = {static_cast<const T *>(kernel->dy),
                                       static_cast<const T *>(kernel->x),
                                       static_cast<const T *>(kernel->weight),
                                       static_cast<const T *>(kernel->add_to),
                                       mean,
                                       kernel->rstd};
        auto go = [&](auto packs, auto is_whole) {
            constexpr int PACKS = decltype(packs)::value;
            const dim3 threads = backward_shape(all.cols, PACKS);
            const size_t sums = (threads.y - 1) * threads.x * PACKS * WIDE;
            const size_t slots = BACKWARD_SLOTS;
            return launch(lane, name, chunks, threads,
                          (sums > slots ? sums : slots) * sizeof(float),
                          backward_kernel<RMS, PACKS, decltype(is_whole)::value, T>, all, in,
                          static_cast<T *>(kernel->dx), static_cast<float *>(lane->scratch));
        };
        using one = std::integral_constant<int, 1>;
        using several = std::integral_constant<int, MOST_PACKS>;
        if (all.cols > few)
            return whole ? go(several(), std::true_type()) : go(several(), std::false_type());
        return whole ? go(one(), std::true_type()) : go(one(), std::false_type());
    });
}

} // namespace

z3d_status z3d_cuda_layernorm_backward(const z3d_cuda_lane *lane,
                                       const z3d_layernorm_backward *kernel) {
    REQUIRE_FLOAT(layernorm_backward, kernel->dtype);
    REQUIRE_FLOAT(layernorm_backward, kernel->gradient_dtype);
    if (kernel->cols <= 0) return Z3D_OK;
    const int64_t chunks = z3d_cuda_row_chunks(kernel->rows), cols = kernel->cols;
    REQUIRE_SCRATCH(layernorm_backward, lane, 2 * chunks * cols * (int64_t)sizeof(float));
    const float *partials = static_cast<const float *>(lane->scratch);
    Z3D_TRY(backward_vectors<false>(lane, "layernorm_backward", kernel, kernel->mean,
                                    {kernel->rows, cols, 1, cols, cols, cols}, chunks));
    Z3D_TRY(fold(lane, "layernorm_backward", partials, chunks, cols, kernel->weight_gradient,
                 kernel->gradient_dtype, kernel->accumulate));
    return fold(lane, "layernorm_backward", partials + chunks * cols, chunks, cols,
                kernel->bias_gradient, kernel->gradient_dtype, kernel->accumulate);
}

z3d_status z3d_cuda_rmsnorm_backward(const z3d_cuda_lane *lane,
                                     const z3d_rmsnorm_backward *kernel) {
    REQUIRE_FLOAT(rmsnorm_backward, kernel->dtype);
    REQUIRE_FLOAT(rmsnorm_backward, kernel->gradient_dtype);
    if (kernel->cols <= 0) return Z3D_OK;
    const int64_t count = kernel->rows * kernel->heads, cols = kernel->cols;
    const int64_t chunks = z3d_cuda_row_chunks(count);
    REQUIRE_SCRATCH(rmsnorm_backward, lane, chunks * cols * (int64_t)sizeof(float));
    Z3D_TRY(backward_vectors<true>(
        lane, "rmsnorm_backward", kernel, nullptr,
        {count, cols, kernel->heads, kernel->x_stride, kernel->y_stride, kernel->dx_stride},
        chunks));
    return fold(lane, "rmsnorm_backward", static_cast<const float *>(lane->scratch), chunks, cols,
                kernel->weight_gradient, kernel->gradient_dtype, kernel->accumulate);
}
