/* Memory of the devices that have none (record, sim): addresses are numbers that nobody
 * dereferences; z3d_kernel_cost distinguishes a kernel's buffers by them, and they say in which
 * space they lie. Private to src/device. */
#ifndef ZERO3D_DEVICE_INTERFACE_UNBACKED_H
#define ZERO3D_DEVICE_INTERFACE_UNBACKED_H

#include "src/device/device.h"

/* The first member of such a device's state, which these functions of its table are given. Zeros to
 * begin with. */
typedef struct z3d_unbacked {
    uint64_t used; /* bytes of addresses given so far */
} z3d_unbacked;

z3d_status z3d_unbacked_alloc(void *self, z3d_space space, int64_t bytes, void **out);
void z3d_unbacked_free(void *self, z3d_space space, void *block, int64_t bytes);
/* Of an address that it gave. Below all of them: DISK, which nobody allocates: NULL, or a place in
 * the file. */
z3d_space z3d_unbacked_space(const void *address);
z3d_status z3d_unbacked_write(void *self, void *destination, const void *host, int64_t bytes);

#endif
