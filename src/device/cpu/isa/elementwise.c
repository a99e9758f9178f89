/* fill, initial values by global index, cast, accumulate, scale and GELU. */
#include "src/device/cpu/isa/isa.h"

/* A fill's value in its type. */
typedef union fill_pattern {
    float f32;
    double f64;
    int32_t i32;
    uint16_t u16;
    uint8_t u8;
} fill_pattern;

static fill_pattern pattern_of(const z3d_fill *fill) {
    fill_pattern pattern = {.f64 = 0};
    if (fill->dtype == Z3D_F32)
        pattern.f32 = fill->value;
    else if (fill->dtype == Z3D_F64)
        pattern.f64 = (double)fill->value;
    else if (fill->dtype == Z3D_I32)
        pattern.i32 = (int32_t)fill->value;
    else if (fill->dtype == Z3D_U8)
        pattern.u8 = (uint8_t)fill->value;
    else
        narrow(&pattern.u16, fill->dtype, &fill->value, 1);
    return pattern;
}

static void fill_block(const void *context, int64_t first, int64_t end) {
    const z3d_fill *fill = context;
    const fill_pattern pattern = pattern_of(fill);
    const int64_t size = (int64_t)z3d_dtype_size(fill->dtype), n = end - first;
    char *x = (char *)fill->x + first * size;
    if (pattern.f64 == 0.0 && !signbit(pattern.f64))
        memset(x, 0, (size_t)(n * size));
    else if (size == 8)
        for (int64_t i = 0; i < n; i++) memcpy(x + i * 8, &pattern.f64, 8);
    else if (size == 4)
        for (int64_t i = 0; i < n; i++) memcpy(x + i * 4, &pattern.i32, 4);
    else if (size == 2)
        for (int64_t i = 0; i < n; i++) memcpy(x + i * 2, &pattern.u16, 2);
    else
        memset(x, pattern.u8, (size_t)n);
}

z3d_status Z3D_CPU_NAME(fill)(z3d_cpu *cpu, const z3d_kernel *kernel) {
    for_elements(cpu, kernel->as.fill.count, fill_block, &kernel->as.fill);
    return Z3D_OK;
}

static void init_block(const void *context, int64_t first, int64_t end) {
    const z3d_init_normal *init = context;
    for (int64_t i = first, run; i < end; i += run) {
        const int64_t global = global_index(&init->place, i, &run);
        run = min_int64(run, end - i);
        z3d_philox_normal_fill(init->place.key, (uint64_t)global, run, init->x + i);
        for (int64_t j = 0; j < run; j++) init->x[i + j] *= init->standard_deviation;
    }
}

z3d_status Z3D_CPU_NAME(init_normal)(z3d_cpu *cpu, const z3d_kernel *kernel) {
    const z3d_init_normal *init = &kernel->as.init_normal;
    const z3d_parameter_place *place = &init->place;
    Z3D_REQUIRE(place->local > 0 && place->inner > 0 && place->offset >= 0 &&
                    place->offset + place->local <= place->global,
                "kernel init_normal: rows %lld + %lld of %lld, inner %lld",
                (long long)place->offset, (long long)place->local, (long long)place->global,
                (long long)place->inner);
    for_blocks(cpu, init->count, TILE, 64, init_block, init);
    return Z3D_OK;
}

static void cast_block(const void *context, int64_t first, int64_t end) {
    const z3d_cast *cast = context;
    const z3d_dtype from = cast->source_dtype, to = cast->destination_dtype;
    if (from == to) {
        const int64_t size = (int64_t)z3d_dtype_size(from);
        memcpy((char *)cast->destination + first * size, (const char *)cast->source + first * size,
               (size_t)((end - first) * size));
        return;
    }
    for (int64_t i = first; i < end; i += TILE) {
        const int64_t n = min_int64(TILE, end - i);
        float tile[TILE];
        if (to == Z3D_F32)
            widen((float *)cast->destination + i, element(cast->source, from, i), from, n);
        else
            close_tile(load_tile(tile, cast->source, from, i, n), cast->destination, to, i, n);
    }
}

static void copy_rows(const void *context, int64_t first, int64_t end) {
    const z3d_cast *cast = context;
    const int64_t size = (int64_t)z3d_dtype_size(cast->source_dtype);
    for (int64_t row = first; row < end; row++)
        memcpy((char *)cast->destination + row * cast->destination_stride * size,
               (const char *)cast->source + row * cast->source_stride * size,
               (size_t)(cast->count * size));
}

z3d_status Z3D_CPU_NAME(cast)(z3d_cpu *cpu, const z3d_kernel *kernel) {
    const z3d_cast *cast = &kernel->as.cast;
    if (cast->source_dtype != cast->destination_dtype) {
        Z3D_REQUIRE(cast->rows <= 1, "cast: one row, or equal types");
        REQUIRE_FLOAT(cast, cast->source_dtype);
        REQUIRE_FLOAT(cast, cast->destination_dtype);
    }
    if (cast->rows > 1)
        for_rows(cpu, cast->rows, cast->count, copy_rows, cast);
    else
        for_elements(cpu, cast->count, cast_block, cast);
    return Z3D_OK;
}

static void accumulate_block(const void *context, int64_t first, int64_t end) {
    const z3d_accumulate *accumulate = context;
    for (int64_t i = first; i < end; i += TILE) {
        const int64_t n = min_int64(TILE, end - i);
        float x_tile[TILE], y_tile[TILE];
        const float *x = load_tile(x_tile, accumulate->x, accumulate->x_dtype, i, n);
        const float *y = load_tile(y_tile, accumulate->y, accumulate->y_dtype, i, n);
        float *sum = open_tile(y_tile, accumulate->y, accumulate->y_dtype, i);
#pragma omp simd
        for (int64_t j = 0; j < n; j++) sum[j] = y[j] + x[j];
        close_tile(sum, accumulate->y, accumulate->y_dtype, i, n);
    }
}

KERNEL_OF_TYPES(accumulate, x_dtype, y_dtype,
                for_elements(cpu, kernel->count, accumulate_block, kernel))

static void scale_block(const void *context, int64_t first, int64_t end) {
    const z3d_scale *scale = context;
    for (int64_t i = first; i < end; i += TILE) {
        const int64_t n = min_int64(TILE, end - i);
        float tile[TILE];
        const float *x = load_tile(tile, scale->x, scale->dtype, i, n);
        float *y = open_tile(tile, scale->x, scale->dtype, i);
#pragma omp simd
        for (int64_t j = 0; j < n; j++) y[j] = scale->factor * x[j];
        close_tile(y, scale->x, scale->dtype, i, n);
    }
}

KERNEL_BY_ELEMENTS(scale, scale_block)

/* 0.5 (1 + tanh(u)) = 1 / (1 + e^-2u): one exponential, and no cancellation if x is negative. 2u =
 * x (GELU_LINEAR + GELU_CUBIC x^2). */
static const float GELU_LINEAR = 1.59576912f; /* 2 sqrt(2 / pi) */
static const float GELU_CUBIC = 0.0713548163f;

static void gelu_forward_block(const void *context, int64_t first, int64_t end) {
    const z3d_gelu_forward *gelu = context;
    for (int64_t i = first; i < end; i += TILE) {
        const int64_t n = min_int64(TILE, end - i);
        float x_tile[TILE], y_tile[TILE];
        const float *x = load_tile(x_tile, gelu->x, gelu->dtype, i, n);
        float *y = open_tile(y_tile, gelu->y, gelu->dtype, i);
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            float exponent = x[j] * (GELU_LINEAR + GELU_CUBIC * (x[j] * x[j]));
            y[j] = x[j] / (1.0f + z3d_exp(-exponent));
        }
        close_tile(y, gelu->y, gelu->dtype, i, n);
    }
}

KERNEL_BY_ELEMENTS(gelu_forward, gelu_forward_block)

/* Beyond +-10 the derivative is 1 or 0 in fp32; the clamp avoids inf * 0. It is a separate loop,
 * because in one loop compilers would compute everything for x and for the bounds. */
static inline void gelu_backward_tile(float *dx, const float *dy, const float *x, int64_t n) {
    float clamped[TILE];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float v = x[i] > 10.0f ? 10.0f : x[i];
        clamped[i] = v < -10.0f ? -10.0f : v;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float v = clamped[i], square = v * v;
        float e = z3d_exp(-(v * (GELU_LINEAR + GELU_CUBIC * square)));
        float s = 1.0f / (1.0f + e); /* 1 - s is s e */
        float slope = s + v * (GELU_LINEAR + 3.0f * GELU_CUBIC * square) * (s * (s * e));
        dx[i] = dy[i] * slope;
    }
}

static void gelu_backward_block(const void *context, int64_t first, int64_t end) {
    const z3d_gelu_backward *gelu = context;
    for (int64_t i = first; i < end; i += TILE) {
        const int64_t n = min_int64(TILE, end - i);
        float x_tile[TILE], dy_tile[TILE], dx_tile[TILE];
        const float *x = load_tile(x_tile, gelu->x, gelu->dtype, i, n);
        const float *dy = load_tile(dy_tile, gelu->dy, gelu->dtype, i, n);
        float *dx = open_tile(dx_tile, gelu->dx, gelu->dtype, i);
        gelu_backward_tile(dx, dy, x, n);
        close_tile(dx, gelu->dx, gelu->dtype, i, n);
    }
}

KERNEL_BY_ELEMENTS(gelu_backward, gelu_backward_block)
