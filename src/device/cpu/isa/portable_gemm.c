/* Matrix product without a library: blocks of op(A) and op(B) are packed on the stack, then
 * multiplied ROWS x COLS results at a time in registers. */
#include "src/device/cpu/isa/isa.h"
#include "src/device/cpu/isa/lanes.h"

enum {
    ROWS = 6,
    COLS = 2 * VECTOR,
    BLOCK_K = 128,
    BLOCK_N = 2 * COLS < 64 ? 64 : 2 * COLS, /* op(B)'s block stays in the first-level cache */
};

/* packed[k][COLS] of each COLS wide panel; columns beyond n are 0. */
static void pack_b(float *restrict packed, const float *b, int64_t ldb, bool transposed, int64_t k,
                   int64_t n) {
    for (int64_t panel = 0; panel < n; panel += COLS)
        for (int64_t p = 0; p < k; p++)
            for (int64_t j = 0; j < COLS; j++) {
                const int64_t column = panel + j;
                *packed++ = column >= n  ? 0.0f
                            : transposed ? b[column * ldb + p]
                                         : b[p * ldb + column];
            }
}

/* packed[k][ROWS]; rows beyond m are 0. */
static void pack_a(float *restrict packed, const float *a, int64_t lda, bool transposed, int64_t m,
                   int64_t k) {
    for (int64_t p = 0; p < k; p++)
        for (int64_t i = 0; i < ROWS; i++)
            *packed++ = i >= m ? 0.0f : transposed ? a[p * lda + i] : a[i * lda + p];
}

/* result[ROWS][COLS] = A's panel times B's. */
static void multiply(float *restrict result, const float *restrict a, const float *restrict b,
                     int64_t k) {
    vector sum[ROWS][2] = {{{0}}};
    for (int64_t p = 0; p < k; p++) {
        const vector b0 = LOAD_VECTOR(b + p * COLS), b1 = LOAD_VECTOR(b + p * COLS + VECTOR);
#pragma GCC unroll 6
        for (int i = 0; i < ROWS; i++) {
            sum[i][0] += a[p * ROWS + i] * b0;
            sum[i][1] += a[p * ROWS + i] * b1;
        }
    }
    memcpy(result, sum, sizeof sum);
}

static void multiply_block(float *c, int64_t ldc, const float *a, const float *b, int64_t m,
                           int64_t n, int64_t k, bool accumulate) {
    for (int64_t panel = 0; panel < n; panel += COLS) {
        float result[ROWS * COLS];
        multiply(result, a, b + panel * k, k);
        const int64_t columns = min_int64(COLS, n - panel);
        for (int64_t i = 0; i < m; i++) {
            float *row = c + i * ldc + panel;
            for (int64_t j = 0; j < columns; j++)
                row[j] = (accumulate ? row[j] : 0.0f) + result[i * COLS + j];
        }
    }
}

void Z3D_CPU_NAME(portable_gemm)(int64_t m, int64_t n, int64_t k, bool ta, bool tb, const float *a,
                                 int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc,
                                 bool accumulate) {
    float packed_a[ROWS * BLOCK_K], packed_b[BLOCK_K * BLOCK_N];
    for (int64_t i = 0; i < m && k <= 0 && !accumulate; i++)
        memset(c + i * ldc, 0, (size_t)n * sizeof *c);
    for (int64_t column = 0; column < n; column += BLOCK_N)
        for (int64_t p = 0; p < k; p += BLOCK_K) {
            const int64_t block_n = min_int64(BLOCK_N, n - column);
            const int64_t block_k = min_int64(BLOCK_K, k - p);
            pack_b(packed_b, tb ? b + column * ldb + p : b + p * ldb + column, ldb, tb, block_k,
                   block_n);
            for (int64_t row = 0; row < m; row += ROWS) {
                const int64_t block_m = min_int64(ROWS, m - row);
                pack_a(packed_a, ta ? a + p * lda + row : a + row * lda + p, lda, ta, block_m,
                       block_k);
                multiply_block(c + row * ldc + column, ldc, packed_a, packed_b, block_m, block_n,
                               block_k, accumulate || p > 0);
            }
        }
}
