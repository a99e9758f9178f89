/* Measures products on a device that has a queue and only one method. */
#include "src/device/interface/shared.h"

enum { WARM = 3, TIMED = 10, ALIGNED = 256 };

z3d_status z3d_device_fill_random(z3d_device *device, void *memory, int64_t count,
                                  z3d_dtype dtype) {
    const int64_t most = (int64_t)1 << 20, bytes = most * (int64_t)sizeof(float);
    void *numbers;
    Z3D_TRY(z3d_device_alloc(device, Z3D_SPACE_DEVICE, bytes, &numbers));
    z3d_status status = Z3D_LAUNCH(device, init_normal, .x = numbers, .count = most,
                                   .place = {.key = 1, .local = most, .global = most, .inner = 1},
                                   .standard_deviation = 1);
    for (int64_t at = 0; at < count && status == Z3D_OK; at += most)
        status = Z3D_LAUNCH(device, cast, .destination = (char *)memory + z3d_bytes_of(dtype, at),
                            .source = numbers, .count = count - at < most ? count - at : most,
                            .destination_dtype = dtype, .source_dtype = Z3D_F32);
    if (status == Z3D_OK) status = z3d_device_synchronize(device);
    z3d_device_free(device, Z3D_SPACE_DEVICE, numbers, bytes);
    return status;
}

static z3d_status time_products(z3d_device *device, const z3d_kernel *product, double *seconds) {
    double begin = 0;
    for (int i = 0; i < WARM + TIMED; i++) {
        if (i == WARM) {
            Z3D_TRY(z3d_device_synchronize(device));
            begin = z3d_now();
        }
        Z3D_TRY(z3d_launch(device, product));
    }
    Z3D_TRY(z3d_device_synchronize(device));
    *seconds = (z3d_now() - begin) / TIMED;
    return Z3D_OK;
}

z3d_status z3d_measure_products(z3d_device *device, z3d_dtype dtype, int64_t m, int64_t n,
                                int64_t k, double *gflops) {
    const int64_t a = z3d_round_up(z3d_bytes_of(dtype, m * k), ALIGNED);
    const int64_t b = z3d_round_up(z3d_bytes_of(dtype, n * k), ALIGNED);
    const int64_t c = z3d_round_up(z3d_bytes_of(dtype, m * n), ALIGNED);
    double seconds = 0;
    void *block;
    Z3D_TRY(z3d_device_alloc(device, Z3D_SPACE_DEVICE, a + b + c, &block));
    char *at = block;
    const z3d_kernel product = z3d_measured_product(at, at + a, at + a + b, m, n, k, dtype, dtype);
    z3d_status status = z3d_device_fill_random(device, at, m * k, dtype);
    if (status == Z3D_OK) status = z3d_device_fill_random(device, at + a, n * k, dtype);
    if (status == Z3D_OK) status = time_products(device, &product, &seconds);
    z3d_device_free(device, Z3D_SPACE_DEVICE, block, a + b + c);
    *gflops = seconds > 0 ? 2e-9 * (double)m * (double)n * (double)k / seconds : 0;
    return status;
}
