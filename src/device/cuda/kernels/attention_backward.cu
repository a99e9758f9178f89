// Backward of the tiled attention. Probabilities are recomputed from the stored logarithm of the
// sum, twice: once by blocks of keys for the keys' and values' gradients, once by blocks of queries
// for the queries'. So every sum has one owner and a fixed order, without atomics and without an
// fp32 copy of a gradient.
#include "src/device/cuda/kernels/attention.cuh"

namespace {

constexpr int DELTA_WARPS = 8;

// delta[sample, head, row] = sum over the head's columns of out x dout, which is also the sum over
// all keys of probability x its gradient. A warp per row.
template <class T>
__global__ void __launch_bounds__(DELTA_WARPS *WARP)
    delta_kernel(const T *out, const T *dout, float *delta, attention_shape shape, int64_t rows) {
    const int64_t index = (int64_t)blockIdx.x * DELTA_WARPS + threadIdx.x / WARP;
    if (index >= rows) return;
    const head_place place = place_of(shape, index / shape.seq);
    const int64_t at = place.out + index % shape.seq * place.out_stride;
    float sum = 0.0f;
    for (int i = lane_id(); i < shape.head_dim; i += WARP)
        sum += widen(out[at + i]) * widen(dout[at + i]);
    sum = warp_sum(sum);
    if (lane_id() == 0) delta[index] = sum;
}

template <class T>
z3d_status launch_delta(const z3d_cuda_lane *lane, const z3d_attention_backward *kernel) {
    const int64_t rows = kernel->batch * kernel->heads * kernel->seq;
    return launch(lane, "attention_backward", divide_up(rows, DELTA_WARPS),
                  dim3(DELTA_WARPS * WARP), 0, delta_kernel<T>, static_cast<const T *>(kernel->out),
                  static_cast<const T *>(kernel->dout), static_cast<float *>(lane->scratch),
                  attention_shape_of(kernel), rows);
}

template <class T> struct backward_pointers {
    const T *qkv, *dout;
    const float *log_sum_exp, *delta;
    T *dqkv;
};

// Rows or columns of other tiles that a block takes at a time: what registers allow.
template <class T, int DEPTH, bool DROPS>
constexpr int STEP = sizeof(T) == 4 ? 16 : (DEPTH == 64 ? 64 : 32) / (DROPS ? 2 : 1);

// One result: from score and probability's gradient to the score's gradient, and to the probability
// as the values saw it. `mask` is its dropout multiplier.
__device__ inline void derive(float &score, float &gradient, float log_sum_exp, float delta,
                              float scale, float mask, bool seen) {
    const float p = seen ? power_of_two(score * scale - log_sum_exp * LOG2_E) : 0.0f;
    gradient = p * (gradient * mask - delta);
    score = p * mask;
}

// Gradients of 64 keys and values: over the queries that see them. Results are transposed: a lane's
// rows are keys, its columns queries.
template <int DEPTH, bool DROPS, class T>
__global__ void __launch_bounds__(TILE_THREADS)
    keys_kernel(backward_pointers<T> in, attention_shape shape, int heads) {
    constexpr int STRIDE = TILE_STRIDE<T, DEPTH>, QUERIES = STEP<T, DEPTH, DROPS>;
    T *keys = shared_memory<T>(), *values = keys + TILE * STRIDE, *queries = values + TILE * STRIDE;
    T *dout = queries + QUERIES * STRIDE;
    float *log_sum_exp = reinterpret_cast<float *>(dout + QUERIES * STRIDE);
    float *delta = log_sum_exp + QUERIES;
    const int first = (int)blockIdx.x / heads * TILE; // the first keys come first: most see them
    const head_place place = place_of(shape, blockIdx.x % heads);
    const int warp_row = (int)threadIdx.x / WARP * 16, g = lane_id() / 4, t = lane_id() % 4;
    const float scale = shape.scale * LOG2_E;

    dropout_draw draw = {};
    if constexpr (DROPS) draw = dropout_begin(shape.rule);

    float dkeys[DEPTH / 8][4] = {}, dvalues[DEPTH / 8][4] = {};
    load_tile<TILE, DEPTH>(keys, in.qkv + place.qkv + place.part, place.qkv_stride, first, shape);
    load_tile<TILE, DEPTH>(values, in.qkv + place.qkv + 2 * place.part, place.qkv_stride, first,
                           shape);
    for (int query = first; query < shape.seq; query += QUERIES) {
        __syncthreads();
        load_tile<QUERIES, DEPTH>(queries, in.qkv + place.qkv, place.qkv_stride, query, shape);
        load_tile<QUERIES, DEPTH>(dout, in.dout + place.out, place.out_stride, query, shape);
        if ((int)threadIdx.x < QUERIES) {
            const int64_t row = place.statistics + query + threadIdx.x;
            const bool inside = query + (int)threadIdx.x < shape.seq;
            log_sum_exp[threadIdx.x] = inside ? in.log_sum_exp[row] : 0.0f;
            delta[threadIdx.x] = inside ? in.delta[row] : 0.0f;
        }
        __syncthreads();
        float scores[QUERIES / 8][4], gradients[QUERIES / 8][4];
        multiply_rows<QUERIES, DEPTH>(scores, keys + warp_row * STRIDE, queries);
        multiply_rows<QUERIES, DEPTH>(gradients, values + warp_row * STRIDE, dout);
#pragma unroll
        for (int j = 0; j < QUERIES / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int column = 8 * j + 2 * t + e % 2;
                const int key = first + warp_row + g + 8 * (e / 2);
                const bool seen = key <= query + column && query + column < shape.seq;
                float mask = 1.0f;
                if constexpr (DROPS)
                    mask = dropout_one(draw, place.sample, shape.first_head + place.head,
                                       query + column, key);
                derive(scores[j][e], gradients[j][e], log_sum_exp[column], delta[column], scale,
                       mask, seen);
            }
        multiply_columns<QUERIES, DEPTH>(dvalues, scores, dout);
        multiply_columns<QUERIES, DEPTH>(dkeys, gradients, queries);
    }
    // The block's keys and values are not read any more but by the warps that own them.
    store_rows<DEPTH>(in.dqkv + place.qkv + place.part, place.qkv_stride, first + warp_row, shape,
                      keys + warp_row * STRIDE, dkeys, shape.scale, shape.scale);
    store_rows<DEPTH>(in.dqkv + place.qkv + 2 * place.part, place.qkv_stride, first + warp_row,
                      shape, values + warp_row * STRIDE, dvalues, 1.0f, 1.0f);
}

// Gradients of 64 queries: over the keys they see.
template <int DEPTH, bool DROPS, class T>
__global__ void __launch_bounds__(TILE_THREADS)
    queries_kernel(backward_pointers<T> in, attention_shape shape, int heads) {
    constexpr int STRIDE = TILE_STRIDE<T, DEPTH>, KEYS = STEP<T, DEPTH, DROPS>;
    T *queries = shared_memory<T>(), *dout = queries + TILE * STRIDE, *keys = dout + TILE * STRIDE;
    T *values = keys + KEYS * STRIDE;
    const int tiles = (shape.seq + TILE - 1) / TILE;
    const int first = (tiles - 1 - (int)blockIdx.x / heads) * TILE;
    const head_place place = place_of(shape, blockIdx.x % heads);
    const int warp_row = (int)threadIdx.x / WARP * 16, g = lane_id() / 4, t = lane_id() % 4;
    const float scale = shape.scale * LOG2_E;

    dropout_draw draw = {};
    if constexpr (DROPS) draw = dropout_begin(shape.rule);

    float log_sum_exp[2], delta[2], dqueries[DEPTH / 8][4] = {};
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int query = first + warp_row + g + 8 * r;
        log_sum_exp[r] = query < shape.seq ? in.log_sum_exp[place.statistics + query] : 0.0f;
        delta[r] = query < shape.seq ? in.delta[place.statistics + query] : 0.0f;
    }
    load_tile<TILE, DEPTH>(queries, in.qkv + place.qkv, place.qkv_stride, first, shape);
    load_tile<TILE, DEPTH>(dout, in.dout + place.out, place.out_stride, first, shape);
    for (int key = 0; key < first + TILE && key < shape.seq; key += KEYS) {
        __syncthreads();
        load_tile<KEYS, DEPTH>(keys, in.qkv + place.qkv + place.part, place.qkv_stride, key, shape);
        load_tile<KEYS, DEPTH>(values, in.qkv + place.qkv + 2 * place.part, place.qkv_stride, key,
                               shape);
        __syncthreads();
        float scores[KEYS / 8][4], gradients[KEYS / 8][4];
        multiply_rows<KEYS, DEPTH>(scores, queries + warp_row * STRIDE, keys);
        multiply_rows<KEYS, DEPTH>(gradients, dout + warp_row * STRIDE, values);
        const int query = first + warp_row + g;
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const int column = key + 8 * j + 2 * t, row = query + 8 * r;
                float mask[2] = {1.0f, 1.0f};
                if constexpr (DROPS)
                    dropout_pair(mask, draw, place.sample, shape.first_head + place.head, row,
                                 column);
#pragma unroll
                for (int e = 0; e < 2; e++)
                    derive(scores[j][2 * r + e], gradients[j][2 * r + e], log_sum_exp[r], delta[r],
                           scale, mask[e], column + e <= row);
            }
        multiply_columns<KEYS, DEPTH>(dqueries, gradients, keys);
    }
    store_rows<DEPTH>(in.dqkv + place.qkv, place.qkv_stride, first + warp_row, shape,
                      queries + warp_row * STRIDE, dqueries, shape.scale, shape.scale);
}

template <int DEPTH, bool DROPS, class T>
z3d_status launch_tiles(const z3d_cuda_lane *lane, const z3d_attention_backward *kernel) {
    constexpr int STRIDE = TILE_STRIDE<T, DEPTH>, OTHERS = STEP<T, DEPTH, DROPS>;
    const int64_t heads = kernel->batch * kernel->heads, tiles = divide_up(kernel->seq, TILE);
    const size_t shared = 2 * (TILE + OTHERS) * STRIDE * sizeof(T);
    const backward_pointers<T> in = {static_cast<const T *>(kernel->q),
                                     static_cast<const T *>(kernel->dout), kernel->log_sum_exp,
                                     static_cast<const float *>(lane->scratch),
                                     static_cast<T *>(kernel->dq)};
    Z3D_TRY(launch(lane, "attention_backward", heads * tiles, dim3(TILE_THREADS),
                   shared + 2 * OTHERS * sizeof(float), keys_kernel<DEPTH, DROPS, T>, in,
                   attention_shape_of(kernel), (int)heads));
    return launch(lane, "attention_backward", heads * tiles, dim3(TILE_THREADS), shared,
                  queries_kernel<DEPTH, DROPS, T>, in, attention_shape_of(kernel), (int)heads);
}

} // namespace

z3d_status z3d_cuda_attention_backward(const z3d_cuda_lane *lane,
                                       const z3d_attention_backward *kernel) {
    REQUIRE_ATTENTION(attention_backward, kernel);
    Z3D_TRY(require_packed(kernel));
    if (!fits_tiles(kernel) || !aligned(kernel->q, kernel->dout, kernel->dq))
        return z3d_cuda_plain_attention_backward(lane, kernel);
    if (kernel->batch * kernel->heads * kernel->seq == 0) return Z3D_OK;
    REQUIRE_SCRATCH(attention_backward, lane,
                    kernel->batch * kernel->heads * kernel->seq * (int64_t)sizeof(float));
    return with_type(kernel->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        Z3D_TRY(launch_delta<T>(lane, kernel));
        return with_depth(kernel->head_dim, [&](auto depth) {
            return with_dropout(kernel->dropout.p > 0, [&](auto drops) {
                return launch_tiles<decltype(depth)::value, decltype(drops)::value, T>(lane,
                                                                                       kernel);
            });
        });
    });
}

// ---- the plain way ----

namespace {

// What one warp works on: a row of a head.
struct plain_row {
    head_place place;
    int row;
};

__device__ inline bool plain_row_of(plain_row *out, const attention_shape &shape, int64_t rows) {
    const int64_t index = (int64_t)blockIdx.x * DELTA_WARPS + threadIdx.x / WARP;
    if (index >= rows) return false;
    out->place = place_of(shape, index / shape.seq);
    out->row = (int)(index % shape.seq);
    return true;
}

template <class T> __device__ inline float dot(const T *a, const T *b, int n) {
    float sum = 0.0f;
    for (int i = 0; i < n; i++) sum += widen(a[i]) * widen(b[i]);
    return sum;
}

// Of one pair of query and key: the probability as the values saw it, and the score's gradient.
template <class T> struct pair_gradient {
    backward_pointers<T> in;
    attention_shape shape;
    head_place place;
    __device__ void at(int query, int key, float *probability, float *gradient) const {
        const T *q = in.qkv + place.qkv + query * place.qkv_stride;
        const T *k = in.qkv + place.qkv + place.part + key * place.qkv_stride;
        const T *v = in.qkv + place.qkv + 2 * place.part + key * place.qkv_stride;
        const T *dout = in.dout + place.out + query * place.out_stride;
        const float mask = shape.rule.threshold > 0
                               ? dropout_one(dropout_begin(shape.rule), place.sample,
                                             shape.first_head + place.head, query, key)
                               : 1.0f;
        *probability = dot(q, k, shape.head_dim);
        *gradient = dot(dout, v, shape.head_dim);
        derive(*probability, *gradient, in.log_sum_exp[place.statistics + query],
               in.delta[place.statistics + query], shape.scale * LOG2_E, mask, true);
    }
};

// A warp per row, as a query and then as a key; a lane per partner, then a lane per column.
template <class T>
__global__ void __launch_bounds__(DELTA_WARPS *WARP)
    plain_backward_kernel(backward_pointers<T> in, attention_shape shape, int64_t rows) {
    plain_row self;
    if (!plain_row_of(&self, shape, rows)) return;
    const head_place &place = self.place;
    const pair_gradient<T> pair = {in, shape, place};
    const T *qkv = in.qkv + place.qkv;
    T *to = in.dqkv + place.qkv + self.row * place.qkv_stride;
    for (int first = 0; first < shape.head_dim; first += WARP) {
        const int column = first + lane_id();
        const bool inside = column < shape.head_dim;
        float dquery = 0.0f, dkey = 0.0f, dvalue = 0.0f;
        for (int others = 0; others < shape.seq; others += WARP) {
            const int other = others + lane_id();
            float probability = 0.0f, as_query = 0.0f, as_key = 0.0f, unused;
            if (other <= self.row) pair.at(self.row, other, &unused, &as_query);
            if (other >= self.row && other < shape.seq)
                pair.at(other, self.row, &probability, &as_key);
            for (int i = 0; i < WARP && others + i < shape.seq; i++) {
                const int64_t at = (others + i) * place.qkv_stride + column;
                const float query = inside ? widen(qkv[at]) : 0.0f;
                const float key = inside ? widen(qkv[place.part + at]) : 0.0f;
                const float dout =
                    inside ? widen(in.dout[place.out + (others + i) * place.out_stride + column])
                           : 0.0f;
                dquery += __shfl_sync(ALL_LANES, as_query, i) * key;
                dkey += __shfl_sync(ALL_LANES, as_key, i) * query;
                dvalue += __shfl_sync(ALL_LANES, probability, i) * dout;
            }
        }
        if (!inside) continue;
        narrow(dquery * shape.scale, to + column);
        narrow(dkey * shape.scale, to + place.part + column);
        narrow(dvalue, to + 2 * place.part + column);
    }
}

// The same for the output: first the largest score, then the sum and the values.
template <class T>
__global__ void __launch_bounds__(DELTA_WARPS *WARP)
    plain_forward_kernel(const T *qkv, T *out, float *log_sum_exp, attention_shape shape,
                         int64_t rows) {
    plain_row self;
    if (!plain_row_of(&self, shape, rows)) return;
    const head_place &place = self.place;
    const T *query = qkv + place.qkv + self.row * place.qkv_stride;
    const T *keys = qkv + place.qkv + place.part, *values = keys + place.part;
    const float scale = shape.scale * LOG2_E;
    float largest = float_of(0xff800000u), sum = 0.0f;
    for (int key = lane_id(); key <= self.row; key += WARP)
        largest = fmaxf(largest, dot(query, keys + key * place.qkv_stride, shape.head_dim));
    largest = warp_max(largest);
    for (int key = lane_id(); key <= self.row; key += WARP)
        sum += power_of_two((dot(query, keys + key * place.qkv_stride, shape.head_dim) - largest) *
                            scale);
    sum = warp_sum(sum);
    for (int first = 0; first < shape.head_dim; first += WARP) {
        const int column = first + lane_id();
        float result = 0.0f;
        for (int others = 0; others <= self.row; others += WARP) {
            const int key = others + lane_id();
            float p = 0.0f;
            if (key <= self.row) {
                p = power_of_two(
                    (dot(query, keys + key * place.qkv_stride, shape.head_dim) - largest) * scale);
                if (shape.rule.threshold > 0)
                    p *= dropout_one(dropout_begin(shape.rule), place.sample,
                                     shape.first_head + place.head, self.row, key);
            }
            for (int i = 0; i < WARP && others + i <= self.row; i++) {
                const float seen = __shfl_sync(ALL_LANES, p, i);
                if (column < shape.head_dim)
                    result += seen * widen(values[(others + i) * place.qkv_stride + column]);
            }
        }
        if (column < shape.head_dim)
            narrow(result / sum, out + place.out + self.row * place.out_stride + column);
    }
    if (lane_id() == 0)
        log_sum_exp[place.statistics + self.row] = largest * shape.scale + logf(sum);
}

} // namespace

z3d_status z3d_cuda_plain_attention_forward(const z3d_cuda_lane *lane,
                                            const z3d_attention_forward *kernel) {
    REQUIRE_ATTENTION(attention_forward, kernel);
    Z3D_TRY(require_packed(kernel));
    const int64_t rows = kernel->batch * kernel->heads * kernel->seq;
    if (rows == 0) return Z3D_OK;
    return with_type(kernel->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return launch(lane, "attention_forward", divide_up(rows, DELTA_WARPS),
                      dim3(DELTA_WARPS * WARP), 0, plain_forward_kernel<T>,
                      static_cast<const T *>(kernel->q), static_cast<T *>(kernel->out),
                      kernel->log_sum_exp, attention_shape_of(kernel), rows);
    });
}

z3d_status z3d_cuda_plain_attention_backward(const z3d_cuda_lane *lane,
                                             const z3d_attention_backward *kernel) {
    REQUIRE_ATTENTION(attention_backward, kernel);
    Z3D_TRY(require_packed(kernel));
    const int64_t rows = kernel->batch * kernel->heads * kernel->seq;
    if (rows == 0) return Z3D_OK;
    REQUIRE_SCRATCH(attention_backward, lane, rows * (int64_t)sizeof(float));
    return with_type(kernel->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        Z3D_TRY(launch_delta<T>(lane, kernel));
        const backward_pointers<T> in = {static_cast<const T *>(kernel->q),
                                         static_cast<const T *>(kernel->dout), kernel->log_sum_exp,
                                         static_cast<const float *>(lane->scratch),
                                         static_cast<T *>(kernel->dq)};
        return launch(lane, "attention_backward", divide_up(rows, DELTA_WARPS),
                      dim3(DELTA_WARPS * WARP), 0, plain_backward_kernel<T>, in,
                      attention_shape_of(kernel), rows);
    });
}
