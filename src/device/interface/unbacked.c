/* Addresses without memory. */
#include "src/device/interface/unbacked.h"

/* Far above what any process maps (47 bits of user addresses). The two highest bits of an address
 * are its space. */
#define FIRST_ADDRESS ((uint64_t)1 << 48)
#define PAGE 4096
enum { SPACE_SHIFT = 62 };
_Static_assert(Z3D_SPACE_COUNT <= 4, "a space has two bits of an address");

/* A page lies between two blocks, so an extent that is too long never reaches into the next
 * block. */
z3d_status z3d_unbacked_alloc(void *self, z3d_space space, int64_t bytes, void **out) {
    z3d_unbacked *memory = self;
    uint64_t size = ((uint64_t)bytes + PAGE - 1) / PAGE * PAGE + PAGE;
    if (size > ((uint64_t)1 << SPACE_SHIFT) - FIRST_ADDRESS - memory->used)
        return Z3D_ERROR(Z3D_ERR_MEMORY,
                         "no addresses left for %lld bytes on a device without memory",
                         (long long)bytes);
    *out = (void *)(uintptr_t)(((uint64_t)space << SPACE_SHIFT) + FIRST_ADDRESS + memory->used);
    memory->used += size;
    return Z3D_OK;
}

z3d_space z3d_unbacked_space(const void *address) {
    const uint64_t value = (uint64_t)(uintptr_t)address;
    return value < FIRST_ADDRESS ? Z3D_SPACE_DISK : (z3d_space)(value >> SPACE_SHIFT);
}

void z3d_unbacked_free(void *self, z3d_space space, void *block, int64_t bytes) {
    (void)self, (void)space, (void)block, (void)bytes;
}

z3d_status z3d_unbacked_write(void *self, void *destination, const void *host, int64_t bytes) {
    (void)self, (void)destination, (void)host, (void)bytes;
    return Z3D_OK;
}
