/* Speed of matrix products. Private to src/device. */
#ifndef ZERO3D_DEVICE_INTERFACE_MEASURE_H
#define ZERO3D_DEVICE_INTERFACE_MEASURE_H

#include "src/device/device.h"

/* z3d_device_measure_gemm for devices with one method: times the device's own kernels with the
 * host's clock. */
z3d_status z3d_measure_products(z3d_device *device, z3d_dtype dtype, int64_t m, int64_t n,
                                int64_t k, double *gflops);

#endif
