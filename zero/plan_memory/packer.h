/* Packs lifetimes into one range of addresses: the pure problem of the memory planner. */
#ifndef ZERO3D_ZERO_PACKER_H
#define ZERO3D_ZERO_PACKER_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/base.h"

enum { Z3D_PACK_ALIGN = 256 };

/* A thing to place. It is alive at moments `first` to `last`, of 0 to `times` - 1. */
typedef struct z3d_span {
    int first, last;
    int64_t bytes;  /* sizes are rounded up to Z3D_PACK_ALIGN */
    int64_t offset; /* result, a multiple of Z3D_PACK_ALIGN */
} z3d_span;

/* Gives every span an offset. Spans that are alive together do not overlap. Tries to keep the
 * height (largest offset + rounded bytes) near the bound (largest sum of rounded bytes alive at a
 * moment), which no packing can beat. Deterministic. Spans keep their order. Errors: ERR_MEMORY. */
z3d_status z3d_pack(z3d_span *spans, int count, int times, int64_t *height, int64_t *bound);
/* The same, but no spans share addresses, for programs that do not run. The sum of all sizes must
 * not overflow. Errors: ERR_MEMORY. */
z3d_status z3d_pack_apart(z3d_span *spans, int count, int times, int64_t *height, int64_t *bound);

#endif
