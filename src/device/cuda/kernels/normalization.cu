// Layer normalization, and rmsnorm (without mean and bias): forward with a warp per vector,
// backward with a block per chunk of vectors. A layernorm uses rmsnorm's struct, with one head and
// strides of cols, plus its own arguments.
#include "src/device/cuda/kernels/column_sums.cuh"

namespace {

// The place of a vector in a matrix of this stride.
template <class Kernel>
__device__ inline int64_t vector_at(const Kernel &k, int64_t index, int64_t stride) {
    return k.heads == 1 ? index * stride : index / k.heads * stride + index % k.heads * k.cols;
}

constexpr int FORWARD_WARPS = 4;

// Finds the mean first, then the squares around it, to avoid cancellation. The second and third
// read of a vector come from the first-level cache. RMS: the mean counts as 0.
template <bool RMS, int N, class T>
__global__ void __launch_bounds__(FORWARD_WARPS *WARP)
    forward_kernel(z3d_rmsnorm_forward k, const void *bias, float *mean_out) {
    const int64_t index = (int64_t)blockIdx.x * FORWARD_WARPS + threadIdx.x / WARP;
    if (index >= k.rows * k.heads) return;
    const int64_t first = threadIdx.x % WARP * N, cols = k.cols;
    const int64_t x = vector_at(k, index, k.x_stride), y = vector_at(k, index, k.y_stride);
    float v[N], sum = 0.0f, squares = 0.0f;
    for (int64_t column = first; column < cols && !RMS; column += WARP * N) {
        load<T>(v, k.x, x + column);
#pragma unroll
        for (int i = 0; i < N; i++) sum += v[i];
    }
    const float mean = RMS ? 0.0f : warp_sum(sum) / (float)cols;
    for (int64_t column = first; column < cols; column += WARP * N) {
        load<T>(v, k.x, x + column);
#pragma unroll
        for (int i = 0; i < N; i++) squares += (v[i] - mean) * (v[i] - mean);
    }
    const float rstd = 1.0f / sqrtf(warp_sum(squares) / (float)cols + k.epsilon);
    for (int64_t column = first; column < cols; column += WARP * N) {
        float w[N], b[N] = {0};
        load<T>(v, k.x, x + column);
        load<T>(w, k.weight, column);
        if (!RMS) load<T>(b, bias, column);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = (v[i] - mean) * rstd * w[i] + b[i];
        store<T>(k.y, y + column, v);
    }
    if (threadIdx.x % WARP > 0) return;
    if (!RMS) mean_out[index] = mean;
    if (k.rstd) k.rstd[index] = rstd;
}

template <bool RMS>
z3d_status forward(const z3d_cuda_lane *lane, const char *name, const z3d_rmsnorm_forward &k,
                   const void *bias, float *mean) {
    const bool wide = k.cols % WIDE == 0 && k.x_stride % WIDE == 0 && k.y_stride % WIDE == 0 &&
                      aligned(k.x, k.weight, bias, k.y);
    return with_type(name, k.dtype, [&](auto type) {
        if (k.rows * k.heads <= 0) return Z3D_OK;
        return with_width(wide, [&](auto width) {
            return launch(
                lane, name, divide_up(k.rows * k.heads, FORWARD_WARPS), dim3(FORWARD_WARPS * WARP),
                0, forward_kernel<RMS, decltype(width)::value, decltype(type)>, k, bias, mean);
        });
    });
}

// A thread has PACKS packs of WIDE columns, `threads across * WIDE` apart. Fewer threads have more
// registers; single elements need more registers than packs.
constexpr int MOST_PACKS = 6;

constexpr int backward_threads(int packs, bool whole) {
    return packs == 1 ? 512 : whole ? 384 : 256;
}

// Two values for each warp, in two buffers by turns.
constexpr int BACKWARD_SLOTS = 2 * 2 * backward_threads(1, true) / WARP;

// Loads `count` of WIDE elements, the rest are zeros. WHOLE: loads all; they are aligned.
template <bool WHOLE, class T>
__device__ inline pack<T, WIDE> load_part(const void *from, int64_t at, int64_t count) {
    const T *first = static_cast<const T *>(from) + at;
    pack<T, WIDE> part = {};
    if constexpr (WHOLE) {
        if (count > 0) part = *reinterpret_cast<const pack<T, WIDE> *>(first);
    } else {
#pragma unroll
        for (int i = 0; i < WIDE; i++)
            if (i < count) part.at[i] = first[i];
    }
    return part;
}

template <bool WHOLE, class T>
__device__ inline void store_part(void *to, int64_t at, const float (&from)[WIDE], int64_t count) {
    if constexpr (WHOLE)
        store<T>(to, at, from);
    else
#pragma unroll
        for (int i = 0; i < WIDE; i++)
            if (i < count) narrow(from[i], static_cast<T *>(to) + at + i);
}

// Sums two values over the threads of each row of the block (threadIdx.y); all these threads get
// the sums. A row is a power of two within a warp, or whole warps. slots: [rows][2][warps], unused
// since the last barrier but one.
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

// Adds the columns' sums of all rows of the block, in order, and stores them in `partials`.
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
        if (column < cols) store_part<WHOLE, float>(partials, column, sum[p], cols - column);
    }
}

// The begin of a vector in x, dy and dx.
struct backward_places {
    int64_t x, dy, dx;
};

__device__ inline backward_places places_at(const z3d_rmsnorm_backward &k, int64_t index) {
    return {vector_at(k, index, k.x_stride), vector_at(k, index, k.y_stride),
            vector_at(k, index, k.dx_stride)};
}

// A thread's part of a vector: WIDE columns, and the vector's mean and 1 / deviation.
template <class T> struct backward_inputs {
    pack<T, WIDE> x, dy, added;
    float mean, rstd;
};

template <bool WHOLE, class T>
__device__ inline backward_inputs<T> load_inputs(const z3d_rmsnorm_backward &k, const float *means,
                                                 int64_t index, int64_t column) {
    const backward_places at = places_at(k, index);
    const int64_t count = k.cols - column;
    return {load_part<WHOLE, T>(k.x, at.x + column, count),
            load_part<WHOLE, T>(k.dy, at.dy + column, count),
            load_part<WHOLE, T>(k.add_to, k.add_to ? at.dx + column : 0, k.add_to ? count : 0),
            means ? means[index] : 0.0f, k.rstd[index]};
}

// With g = dy * weight and x^ = (x - mean) * rstd: dx = rstd * (g - mean(g) - x^ * mean(g x^));
// RMS: without mean and mean(g). A block has a chunk of the vectors; a row of threads has one
// vector at a time, and keeps its columns' sums in registers. With one pack per thread the next
// vector is read before the wait for this one's sums. With several a vector is read twice, the
// second time from the first-level cache.
template <bool RMS, int PACKS, bool WHOLE, class T>
__global__ void __launch_bounds__(backward_threads(PACKS, WHOLE), 1) // all registers: no spills
    backward_kernel(z3d_rmsnorm_backward k, const float *means, float *partials) {
    const int64_t cols = k.cols, count = k.rows * k.heads, chunks = gridDim.x, chunk = blockIdx.x;
    const int64_t end = count * (chunk + 1) / chunks, step = blockDim.x * WIDE;
    const int64_t mine = threadIdx.x * WIDE;
    float *const shared = shared_memory<float>(), *slots = shared;
    float weight_sum[PACKS][WIDE] = {}, bias_sum[PACKS][WIDE] = {};
    const int64_t first = count * chunk / chunks;
    backward_inputs<T> next = {};
    const auto read_ahead = [&](int64_t index) {
        if (PACKS == 1 && index < end && mine < cols)
            next = load_inputs<WHOLE, T>(k, means, index, mine);
    };
    const auto weight_at = [&](int64_t column) {
        return load_part<WHOLE, T>(k.weight, column, cols - column);
    };
    const auto only_weight = weight_at(PACKS == 1 && first < end ? mine : cols);
    read_ahead(first + threadIdx.y);
    for (int64_t begin = first; begin < end; begin += blockDim.y) {
        const int64_t index = begin + threadIdx.y;
        const int64_t last = index < end ? cols : 0; // threads without a vector only join the sums
        const backward_inputs<T> ahead = next;
        read_ahead(index + blockDim.y);
        const auto inputs = [&](int64_t column) {
            return PACKS == 1 ? ahead : load_inputs<WHOLE, T>(k, means, index, column);
        };
        float sum_g = 0.0f, sum_gx = 0.0f;
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            const int64_t column = mine + p * step;
            if (column >= last) break;
            const backward_inputs<T> in = inputs(column);
            const auto weight = PACKS == 1 ? only_weight : weight_at(column);
#pragma unroll
            for (int i = 0; i < WIDE; i++) {
                const float dy = widen(in.dy.at[i]), g = dy * widen(weight.at[i]);
                const float normalized = (widen(in.x.at[i]) - in.mean) * in.rstd;
                weight_sum[p][i] += dy * normalized;
                if (!RMS) bias_sum[p][i] += dy;
                sum_g += g;
                sum_gx += g * normalized;
            }
        }
        row_sums(sum_g, sum_gx, slots);
        const float mean_g = RMS ? 0.0f : sum_g / (float)cols, mean_gx = sum_gx / (float)cols;
        for (int64_t column = mine; column < last; column += step) {
            const backward_inputs<T> in = inputs(column);
            const auto weight = PACKS == 1 ? only_weight : weight_at(column);
            float dx[WIDE];
#pragma unroll
            for (int i = 0; i < WIDE; i++)
                dx[i] = widen(in.added.at[i]) +
                        in.rstd * (widen(in.dy.at[i]) * widen(weight.at[i]) - mean_g -
                                   (widen(in.x.at[i]) - in.mean) * in.rstd * mean_gx);
            store_part<WHOLE, T>(k.dx, places_at(k, index).dx + column, dx, cols - column);
        }
        slots = slots == shared ? shared + BACKWARD_SLOTS / 2 : shared;
    }
    add_rows<PACKS, WHOLE>(weight_sum, partials + chunk * cols, cols, shared);
    if (!RMS) add_rows<PACKS, WHOLE>(bias_sum, partials + (chunks + chunk) * cols, cols, shared);
}

// The block's shape: threads for one vector (a power of two within a warp, or whole warps) x number
// of vectors.
inline dim3 backward_shape(int64_t cols, int packs) {
    const int64_t wanted = divide_up(cols, (int64_t)packs * WIDE);
    unsigned across = 1;
    while (across < WARP && across < wanted) across *= 2;
    if (wanted > WARP) across = (unsigned)divide_up(wanted, WARP) * WARP;
    return dim3(across, across < 256 ? 256 / across : 1);
}

template <bool RMS, int PACKS, bool WHOLE, class T>
z3d_status launch_backward(const z3d_cuda_lane *lane, const char *name,
                           const z3d_rmsnorm_backward &k, const float *mean, int64_t chunks) {
    const dim3 threads = backward_shape(k.cols, PACKS);
    const size_t sums = (threads.y - 1) * threads.x * PACKS * WIDE, slots = BACKWARD_SLOTS;
    return launch(lane, name, chunks, threads, (sums > slots ? sums : slots) * sizeof(float),
                  backward_kernel<RMS, PACKS, WHOLE, T>, k, mean,
                  static_cast<float *>(lane->scratch));
}

// Scratch has the chunks' sums for the weight, then those for the bias.
template <bool RMS>
z3d_status backward(const z3d_cuda_lane *lane, const char *name, const z3d_rmsnorm_backward &k,
                    const float *mean, void *bias_gradient) {
    if (k.cols <= 0) return Z3D_OK;
    const bool whole = k.cols % WIDE == 0 && k.x_stride % WIDE == 0 && k.y_stride % WIDE == 0 &&
                       k.dx_stride % WIDE == 0 && aligned(k.dy, k.x, k.weight, k.add_to, k.dx);
    const int64_t few = backward_threads(1, whole) * WIDE;
    const int64_t most = MOST_PACKS * backward_threads(MOST_PACKS, whole) * WIDE;
    if (k.cols > most)
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "kernel %s: %lld columns; at most %lld are possible",
                         name, (long long)k.cols, (long long)most);
    const int64_t chunks = z3d_cuda_row_chunks(k.rows * k.heads), sums = chunks * k.cols;
    Z3D_TRY(check_scratch(name, lane, (RMS ? 1 : 2) * sums * (int64_t)sizeof(float)));
    const float *partials = static_cast<const float *>(lane->scratch);
    Z3D_TRY(with_type(name, k.dtype, [&](auto type) {
        return with_flag(whole, [&](auto is_whole) {
            using T = decltype(type);
            constexpr bool WHOLE = decltype(is_whole)::value;
            if (k.cols <= few)
                return launch_backward<RMS, 1, WHOLE, T>(lane, name, k, mean, chunks);
            return launch_backward<RMS, MOST_PACKS, WHOLE, T>(lane, name, k, mean, chunks);
        });
    }));
    Z3D_TRY(fold(lane, name, partials, chunks, k.cols, k.weight_gradient, k.gradient_dtype,
                 k.accumulate));
    if (RMS) return Z3D_OK;
    return fold(lane, name, partials + sums, chunks, k.cols, bias_gradient, k.gradient_dtype,
                k.accumulate);
}

} // namespace

z3d_status z3d_cuda_layernorm_forward(const z3d_cuda_lane *lane, const z3d_layernorm_forward *k) {
    const int64_t cols = k->cols;
    return forward<false>(
        lane, "layernorm_forward",
        {k->x, k->weight, k->y, k->rstd, k->rows, 1, cols, cols, cols, k->epsilon, k->dtype},
        k->bias, k->mean);
}

z3d_status z3d_cuda_rmsnorm_forward(const z3d_cuda_lane *lane, const z3d_rmsnorm_forward *kernel) {
    return forward<true>(lane, "rmsnorm_forward", *kernel, nullptr, nullptr);
}

z3d_status z3d_cuda_layernorm_backward(const z3d_cuda_lane *lane, const z3d_layernorm_backward *k) {
    const int64_t cols = k->cols;
    return backward<false>(lane, "layernorm_backward",
                           {k->dy, k->x, k->weight, k->rstd, k->add_to, k->dx, k->weight_gradient,
                            k->rows, 1, cols, cols, cols, cols, k->dtype, k->gradient_dtype,
                            k->accumulate},
                           k->mean, k->bias_gradient);
}

z3d_status z3d_cuda_rmsnorm_backward(const z3d_cuda_lane *lane,
                                     const z3d_rmsnorm_backward *kernel) {
    return backward<true>(lane, "rmsnorm_backward", *kernel, nullptr, nullptr);
}
