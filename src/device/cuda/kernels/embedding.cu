// The lookup tables: tokens (split over ranks by rows) and positions; select_row.
#include "src/device/cuda/kernels/each.cuh"

namespace {

template <class T> struct lookup_operation {
    const int32_t *tokens;
    const T *table;
    T *out;
    int64_t cols, first, table_rows;
    template <int N> __device__ void at(int64_t row, int64_t column) const {
        const int64_t index = (int64_t)tokens[row] - first;
        float v[N] = {0};
        if (index >= 0 && index < table_rows) load(v, table + index * cols + column);
        store(out + row * cols + column, v);
    }
};

} // namespace

z3d_status z3d_cuda_embedding_forward(const z3d_cuda_lane *lane,
                                      const z3d_embedding_forward *kernel) {
    REQUIRE_FLOAT(embedding_forward, kernel->dtype);
    return with_type(kernel->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return each_row(lane, "embedding_forward", kernel->rows, kernel->cols,
                        aligned(kernel->table, kernel->out),
                        lookup_operation<T>{kernel->tokens, static_cast<const T *>(kernel->table),
                                            static_cast<T *>(kernel->out), kernel->cols,
                                            kernel->first, kernel->table_rows});
    });
}

// Backward sorts the rows by token, so that each table row is summed in fp32, in row order, and
// rounded once. The sort counts, for every row, those that come before it: rows^2 comparisons, but
// simple ones (0.3 G for 16384 rows), no atomics and one launch.
namespace {

constexpr int SORT_THREADS = 256;

// Rows that this rank's table lacks come last.
__device__ inline uint32_t table_index(int32_t token, int64_t first, int64_t table_rows) {
    const int64_t index = (int64_t)token - first;
    return index >= 0 && index < table_rows ? (uint32_t)index : 0xffffffffu;
}

// sorted[position] = table index << 32 | row.
__global__ void __launch_bounds__(SORT_THREADS)
    sort_kernel(const int32_t *tokens, int64_t rows, int64_t first, int64_t table_rows,
                uint64_t *sorted) {
    uint32_t *others = shared_memory<uint32_t>(); // [SORT_THREADS]
    const int64_t row = (int64_t)blockIdx.x * SORT_THREADS + threadIdx.x;
    const uint32_t mine = row < rows ? table_index(tokens[row], first, table_rows) : 0;
    int64_t position = 0;
    for (int64_t tile = 0; tile < rows; tile += SORT_THREADS) {
        const int count = (int)(rows - tile < SORT_THREADS ? rows - tile : SORT_THREADS);
        if ((int)threadIdx.x < count)
            others[threadIdx.x] = table_index(tokens[tile + threadIdx.x], first, table_rows);
        __syncthreads();
        const int64_t same = row - tile; // those before it count where they are equal
        int before = 0;
        for (int i = 0; i < count; i++)
            before += others[i] < mine || (others[i] == mine && i < same);
        position += before;
        __syncthreads();
    }
    if (row < rows) sorted[position] = (uint64_t)mine << 32 | (uint64_t)row;
}

constexpr int SCATTER_THREADS = 128;

// A block per position of the sorted rows: the first of each token adds them all up.
template <int N, class T, class G>
__global__ void __launch_bounds__(SCATTER_THREADS)
    scatter_kernel(const uint64_t *sorted, int64_t rows, const T *dy, G *table_gradient,
                   int64_t cols, bool accumulate) {
    const int64_t begin = blockIdx.x;
    const uint32_t index = (uint32_t)(sorted[begin] >> 32);
    if (index == 0xffffffffu || (begin > 0 && (uint32_t)(sorted[begin - 1] >> 32) == index)) return;
    int64_t end = begin + 1;
    while (end < rows && (uint32_t)(sorted[end] >> 32) == index) end++;
    for (int64_t column = threadIdx.x * N; column < cols; column += SCATTER_THREADS * N) {
        float sum[N] = {0}, v[N];
#pragma unroll(16 / sizeof(T) / 2) // loads in flight
        for (int64_t i = begin; i < end; i++) {
            load(v, dy + (int64_t)(uint32_t)sorted[i] * cols + column);
#pragma unroll
            for (int j = 0; j < N; j++) sum[j] += v[j];
        }
        G *to = table_gradient + (int64_t)index * cols + column;
        if (accumulate) {
            load(v, to);
#pragma unroll
            for (int j = 0; j < N; j++) sum[j] += v[j];
        }
        store(to, sum);
    }
}

} // namespace

z3d_status z3d_cuda_embedding_backward(const z3d_cuda_lane *lane,
                                       const z3d_embedding_backward *kernel) {
    REQUIRE_FLOAT(embedding_backward, kernel->dtype);
    REQUIRE_FLOAT(embedding_backward, kernel->gradient_dtype);
    Z3D_REQUIRE(kernel->rows <= INT32_MAX && kernel->table_rows <= INT32_MAX,
                "kernel embedding_backward: %lld rows of a table of %lld", (long long)kernel->rows,
                (long long)kernel->table_rows);
    REQUIRE_SCRATCH(embedding_backward, lane, kernel->rows * (int64_t)sizeof(uint64_t));
    const int64_t rows = kernel->rows, cols = kernel->cols;
    const int64_t size = kernel->gradient_dtype == Z3D_F32 ? 4 : 2;
    if (!kernel->accumulate && kernel->table_rows > 0 && cols > 0)
        Z3D_TRY(
            check("embedding_backward",
                  cudaMemsetAsync(kernel->table_gradient, 0,
                                  (size_t)(kernel->table_rows * cols * size), stream_of(lane))));
    if (rows <= 0 || cols <= 0) return Z3D_OK;
    uint64_t *sorted = static_cast<uint64_t *>(lane->scratch);
    Z3D_TRY(launch(lane, "embedding_backward", divide_up(rows, SORT_THREADS), dim3(SORT_THREADS),
                   SORT_THREADS * sizeof(uint32_t), sort_kernel, kernel->tokens, rows,
                   kernel->first, kernel->table_rows, sorted));
    const bool wide = cols % WIDE == 0 && aligned(kernel->dy, kernel->table_gradient);
    return with_type(kernel->dtype, [&](auto tag) {
        return with_type(kernel->gradient_dtype, [&](auto gradient_tag) {
            return with_width(wide, [&](auto width) {
                using T = typename decltype(tag)::type;
                using G = typename decltype(gradient_tag)::type;
                constexpr int N = decltype(width)::value;
                return launch(lane, "embedding_backward", rows, dim3(SCATTER_THREADS), 0,
                              scatter_kernel<N, T, G>, sorted, rows,
                              static_cast<const T *>(kernel->dy),
                              static_cast<G *>(kernel->table_gradient), cols, kernel->accumulate);
            });
        });
    });
}

namespace {

template <class T> struct add_position_operation {
    T *x;
    const T *positions;
    const int32_t *starts;
    int64_t first, seq, capacity, cols;
    template <int N> __device__ void at(int64_t row, int64_t column) const {
        const uint32_t index = (uint32_t)(first + row);
        int64_t position = index % (uint32_t)seq;
        if (starts) {
            position += starts[index / (uint32_t)seq];
            if (position >= capacity) position = capacity - 1;
        }
        float sum[N], added[N];
        load(sum, x + row * cols + column);
        load(added, positions + position * cols + column);
#pragma unroll
        for (int j = 0; j < N; j++) sum[j] += added[j];
        store(x + row * cols + column, sum);
    }
};

template <class T, class G> struct sum_positions_operation {
    const T *dy;
    G *gradient;
    int64_t begin, end, sample; // elements: the rows' among the micro-batch's, a sample's
    bool accumulate;
    template <int N> __device__ void at(int64_t i) const {
        float sum[N] = {0}, v[N];
        for (int64_t k = begin - begin % sample + i; k < end; k += sample) {
            if (k < begin) continue;
            load(v, dy + k - begin);
#pragma unroll
            for (int j = 0; j < N; j++) sum[j] += v[j];
        }
        if (accumulate) {
            load(v, gradient + i);
#pragma unroll
            for (int j = 0; j < N; j++) sum[j] += v[j];
        }
        store(gradient + i, sum);
    }
};

} // namespace

z3d_status z3d_cuda_position_forward(const z3d_cuda_lane *lane,
                                     const z3d_position_forward *kernel) {
    REQUIRE_FLOAT(position_forward, kernel->dtype);
    Z3D_REQUIRE(kernel->first + kernel->rows <= INT32_MAX,
                "kernel position_forward: %lld rows from %lld on", (long long)kernel->rows,
                (long long)kernel->first);
    return with_type(kernel->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return each_row(lane, "position_forward", kernel->rows, kernel->cols,
                        aligned(kernel->x, kernel->positions),
                        add_position_operation<T>{static_cast<T *>(kernel->x),
                                                  static_cast<const T *>(kernel->positions),
                                                  kernel->starts, kernel->first, kernel->seq,
                                                  kernel->capacity, kernel->cols});
    });
}

z3d_status z3d_cuda_position_backward(const z3d_cuda_lane *lane,
                                      const z3d_position_backward *kernel) {
    REQUIRE_FLOAT(position_backward, kernel->dtype);
    REQUIRE_FLOAT(position_backward, kernel->gradient_dtype);
    const int64_t sample = kernel->seq * kernel->cols, begin = kernel->first * kernel->cols;
    const int64_t end = begin + kernel->rows * kernel->cols;
    const bool wide = sample % WIDE == 0 && begin % WIDE == 0 && end % WIDE == 0 &&
                      aligned(kernel->dy, kernel->gradient);
    return with_type(kernel->dtype, [&](auto tag) {
        return with_type(kernel->gradient_dtype, [&](auto gradient_tag) {
            using T = typename decltype(tag)::type;
            using G = typename decltype(gradient_tag)::type;
            return each_element(lane, "position_backward", sample, wide,
                                sum_positions_operation<T, G>{static_cast<const T *>(kernel->dy),
                                                              static_cast<G *>(kernel->gradient),
                                                              begin, end, sample,
                                                              kernel->accumulate});
        });
    });
}

namespace {

// The row is known on the device only: one outside the sequence gives NaN.
template <class T> struct select_operation {
    const T *x;
    T *y;
    int64_t seq, cols;
    const int32_t *rows;
    template <int N> __device__ void at(int64_t row, int64_t column) const {
        const int64_t position = rows[row];
        float v[N];
        if (position >= 0 && position < seq)
            load(v, x + (row * seq + position) * cols + column);
        else
#pragma unroll
            for (int j = 0; j < N; j++) v[j] = float_of(0x7fc00000u);
        store(y + row * cols + column, v);
    }
};

} // namespace

z3d_status z3d_cuda_select_row(const z3d_cuda_lane *lane, const z3d_select_row *kernel) {
    REQUIRE_FLOAT(select_row, kernel->dtype);
    return with_type(kernel->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return each_row(
            lane, "select_row", kernel->batch, kernel->cols, aligned(kernel->x, kernel->y),
            select_operation<T>{static_cast<const T *>(kernel->x), static_cast<T *>(kernel->y),
                                kernel->seq, kernel->cols, kernel->row});
    });
}
