/* Rotary position embedding. The angles' sines and cosines are computed once per row, for all of
 * its heads. */
#include "src/device/cpu/isa/isa.h"
#include "src/device/cpu/isa/math.h"
#include "src/device/interface/rope.h"

enum { PAIRS = 128 }; /* pairs of a head that are rotated at a time */

typedef struct rotation {
    const z3d_rotary *rotary;
    const float *frequency; /* [head_dim / 2] */
    float factor;
} rotation;

static float position_of(const z3d_rotary *rotary, int64_t row) {
    const int64_t index = rotary->first + row, at = index % rotary->seq;
    if (rotary->row_position) return (float)rotary->row_position[index];
    return (float)(rotary->starts ? rotary->starts[index / rotary->seq] + at : at);
}

static void angles(const rotation *r, float position, int64_t pair, int64_t n, float *restrict sine,
                   float *restrict cosine) {
    const float *frequency = r->frequency + pair;
    const float factor = r->factor, sign = r->rotary->inverse ? -factor : factor;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        double s, c;
        z3d_sincos((double)(position * frequency[j]), &s, &c);
        sine[j] = sign * (float)s;
        cosine[j] = factor * (float)c;
    }
}

/* Rotates pairs pair .. pair + n - 1 of the head at `at`. */
static void turn(const z3d_rotary *rotary, int64_t at, int64_t pair, int64_t n,
                 const float *restrict sine, const float *restrict cosine) {
    const int64_t first = at + pair, second = first + rotary->head_dim / 2;
    float first_tile[PAIRS], second_tile[PAIRS];
    const float *a = load_tile(first_tile, rotary->x, rotary->dtype, first, n);
    const float *b = load_tile(second_tile, rotary->x, rotary->dtype, second, n);
    float *to_a = open_tile(first_tile, rotary->x, rotary->dtype, first);
    float *to_b = open_tile(second_tile, rotary->x, rotary->dtype, second);
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        const float old_a = a[j], old_b = b[j];
        to_a[j] = old_a * cosine[j] - old_b * sine[j];
        to_b[j] = old_b * cosine[j] + old_a * sine[j];
    }
    close_tile(to_a, rotary->x, rotary->dtype, first, n);
    close_tile(to_b, rotary->x, rotary->dtype, second, n);
}

static void rotary_rows(const void *context, int64_t first, int64_t end) {
    const rotation *r = context;
    const z3d_rotary *rotary = r->rotary;
    const int64_t pairs = rotary->head_dim / 2;
    for (int64_t row = first; row < end; row++) {
        const float position = position_of(rotary, row);
        for (int64_t pair = 0; pair < pairs; pair += PAIRS) {
            const int64_t n = min_int64(PAIRS, pairs - pair);
            float sine[PAIRS], cosine[PAIRS];
            angles(r, position, pair, n, sine, cosine);
            for (int64_t head = 0; head < rotary->heads; head++)
                turn(rotary, row * rotary->stride + head * rotary->head_dim, pair, n, sine, cosine);
        }
    }
}

z3d_status Z3D_CPU_NAME(rotary)(z3d_cpu *cpu, const z3d_kernel *kernel) {
    const z3d_rotary *rotary = &kernel->as.rotary;
    REQUIRE_FLOAT(rotary, rotary->dtype);
    Z3D_REQUIRE(rotary->head_dim % 2 == 0, "kernel rotary: heads of %lld elements, not of pairs",
                (long long)rotary->head_dim);
    float *frequency = (float *)(void *)cpu->scratch;
    for (int64_t i = 0; i < rotary->head_dim / 2; i++)
        frequency[i] = z3d_rope_frequency(&rotary->rope, rotary->head_dim, i);
    const rotation r = {rotary, frequency, z3d_rope_attention_factor(&rotary->rope)};
    for_rows(cpu, rotary->rows, rotary->heads * rotary->head_dim, rotary_rows, &r);
    return Z3D_OK;
}
