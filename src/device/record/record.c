/* The recording device: no memory and no arithmetic. Addresses are numbers that are never followed,
 * so that z3d_kernel_cost can tell the buffers of a kernel apart; every launch is shown to an
 * observer. */
#include <stdlib.h>

#include "src/device/interface/ops.h"

/* Far above what any process maps (47 bits of user addresses). */
#define FIRST_ADDRESS ((uint64_t)1 << 48)
#define PAGE 4096

typedef struct recorder {
    uint64_t next; /* address of the next block */
    z3d_status (*observe)(void *context, const z3d_kernel *kernel);
    void *context;
} recorder;

static z3d_status create(const z3d_device_config *config, void **self) {
    (void)config;
    recorder *made;
    Z3D_TRY(z3d_new(1, sizeof *made, "the recording device", &made));
    made->next = FIRST_ADDRESS;
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

/* Blocks never touch: a page lies between them, so that an extent one too long is noticed. */
static z3d_status alloc(void *self, z3d_space space, int64_t bytes, void **out) {
    (void)space;
    recorder *to = self;
    uint64_t size = ((uint64_t)bytes + PAGE - 1) / PAGE * PAGE + PAGE;
    if (size > UINTPTR_MAX - to->next)
        return Z3D_ERROR(Z3D_ERR_MEMORY, "recording device: no addresses left for %lld bytes",
                         (long long)bytes);
    *out = (void *)(uintptr_t)to->next;
    to->next += size;
    return Z3D_OK;
}

static void free_block(void *self, z3d_space space, void *block, int64_t bytes) {
    (void)self, (void)space, (void)block, (void)bytes;
}

static z3d_status launch(void *self, const z3d_kernel *kernel) {
    const recorder *to = self;
    return to->observe ? to->observe(to->context, kernel) : Z3D_OK;
}

static z3d_status read_nothing(void *self, void *host, const void *source, int64_t bytes) {
    (void)self, (void)host, (void)source, (void)bytes;
    return Z3D_OK;
}

static z3d_status write_nothing(void *self, void *destination, const void *host, int64_t bytes) {
    (void)self, (void)destination, (void)host, (void)bytes;
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
    .alloc = alloc,
    .free = free_block,
    .launch = launch,
    .read = read_nothing,
    .write = write_nothing,
    .set_recorder = set_recorder,
};
