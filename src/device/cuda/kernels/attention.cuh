// What the attention kernels share: where rows lie, tiles in and out of shared memory, masks.
#ifndef ZERO3D_DEVICE_CUDA_KERNELS_ATTENTION_CUH
#define ZERO3D_DEVICE_CUDA_KERNELS_ATTENTION_CUH

#include "src/device/cuda/kernels/fragments.cuh"
#include "src/device/cuda/kernels/philox.cuh"

namespace {

constexpr int TILE = 64; // rows of a block: 16 for each of its warps
constexpr int TILE_THREADS = TILE / 16 * WARP;
constexpr float LOG2_E = 1.44269504f;
constexpr int MOST_HEAD_DIM = 128; // of the tiled kernels

// Softmax is most of attention's arithmetic beside the products: the instruction itself, within 2
// units in the last place, denormals as 0.
__device__ inline float power_of_two(float x) {
#ifdef __CUDACC__
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
#else
    return exp2f(x);
#endif
}

// A launch's shape. Rows of a head lie `3 heads head_dim` elements apart in qkv, `heads head_dim`
// in out.
struct attention_shape {
    int seq, heads, head_dim, first_head;
    float scale; // 1 / sqrt(head_dim)
    dropout_rule rule;
};

template <class Kernel> attention_shape attention_shape_of(const Kernel *kernel) {
    return {(int)kernel->seq,
            (int)kernel->heads,
            (int)kernel->head_dim,
            (int)kernel->first_head,
            (float)(1.0 / sqrt((double)kernel->head_dim)),
            dropout_rule_of(&kernel->dropout)};
}

// One head of one sample.
struct head_place {
    int64_t sample, head, qkv, out, statistics; // offsets in elements of row 0: query; out; lse
    int64_t part, qkv_stride, out_stride;       // from query to key, key to value; row to row
};

__device__ inline head_place place_of(const attention_shape &shape, int64_t index) {
    head_place place;
    place.sample = index / shape.heads;
    place.head = index % shape.heads;
    place.part = (int64_t)shape.heads * shape.head_dim;
    place.qkv_stride = 3 * place.part;
    place.out_stride = place.part;
    place.qkv = place.sample * shape.seq * place.qkv_stride + place.head * shape.head_dim;
    place.out = place.sample * shape.seq * place.out_stride + place.head * shape.head_dim;
    place.statistics = index * shape.seq;
    return place;
}

// Rows first .. first + ROWS - 1 of a head into a tile of DEPTH columns, 16 bytes a time; what lies
// outside is 0.
template <int ROWS, int DEPTH, class T>
__device__ inline void load_tile(T *tile, const T *from, int64_t stride, int first,
                                 const attention_shape &shape) {
    constexpr int STEP = 16 / sizeof(T), ACROSS = DEPTH / STEP;
    for (int i = (int)threadIdx.x; i < ROWS * ACROSS; i += TILE_THREADS) {
        const int row = i / ACROSS, column = i % ACROSS * STEP;
        uint4 words = {0, 0, 0, 0};
        if (first + row < shape.seq && column < shape.head_dim)
            words = *reinterpret_cast<const uint4 *>(from + (first + row) * stride + column);
        *reinterpret_cast<uint4 *>(tile + row * TILE_STRIDE<T, DEPTH> + column) = words;
    }
}

// A warp's 16 rows of results, times its lanes' factors for their two rows, through the warp's own
// rows of a tile to where rows first .. first + 15 of a head lie.
template <int DEPTH, class T>
__device__ inline void store_rows(T *to, int64_t stride, int first, const attention_shape &shape,
                                  T *tile, const float (&c)[DEPTH / 8][4], float upper,
                                  float lower) {
    constexpr int STEP = 16 / sizeof(T), ACROSS = DEPTH / STEP, STRIDE = TILE_STRIDE<T, DEPTH>;
    const int g = lane_id() / 4, t = lane_id() % 4;
    __syncwarp();
#pragma unroll
    for (int j = 0; j < DEPTH / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            narrow(c[j][e] * (e < 2 ? upper : lower),
                   tile + (g + 8 * (e / 2)) * STRIDE + 8 * j + 2 * t + e % 2);
    __syncwarp();
    for (int i = lane_id(); i < 16 * ACROSS; i += WARP) {
        const int row = i / ACROSS, column = i % ACROSS * STEP;
        if (first + row < shape.seq && column < shape.head_dim)
            *reinterpret_cast<uint4 *>(to + (first + row) * stride + column) =
                *reinterpret_cast<const uint4 *>(tile + row * STRIDE + column);
    }
}

// Dropout multipliers of one row's probabilities at columns column and column + 1, column being
// even.
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

#define REQUIRE_ATTENTION(name, kernel)                                                            \
    REQUIRE_FLOAT(name, (kernel)->dtype);                                                          \
    Z3D_REQUIRE((kernel)->batch >= 0 && (kernel)->seq >= 0 && (kernel)->heads >= 0 &&              \
                    (kernel)->head_dim > 0 && (kernel)->first_head >= 0 &&                         \
                    (kernel)->seq <= INT32_MAX / 2 && (kernel)->heads <= INT32_MAX &&              \
                    (kernel)->head_dim <= INT32_MAX / 2 && (kernel)->first_head <= INT32_MAX,      \
                "kernel " #name ": batch %lld, seq %lld, heads %lld (first %lld) of %lld",         \
                (long long)(kernel)->batch, (long long)(kernel)->seq, (long long)(kernel)->heads,  \
                (long long)(kernel)->first_head, (long long)(kernel)->head_dim);                   \
    Z3D_REQUIRE(!((kernel)->dropout.p > 0) || ((kernel)->seq <= 1 << 24 &&                         \
                                               (kernel)->first_head + (kernel)->heads <= 1 << 16), \
                "kernel " #name ": dropout counts 65536 heads and 16777216 rows at most")

// The kernels know queries, keys and values beside each other only, whole heads of all three.
template <class Kernel>
bool is_packed(const Kernel *kernel, const void *q, const void *k, const void *v) {
    const int64_t part = kernel->heads * kernel->head_dim;
    const int64_t bytes = part * (int64_t)z3d_dtype_size(kernel->dtype);
    return kernel->kv_heads == kernel->heads && kernel->window == 0 &&
           kernel->q_stride == 3 * part && kernel->kv_stride == 3 * part &&
           static_cast<const char *>(k) == static_cast<const char *>(q) + bytes &&
           static_cast<const char *>(v) == static_cast<const char *>(k) + bytes;
}

inline z3d_status refuse_unpacked(const char *name) {
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                     "kernel %s: grouped heads, windows and caches are not on the cuda device yet",
                     name);
}

inline z3d_status require_packed(const z3d_attention_forward *kernel) {
    if (kernel->batch * kernel->seq * kernel->heads == 0 ||
        (is_packed(kernel, kernel->q, kernel->k, kernel->v) && !kernel->starts &&
         kernel->log_sum_exp))
        return Z3D_OK;
    return refuse_unpacked("attention_forward");
}

inline z3d_status require_packed(const z3d_attention_backward *kernel) {
    if (kernel->batch * kernel->seq * kernel->heads == 0 ||
        (is_packed(kernel, kernel->q, kernel->k, kernel->v) &&
         is_packed(kernel, kernel->dq, kernel->dk, kernel->dv)))
        return Z3D_OK;
    return refuse_unpacked("attention_backward");
}

// Whether the tiled kernels take this shape; their rows are read 16 bytes at a time.
template <class Kernel> bool fits_tiles(const Kernel *kernel) {
    return kernel->head_dim <= MOST_HEAD_DIM && kernel->head_dim % 8 == 0;
}

// Calls body(integral_constant<int, DEPTH>) with the tile's columns for this head_dim.
template <class Body> z3d_status with_depth(int64_t head_dim, Body body) {
    if (head_dim <= 64) return body(std::integral_constant<int, 64>());
    return body(std::integral_constant<int, 128>());
}

template <class Body> z3d_status with_dropout(bool drops, Body body) {
    return drops ? body(std::true_type()) : body(std::false_type());
}

} // namespace

#endif
