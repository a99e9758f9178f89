// Lookup tables of tokens (split over ranks by rows) and positions; select_row.
#include "src/device/cuda/kernels/each.cuh"

#ifdef __CUDACC__
#include <cub/device/device_radix_sort.cuh>
#else
#include <algorithm>
#endif

namespace {

template <class T> struct lookup_operation {
    z3d_embedding_forward k;
    template <int N> __device__ void at(int64_t row, int64_t column) const {
        const int64_t index = (int64_t)k.tokens[row] - k.first;
        float v[N] = {0};
        if (index >= 0 && index < k.table_rows) load<T>(v, k.table, index * k.cols + column);
        store<T>(k.out, row * k.cols + column, v);
    }
};

// Backward sorts the rows by token, so that each table row is summed in fp32, in row order, and
// rounded once. Keys are table index << 32 | row. All keys differ, so any sort gives the same
// order. Rows that are not in this rank's table come last.
struct key_operation {
    z3d_embedding_backward k;
    uint64_t *keys;
    template <int N> __device__ void at(int64_t i) const {
#pragma unroll
        for (int64_t row = i; row < i + N; row++) {
            const int64_t index = (int64_t)k.tokens[row] - k.first;
            const bool here = index >= 0 && index < k.table_rows;
            keys[row] = (uint64_t)(here ? index : k.table_rows) << 32 | (uint64_t)row;
        }
    }
};

// After keys[rows] the memory has room for as many more, then `bytes` for the sort. *sorted: the
// sorted keys.
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

// A block per position of the sorted rows; the block of a token's first row adds all its rows.
template <int N, class T, class G>
__global__ void __launch_bounds__(SCATTER_THREADS)
    scatter_kernel(z3d_embedding_backward k, const uint64_t *sorted) {
    const int64_t begin = blockIdx.x;
    const uint32_t index = (uint32_t)(sorted[begin] >> 32);
    if (index == k.table_rows || (begin > 0 && (uint32_t)(sorted[begin - 1] >> 32) == index))
        return;
    int64_t end = begin + 1;
    while (end < k.rows && (uint32_t)(sorted[end] >> 32) == index) end++;
    for (int64_t column = threadIdx.x * N; column < k.cols; column += SCATTER_THREADS * N) {
        const int64_t to = (int64_t)index * k.cols + column;
        float sum[N] = {0};
#pragma unroll(16 / sizeof(T) / 2) // loads in flight
        for (int64_t i = begin; i < end; i++)
            add<T>(sum, k.dy, (int64_t)(uint32_t)sorted[i] * k.cols + column);
        if (k.accumulate) add<G>(sum, k.table_gradient, to);
        store<G>(k.table_gradient, to, sum);
    }
}

template <class T> struct add_position_operation {
    z3d_position_forward k;
    template <int N> __device__ void at(int64_t row, int64_t column) const {
        const uint32_t index = (uint32_t)(k.first + row), seq = (uint32_t)k.seq;
        int64_t position = k.row_position ? k.row_position[index] : index % seq;
        if (k.starts) {
            position += k.starts[index / seq];
            if (position >= k.capacity) position = k.capacity - 1;
        }
        float sum[N];
        load<T>(sum, k.x, row * k.cols + column);
        add<T>(sum, k.positions, position * k.cols + column);
        store<T>(k.x, row * k.cols + column, sum);
    }
};

template <class T, class G> struct sum_positions_operation {
    z3d_position_backward k;
    int64_t begin, end, sample; // in elements: the rows in the micro-batch; the size of a sample
    template <int N> __device__ void at(int64_t i) const {
        float sum[N] = {0};
        for (int64_t from = begin - begin % sample + i; from < end; from += sample)
            if (from >= begin) add<T>(sum, k.dy, from - begin);
        if (k.accumulate) add<G>(sum, k.gradient, i);
        store<G>(k.gradient, i, sum);
    }
};

// Only the device knows the row; a row outside the sequence gives NaN.
template <class T> struct select_operation {
    z3d_select_row k;
    template <int N> __device__ void at(int64_t row, int64_t column) const {
        const int64_t position = k.row[row];
        float v[N];
        if (position >= 0 && position < k.seq)
            load<T>(v, k.x, (row * k.seq + position) * k.cols + column);
        else
#pragma unroll
            for (int j = 0; j < N; j++) v[j] = NAN;
        store<T>(k.y, row * k.cols + column, v);
    }
};

} // namespace

z3d_status z3d_cuda_embedding_forward(const z3d_cuda_lane *lane,
                                      const z3d_embedding_forward *kernel) {
    return each_row<lookup_operation>(lane, "embedding_forward", kernel, kernel->rows,
                                      aligned(kernel->table, kernel->out));
}

z3d_status z3d_cuda_embedding_backward(const z3d_cuda_lane *lane,
                                       const z3d_embedding_backward *kernel) {
    const char *name = "embedding_backward";
    const int64_t rows = kernel->rows, cols = kernel->cols;
    Z3D_REQUIRE(rows <= INT32_MAX && kernel->table_rows <= INT32_MAX,
                "kernel %s: %lld rows of a table of %lld", name, (long long)rows,
                (long long)kernel->table_rows);
    Z3D_TRY(check_scratch(name, lane, z3d_cuda_sort_scratch(rows)));
    const size_t bytes =
        (size_t)(kernel->table_rows * cols) * z3d_dtype_size(kernel->gradient_dtype);
    if (!kernel->accumulate && kernel->table_rows > 0 && cols > 0)
        Z3D_TRY(check(name, cudaMemsetAsync(kernel->table_gradient, 0, bytes, stream_of(lane))));
    if (rows <= 0 || cols <= 0 || kernel->table_rows <= 0) return Z3D_OK;
    uint64_t *keys = static_cast<uint64_t *>(lane->scratch), *sorted;
    Z3D_TRY(each_element(lane, name, rows, false, key_operation{*kernel, keys}));
    Z3D_TRY(sort_keys(lane, keys, rows, kernel->table_rows, &sorted));
    const bool wide = cols % WIDE == 0 && aligned(kernel->dy, kernel->table_gradient);
    return with_type(name, kernel->dtype, kernel->gradient_dtype, [&](auto type, auto gradient) {
        return with_width(wide, [&](auto width) {
            constexpr int N = decltype(width)::value;
            return launch(lane, name, rows, dim3(SCATTER_THREADS), 0,
                          scatter_kernel<N, decltype(type), decltype(gradient)>, *kernel, sorted);
        });
    });
}

z3d_status z3d_cuda_position_forward(const z3d_cuda_lane *lane,
                                     const z3d_position_forward *kernel) {
    Z3D_TRY(check_rows("position_forward", kernel->first, kernel->rows));
    return each_row<add_position_operation>(lane, "position_forward", kernel, kernel->rows,
                                            aligned(kernel->x, kernel->positions));
}

z3d_status z3d_cuda_position_backward(const z3d_cuda_lane *lane,
                                      const z3d_position_backward *kernel) {
    const char *name = "position_backward";
    const int64_t sample = kernel->seq * kernel->cols, begin = kernel->first * kernel->cols;
    const int64_t end = begin + kernel->rows * kernel->cols;
    const bool wide = sample % WIDE == 0 && begin % WIDE == 0 && end % WIDE == 0 &&
                      aligned(kernel->dy, kernel->gradient);
    return with_type(name, kernel->dtype, kernel->gradient_dtype, [&](auto type, auto gradient) {
        using operation = sum_positions_operation<decltype(type), decltype(gradient)>;
        return each_element(lane, name, sample, wide, operation{*kernel, begin, end, sample});
    });
}

z3d_status z3d_cuda_select_row(const z3d_cuda_lane *lane, const z3d_select_row *kernel) {
    return each_row<select_operation>(lane, "select_row", kernel, kernel->batch,
                                      aligned(kernel->x, kernel->y));
}
