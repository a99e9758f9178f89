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
#ifndef ZERO3D_DEVICE_CPU_GEMM_H
#define ZERO3D_DEVICE_CPU_GEMM_H

#include "src/device/cpu/cpu.h"

typedef struct z3d_gemm_plan {
    int64_t tile_m, tile_n;            /* one task */
    int64_t chunk_k;                   /* one call of the multiplier */
    int64_t panel_m, panel_n, panel_k; /* multiples of the tile and the chunk; the whole product if
                                          nothing is widened or copied */
    bool panel_a, panel_b;             /* operands that are widened or copied into panels */
    bool wide_c;  /* C is 16-bit: tiles are summed in fp32 scratch and rounded once */
    bool panel_c; /* and that scratch must hold a whole panel, because k has several panels */
    struct {
        int64_t a, b, c;    /* panels */
        int64_t tile, bias; /* per thread: fp32 tile of C, fp32 bias */
    } bytes;                /* of scratch */
} z3d_gemm_plan;

/* copies: fp32 operands are copied to panels where that is faster, which a CPU with AVX2 needs. */
z3d_gemm_plan z3d_cpu_gemm_plan(const z3d_gemm *gemm, z3d_gemm_method method, bool copies);
/* Elements from one row of a panel to the next, for rows of `length` elements. Rows that lie 4096
 * bytes apart fall into the same set of a cache; oneDNN 2.6.3 reads 4 columns of them at a time and
 * has lost the cache line when it comes to the next 4: half the speed on AVX2
 * (docs/results/products.md). */
static inline int64_t z3d_gemm_panel_ld(int64_t length) {
    return length % 1024 == 0 ? length + 16 : length;
}
/* Bytes of scratch of all threads together. */
int64_t z3d_cpu_gemm_scratch(const z3d_gemm_plan *plan, int threads);

/* ---- matmul.c: oneDNN's matmul primitive for tiles, made once per shape, kept in
 * z3d_cpu.gemm_state, run by many threads at a time, each with its own memory objects ---- */

/* C fp32[m,n] (+)= op(A) op(B); leading dimensions as in z3d_gemm. Compared as bytes. */
typedef struct z3d_matmul_shape {
    int64_t m, n, k, lda, ldb, ldc, transpose_a, transpose_b, accumulate, dtype;
} z3d_matmul_shape;

typedef struct z3d_matmul z3d_matmul;

/* Finds or makes the primitive and allocates the scratch that it needs (AMX needs some), so that
 * running it allocates nothing. Not thread-safe. Errors: ERR_UNSUPPORTED (oneDNN has none for this
 * type on this CPU), ERR_MEMORY. */
z3d_status z3d_cpu_matmul_get(z3d_cpu *cpu, const z3d_matmul_shape *shape, z3d_matmul **out);
/* Runs it on the calling thread; false on an error of the library. Pointers differ from call to
 * call. */
bool z3d_cpu_matmul_run(z3d_cpu *cpu, z3d_matmul *matmul, int thread, const void *a, const void *b,
                        float *c);
z3d_status z3d_cpu_gemm_state_create(int threads, struct z3d_gemm_state **out);
void z3d_cpu_gemm_state_destroy(struct z3d_gemm_state *state);

#endif
