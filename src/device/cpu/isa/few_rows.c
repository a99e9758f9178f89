/* Products of few rows with a transposed B, as in decoding. Reading B takes most of the time, so
 * each element of B is read from memory once, in place, and multiplied with all rows of A. A strip
 * of B's rows gives columns of C; while it is multiplied, the next strip is fetched. Every element
 * of C is a sum of its own in 16 lanes, so its bits depend neither on the other rows nor on the
 * cuts. */
#include "src/device/cpu/isa/isa.h"
#include "src/device/cpu/isa/lanes.h"

enum {
    COLS = 4,                 /* of C, in one strip */
    ROWS = 4 / LANE_VECTORS,  /* of A at a time: as many sums as fit in the registers */
    STRIPS = 16,              /* strips that one thread takes at a time */
    STEP = Z3D_FEW_ROWS_STEP, /* elements of a sum at a time, */
    PARTS = 2 * LANE_VECTORS, /* in vectors */
    AHEAD = 2048              /* bytes of B between fetching and using them */
};

typedef struct product {
    const z3d_gemm *gemm;
    float *wide;    /* if A is not fp32: A[m, lda] in scratch, converted by load_step */
    const float *a; /* fp32[m, lda] */
    int64_t lda;
} product;

/* The operands of ROWS x COLS results. Where C ends, the last row or column is repeated. */
typedef struct tile {
    const float *a[ROWS];
    const char *b[COLS];
    const char *fetch[COLS]; /* the data that will be read next, as long as b */
} tile;

typedef uint32_t word_vector __attribute__((vector_size(VECTOR_BYTES), may_alias, aligned(2)));

/* STEP elements of any type. bf16 elements come out with the even ones first, then the odd ones: a
 * word has two elements, and one instruction widens each. */
static inline __attribute__((always_inline)) void load_step(vector *out, const char *from,
                                                            z3d_dtype dtype) {
    if (dtype == Z3D_F16) {
        widen_f16((float *)out, (const uint16_t *)from, STEP);
    } else if (dtype == Z3D_F32) {
#pragma GCC unroll 8
        for (int j = 0; j < PARTS; j++) out[j] = LOAD_VECTOR(from + j * VECTOR_BYTES);
    } else {
#pragma GCC unroll 4
        for (int j = 0; j < LANE_VECTORS; j++) {
            const word_vector words = *(const word_vector *)(from + j * VECTOR_BYTES);
            out[j] = (vector)(words << 16);
            out[LANE_VECTORS + j] = (vector)(words & 0xffff0000u);
        }
    }
}

/* sum[row][col] += a[row] b[col] for some columns, STEP elements of each from `at` on. */
static inline __attribute__((always_inline)) void add_products(lanes (*restrict sum)[COLS],
                                                               const tile *with, int rows,
                                                               int first, int cols, int64_t at,
                                                               z3d_dtype dtype) {
#pragma GCC unroll 4
    for (int col = first; col < first + cols; col++) {
        vector b[PARTS];
        load_step(b, with->b[col] + at * (dtype == Z3D_F32 ? 4 : 2), dtype);
#pragma GCC unroll 4
        for (int row = 0; row < rows; row++)
#pragma GCC unroll 8
            for (int j = 0; j < PARTS; j++)
                sum[row][col].v[j % LANE_VECTORS] +=
                    LOAD_VECTOR(with->a[row] + at + j * VECTOR) * b[j];
    }
}

/* The last n elements, fewer than STEP: they are copied and filled up with zeros. */
static inline __attribute__((always_inline)) void add_rest(lanes (*restrict sum)[COLS],
                                                           const tile *with, int rows, int64_t at,
                                                           int64_t n, z3d_dtype dtype) {
    const int64_t size = dtype == Z3D_F32 ? 4 : 2, wide = dtype == Z3D_F32 ? n : STEP;
    float a[ROWS][STEP] = {{0}};
    char b[COLS][STEP * 4] = {{0}};
    tile rest = *with;
    for (int row = 0; row < rows; row++) {
        memcpy(a[row], with->a[row] + at, (size_t)wide * sizeof(float));
        rest.a[row] = a[row];
    }
    for (int col = 0; col < COLS; col++) {
        memcpy(b[col], with->b[col] + at * size, (size_t)(n * size));
        rest.b[col] = b[col];
    }
    add_products(sum, &rest, rows, 0, COLS, 0, dtype);
}

static inline __attribute__((always_inline)) void fetch(const char *from, int bytes) {
    for (int line = 0; line < bytes; line += 64) __builtin_prefetch(from + line);
}

/* out[rows][COLS], `cols` columns at a time. */
static inline __attribute__((always_inline)) void
multiply(float (*out)[COLS], const tile *with, int rows, int cols, int64_t k, z3d_dtype dtype) {
    const int size = dtype == Z3D_F32 ? 4 : 2;
    lanes sum[ROWS][COLS] = {{{{{0}}}}};
    int64_t i = 0;
#pragma GCC unroll 4
    for (int first = 0; first < COLS; first += cols)
        for (i = 0; i + STEP <= k; i += STEP) {
            for (int col = first; col < first + cols; col++)
                fetch(with->fetch[col] + i * size, STEP * size);
            add_products(sum, with, rows, first, cols, i, dtype);
        }
    if (i < k) add_rest(sum, with, rows, i, k - i, dtype);
    for (int row = 0; row < rows; row++) lanes_totals(out[row], sum[row]);
}

/* One row alone needs no registers for other rows, and reads B as one stream. */
static inline __attribute__((always_inline)) void
multiply_rows(float (*out)[COLS], const tile *with, int64_t rows, int64_t k, z3d_dtype dtype) {
    if (rows == 1)
        multiply(out, with, 1, 1, k, dtype);
    else
        multiply(out, with, ROWS, COLS, k, dtype);
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

/* Finishes C's columns of one strip, from `col` on: adds the bias in fp32, then rounds once. */
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

/* The address to fetch next. With one row of A it is AHEAD bytes further in the same row of B. With
 * more rows of A, the rows of the next strip are fetched in turns while the groups of A's rows are
 * multiplied, so reading goes on while the threads compute. */
static const char *next_of(const z3d_gemm *gemm, int64_t row, int64_t col, int j) {
    const int64_t groups = (gemm->m + ROWS - 1) / ROWS;
    const int64_t ahead = gemm->m > 1 && j % groups == row / ROWS ? COLS : 0;
    const char *from =
        element(gemm->b, gemm->dtype, min_int64(col + j + ahead, gemm->n - 1) * gemm->ldb);
    return gemm->m > 1 ? from : (const char *)((uintptr_t)from + AHEAD);
}

static tile tile_at(const product *p, int64_t row, int64_t col) {
    const z3d_gemm *gemm = p->gemm;
    tile out;
    for (int i = 0; i < ROWS; i++) out.a[i] = p->a + min_int64(row + i, gemm->m - 1) * p->lda;
    for (int j = 0; j < COLS; j++) {
        out.b[j] = element(gemm->b, gemm->dtype, min_int64(col + j, gemm->n - 1) * gemm->ldb);
        out.fetch[j] = next_of(gemm, row, col, j);
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
        for (int64_t i = 0; i < gemm->k; i += STEP) {
            const int64_t n = min_int64(STEP, gemm->k - i);
            uint16_t from[2 * STEP] = {0}; /* as wide as the widest type */
            vector to[PARTS];
            memcpy(from, element(gemm->a, gemm->dtype, row * gemm->lda + i), (size_t)n * 2);
            load_step(to, (const char *)from, gemm->dtype);
            memcpy(p->wide + row * p->lda + i, to, sizeof to);
        }
}

z3d_status Z3D_CPU_NAME(gemm)(z3d_cpu *cpu, const z3d_kernel *kernel) {
    const z3d_gemm *gemm = &kernel->as.gemm;
    if (gemm->m == 0 || gemm->n == 0) return Z3D_OK;
    if (!z3d_gemm_has_few_rows(gemm)) return z3d_cpu_gemm(cpu, kernel);
    product p = {.gemm = gemm, .a = gemm->a, .lda = gemm->lda};
    if (gemm->dtype != Z3D_F32) {
        Z3D_REQUIRE(cpu->scratch_bytes >= z3d_scratch_few_rows(gemm),
                    "kernel gemm: scratch of %lld bytes, %lld wanted",
                    (long long)cpu->scratch_bytes, (long long)z3d_scratch_few_rows(gemm));
        p.a = p.wide = (float *)cpu->scratch;
        p.lda = z3d_few_rows_stride(gemm);
        for_rows(cpu, gemm->m, gemm->k, widen_rows, &p);
    }
    for_blocks(cpu, (gemm->n + COLS - 1) / COLS, STRIPS, COLS * gemm->k, multiply_strips, &p);
    return Z3D_OK;
}
