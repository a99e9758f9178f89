/* The recording device: no memory and no arithmetic; every launch goes to an observer. */
#include <stdlib.h>

#include "src/device/interface/ops.h"
#include "src/device/interface/unbacked.h"

typedef struct recorder {
    z3d_unbacked memory; /* first */
    z3d_status (*observe)(void *context, const z3d_kernel *kernel);
    void *context;
} recorder;

static z3d_status create(const z3d_device_config *config, void **self) {
    (void)config;
    recorder *made;
    Z3D_TRY(z3d_new(1, sizeof *made, "the recording device", &made));
    *self = made;
    return Z3D_OK;
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
    const recorder *to = self;
    return to->observe ? to->observe(to->context, kernel) : Z3D_OK;
}

static z3d_status read_nothing(void *self, void *host, const void *source, int64_t bytes) {
    (void)self, (void)host, (void)source, (void)bytes;
    return Z3D_OK;
}

static void set_recorder(void *self, z3d_status (*observe)(void *, const z3d_kernel *),
                         void *context) {
    recorder *to = self;
    to->observe = observe;
    to->context = context;
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
    .set_recorder = set_recorder,
};
