/* Which algorithms a device's library uses for products: found by timing, kept as text. */
#ifndef ZERO3D_DEVICE_GEMM_CHOICES_H
#define ZERO3D_DEVICE_GEMM_CHOICES_H

#include "src/base/strings.h"
#include "src/device/device.h"

typedef struct z3d_timed_gemm {
    z3d_gemm_choice choice;
    double seconds[2]; /* with the first algorithm that runs, with the fastest; 0: not timed here */
} z3d_timed_gemm;

/* Zero-initialise. */
typedef struct z3d_gemm_choices {
    int count, capacity;
    z3d_timed_gemm *item; /* one a shape */
} z3d_gemm_choices;

void z3d_gemm_choices_free(z3d_gemm_choices *choices);

/* Times every algorithm for this product, with an epilogue separate kernels, too, and chooses the
 * fastest from now on; a shape that has a choice only once. The product is run many times: its
 * operands must be memory that nobody needs. seconds: of the shape. Errors: as z3d_launch. */
z3d_status z3d_gemm_choices_time(z3d_gemm_choices *choices, z3d_device *device,
                                 const z3d_gemm *gemm, double seconds[2]);

/* The first line is z3d_device_gemm_machine's, the others are z3d_gemm_choice's numbers and its
 * `chosen`. */
z3d_status z3d_gemm_choices_write(const z3d_gemm_choices *choices, z3d_device *device,
                                  z3d_string *out);
/* What was written is chosen from now on, also of shapes that have a choice. Errors:
 * ERR_UNSUPPORTED: it is another machine's, and nothing is chosen; ERR_CONFIG. */
z3d_status z3d_gemm_choices_read(z3d_gemm_choices *choices, z3d_device *device, const char *text);

#endif
