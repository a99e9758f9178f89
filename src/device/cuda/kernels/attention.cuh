// Shared by the attention kernels: places of rows, loads and stores of tiles, masks.
#ifndef ZERO3D_DEVICE_CUDA_KERNELS_ATTENTION_CUH
#define ZERO3D_DEVICE_CUDA_KERNELS_ATTENTION_CUH

#include "src/device/cuda/kernels/fragments.cuh"
#include "src/device/cuda/kernels/philox.cuh"

namespace {

constexpr int TILE = 64; // rows of a block: 16 for each of its warps
constexpr int TILE_THREADS = TILE / 16 * WARP;
constexpr float LOG2_E = 1.44269504f;
constexpr int MOST_HEAD_DIM = 256;

// A tile has DEPTH columns: a head's, then zeros. A block computes so many columns of its results,
// as registers allow; other blocks compute the rest, with the same scores.
template <int DEPTH> constexpr int COLUMNS = DEPTH < 128 ? DEPTH : 128;

// Softmax is most of attention's arithmetic besides products. So this is the bare instruction:
// within 2 units in the last place, denormals are 0.
__device__ inline float power_of_two(float x) {
#ifdef __CUDACC__
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
#else
    return exp2f(x);
#endif
}

constexpr int NO_WINDOW = INT32_MAX / 2 - TILE; // larger than any sequence

// A launch's shape. Strides of rows, in elements: q_stride for queries, kv_stride for keys and
// values, heads x head_dim for the output. `group` query heads share a head of keys and values.
struct attention_shape {
    const int32_t *starts;       // of each sample: the position of its first query; NULL: 0
    const int32_t *row_position; // of each query in its document; NULL: one document a sample
    int64_t q_stride, kv_stride;
    int seq, capacity, heads, group, head_dim, first_head, window;
    float scale; // 1 / sqrt(head_dim)
    bool wide;   // rows of all heads may be read and written 16 bytes at a time
    dropout_rule rule;
};

inline attention_shape attention_shape_of(const z3d_attention *kernel, bool backward) {
    const bool windowed = kernel->window > 0 && kernel->window < NO_WINDOW;
    const bool aligned_rows = backward ? aligned(kernel->q, kernel->k, kernel->v, kernel->dout,
                                                 kernel->dq, kernel->dk, kernel->dv)
                                       : aligned(kernel->q, kernel->k, kernel->v, kernel->out);
    return {kernel->starts,
            kernel->row_position,
            kernel->q_stride,
            kernel->kv_stride,
            (int)kernel->seq,
            (int)(backward ? kernel->seq : kernel->capacity),
            (int)kernel->heads,
            (int)(kernel->heads / kernel->kv_heads),
            (int)kernel->head_dim,
            (int)kernel->first_head,
            windowed ? (int)kernel->window : NO_WINDOW,
            (float)(1.0 / sqrt((double)kernel->head_dim)),
            aligned_rows && kernel->head_dim % WIDE == 0 && kernel->q_stride % WIDE == 0 &&
                kernel->kv_stride % WIDE == 0,
            dropout_rule_of(&kernel->dropout)};
}

// One query head of one sample.
struct head_place {
    int64_t sample, head, q, kv, out, statistics; // offsets in elements of row 0
    int64_t out_stride;
    int start, keys; // row 0's position; keys after the sample's last query are not defined
};

__device__ inline head_place place_of(const attention_shape &shape, int64_t index) {
    head_place place;
    place.sample = index / shape.heads;
    place.head = index % shape.heads;
    place.out_stride = (int64_t)shape.heads * shape.head_dim;
    place.q = place.sample * shape.seq * shape.q_stride + place.head * shape.head_dim;
    place.kv =
        place.sample * shape.capacity * shape.kv_stride + place.head / shape.group * shape.head_dim;
    place.out = place.sample * shape.seq * place.out_stride + place.head * shape.head_dim;
    place.statistics = index * shape.seq;
    place.start = shape.starts ? shape.starts[place.sample] : 0;
    place.keys =
        place.start + shape.seq < shape.capacity ? place.start + shape.seq : shape.capacity;
    return place;
}

// The group's next query head, with the same keys and values.
__device__ inline void to_next_head(head_place &place, const attention_shape &shape) {
    place.head++;
    place.q += shape.head_dim;
    place.out += shape.head_dim;
    place.statistics += shape.seq;
}

// The first key that the query at `position` sees; it never decreases from a query to the next.
__device__ inline int first_key_of(const attention_shape &shape, const head_place &place,
                                   int position) {
    int first = position < shape.window ? 0 : position - shape.window + 1;
    if (shape.row_position && position < shape.seq) {
        const int begin = position - shape.row_position[place.sample * shape.seq + position];
        if (begin > first) first = begin;
    }
    return first;
}

// The first query, from `query` on, that sees no key before `key`; else the sequence's length.
__device__ inline int first_query_past(const attention_shape &shape, const head_place &place,
                                       int query, int key) {
    int end = shape.seq;
    while (query < end) {
        const int middle = query + (end - query) / 2;
        if (first_key_of(shape, place, middle) >= key)
            end = middle;
        else
            query = middle + 1;
    }
    return end;
}

// Loads rows first .. first + ROWS - 1 of a head, whose row 0 is matrix[at], into a tile of DEPTH
// columns, 16 bytes at a time if possible. Elements outside, and rows from `end` on, are 0.
template <int ROWS, int DEPTH, class T>
__device__ inline void load_tile(T *tile, const void *matrix, int64_t at, int64_t stride, int first,
                                 int end, const attention_shape &shape) {
    const T *from = static_cast<const T *>(matrix) + at;
    constexpr int STEP = 16 / sizeof(T), ACROSS = DEPTH / STEP;
    if (!shape.wide) {
        for (int i = (int)threadIdx.x; i < ROWS * DEPTH; i += TILE_THREADS) {
            const int row = i / DEPTH, column = i % DEPTH;
            const bool inside = first + row < end && column < shape.head_dim;
            narrow(inside ? widen(from[(first + row) * stride + column]) : 0.0f,
                   tile + row * TILE_STRIDE<T, DEPTH> + column);
        }
        return;
    }
    for (int i = (int)threadIdx.x; i < ROWS * ACROSS; i += TILE_THREADS) {
        const int row = i / ACROSS, column = i % ACROSS * STEP;
        uint4 words = {0, 0, 0, 0};
        if (first + row < end && column < shape.head_dim)
            words = *reinterpret_cast<const uint4 *>(from + (first + row) * stride + column);
        *reinterpret_cast<uint4 *>(tile + row * TILE_STRIDE<T, DEPTH> + column) = words;
    }
}

// Stores a warp's 16 rows of results to rows first .. first + 15 of a head, whose row 0 is
// matrix[at], from column `from` on. Multiplies by each lane's factors for its two rows. The buffer
// is the warp's own rows of a tile.
template <int DEPTH, class T>
__device__ inline void store_rows(void *matrix, int64_t at, int64_t stride, int first, int from,
                                  const attention_shape &shape, T *tile,
                                  const float (&c)[COLUMNS<DEPTH> / 8][4], float upper,
                                  float lower) {
    constexpr int STRIDE = TILE_STRIDE<T, DEPTH>;
    const int step = shape.wide ? 16 / (int)sizeof(T) : 1, across = COLUMNS<DEPTH> / step;
    const int g = lane_id() / 4, t = lane_id() % 4;
    __syncwarp();
#pragma unroll
    for (int j = 0; j < COLUMNS<DEPTH> / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            narrow(c[j][e] * (e < 2 ? upper : lower),
                   tile + (g + 8 * (e / 2)) * STRIDE + 8 * j + 2 * t + e % 2);
    __syncwarp();
    for (int i = lane_id(); i < 16 * across; i += WARP) {
        const int row = i / across, column = i % across * step;
        T *result = static_cast<T *>(matrix) + at + (first + row) * stride + from + column;
        if (first + row >= shape.seq || from + column >= shape.head_dim) continue;
        if (shape.wide)
            *reinterpret_cast<uint4 *>(result) =
                *reinterpret_cast<const uint4 *>(tile + row * STRIDE + column);
        else
            *result = tile[row * STRIDE + column];
    }
}

// Dropout multipliers of one row's probabilities at columns `column` (even) and column + 1.
__device__ inline void dropout_pair(float (&mask)[2], const dropout_draw &draw, int64_t sample,
                                    int64_t head, int row, int column) {
    float four[4];
    dropout_block(four, draw, sample, head, row, (uint32_t)column / 4);
    mask[0] = column % 4 ? four[2] : four[0];
    mask[1] = column % 4 ? four[3] : four[1];
}

__device__ inline float dropout_one(const dropout_draw &draw, int64_t sample, int64_t head, int row,
                                    int column) {
    float mask[2];
    dropout_pair(mask, draw, sample, head, row, column & ~1);
    return column % 2 ? mask[1] : mask[0];
}

inline z3d_status check_attention(const char *name, const z3d_attention *k) {
    Z3D_REQUIRE(k->batch >= 0 && k->seq >= 0 && k->heads >= 0 && k->head_dim > 0 &&
                    k->first_head >= 0 && k->seq <= INT32_MAX / 2 && k->heads <= INT32_MAX &&
                    k->head_dim <= INT32_MAX / 2 && k->first_head <= INT32_MAX,
                "kernel %s: batch %lld, seq %lld, heads %lld (first %lld) of %lld", name,
                (long long)k->batch, (long long)k->seq, (long long)k->heads,
                (long long)k->first_head, (long long)k->head_dim);
    Z3D_REQUIRE(k->kv_heads > 0 && k->heads % k->kv_heads == 0,
                "kernel %s: %lld heads read %lld of keys and values", name, (long long)k->heads,
                (long long)k->kv_heads);
    Z3D_REQUIRE(!(k->dropout.p > 0) || (k->seq <= 1 << 24 && k->first_head + k->heads <= 1 << 16),
                "kernel %s: dropout counts 65536 heads and 16777216 rows at most", name);
    if (k->head_dim <= MOST_HEAD_DIM) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                     "heads of %lld columns: attention on a GPU has at most %d; use more heads, or "
                     "training.device: cpu",
                     (long long)k->head_dim, MOST_HEAD_DIM);
}

// Calls body(integral_constant<int, DEPTH>) with the tile's columns for this head_dim.
template <class Body> z3d_status with_depth(int64_t head_dim, Body body) {
    if (head_dim <= 64) return body(std::integral_constant<int, 64>());
    if (head_dim <= 128) return body(std::integral_constant<int, 128>());
    return body(std::integral_constant<int, 256>());
}

} // namespace

#endif
