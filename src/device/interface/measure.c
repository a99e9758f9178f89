/* How fast a device multiplies that has a queue and no methods to choose from. */
#include "src/device/interface/measure.h"

#include "src/base/strings.h"

enum { WARM = 3, TIMED = 10, ALIGNED = 256 };

/* Random numbers: zeros would flatter, since they cost less power. */
static z3d_status fill(z3d_device *device, void *matrix, float *wide, int64_t count,
                       z3d_dtype dtype) {
    Z3D_TRY(Z3D_LAUNCH(device, init_normal, .x = wide, .count = count, .outer = 1, .local = count,
                       .global = count, .inner = 1, .key = 1, .standard_deviation = 1));
    return Z3D_LAUNCH(device, cast, .destination = matrix, .source = wide, .count = count,
                      .destination_dtype = dtype, .source_dtype = Z3D_F32);
}

static z3d_status time_products(z3d_device *device, const z3d_gemm *gemm, double *seconds) {
    const z3d_kernel kernel = {.kind = Z3D_KERNEL_gemm, .as.gemm = *gemm};
    double begin = 0;
    for (int i = 0; i < WARM + TIMED; i++) {
        if (i == WARM) {
            Z3D_TRY(z3d_device_synchronize(device));
            begin = z3d_now();
        }
        Z3D_TRY(z3d_launch(device, &kernel));
    }
    Z3D_TRY(z3d_device_synchronize(device));
    *seconds = (z3d_now() - begin) / TIMED;
    return Z3D_OK;
}

/* As training's forward multiplies: B transposed. */
z3d_status z3d_measure_products(z3d_device *device, z3d_dtype dtype, int64_t m, int64_t n,
                                int64_t k, double *gflops) {
    const int64_t size = (int64_t)z3d_dtype_size(dtype);
    const int64_t a = z3d_round_up(m * k * size, ALIGNED), b = z3d_round_up(n * k * size, ALIGNED);
    const int64_t c = z3d_round_up(m * n * size, ALIGNED);
    const int64_t wide = (m > n ? m : n) * k * (int64_t)sizeof(float);
    double seconds = 0;
    void *block;
    Z3D_TRY(z3d_device_alloc(device, Z3D_SPACE_DEVICE, a + b + c + wide, &block));
    char *at = block;
    const z3d_gemm gemm = {.m = m,
                           .n = n,
                           .k = k,
                           .a = at,
                           .b = at + a,
                           .c = at + a + b,
                           .lda = k,
                           .ldb = k,
                           .ldc = n,
                           .transpose_b = true,
                           .dtype = dtype,
                           .c_dtype = dtype};
    float *numbers = (float *)(at + a + b + c);
    z3d_status status = fill(device, at, numbers, m * k, dtype);
    if (status == Z3D_OK) status = fill(device, at + a, numbers, n * k, dtype);
    if (status == Z3D_OK) status = time_products(device, &gemm, &seconds);
    z3d_device_free(device, Z3D_SPACE_DEVICE, block, a + b + c + wide);
    *gflops = seconds > 0 ? 2e-9 * (double)m * (double)n * (double)k / seconds : 0;
    return status;
}
