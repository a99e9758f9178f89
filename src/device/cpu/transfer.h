/* Inside the cpu backend: a thread that copies between memory spaces, in the order of the
 * starts. */
#ifndef ZERO3D_DEVICE_CPU_TRANSFER_H
#define ZERO3D_DEVICE_CPU_TRANSFER_H

#include "src/device/device.h"

typedef struct z3d_cpu_transfer z3d_cpu_transfer;

z3d_status z3d_cpu_transfer_create(z3d_cpu_transfer **out);
void z3d_cpu_transfer_destroy(
    z3d_cpu_transfer *transfer); /* NULL does nothing; waits for the copies that were started */
z3d_status z3d_cpu_transfer_start(z3d_cpu_transfer *transfer, void *to, const void *from,
                                  int64_t bytes, int64_t *id);
z3d_status z3d_cpu_transfer_wait(z3d_cpu_transfer *transfer, int64_t id);

#endif
