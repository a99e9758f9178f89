// Causal attention in tiles, after Dao et al., "FlashAttention", 2022. A block has 64 queries of a
// head and goes over the keys that they may see, a tile at a time, with a running maximum and sum.
#include "src/device/cuda/kernels/attention.cuh"

namespace {

// Keys that a block takes at a time, as registers allow.
template <class T, int DEPTH>
constexpr int KEYS = sizeof(T) == 4 || DEPTH == 256 ? 16
                     : DEPTH == 64                  ? 64
                                                    : 32;

// A lane's state of its two rows, g and g + 8 of the warp's 16.
struct running {
    float maximum[2], sum[2]; // maximum: of the scores; sum: this lane's part of the row's
};

// Replaces scores by exponentials relative to the rows' maximum so far. correction: the factor of
// earlier results. With a window a row may have seen no key yet: its maximum is minus infinity, and
// 0 is subtracted instead.
template <int N>
__device__ inline void exponentials(float (&scores)[N][4], running &rows, float scale,
                                    float (&correction)[2]) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float largest = rows.maximum[r];
#pragma unroll
        for (int j = 0; j < N; j++)
            largest = fmaxf(largest, fmaxf(scores[j][2 * r], scores[j][2 * r + 1]));
        largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, 2));
        const float relative = largest > -INFINITY ? largest : 0.0f;
        correction[r] = power_of_two((rows.maximum[r] - relative) * scale);
        rows.maximum[r] = largest;
        const float shift = relative * scale;
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int e = 2 * r; e < 2 * r + 2; e++) {
                scores[j][e] = power_of_two(scores[j][e] * scale - shift);
                sum += scores[j][e];
            }
        rows.sum[r] = rows.sum[r] * correction[r] + sum;
    }
}

// Sets the scores of keys that a query does not see to minus infinity. query, key: positions of the
// lane's first result.
template <int N>
__device__ inline void hide_keys(float (&scores)[N][4], int query, int key, const int (&least)[2]) {
#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int column = key + 8 * j + e % 2;
            if (column > query + 8 * (e / 2) || column < least[e / 2]) scores[j][e] = -INFINITY;
        }
}

template <int N>
__device__ inline void drop(float (&scores)[N][4], const attention_shape &shape,
                            const head_place &place, int query, int key) {
    const dropout_draw draw = dropout_begin(shape.rule);
#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float mask[2];
            dropout_pair(mask, draw, place.sample, shape.first_head + place.head, query + 8 * r,
                         key + 8 * j);
            scores[j][2 * r] *= mask[0];
            scores[j][2 * r + 1] *= mask[1];
        }
}

// Without the bound ptxas uses at most 128 registers on sm_90, and spills one in the widest kernel.
template <int DEPTH, bool DROPS, class T>
__global__ void __launch_bounds__(TILE_THREADS, DEPTH == 256 ? 2 : 0)
    tiled_kernel(z3d_attention_forward in, attention_shape shape, int heads) {
    constexpr int STRIDE = TILE_STRIDE<T, DEPTH>, STEP = KEYS<T, DEPTH>;
    constexpr int COLS = COLUMNS<DEPTH>, PARTS = DEPTH / COLS;
    T *queries = shared_memory<T>(), *keys = queries + TILE * STRIDE;
    T *values = keys + STEP * STRIDE;
    // The last queries of all heads first: they see the most keys.
    const int part = (int)blockIdx.x % PARTS * COLS, index = (int)blockIdx.x / PARTS;
    const int tiles = (shape.seq + TILE - 1) / TILE, first = (tiles - 1 - index / heads) * TILE;
    const head_place place = place_of(shape, index % heads);
    const int warp_row = (int)threadIdx.x / WARP * 16, g = lane_id() / 4, t = lane_id() % 4;
    const int position = place.start + first; // of the block's first query
    const int end = position + TILE < place.keys ? position + TILE : place.keys;
    const int first_query = position + warp_row + g;
    const float scale = shape.scale * LOG2_E; // exponentials are computed as powers of two
    const int least[2] = {first_key_of(shape, place, first_query),
                          first_key_of(shape, place, first_query + 8)};
    const int last = position + TILE - 1 < place.start + shape.seq ? position + TILE - 1
                                                                   : place.start + shape.seq - 1;
    const int seen_by_all = first_key_of(shape, place, last);

    running rows = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}};
    float result[COLS / 8][4] = {};
    load_tile<TILE, DEPTH>(queries, in.q, place.q, shape.q_stride, first, shape.seq, shape);
    for (int key = first_key_of(shape, place, position) / STEP * STEP; key < end; key += STEP) {
        __syncthreads();
        load_tile<STEP, DEPTH>(keys, in.k, place.kv, shape.kv_stride, key, end, shape);
        load_tile<STEP, DEPTH>(values, in.v, place.kv, shape.kv_stride, key, end, shape);
        __syncthreads();
        if (first + warp_row >= shape.seq) continue; // with few queries most warps have none
        float scores[STEP / 8][4], correction[2];
        multiply_rows<STEP, DEPTH>(scores, queries + warp_row * STRIDE, keys);
        if (key + STEP > position || key < seen_by_all)
            hide_keys(scores, first_query, key + 2 * t, least);
        exponentials(scores, rows, scale, correction);
        if constexpr (DROPS) drop(scores, shape, place, first_query, key + 2 * t);
#pragma unroll
        for (int j = 0; j < COLS / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) result[j][e] *= correction[e / 2];
        multiply_columns<STEP, DEPTH, COLS>(result, scores, values + part);
    }
    float inverse[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = rows.sum[r];
        sum += __shfl_xor_sync(ALL_LANES, sum, 1);
        sum += __shfl_xor_sync(ALL_LANES, sum, 2);
        inverse[r] = 1.0f / sum;
        const int row = first + warp_row + g + 8 * r;
        if (t == 0 && part == 0 && in.log_sum_exp && row < shape.seq)
            in.log_sum_exp[place.statistics + row] = rows.maximum[r] * shape.scale + logf(sum);
    }
    // The warp does not need its queries any more.
    store_rows<DEPTH>(in.out, place.out, place.out_stride, first + warp_row, part, shape,
                      queries + warp_row * STRIDE, result, inverse[0], inverse[1]);
}

template <int DEPTH, bool DROPS, class T>
z3d_status launch_tiles(const z3d_cuda_lane *lane, const z3d_attention_forward *kernel) {
    const int64_t heads = kernel->batch * kernel->heads, tiles = divide_up(kernel->seq, TILE);
    return launch(
        lane, "attention_forward", heads * tiles * (DEPTH / COLUMNS<DEPTH>), dim3(TILE_THREADS),
        sizeof(T) * TILE_STRIDE<T, DEPTH> * (TILE + 2 * KEYS<T, DEPTH>),
        tiled_kernel<DEPTH, DROPS, T>, *kernel, attention_shape_of(kernel, false), (int)heads);
}

} // namespace

z3d_status z3d_cuda_attention_forward(const z3d_cuda_lane *lane,
                                      const z3d_attention_forward *kernel) {
    Z3D_TRY(check_attention("attention_forward", kernel));
    if (kernel->batch * kernel->heads * kernel->seq == 0) return Z3D_OK;
    if (attention_shape_of(kernel, false).wide && z3d_cuda_decode_scratch(kernel) > 0)
        return z3d_cuda_decode_attention(lane, kernel);
    return with_type("attention_forward", kernel->dtype, [&](auto type) {
        return with_depth(kernel->head_dim, [&](auto depth) {
            return with_flag(kernel->dropout.p > 0, [&](auto drops) {
                using T = decltype(type);
                // fp32 has one width: a narrow tile would spill registers on sm_80, and speed is
                // not important.
                constexpr int GIVEN = decltype(depth)::value;
                constexpr int DEPTH = sizeof(T) == 4 && GIVEN < 128 ? 128 : GIVEN;
                return launch_tiles<DEPTH, decltype(drops)::value, T>(lane, kernel);
            });
        });
    });
}
