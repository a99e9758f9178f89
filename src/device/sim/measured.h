/* Measured times of kernels and collectives of some sizes on the described machine, and from them
 * the times of other sizes: speed curves by size, type and form. They are more exact than a
 * roofline. A part of a hardware description ("measured_us"), written by `zero3d doctor
 * --measure`. */
#ifndef ZERO3D_DEVICE_SIM_MEASURED_H
#define ZERO3D_DEVICE_SIM_MEASURED_H

#include "src/device/sim/tape.h"

/* Collectives are numbered after the kernels. */
#define Z3D_MEASURED_COLLECTIVES(X) X(all_reduce) X(reduce_scatter) X(all_gather)
enum {
    Z3D_MEASURED_BEFORE = Z3D_KERNEL_COUNT - 1,
#define X(name) Z3D_MEASURED_##name,
    Z3D_MEASURED_COLLECTIVES(X)
#undef X
        Z3D_MEASURED_COUNT,
    Z3D_MEASURED_MOST = 1024, /* samples of one description */
    Z3D_MEASURED_SIZES = 3
};

typedef struct z3d_sample {
    int of; /* z3d_kernel_kind, or a collective of the list above */
    z3d_dtype dtype;
    int form; /* as z3d_event's; collectives: 0 */
    /* Products and attention: the event's m, n, k. Other kernels: bytes read and written.
     * Collectives: bytes that a member receives. Unused sizes are 1. */
    double size[Z3D_MEASURED_SIZES];
    double seconds;
} z3d_sample;

typedef struct z3d_measured {
    int count;
    z3d_sample sample[Z3D_MEASURED_MOST];
} z3d_measured;

/* The sample of a kernel of a tape, with its seconds. */
z3d_sample z3d_sample_of_kernel(const z3d_event *kernel);
/* Whether two samples are of one kernel or collective with equal sizes. */
bool z3d_sample_same(const z3d_sample *a, const z3d_sample *b);
/* Adds a sample. If the table has the same sizes already, the shorter time stays; if it has almost
 * the same sizes (5 %), nothing changes. ERR_MEMORY: the table is full. */
z3d_status z3d_measured_add(z3d_measured *measured, const z3d_sample *sample);
/* Seconds of a kernel or collective like `wanted` (wanted->seconds is not read); negative: nothing
 * like it was measured. */
double z3d_measured_seconds(const z3d_measured *measured, const z3d_sample *wanted);

/* Writes the sample's name ("gemm nt fp32 512x384x384") into buf; z3d_sample_parse reads a name.
 * ERR_CONFIG: no such name or size. */
const char *z3d_sample_name(const z3d_sample *sample, char *buf, size_t size);
z3d_status z3d_sample_parse(const char *name, z3d_sample *out);

#endif
