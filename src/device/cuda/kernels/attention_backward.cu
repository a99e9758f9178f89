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
    const T *q, *k, *v, *dout;
    const float *log_sum_exp, *delta;
    T *dq, *dk, *dv;
};

template <class T>
backward_pointers<T> pointers_of(const z3d_cuda_lane *lane, const z3d_attention_backward *kernel) {
    return {static_cast<const T *>(kernel->q),
            static_cast<const T *>(kernel->k),
            static_cast<const T *>(kernel->v),
            static_cast<const T *>(kernel->dout),
            kernel->log_sum_exp,
            static_cast<const float *>(lane->scratch),
            static_cast<T *>(kernel->dq),
            static_cast<T *>(kernel->dk),
            static_cast<T *>(kernel->dv)};
}

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

// Gradients of 64 keys and values: over the queries of the group's heads that see them. Results are
// transposed: a lane's rows are keys, its columns queries. heads: of keys and values.
template <int DEPTH, bool DROPS, class T>
__global__ void __launch_bounds__(TILE_THREADS)
    keys_kernel(backward_pointers<T> in, attention_shape shape, int heads) {
    constexpr int STRIDE = TILE_STRIDE<T, DEPTH>, QUERIES = STEP<T, DEPTH, DROPS>;
    T *keys = shared_memory<T>(), *values = keys + TILE * STRIDE, *queries = values + TILE * STRIDE;
    T *dout = queries + QUERIES * STRIDE;
    float *log_sum_exp = reinterpret_cast<float *>(dout + QUERIES * STRIDE);
    float *delta = log_sum_exp + QUERIES;
    const int first = (int)blockIdx.x / heads * TILE; // the first keys come first: most see them
    head_place place = place_of(shape, (int64_t)blockIdx.x % heads * shape.group);
    const int warp_row = (int)threadIdx.x / WARP * 16, g = lane_id() / 4, t = lane_id() % 4;
    const float scale = shape.scale * LOG2_E;

    dropout_draw draw = {};
    if constexpr (DROPS) draw = dropout_begin(shape.rule);

    float dkeys[DEPTH / 8][4] = {}, dvalues[DEPTH / 8][4] = {};
    load_tile<TILE, DEPTH>(keys, in.k + place.kv, shape.kv_stride, first, shape.seq,
                           shape.head_dim);
    load_tile<TILE, DEPTH>(values, in.v + place.kv, shape.kv_stride, first, shape.seq,
                           shape.head_dim);
    const int last = first + TILE - 1 + shape.window, end = last < shape.seq ? last : shape.seq;
    for (int head = 0; head < shape.group; head++, to_next_head(place, shape))
        for (int query = first; query < end; query += QUERIES) {
            __syncthreads();
            load_tile<QUERIES, DEPTH>(queries, in.q + place.q, shape.q_stride, query, shape.seq,
                                      shape.head_dim);
            load_tile<QUERIES, DEPTH>(dout, in.dout + place.out, place.out_stride, query, shape.seq,
                                      shape.head_dim);
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
                    const int back = query + column - key;
                    const bool seen =
                        back >= 0 && back < shape.window && query + column < shape.seq;
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
    store_rows<DEPTH>(in.dk + place.kv, shape.kv_stride, first + warp_row, shape,
                      keys + warp_row * STRIDE, dkeys, shape.scale, shape.scale);
    store_rows<DEPTH>(in.dv + place.kv, shape.kv_stride, first + warp_row, shape,
                      values + warp_row * STRIDE, dvalues, 1.0f, 1.0f);
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
    load_tile<TILE, DEPTH>(queries, in.q + place.q, shape.q_stride, first, shape.seq,
                           shape.head_dim);
    load_tile<TILE, DEPTH>(dout, in.dout + place.out, place.out_stride, first, shape.seq,
                           shape.head_dim);
    for (int key = first_key_of(shape, first) / KEYS * KEYS; key < first + TILE && key < shape.seq;
         key += KEYS) {
        __syncthreads();
        load_tile<KEYS, DEPTH>(keys, in.k + place.kv, shape.kv_stride, key, shape.seq,
                               shape.head_dim);
        load_tile<KEYS, DEPTH>(values, in.v + place.kv, shape.kv_stride, key, shape.seq,
                               shape.head_dim);
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
                           scale, mask[e], column + e <= row && column + e > row - shape.window);
            }
        multiply_columns<KEYS, DEPTH>(dqueries, gradients, keys);
    }
    store_rows<DEPTH>(in.dq + place.q, shape.q_stride, first + warp_row, shape,
                      queries + warp_row * STRIDE, dqueries, shape.scale, shape.scale);
}

template <int DEPTH, bool DROPS, class T>
z3d_status launch_tiles(const z3d_cuda_lane *lane, const z3d_attention_backward *kernel) {
    constexpr int STRIDE = TILE_STRIDE<T, DEPTH>, OTHERS = STEP<T, DEPTH, DROPS>;
    const int64_t heads = kernel->batch * kernel->heads, tiles = divide_up(kernel->seq, TILE);
    const size_t shared = 2 * (TILE + OTHERS) * STRIDE * sizeof(T);
    const int64_t kv_heads = kernel->batch * kernel->kv_heads;
    const backward_pointers<T> in = pointers_of<T>(lane, kernel);
    Z3D_TRY(launch(lane, "attention_backward", kv_heads * tiles, dim3(TILE_THREADS),
                   shared + 2 * OTHERS * sizeof(float), keys_kernel<DEPTH, DROPS, T>, in,
                   attention_shape_of(kernel), (int)kv_heads));
    return launch(lane, "attention_backward", heads * tiles, dim3(TILE_THREADS), shared,
                  queries_kernel<DEPTH, DROPS, T>, in, attention_shape_of(kernel), (int)heads);
}

} // namespace

z3d_status z3d_cuda_attention_backward(const z3d_cuda_lane *lane,
                                       const z3d_attention_backward *kernel) {
    REQUIRE_ATTENTION(attention_backward, kernel);
    if (!fits_tiles(kernel) ||
        !aligned(kernel->q, kernel->k, kernel->v, kernel->dout, kernel->dq, kernel->dk, kernel->dv))
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

// What one warp works on: a row of every `group`th head.
struct plain_row {
    head_place place;
    int row;
};

__device__ inline bool plain_row_of(plain_row *out, const attention_shape &shape, int64_t rows,
                                    int group) {
    const int64_t index = (int64_t)blockIdx.x * DELTA_WARPS + threadIdx.x / WARP;
    if (index >= rows) return false;
    out->place = place_of(shape, index / shape.seq * group);
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
        const T *q = in.q + place.q + query * shape.q_stride;
        const T *k = in.k + place.kv + key * shape.kv_stride;
        const T *v = in.v + place.kv + key * shape.kv_stride;
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

// A warp per query; a lane per key, then a lane per column.
template <class T>
__global__ void __launch_bounds__(DELTA_WARPS *WARP)
    plain_queries_kernel(backward_pointers<T> in, attention_shape shape, int64_t rows) {
    plain_row self;
    if (!plain_row_of(&self, shape, rows, 1)) return;
    const head_place &place = self.place;
    const pair_gradient<T> pair = {in, shape, place};
    for (int first = 0; first < shape.head_dim; first += WARP) {
        const int column = first + lane_id();
        const T *keys = in.k + place.kv + column;
        float sum = 0.0f;
        for (int others = first_key_of(shape, self.row); others <= self.row; others += WARP) {
            float gradient = 0.0f, unused;
            if (others + lane_id() <= self.row)
                pair.at(self.row, others + lane_id(), &unused, &gradient);
            for (int i = 0; i < WARP && others + i <= self.row; i++) {
                const float of_key = __shfl_sync(ALL_LANES, gradient, i);
                if (column < shape.head_dim)
                    sum += of_key * widen(keys[(others + i) * shape.kv_stride]);
            }
        }
        if (column < shape.head_dim)
            narrow(sum * shape.scale, in.dq + place.q + self.row * shape.q_stride + column);
    }
}

// A warp per key and its value; a lane per query of the group's heads, then a lane per column.
template <class T>
__global__ void __launch_bounds__(DELTA_WARPS *WARP)
    plain_keys_kernel(backward_pointers<T> in, attention_shape shape, int64_t rows) {
    plain_row self;
    if (!plain_row_of(&self, shape, rows, shape.group)) return;
    const int last = self.row + shape.window, end = last < shape.seq ? last : shape.seq;
    for (int first = 0; first < shape.head_dim; first += WARP) {
        const int column = first + lane_id();
        const bool inside = column < shape.head_dim;
        float dkey = 0.0f, dvalue = 0.0f;
        pair_gradient<T> pair = {in, shape, self.place};
        for (int head = 0; head < shape.group; head++) {
            const head_place &place = pair.place;
            for (int others = self.row; others < end; others += WARP) {
                float probability = 0.0f, gradient = 0.0f;
                if (others + lane_id() < end)
                    pair.at(others + lane_id(), self.row, &probability, &gradient);
                for (int i = 0; i < WARP && others + i < end; i++) {
                    const float g = __shfl_sync(ALL_LANES, gradient, i);
                    const float p = __shfl_sync(ALL_LANES, probability, i);
                    if (!inside) continue;
                    const int64_t query = others + i;
                    dkey += g * widen(in.q[place.q + query * shape.q_stride + column]);
                    dvalue += p * widen(in.dout[place.out + query * place.out_stride + column]);
                }
            }
            to_next_head(pair.place, shape);
        }
        if (!inside) continue;
        const int64_t to = self.place.kv + self.row * shape.kv_stride + column;
        narrow(dkey * shape.scale, in.dk + to);
        narrow(dvalue, in.dv + to);
    }
}

// The same for the output: first the largest score, then the sum and the values.
template <class T>
__global__ void __launch_bounds__(DELTA_WARPS *WARP)
    plain_forward_kernel(const T *q, const T *k, const T *v, T *out, float *log_sum_exp,
                         attention_shape shape, int64_t rows) {
    plain_row self;
    if (!plain_row_of(&self, shape, rows, 1)) return;
    const head_place &place = self.place;
    const T *query = q + place.q + self.row * shape.q_stride;
    const T *keys = k + place.kv, *values = v + place.kv;
    const int position = place.start + self.row, begin = first_key_of(shape, position);
    const int end = position < place.keys ? position + 1 : place.keys;
    const float scale = shape.scale * LOG2_E;
    float largest = float_of(0xff800000u), sum = 0.0f;
    for (int key = begin + lane_id(); key < end; key += WARP)
        largest = fmaxf(largest, dot(query, keys + key * shape.kv_stride, shape.head_dim));
    largest = warp_max(largest);
    for (int key = begin + lane_id(); key < end; key += WARP)
        sum += power_of_two((dot(query, keys + key * shape.kv_stride, shape.head_dim) - largest) *
                            scale);
    sum = warp_sum(sum);
    for (int first = 0; first < shape.head_dim; first += WARP) {
        const int column = first + lane_id();
        float result = 0.0f;
        for (int others = begin; others < end; others += WARP) {
            const int key = others + lane_id();
            float p = 0.0f;
            if (key < end) {
                p = power_of_two(
                    (dot(query, keys + key * shape.kv_stride, shape.head_dim) - largest) * scale);
                if (shape.rule.threshold > 0)
                    p *= dropout_one(dropout_begin(shape.rule), place.sample,
                                     shape.first_head + place.head, position, key);
            }
            for (int i = 0; i < WARP && others + i < end; i++) {
                const float seen = __shfl_sync(ALL_LANES, p, i);
                if (column < shape.head_dim)
                    result += seen * widen(values[(others + i) * shape.kv_stride + column]);
            }
        }
        if (column < shape.head_dim)
            narrow(result / sum, out + place.out + self.row * place.out_stride + column);
    }
    if (lane_id() == 0 && log_sum_exp)
        log_sum_exp[place.statistics + self.row] = largest * shape.scale + logf(sum);
}

} // namespace

z3d_status z3d_cuda_plain_attention_forward(const z3d_cuda_lane *lane,
                                            const z3d_attention_forward *kernel) {
    REQUIRE_ATTENTION(attention_forward, kernel);
    const int64_t rows = kernel->batch * kernel->heads * kernel->seq;
    if (rows == 0) return Z3D_OK;
    return with_type(kernel->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return launch(lane, "attention_forward", divide_up(rows, DELTA_WARPS),
                      dim3(DELTA_WARPS * WARP), 0, plain_forward_kernel<T>,
                      static_cast<const T *>(kernel->q), static_cast<const T *>(kernel->k),
                      static_cast<const T *>(kernel->v), static_cast<T *>(kernel->out),
                      kernel->log_sum_exp, attention_shape_of(kernel), rows);
    });
}

z3d_status z3d_cuda_plain_attention_backward(const z3d_cuda_lane *lane,
                                             const z3d_attention_backward *kernel) {
    REQUIRE_ATTENTION(attention_backward, kernel);
    const int64_t rows = kernel->batch * kernel->heads * kernel->seq;
    if (rows == 0) return Z3D_OK;
    REQUIRE_SCRATCH(attention_backward, lane, rows * (int64_t)sizeof(float));
    return with_type(kernel->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        Z3D_TRY(launch_delta<T>(lane, kernel));
        const backward_pointers<T> in = pointers_of<T>(lane, kernel);
        const int64_t kv_rows = rows / kernel->heads * kernel->kv_heads;
        Z3D_TRY(launch(lane, "attention_backward", divide_up(kv_rows, DELTA_WARPS),
                       dim3(DELTA_WARPS * WARP), 0, plain_keys_kernel<T>, in,
                       attention_shape_of(kernel), kv_rows));
        return launch(lane, "attention_backward", divide_up(rows, DELTA_WARPS),
                      dim3(DELTA_WARPS * WARP), 0, plain_queries_kernel<T>, in,
                      attention_shape_of(kernel), rows);
    });
}
