/* SwiGLU (Shazeer, 2002.05202): silu of a row's first half times its second. */
#include "src/device/cpu/isa/isa.h"
#include "src/device/cpu/isa/math.h"

static void forward_rows(const void *context, int64_t first, int64_t end) {
    const z3d_swiglu_forward *swiglu = context;
    const z3d_dtype dtype = swiglu->dtype;
    const int64_t cols = swiglu->cols;
    for (int64_t row = first; row < end; row++)
        for (int64_t column = 0; column < cols; column += TILE) {
            const int64_t n = min_int64(TILE, cols - column), at = row * 2 * cols + column;
            float gate_tile[TILE], up_tile[TILE];
            const float *gate = load_tile(gate_tile, swiglu->x, dtype, at, n);
            const float *up = load_tile(up_tile, swiglu->x, dtype, at + cols, n);
            float *y = open_tile(gate_tile, swiglu->y, dtype, row * cols + column);
#pragma omp simd
            for (int64_t j = 0; j < n; j++) y[j] = gate[j] / (1.0f + z3d_exp(-gate[j])) * up[j];
            close_tile(y, swiglu->y, dtype, row * cols + column, n);
        }
}

KERNEL_OF_BLOCKS(swiglu_forward,
                 for_rows(cpu, kernel->rows, 2 * kernel->cols, forward_rows, kernel))

/* Beyond +-80 the sigmoid is 0 or 1 to fp32's precision; the clamp avoids inf * 0. It is a separate
 * loop, because in one loop compilers would compute everything for x and for the bounds. */
static inline void backward_tile(float *dgate, float *dup, const float *gate, const float *up,
                                 const float *dy, int64_t n) {
    float clamped[TILE];
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        const float v = gate[j] > 80.0f ? 80.0f : gate[j];
        clamped[j] = v < -80.0f ? -80.0f : v;
    }
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        const float v = clamped[j], e = z3d_exp(-v);
        const float s = 1.0f / (1.0f + e); /* 1 - s is s e */
        const float d = dy[j], old_gate = gate[j], old_up = up[j];
        dgate[j] = d * old_up * (s + v * (s * (s * e)));
        dup[j] = d * (old_gate * s);
    }
}

static void backward_rows(const void *context, int64_t first, int64_t end) {
    const z3d_swiglu_backward *swiglu = context;
    const z3d_dtype dtype = swiglu->dtype;
    const int64_t cols = swiglu->cols;
    for (int64_t row = first; row < end; row++)
        for (int64_t column = 0; column < cols; column += TILE) {
            const int64_t n = min_int64(TILE, cols - column), at = row * 2 * cols + column;
            float gate_tile[TILE], up_tile[TILE], dy_tile[TILE];
            const float *gate = load_tile(gate_tile, swiglu->x, dtype, at, n);
            const float *up = load_tile(up_tile, swiglu->x, dtype, at + cols, n);
            const float *dy = load_tile(dy_tile, swiglu->dy, dtype, row * cols + column, n);
            float *dgate = open_tile(gate_tile, swiglu->dx, dtype, at);
            float *dup = open_tile(up_tile, swiglu->dx, dtype, at + cols);
            backward_tile(dgate, dup, gate, up, dy, n);
            close_tile(dgate, swiglu->dx, dtype, at, n);
            close_tile(dup, swiglu->dx, dtype, at + cols, n);
        }
}

KERNEL_OF_BLOCKS(swiglu_backward,
                 for_rows(cpu, kernel->rows, 2 * kernel->cols, backward_rows, kernel))
