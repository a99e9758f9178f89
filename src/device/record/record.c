/* The recording device: no memory and no arithmetic; z3d_device_set_recorder observes launches. */
#include <stdlib.h>

#include "src/device/interface/ops.h"
#include "src/device/interface/unbacked.h"

static z3d_status create(const z3d_device_config *config, void **self) {
    (void)config;
    return z3d_new(1, sizeof(z3d_unbacked), "the recording device", self);
}

static void destroy(void *self) {
    free(self);
}

static const char *description(const void *self) {
    (void)self;
    return "record: no memory, no arithmetic";
}

static int threads(const void *self) {
    (void)self;
    return 1;
}

static z3d_status launch(void *self, const z3d_kernel *kernel) {
    (void)self, (void)kernel;
    return Z3D_OK;
}

static z3d_status read_nothing(void *self, void *host, const void *source, int64_t bytes) {
    (void)self, (void)host, (void)source, (void)bytes;
    return Z3D_OK;
}

const z3d_device_ops z3d_device_ops_record = {
    .name = "record",
    .create = create,
    .destroy = destroy,
    .description = description,
    .threads = threads,
    .alloc = z3d_unbacked_alloc,
    .free = z3d_unbacked_free,
    .launch = launch,
    .read = read_nothing,
    .write = z3d_unbacked_write,
};
