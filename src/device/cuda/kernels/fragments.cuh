// Products of tiles by a warp: 16-bit types on tensor cores (mma.sync, from sm_80 on), fp32 by
// plain multiplications in the same layout, so that kernels are written once. A warp's 32 lanes are
// 8 groups of 4: g = lane / 4, t = lane % 4. Of a tile of 16 x 8 results a lane has
//   c[e]: row g + 8 (e / 2), column 2 t + e % 2
// and of its operands, 16 x 16 and 16 x 8,
//   a[i]: row g + 8 (i / 2 % 2), k = 2 t + i % 2 + 8 (i / 4)
//   b[i]: k = 2 t + i % 2 + 8 (i / 2), column g
// so two neighbouring tiles of results are an operand a (PTX ISA, "mma.m16n8k16"). Plain
// multiplications leave b in shared memory; on V100 the 16-bit types use them, too.
#ifndef ZERO3D_DEVICE_CUDA_KERNELS_FRAGMENTS_CUH
#define ZERO3D_DEVICE_CUDA_KERNELS_FRAGMENTS_CUH

#include "src/device/cuda/kernels/common.cuh"

#if !defined(__CUDACC__) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800)
#define TENSOR_CORES 1
#else
#define TENSOR_CORES 0
#endif

namespace {

template <class T> constexpr bool USES_TENSOR_CORES = TENSOR_CORES && sizeof(T) == 2;

template <class T> struct alignas(4) operand_a { T at[8]; };

// Without tensor cores: element (k, column) is at k * k_step + column * column_step.
template <class T, bool TENSOR = USES_TENSOR_CORES<T>> struct operand_b {
    const T *tile;
    int k_step, column_step;
};

template <class T> struct alignas(4) operand_b<T, true> { T at[4]; };

// The stride of a tile's rows in shared memory, in elements: 16 bytes more than a row, so that
// eight rows that are read together are in different banks.
template <class T, int COLS> constexpr int TILE_STRIDE = COLS + 16 / (int)sizeof(T);

__device__ inline int lane_id() {
    return (int)threadIdx.x % WARP;
}

#if !TENSOR_CORES
template <bool> __device__ void load_matrices(uint32_t (&)[4], const void *);
template <class T>
__device__ void multiply_matrices(float (&)[4], uint32_t (&)[4], uint32_t (&)[2]);
#elif defined(__CUDACC__)
// Four 8 x 8 matrices of a 16-bit type; lane l gives the address of row l % 8 of matrix l / 8.
template <bool TRANSPOSED>
__device__ inline void load_matrices(uint32_t (&to)[4], const void *row) {
    const uint32_t address = (uint32_t)__cvta_generic_to_shared(row);
    if constexpr (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(address)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(address)
                     : "memory");
}

#define Z3D_MMA(TYPE)                                                                              \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 "                    \
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                           \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

template <class T>
__device__ inline void multiply_matrices(float (&c)[4], uint32_t (&a)[4], uint32_t (&b)[2]) {
    if constexpr (std::is_same<T, bf16>::value)
        Z3D_MMA("bf16");
    else
        Z3D_MMA("f16");
}
#else
template <bool TRANSPOSED> void load_matrices(uint32_t (&to)[4], const void *row) {
    cuda_shim_load_matrices(to, row, TRANSPOSED);
}

template <class T> void multiply_matrices(float (&c)[4], uint32_t (&a)[4], uint32_t (&b)[2]) {
    cuda_shim_multiply_matrices(c, a, b, [](uint32_t bits) { return widen(T{(uint16_t)bits}); });
}
#endif

// Loads rows 0 .. 15, columns 0 .. 15 of a tile.
template <class T> __device__ inline operand_a<T> load_a(const T *tile, int stride) {
    operand_a<T> a;
    if constexpr (USES_TENSOR_CORES<T>) {
        uint32_t words[4];
        const int lane = lane_id();
        load_matrices<false>(words, tile + (lane % 16) * stride + lane / 16 * 8);
        memcpy(&a, words, sizeof a);
    } else {
        const int g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
        for (int i = 0; i < 8; i++)
            a.at[i] = tile[(g + 8 * (i / 2 % 2)) * stride + 2 * t + i % 2 + 8 * (i / 4)];
    }
    return a;
}

// Loads two neighbouring operands of 16 x 8. A row of the tile is a column of the operand: b[j] has
// k = 0 .. 15 of the tile's rows 8 j .. 8 j + 7. TRANSPOSED: a row of the tile is a k: b[j] has the
// tile's columns 8 j .. 8 j + 7.
template <bool TRANSPOSED, class T>
__device__ inline void load_b(operand_b<T> (&b)[2], const T *tile, int stride) {
    if constexpr (USES_TENSOR_CORES<T>) {
        uint32_t words[4];
        const int lane = lane_id();
        const int row = TRANSPOSED ? lane % 16 : lane / 16 * 8 + lane % 8;
        const int column = TRANSPOSED ? lane / 16 * 8 : lane / 8 % 2 * 8;
        load_matrices<TRANSPOSED>(words, tile + row * stride + column);
        memcpy(b, words, sizeof b);
    } else {
        b[0] = b[1] = {tile, TRANSPOSED ? stride : 1, TRANSPOSED ? 1 : stride};
        b[1].tile += 8 * b[1].column_step;
    }
}

// Makes an operand of two neighbouring tiles of results, rounded to its type.
template <class T>
__device__ inline operand_a<T> operand_of(const float (&left)[4], const float (&right)[4]) {
    operand_a<T> a;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        narrow(left[i], &a.at[i]);
        narrow(right[i], &a.at[4 + i]);
    }
    return a;
}

// Gets element i of any lane's operand a. All lanes of a warp call it together.
#ifdef __CUDACC__
template <class T> struct all_of {
    const operand_a<T> &a;
    __device__ float operator()(int lane, int i) const {
        return __shfl_sync(ALL_LANES, widen(a.at[i]), lane);
    }
};
#else
template <class T> struct all_of { // one exchange for all elements: it is slow on the host
    cuda_shim_warp<operand_a<T>> lanes;
    explicit all_of(const operand_a<T> &a) : lanes(cuda_shim_gather(a)) {}
    float operator()(int lane, int i) const {
        return widen(lanes[lane].at[i]);
    }
};
#endif

// c += a b.
template <class T>
__device__ inline void multiply(float (&c)[4], const operand_a<T> &a, const operand_b<T> &b) {
    if constexpr (USES_TENSOR_CORES<T>) {
        uint32_t x[4], y[2];
        memcpy(x, &a, sizeof x);
        memcpy(y, &b, sizeof y);
        multiply_matrices<T>(c, x, y);
    } else {
        const all_of<T> all{a};
        const int quad = lane_id() & ~3;
        const T *column = b.tile + 2 * (lane_id() % 4) * b.column_step;
#pragma unroll
        for (int k = 0; k < 16; k++) {
            const int owner = quad + k % 8 / 2, i = k % 2 + 4 * (k / 8);
            const float upper = all(owner, i), lower = all(owner, i + 2);
            const float left = widen(column[k * b.k_step]);
            const float right = widen(column[k * b.k_step + b.column_step]);
            c[0] += upper * left;
            c[1] += upper * right;
            c[2] += lower * left;
            c[3] += lower * right;
        }
    }
}

// c[ROWS / 8][4] = 16 rows of `left` times all ROWS rows of `right`, tiles of DEPTH columns.
template <int ROWS, int DEPTH, class T>
__device__ inline void multiply_rows(float (&c)[ROWS / 8][4], const T *left, const T *right) {
    constexpr int STRIDE = TILE_STRIDE<T, DEPTH>;
#pragma unroll
    for (int j = 0; j < ROWS / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) c[j][e] = 0.0f;
#pragma unroll(USES_TENSOR_CORES <T> &&DEPTH <= 128 ? DEPTH / 16 : 1) // others are long loops
    for (int k = 0; k < DEPTH; k += 16) {
        const operand_a<T> a = load_a(left + k, STRIDE);
#pragma unroll
        for (int j = 0; j < ROWS / 8; j += 2) {
            operand_b<T> b[2];
            load_b<false>(b, right + j * 8 * STRIDE + k, STRIDE);
            multiply(c[j], a, b[0]);
            multiply(c[j + 1], a, b[1]);
        }
    }
}

// c[COLS / 8][4] += weights (16 rows of ROWS columns, as results) times the ROWS rows of `right`,
// COLS columns of a tile of DEPTH. The weights are rounded to T.
template <int ROWS, int DEPTH, int COLS, class T>
__device__ inline void multiply_columns(float (&c)[COLS / 8][4],
                                        const float (&weights)[ROWS / 8][4], const T *right) {
    constexpr int STRIDE = TILE_STRIDE<T, DEPTH>;
#pragma unroll
    for (int k = 0; k < ROWS; k += 16) {
        const operand_a<T> a = operand_of<T>(weights[k / 8], weights[k / 8 + 1]);
#pragma unroll
        for (int j = 0; j < COLS / 8; j += 2) {
            operand_b<T> b[2];
            load_b<true>(b, right + k * STRIDE + j * 8, STRIDE);
            multiply(c[j], a, b[0]);
            multiply(c[j + 1], a, b[1]);
        }
    }
}

} // namespace

#endif
