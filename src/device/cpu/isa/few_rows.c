/* Products of few rows with a transposed B, as in decoding, which are bound by reading B: each
 * element of B is read from memory once, where it lies, and multiplied with all rows of A. A strip
 * of B's rows is C's columns; while it is multiplied, the next one is fetched. Every element of C
 * is a sum of its own in 16 lanes, so its bits depend neither on the other rows nor on the cuts. */
#include "src/device/cpu/isa/isa.h"
#include "src/device/cpu/isa/lanes.h"

enum {
    COLS = 4,                /* of C, in one strip */
    ROWS = 4 / LANE_VECTORS, /* of A at a time: as many sums as fit the registers */
    STRIPS = 16              /* that one thread takes at a time */
};

typedef struct product {
    const z3d_gemm *gemm;
    float *wide;    /* A[m, k] in fp32, in scratch, where it is not in fp32 itself */
    const float *a; /* fp32[m, lda] */
    int64_t lda;
} product;

/* The operands of ROWS x COLS results. Where C ends, the last row or column is repeated. */
typedef struct tile {
    const float *a[ROWS];
    const char *b[COLS];
    const char *fetch[COLS]; /* what will be read next, of the same length as b */
} tile;

typedef uint16_t half_vector __attribute__((vector_size(VECTOR_BYTES / 2), may_alias, aligned(2)));
typedef uint32_t word_vector __attribute__((vector_size(VECTOR_BYTES), may_alias));

/* VECTOR elements of any type. */
static inline __attribute__((always_inline)) vector load_any(const char *from, z3d_dtype dtype) {
    if (dtype == Z3D_F32) return LOAD_VECTOR(from);
    if (dtype == Z3D_BF16)
        return (vector)(__builtin_convertvector(*(const half_vector *)from, word_vector) << 16);
    vector out;
    widen_f16((float *)&out, (const uint16_t *)from, VECTOR);
    return out;
}

/* sum[row][col] += a[row] b[col], LANES elements of each from `at` on. */
static inline __attribute__((always_inline)) void
add_products(lanes (*restrict sum)[COLS], const tile *with, int rows, int64_t at, z3d_dtype dtype) {
#pragma GCC unroll 4
    for (int j = 0; j < LANE_VECTORS; j++) {
        const int64_t i = at + j * VECTOR;
        vector a[ROWS];
#pragma GCC unroll 4
        for (int row = 0; row < rows; row++) a[row] = LOAD_VECTOR(with->a[row] + i);
#pragma GCC unroll 4
        for (int col = 0; col < COLS; col++) {
            const vector b = load_any(with->b[col] + i * (dtype == Z3D_F32 ? 4 : 2), dtype);
#pragma GCC unroll 4
            for (int row = 0; row < rows; row++) sum[row][col].v[j] += a[row] * b;
        }
    }
}

/* The last elements, fewer than LANES: copied to where zeros follow. */
static inline __attribute__((always_inline)) void add_rest(lanes (*restrict sum)[COLS],
                                                           const tile *with, int rows, int64_t at,
                                                           int64_t n, z3d_dtype dtype) {
    const int64_t size = dtype == Z3D_F32 ? 4 : 2;
    float a[ROWS][LANES] = {{0}};
    char b[COLS][LANES * 4] = {{0}};
    tile rest = *with;
    for (int row = 0; row < rows; row++) {
        memcpy(a[row], with->a[row] + at, (size_t)n * sizeof(float));
        rest.a[row] = a[row];
    }
    for (int col = 0; col < COLS; col++) {
        memcpy(b[col], with->b[col] + at * size, (size_t)(n * size));
        rest.b[col] = b[col];
    }
    add_products(sum, &rest, rows, 0, dtype);
}

/* out[rows][COLS] */
static inline __attribute__((always_inline)) void multiply(float (*out)[COLS], const tile *with,
                                                           int rows, int64_t k, z3d_dtype dtype) {
    lanes sum[ROWS][COLS] = {{{{{0}}}}};
    int64_t i = 0;
    for (; i + LANES <= k; i += LANES) {
#pragma GCC unroll 4
        for (int col = 0; col < COLS; col++)
            __builtin_prefetch(with->fetch[col] + i * (dtype == Z3D_F32 ? 4 : 2));
        add_products(sum, with, rows, i, dtype);
    }
    if (i < k) add_rest(sum, with, rows, i, k - i, dtype);
    for (int row = 0; row < rows; row++) lanes_totals(out[row], sum[row]);
}

/* One row alone needs no registers for others. */
static inline __attribute__((always_inline)) void
multiply_rows(float (*out)[COLS], const tile *with, int64_t rows, int64_t k, z3d_dtype dtype) {
    if (rows == 1)
        multiply(out, with, 1, k, dtype);
    else
        multiply(out, with, ROWS, k, dtype);
}

static void multiply_any(float (*out)[COLS], const tile *with, int64_t rows, int64_t k,
                         z3d_dtype dtype) {
    if (dtype == Z3D_F32)
        multiply_rows(out, with, rows, k, Z3D_F32);
    else if (dtype == Z3D_BF16)
        multiply_rows(out, with, rows, k, Z3D_BF16);
    else
        multiply_rows(out, with, rows, k, Z3D_F16);
}

/* C's columns of one strip, from `col` on: bias in fp32, then one rounding. */
static void finish(const z3d_gemm *gemm, float (*sum)[COLS], int64_t col) {
    const int64_t cols = min_int64(COLS, gemm->n - col);
    float bias[COLS] = {0};
    if (gemm->bias && gemm->dtype == Z3D_F32)
        memcpy(bias, (const float *)gemm->bias + col, (size_t)cols * sizeof *bias);
    else if (gemm->bias)
        widen(bias, (const uint16_t *)gemm->bias + col, gemm->dtype, cols);
    for (int64_t row = 0; row < gemm->m; row++) {
        const int64_t at = row * gemm->ldc + col;
        for (int64_t j = 0; gemm->bias && j < COLS; j++) sum[row][j] += bias[j];
        if (gemm->c_dtype == Z3D_F32)
            memcpy((float *)gemm->c + at, sum[row], (size_t)cols * sizeof(float));
        else
            narrow((uint16_t *)gemm->c + at, gemm->c_dtype, sum[row], cols);
    }
}

/* The next strip's rows are fetched in turns, while the groups of A's rows are multiplied: reading
 * goes on while the threads compute. */
static tile tile_at(const product *p, int64_t row, int64_t col) {
    const z3d_gemm *gemm = p->gemm;
    const int64_t groups = (gemm->m + ROWS - 1) / ROWS;
    tile out;
    for (int i = 0; i < ROWS; i++) out.a[i] = p->a + min_int64(row + i, gemm->m - 1) * p->lda;
    for (int j = 0; j < COLS; j++) {
        const int64_t next = j % groups == row / ROWS ? COLS : 0;
        out.b[j] = element(gemm->b, gemm->dtype, min_int64(col + j, gemm->n - 1) * gemm->ldb);
        out.fetch[j] =
            element(gemm->b, gemm->dtype, min_int64(col + j + next, gemm->n - 1) * gemm->ldb);
    }
    return out;
}

static void multiply_strips(const void *context, int64_t first, int64_t end) {
    const product *p = context;
    const z3d_gemm *gemm = p->gemm;
    for (int64_t col = first * COLS; col < end * COLS; col += COLS) {
        float sum[Z3D_FEW_ROWS][COLS];
        for (int64_t row = 0; row < gemm->m; row += ROWS) {
            const tile with = tile_at(p, row, col);
            multiply_any(sum + row, &with, gemm->m - row, gemm->k, gemm->dtype);
        }
        finish(gemm, sum, col);
    }
}

static void widen_rows(const void *context, int64_t first, int64_t end) {
    const product *p = context;
    const z3d_gemm *gemm = p->gemm;
    for (int64_t row = first; row < end; row++)
        widen(p->wide + row * gemm->k, element(gemm->a, gemm->dtype, row * gemm->lda), gemm->dtype,
              gemm->k);
}

z3d_status Z3D_CPU_NAME(few_rows_gemm)(z3d_cpu *cpu, const z3d_gemm *gemm) {
    product p = {.gemm = gemm, .a = gemm->a, .lda = gemm->lda};
    if (gemm->dtype != Z3D_F32) {
        REQUIRE_SCRATCH(gemm, cpu, z3d_scratch_few_rows(gemm));
        p.a = p.wide = (float *)cpu->scratch;
        p.lda = gemm->k;
        for_rows(cpu, gemm->m, gemm->k, widen_rows, &p);
    }
    for_blocks(cpu, (gemm->n + COLS - 1) / COLS, STRIPS, COLS * gemm->k, multiply_strips, &p);
    return Z3D_OK;
}
