/* How a product is cut. Tiles and chunks decide the order of sums, so they depend only on the
 * product's shape and types, not on the number of threads, the method or polling; panels do not
 * change it. Inside cpu/ only.
 *
 * C is cut into tiles; a tile is one thread's task. Along k a tile is summed in chunks. A chunk is
 * one call of the multiplier, at most 0.8 GFLOP; the launching thread polls between chunks. 16-bit
 * operands that are multiplied in fp32 are widened by panels: a panel of A (some rows, a k range)
 * and one of B (a k range, some columns) at a time, each a few megabytes. So scratch stays small at
 * any size, and tiles share the widened elements. fp32 operands whose rows lie whole pages apart
 * are copied to panels whose rows do not (z3d_gemm_panel_ld). */
#ifndef ZERO3D_DEVICE_CPU_GEMM_PLAN_H
#define ZERO3D_DEVICE_CPU_GEMM_PLAN_H

#include "src/device/cpu/cpu.h"

typedef struct z3d_gemm_plan {
    int64_t tile_m, tile_n;            /* one task */
    int64_t chunk_k;                   /* one call of the multiplier */
    int64_t panel_m, panel_n, panel_k; /* multiples of the tile and the chunk; the whole product if
                                          nothing is widened or copied */
    bool panel_a, panel_b;             /* operands that are widened or copied into panels */
    bool wide_c;  /* C is 16-bit: tiles are summed in fp32 scratch and rounded once */
    bool panel_c; /* and that scratch must hold a whole panel, because k has several panels */
} z3d_gemm_plan;

/* Bytes of scratch in its parts. */
typedef struct z3d_gemm_scratch {
    int64_t a, b, c;    /* panels */
    int64_t tile, bias; /* per thread: fp32 tile of C, fp32 bias */
} z3d_gemm_scratch;

/* copies: fp32 operands are copied to panels where that is faster, which a CPU with AVX2 needs. */
z3d_gemm_plan z3d_cpu_gemm_plan(const z3d_gemm *gemm, z3d_gemm_method method, bool copies);
/* Elements from one row of a panel to the next, for rows of `length` elements. Rows that lie 4096
 * bytes apart fall into the same set of a cache; oneDNN 2.6.3 reads 4 columns of them at a time and
 * has lost the cache line when it comes to the next 4: half the speed on AVX2
 * (docs/results/products.md). */
static inline int64_t z3d_gemm_panel_ld(int64_t length) {
    return length % 1024 == 0 ? length + 16 : length;
}
z3d_gemm_scratch z3d_cpu_gemm_scratch(const z3d_gemm *gemm, const z3d_gemm_plan *plan);
int64_t z3d_cpu_gemm_scratch_total(const z3d_gemm_scratch *scratch, int threads);

#endif
