/* Sums: bias_backward (over rows) and sum_squares (over everything). */
#include "src/device/cpu/isa/lanes.h"
#include "src/device/cpu/isa/partials.h"

enum { ROWS = 4, COLS = 512 };

/* sum[n] += rows of dy, one after the other. Four rows at a time save loads and stores of the
 * sum. */
static void add_rows(float *restrict sum, const z3d_bias_backward *bias, int64_t row, int64_t last,
                     int64_t column, int64_t n) {
    float tile[ROWS][COLS];
    const float *dy[ROWS];
    for (; row + ROWS <= last; row += ROWS) {
        for (int64_t r = 0; r < ROWS; r++)
            dy[r] = load_tile(tile[r], bias->dy, bias->dtype, (row + r) * bias->cols + column, n);
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            sum[j] = (((sum[j] + dy[0][j]) + dy[1][j]) + dy[2][j]) + dy[3][j];
    }
    for (; row < last; row++) {
        dy[0] = load_tile(tile[0], bias->dy, bias->dtype, row * bias->cols + column, n);
#pragma omp simd
        for (int64_t j = 0; j < n; j++) sum[j] += dy[0][j];
    }
}

static void sum_chunks(const void *context, int64_t first, int64_t end) {
    const row_sums *sums = context;
    for (int64_t chunk = first; chunk < end; chunk++)
        for (int64_t column = 0; column < sums->cols; column += COLS) {
            const int64_t n = min_int64(COLS, sums->cols - column);
            float sum[COLS] = {0};
            add_rows(sum, sums->kernel, first_row(sums, chunk), first_row(sums, chunk + 1), column,
                     n);
            memcpy(sums->partials + chunk * sums->stride + column, sum, (size_t)n * sizeof *sum);
        }
}

KERNEL_OF_TYPES(bias_backward, dtype, gradient_dtype,
                sum_rows(cpu, kernel, kernel->rows, kernel->cols, sum_chunks, kernel->gradient,
                         NULL, kernel->gradient_dtype, kernel->accumulate))

/* sum_squares cuts its elements into at most this many chunks. */
enum { SQUARE_CHUNKS = 1024 };

typedef struct squares {
    const z3d_sum_squares *kernel;
    int64_t chunk; /* elements */
    double *sums;
} squares;

typedef double double_vector __attribute__((vector_size(VECTOR_BYTES)));
typedef float half_vector __attribute__((vector_size(VECTOR_BYTES / 2), may_alias, aligned(4)));

enum { HALF = VECTOR / 2, DOUBLE_VECTORS = LANES / HALF };

static inline void add_squares(double_vector *restrict sum, const float *restrict x) {
#pragma GCC unroll 8
    for (int j = 0; j < DOUBLE_VECTORS; j++) {
        double_vector wide =
            __builtin_convertvector(*(const half_vector *)(x + j * HALF), double_vector);
        sum[j] += wide * wide;
    }
}

/* The sum of squares of n elements, in fp64, in which the square of any finite fp32 is finite. */
static double tile_squares(const float *restrict x, int64_t n) {
    double_vector sum[DOUBLE_VECTORS] = {{0}};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) add_squares(sum, x + i);
    if (i < n) {
        float rest[LANES] = {0};
        memcpy(rest, x + i, (size_t)(n - i) * sizeof *x);
        add_squares(sum, rest);
    }
    double lane[LANES];
    memcpy(lane, sum, sizeof lane);
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int j = 0; j < width; j++) lane[j] += lane[j + width];
    return lane[0];
}

static void square_elements(const void *context, int64_t first, int64_t end) {
    const squares *s = context;
    double sum = 0.0;
    for (int64_t i = first; i < end; i += TILE) {
        const int64_t n = min_int64(TILE, end - i);
        float tile[TILE];
        sum += tile_squares(load_tile(tile, s->kernel->x, s->kernel->dtype, i, n), n);
    }
    s->sums[first / s->chunk] = sum;
}

z3d_status Z3D_CPU_NAME(sum_squares)(z3d_cpu *cpu, const z3d_kernel *kernel) {
    const z3d_sum_squares *sum = &kernel->as.sum_squares;
    REQUIRE_FLOAT(sum_squares, sum->dtype);
    double sums[SQUARE_CHUNKS];
    int64_t chunk = (sum->count + SQUARE_CHUNKS - 1) / SQUARE_CHUNKS;
    chunk = (chunk + BLOCK - 1) / BLOCK * BLOCK;
    if (sum->count <= 0) return Z3D_OK;
    const squares s = {.kernel = sum, .chunk = chunk, .sums = sums};
    for_blocks(cpu, sum->count, chunk, 1, square_elements, &s);
    double total = 0.0;
    for (int64_t c = 0; c < (sum->count + chunk - 1) / chunk; c++) total += sums[c];
    *sum->out += total;
    return Z3D_OK;
}
