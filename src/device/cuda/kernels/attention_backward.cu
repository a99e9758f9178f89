// Backward of the tiled attention. It recomputes the probabilities from the stored logarithm of the
// sum, twice: by blocks of keys for the gradients of keys and values, and by blocks of queries for
// the gradients of queries. So every sum has one owner and a fixed order, without atomics and
// without an fp32 copy of a gradient.
#include "src/device/cuda/kernels/attention.cuh"

namespace {

constexpr int DELTA_WARPS = 8;

// delta[sample, head, row] = sum over the head's columns of out x dout, which is also the sum over
// all keys of probability x its gradient. A warp per row.
template <class T>
__global__ void __launch_bounds__(DELTA_WARPS *WARP)
    delta_kernel(z3d_attention_backward in, float *delta, attention_shape shape, int64_t rows) {
    const int64_t index = (int64_t)blockIdx.x * DELTA_WARPS + threadIdx.x / WARP;
    if (index >= rows) return;
    const head_place place = place_of(shape, index / shape.seq);
    const int64_t at = place.out + index % shape.seq * place.out_stride;
    const T *out = static_cast<const T *>(in.out) + at,
            *dout = static_cast<const T *>(in.dout) + at;
    float sum = 0.0f;
    for (int i = lane_id(); i < shape.head_dim; i += WARP) sum += widen(out[i]) * widen(dout[i]);
    sum = warp_sum(sum);
    if (lane_id() == 0) delta[index] = sum;
}

// Rows or columns of other tiles that a block takes at a time, as registers allow.
template <class T, int DEPTH, bool DROPS>
constexpr int STEP = sizeof(T) == 4 || DEPTH == 256 ? 16
                                                    : (DEPTH == 64 ? 64 : 32) / (DROPS ? 2 : 1);

// For one element: gradient becomes the score's gradient (it was the probability's), score becomes
// the probability after dropout. mask: the dropout multiplier.
__device__ inline void derive(float &score, float &gradient, float log_sum_exp, float delta,
                              float scale, float mask, bool seen) {
    const float p = seen ? power_of_two(score * scale - log_sum_exp * LOG2_E) : 0.0f;
    gradient = p * (gradient * mask - delta);
    score = p * mask;
}

// Gradients of 64 keys and values: sums over the queries of the group's heads that see them.
// Results are transposed: a lane's rows are keys, its columns queries. heads: of keys and values.
template <int DEPTH, bool DROPS, class T>
__global__ void __launch_bounds__(TILE_THREADS)
    keys_kernel(z3d_attention_backward in, const float *deltas, attention_shape shape, int heads) {
    constexpr int STRIDE = TILE_STRIDE<T, DEPTH>, QUERIES = STEP<T, DEPTH, DROPS>;
    constexpr int COLS = COLUMNS<DEPTH>, PARTS = DEPTH / COLS;
    T *keys = shared_memory<T>(), *values = keys + TILE * STRIDE, *queries = values + TILE * STRIDE;
    T *dout = queries + QUERIES * STRIDE;
    float *log_sum_exp = reinterpret_cast<float *>(dout + QUERIES * STRIDE);
    float *delta = log_sum_exp + QUERIES;
    const int part = (int)blockIdx.x % PARTS * COLS, index = (int)blockIdx.x / PARTS;
    const int first = index / heads * TILE; // the first keys first: most queries see them
    head_place place = place_of(shape, (int64_t)(index % heads) * shape.group);
    const int warp_row = (int)threadIdx.x / WARP * 16, g = lane_id() / 4, t = lane_id() % 4;
    const float scale = shape.scale * LOG2_E;

    dropout_draw draw = {};
    if constexpr (DROPS) draw = dropout_begin(shape.rule);

    float dkeys[COLS / 8][4] = {}, dvalues[COLS / 8][4] = {};
    load_tile<TILE, DEPTH>(keys, in.k, place.kv, shape.kv_stride, first, shape.seq, shape);
    load_tile<TILE, DEPTH>(values, in.v, place.kv, shape.kv_stride, first, shape.seq, shape);
    const int end = first_query_past(shape, place, first, first + TILE);
    const int past[2] = {first_query_past(shape, place, first, first + warp_row + g + 1),
                         first_query_past(shape, place, first, first + warp_row + g + 9)};
    for (int head = 0; head < shape.group; head++, to_next_head(place, shape))
        for (int query = first; query < end; query += QUERIES) {
            __syncthreads();
            load_tile<QUERIES, DEPTH>(queries, in.q, place.q, shape.q_stride, query, shape.seq,
                                      shape);
            load_tile<QUERIES, DEPTH>(dout, in.dout, place.out, place.out_stride, query, shape.seq,
                                      shape);
            if ((int)threadIdx.x < QUERIES) {
                const int64_t row = place.statistics + query + threadIdx.x;
                const bool inside = query + (int)threadIdx.x < shape.seq;
                log_sum_exp[threadIdx.x] = inside ? in.log_sum_exp[row] : 0.0f;
                delta[threadIdx.x] = inside ? deltas[row] : 0.0f;
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
                    const bool seen = query + column >= key && query + column < past[e / 2];
                    float mask = 1.0f;
                    if constexpr (DROPS)
                        mask = dropout_one(draw, place.sample, shape.first_head + place.head,
                                           query + column, key);
                    derive(scores[j][e], gradients[j][e], log_sum_exp[column], delta[column], scale,
                           mask, seen);
                }
            multiply_columns<QUERIES, DEPTH, COLS>(dvalues, scores, dout + part);
            multiply_columns<QUERIES, DEPTH, COLS>(dkeys, gradients, queries + part);
        }
    // From here only the warp that owns rows of keys and values uses them.
    store_rows<DEPTH>(in.dk, place.kv, shape.kv_stride, first + warp_row, part, shape,
                      keys + warp_row * STRIDE, dkeys, shape.scale, shape.scale);
    store_rows<DEPTH>(in.dv, place.kv, shape.kv_stride, first + warp_row, part, shape,
                      values + warp_row * STRIDE, dvalues, 1.0f, 1.0f);
}

// Gradients of 64 queries: sums over the keys that they see.
template <int DEPTH, bool DROPS, class T>
__global__ void __launch_bounds__(TILE_THREADS)
    queries_kernel(z3d_attention_backward in, const float *deltas, attention_shape shape,
                   int heads) {
    constexpr int STRIDE = TILE_STRIDE<T, DEPTH>, KEYS = STEP<T, DEPTH, DROPS>;
    constexpr int COLS = COLUMNS<DEPTH>, PARTS = DEPTH / COLS;
    T *queries = shared_memory<T>(), *dout = queries + TILE * STRIDE, *keys = dout + TILE * STRIDE;
    T *values = keys + KEYS * STRIDE;
    const int part = (int)blockIdx.x % PARTS * COLS, index = (int)blockIdx.x / PARTS;
    const int tiles = (shape.seq + TILE - 1) / TILE, first = (tiles - 1 - index / heads) * TILE;
    const head_place place = place_of(shape, index % heads);
    const int warp_row = (int)threadIdx.x / WARP * 16, g = lane_id() / 4, t = lane_id() % 4;
    const float scale = shape.scale * LOG2_E;

    dropout_draw draw = {};
    if constexpr (DROPS) draw = dropout_begin(shape.rule);

    int least[2];
    float log_sum_exp[2], delta[2], dqueries[COLS / 8][4] = {};
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int query = first + warp_row + g + 8 * r;
        log_sum_exp[r] = query < shape.seq ? in.log_sum_exp[place.statistics + query] : 0.0f;
        delta[r] = query < shape.seq ? deltas[place.statistics + query] : 0.0f;
        least[r] = first_key_of(shape, place, query);
    }
    load_tile<TILE, DEPTH>(queries, in.q, place.q, shape.q_stride, first, shape.seq, shape);
    load_tile<TILE, DEPTH>(dout, in.dout, place.out, place.out_stride, first, shape.seq, shape);
    for (int key = first_key_of(shape, place, first) / KEYS * KEYS;
         key < first + TILE && key < shape.seq; key += KEYS) {
        __syncthreads();
        load_tile<KEYS, DEPTH>(keys, in.k, place.kv, shape.kv_stride, key, shape.seq, shape);
        load_tile<KEYS, DEPTH>(values, in.v, place.kv, shape.kv_stride, key, shape.seq, shape);
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
                           scale, mask[e], column + e <= row && column + e >= least[r]);
            }
        multiply_columns<KEYS, DEPTH, COLS>(dqueries, gradients, keys + part);
    }
    store_rows<DEPTH>(in.dq, place.q, shape.q_stride, first + warp_row, part, shape,
                      queries + warp_row * STRIDE, dqueries, shape.scale, shape.scale);
}

template <int DEPTH, bool DROPS, class T>
z3d_status launch_tiles(const z3d_cuda_lane *lane, const z3d_attention_backward *kernel) {
    constexpr int OTHERS = STEP<T, DEPTH, DROPS>;
    const attention_shape shape = attention_shape_of(kernel, true);
    const int64_t heads = kernel->batch * kernel->heads, kv_heads = heads / shape.group;
    const int64_t tiles = divide_up(kernel->seq, TILE) * (DEPTH / COLUMNS<DEPTH>);
    const size_t shared = 2 * (TILE + OTHERS) * TILE_STRIDE<T, DEPTH> * sizeof(T);
    float *delta = static_cast<float *>(lane->scratch);
    Z3D_TRY(launch(lane, "attention_backward", divide_up(heads * kernel->seq, DELTA_WARPS),
                   dim3(DELTA_WARPS * WARP), 0, delta_kernel<T>, *kernel, delta, shape,
                   heads * kernel->seq));
    Z3D_TRY(launch(lane, "attention_backward", kv_heads * tiles, dim3(TILE_THREADS),
                   shared + 2 * OTHERS * sizeof(float), keys_kernel<DEPTH, DROPS, T>, *kernel,
                   delta, shape, (int)kv_heads));
    return launch(lane, "attention_backward", heads * tiles, dim3(TILE_THREADS), shared,
                  queries_kernel<DEPTH, DROPS, T>, *kernel, delta, shape, (int)heads);
}

} // namespace

z3d_status z3d_cuda_attention_backward(const z3d_cuda_lane *lane,
                                       const z3d_attention_backward *kernel) {
    Z3D_TRY(check_attention("attention_backward", kernel));
    Z3D_REQUIRE(!kernel->starts, "kernel attention_backward: starts must be NULL");
    const int64_t rows = kernel->batch * kernel->heads * kernel->seq;
    if (rows == 0) return Z3D_OK;
    Z3D_TRY(check_scratch("attention_backward", lane, rows * (int64_t)sizeof(float)));
    return with_type("attention_backward", kernel->dtype, [&](auto type) {
        return with_depth(kernel->head_dim, [&](auto depth) {
            return with_flag(kernel->dropout.p > 0, [&](auto drops) {
                constexpr int DEPTH = decltype(depth)::value;
                return launch_tiles<DEPTH, decltype(drops)::value, decltype(type)>(lane, kernel);
            });
        });
    });
}
