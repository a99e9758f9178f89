// The lookup tables: tokens (split over ranks by rows) and positions; select_row.
#include "src/device/cuda/kernels/each.cuh"

#ifdef __CUDACC__
#include <cub/device/device_radix_sort.cuh>
#else
#include <algorithm>
#endif

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
// rounded once.
namespace {

// Table index << 32 | row: no two are equal, so any sort gives the same. Rows that this rank's
// table lacks come last.
struct key_operation {
    const int32_t *tokens;
    uint64_t *keys;
    int64_t first, table_rows;
    template <int N> __device__ void at(int64_t i) const {
#pragma unroll
        for (int64_t row = i; row < i + N; row++) {
            const int64_t index = (int64_t)tokens[row] - first;
            const bool here = index >= 0 && index < table_rows;
            keys[row] = (uint64_t)(here ? index : table_rows) << 32 | (uint64_t)row;
        }
    }
};

// keys[rows] have as many elements behind them, and then `bytes` for the sort; *sorted: where they
// are then.
z3d_status sort_keys(const z3d_cuda_lane *lane, uint64_t *keys, int64_t rows, int64_t table_rows,
                     uint64_t **sorted) {
#ifdef __CUDACC__
    const int64_t bytes = lane->scratch_bytes - 2 * rows * (int64_t)sizeof(uint64_t);
    cub::DoubleBuffer<uint64_t> both(keys, keys + rows);
    size_t wanted = 0;
    int end = 33;
    while (table_rows >> (end - 32) > 0) end++;
    Z3D_TRY(check("embedding_backward",
                  cub::DeviceRadixSort::SortKeys(nullptr, wanted, both, (int)rows, 32, end)));
    Z3D_REQUIRE((int64_t)wanted <= bytes, "kernel embedding_backward: %lld bytes for the sort",
                (long long)wanted);
    Z3D_TRY(check("embedding_backward",
                  cub::DeviceRadixSort::SortKeys(keys + 2 * rows, wanted, both, (int)rows, 32, end,
                                                 stream_of(lane))));
    *sorted = both.Current();
    return Z3D_OK;
#else
    (void)table_rows;
    *sorted = keys;
    return check("embedding_backward",
                 cuda_shim_do(stream_of(lane), [=] { std::sort(keys, keys + rows); }));
#endif
}

constexpr int SCATTER_THREADS = 128;

// A block per position of the sorted rows: the first of each token adds them all up.
template <int N, class T, class G>
__global__ void __launch_bounds__(SCATTER_THREADS)
    scatter_kernel(const uint64_t *sorted, int64_t rows, const T *dy, G *table_gradient,
                   int64_t cols, int64_t table_rows, bool accumulate) {
    const int64_t begin = blockIdx.x;
    const uint32_t index = (uint32_t)(sorted[begin] >> 32);
    if (index == table_rows || (begin > 0 && (uint32_t)(sorted[begin - 1] >> 32) == index)) return;
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
    REQUIRE_SCRATCH(embedding_backward, lane, z3d_cuda_sort_scratch(kernel->rows));
    const int64_t rows = kernel->rows, cols = kernel->cols;
    const int64_t size = kernel->gradient_dtype == Z3D_F32 ? 4 : 2;
    if (!kernel->accumulate && kernel->table_rows > 0 && cols > 0)
        Z3D_TRY(
            check("embedding_backward",
                  cudaMemsetAsync(kernel->table_gradient, 0,
                                  (size_t)(kernel->table_rows * cols * size), stream_of(lane))));
    if (rows <= 0 || cols <= 0 || kernel->table_rows <= 0) return Z3D_OK;
    uint64_t *keys = static_cast<uint64_t *>(lane->scratch), *sorted;
    Z3D_TRY(each_element(lane, "embedding_backward", rows, false,
                         key_operation{kernel->tokens, keys, kernel->first, kernel->table_rows}));
    Z3D_TRY(sort_keys(lane, keys, rows, kernel->table_rows, &sorted));
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
                              static_cast<G *>(kernel->table_gradient), cols, kernel->table_rows,
                              kernel->accumulate);
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
