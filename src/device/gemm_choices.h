/* The algorithms that a device's library uses for products: found by timing, kept as text. */
#ifndef ZERO3D_DEVICE_GEMM_CHOICES_H
#define ZERO3D_DEVICE_GEMM_CHOICES_H

#include "src/base/strings.h"
#include "src/device/device.h"

typedef struct z3d_timed_gemm {
    z3d_gemm_choice choice;
    double seconds[2]; /* of one product: with the first algorithm that runs, with the fastest; 0:
                          not timed here */
} z3d_timed_gemm;

/* Zero-initialise. */
typedef struct z3d_gemm_choices {
    int count;
    int64_t capacity;
    z3d_timed_gemm *item; /* one for each shape */
} z3d_gemm_choices;

void z3d_gemm_choices_free(z3d_gemm_choices *choices);

/* Times every algorithm for this product and uses the fastest from now on; for a product with an
 * epilogue separate kernels are timed, too. A shape that was timed before is not timed again. The
 * product runs many times, so nobody may need the content of its operands. seconds: as in
 * z3d_timed_gemm. Errors: as z3d_launch. */
z3d_status z3d_gemm_choices_time(z3d_gemm_choices *choices, z3d_device *device,
                                 const z3d_gemm *gemm, double seconds[2]);

/* The first line is the text of z3d_device_gemm_machine; each other line has the numbers of a
 * z3d_gemm_choice and its `chosen`. */
z3d_status z3d_gemm_choices_write(const z3d_gemm_choices *choices, z3d_device *device,
                                  z3d_string *out);
/* Uses the choices of a text that z3d_gemm_choices_write made, from now on; they replace earlier
 * choices of the same shapes. Errors: ERR_UNSUPPORTED: the text is from another machine, and
 * nothing is changed; ERR_CONFIG. */
z3d_status z3d_gemm_choices_read(z3d_gemm_choices *choices, z3d_device *device, const char *text);

#endif
