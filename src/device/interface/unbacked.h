/* Memory of the devices without memory (record, sim): an address is only a number and is never
 * dereferenced. Addresses tell a kernel's buffers apart, and each address says which space it
 * belongs to. Private to src/device. */
#ifndef ZERO3D_DEVICE_INTERFACE_UNBACKED_H
#define ZERO3D_DEVICE_INTERFACE_UNBACKED_H

#include "src/device/device.h"

/* The first member of such a device's state; `self` of the functions below points to it. Begin with
 * zeros. */
typedef struct z3d_unbacked {
    uint64_t used; /* bytes of addresses given so far */
} z3d_unbacked;

z3d_status z3d_unbacked_alloc(void *self, z3d_space space, int64_t bytes, void **out);
void z3d_unbacked_free(void *self, z3d_space space, void *block, int64_t bytes);
/* The space of an address of z3d_unbacked_alloc. Smaller numbers (NULL, or an offset in the file)
 * are DISK, which nobody allocates. */
z3d_space z3d_unbacked_space(const void *address);
z3d_status z3d_unbacked_write(void *self, void *destination, const void *host, int64_t bytes);

#endif
