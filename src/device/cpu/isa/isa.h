/* For the kernels of this folder only, which are compiled once per instruction set. Start here:
 * work is cut into blocks (for_blocks) that do not depend on threads, blocks into tiles of TILE
 * elements that are converted to fp32, computed in the first-level cache and converted back, so
 * that each kernel is written once for all types. Sums run in 16 lanes whatever the vector length:
 * the result of a loop that the compiler may reorder would depend on alignment. */
#ifndef ZERO3D_DEVICE_CPU_ISA_ISA_H
#define ZERO3D_DEVICE_CPU_ISA_ISA_H

/* Clang warns if it cannot vectorise an `omp simd` loop, as with sanitizers. */
#ifdef __clang__
#pragma clang diagnostic ignored "-Wpass-failed"
#endif

#include <omp.h>
#include <string.h>

/* base/log.h and isa/math.h both have a z3d_log; kernels use the logarithm. */
#define z3d_log z3d_log_line
#include "src/device/cpu/cpu.h"
#undef z3d_log

#include "src/device/cpu/isa/convert.h"
#include "src/device/cpu/isa/scratch.h"

#define X(name, type) z3d_status Z3D_CPU_NAME(name)(z3d_cpu * cpu, const z3d_kernel *kernel);
Z3D_KERNEL_MAP(X)
#undef X
void Z3D_CPU_NAME(attention_decode)(z3d_cpu *cpu, const z3d_attention_forward *kernel);
z3d_portable_gemm Z3D_CPU_NAME(portable_gemm);

enum {
    TILE = 1024,           /* elements: a few tiles fit the first-level cache */
    BLOCK = 8 * TILE,      /* elements that one thread takes at a time */
    POLL_WORK = 32 * BLOCK /* elements between two polls: some 100 microseconds */
};

/* Kernels compute in these types only. */
#define REQUIRE_FLOAT(kernel_name, type)                                                           \
    Z3D_REQUIRE((type) == Z3D_F32 || (type) == Z3D_BF16 || (type) == Z3D_F16,                      \
                "kernel " #kernel_name ": type %s, fp32, bf16 or fp16 wanted",                     \
                z3d_dtype_name(type))

typedef void (*block_body)(const void *context, int64_t first, int64_t end);

/* Calls body on [0, count) cut into blocks. The cuts depend only on the arguments. Each thread
 * takes a run of blocks; the launching thread polls. `weight` is the work of one item of `count`,
 * in elements. */
static inline void for_blocks(z3d_cpu *cpu, int64_t count, int64_t block, int64_t weight,
                              block_body body, const void *context) {
    if (count <= 0) return;
    const int64_t blocks = (count + block - 1) / block;
    const int threads = z3d_cpu_team(cpu, blocks);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        const int64_t thread = omp_get_thread_num(), team = omp_get_num_threads();
        const int64_t last = blocks * (thread + 1) / team;
        int64_t work = 0;
        for (int64_t b = blocks * thread / team; b < last; b++) {
            body(context, b * block, min_int64((b + 1) * block, count));
            work += block * weight;
            if (thread == 0 && work >= POLL_WORK) {
                z3d_cpu_poll(cpu);
                work = 0;
            }
        }
    }
}

/* Elementwise kernels. */
static inline void for_elements(z3d_cpu *cpu, int64_t count, block_body body, const void *kernel) {
    for_blocks(cpu, count, BLOCK, 1, body, kernel);
}

/* Kernels that work by rows: blocks of rows with about BLOCK elements. */
static inline void for_rows(z3d_cpu *cpu, int64_t rows, int64_t cols, block_body body,
                            const void *kernel) {
    const int64_t block = cols < BLOCK / 2 ? BLOCK / (cols < 1 ? 1 : cols) : 1;
    for_blocks(cpu, rows, block, cols < 1 ? 1 : cols, body, kernel);
}

/* A kernel with nothing but such blocks, of one type or of two. */
#define KERNEL_OF_BLOCKS(id, blocks) KERNEL_OF_TYPES(id, dtype, dtype, blocks)
#define KERNEL_OF_TYPES(id, first, second, blocks)                                                 \
    z3d_status Z3D_CPU_NAME(id)(z3d_cpu * cpu, const z3d_kernel *launched) {                       \
        const z3d_##id *kernel = &launched->as.id;                                                 \
        REQUIRE_FLOAT(id, kernel->first);                                                          \
        REQUIRE_FLOAT(id, kernel->second);                                                         \
        blocks;                                                                                    \
        return Z3D_OK;                                                                             \
    }
#define KERNEL_BY_ELEMENTS(id, body)                                                               \
    KERNEL_OF_BLOCKS(id, for_elements(cpu, kernel->count, body, kernel))
#define KERNEL_BY_ROWS(id, body)                                                                   \
    KERNEL_OF_BLOCKS(id, for_rows(cpu, kernel->rows, kernel->cols, body, kernel))

/* The global index of element i of a part of a parameter, and *run, the number of elements from it
 * on that are adjacent globally, too. */
static inline int64_t global_index(const z3d_parameter_place *place, int64_t i, int64_t *run) {
    const int64_t slice = place->local * place->inner, local = place->first + i;
    *run = slice - local % slice;
    return (local / slice * place->global + place->offset) * place->inner + local % slice;
}

/* Element `index` of an array of any type. */
static inline const void *element(const void *base, z3d_dtype dtype, int64_t index) {
    return (const char *)base + index * (dtype == Z3D_F32 ? 4 : 2);
}

static inline void *element_to_write(void *base, z3d_dtype dtype, int64_t index) {
    return (char *)base + index * (dtype == Z3D_F32 ? 4 : 2);
}

/* n elements of source from `index` on as fp32: in place if they are fp32, else converted into
 * tile. */
static inline const float *load_tile(float *restrict tile, const void *source, z3d_dtype dtype,
                                     int64_t index, int64_t n) {
    if (dtype == Z3D_F32) return (const float *)source + index;
    widen(tile, element(source, dtype, index), dtype, n);
    return tile;
}

/* open_tile says where to compute n fp32 results that belong at `index`; close_tile stores them
 * there. */
static inline float *open_tile(float *tile, void *destination, z3d_dtype dtype, int64_t index) {
    return dtype == Z3D_F32 ? (float *)destination + index : tile;
}

static inline void close_tile(const float *restrict tile, void *destination, z3d_dtype dtype,
                              int64_t index, int64_t n) {
    if (dtype != Z3D_F32) narrow((uint16_t *)destination + index, dtype, tile, n);
}

/* Elements i .. i + n - 1 of a gradient = (accumulate ? themselves : 0) + sum, rounded once. */
static inline void store_sum(float *restrict sum, void *gradient, z3d_dtype dtype, bool accumulate,
                             int64_t i, int64_t n) {
    float tile[TILE];
    if (accumulate) {
        const float *old = load_tile(tile, gradient, dtype, i, n);
#pragma omp simd
        for (int64_t j = 0; j < n; j++) sum[j] += old[j];
    }
    narrow(element_to_write(gradient, dtype, i), dtype, sum, n);
}

#endif
