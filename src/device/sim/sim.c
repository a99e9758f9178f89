/* The sim device: the same kernels and transfers at any size, without memory. It writes every
 * launch with its cost on a tape. Reads return zeros. */
#include <stdlib.h>
#include <string.h>

#include "src/device/interface/ops.h"
#include "src/device/interface/unbacked.h"
#include "src/device/sim/tape.h"

typedef struct sim {
    z3d_unbacked memory; /* first */
    int threads;
    int64_t next_copy;
    z3d_tape *tape;
} sim;

static z3d_status create(const z3d_device_config *config, void **self) {
    if (!config->tape) return Z3D_ERROR(Z3D_ERR_USAGE, "the sim device needs a tape");
    sim *made;
    Z3D_TRY(z3d_new(1, sizeof *made, "the sim device", &made));
    *made = (sim){.threads = config->threads, .tape = config->tape};
    *self = made;
    return Z3D_OK;
}

static void destroy(void *self) {
    free(self);
}

static const char *description(const void *self) {
    (void)self;
    return "sim: no memory, no arithmetic, a virtual clock";
}

/* 0: no scratch is planned, as for a GPU. */
static int threads(const void *self) {
    return ((const sim *)self)->threads;
}

/* A kernel that writes host memory is run by the host, because a device's kernels do not write
 * there. */
static z3d_space space_of(const z3d_kernel *kernel) {
    z3d_cost cost;
    z3d_kernel_cost(kernel, &cost);
    for (int i = 0; i < cost.num_operands; i++)
        if (cost.operands[i].written &&
            z3d_unbacked_space(cost.operands[i].pointer) == Z3D_SPACE_HOST)
            return Z3D_SPACE_HOST;
    return Z3D_SPACE_DEVICE;
}

static z3d_status launch(void *self, const z3d_kernel *kernel) {
    const sim *to = self;
    return z3d_tape_kernel(to->tape, kernel, space_of(kernel), 0);
}

static z3d_status read_zeros(void *self, void *host, const void *source, int64_t bytes) {
    (void)self, (void)source;
    memset(host, 0, (size_t)bytes);
    return Z3D_OK;
}

static z3d_status copy_start(void *self, void *to_address, const void *from, int64_t bytes,
                             int64_t *id) {
    sim *to = self;
    *id = ++to->next_copy;
    return z3d_tape_append(to->tape, &(z3d_event){.kind = Z3D_EVENT_COPY_START,
                                                  .from = (int)z3d_unbacked_space(from),
                                                  .to = (int)z3d_unbacked_space(to_address),
                                                  .id = *id,
                                                  .bytes = bytes});
}

static z3d_status copy_wait(void *self, int64_t id) {
    sim *to = self;
    return z3d_tape_append(to->tape, &(z3d_event){.kind = Z3D_EVENT_COPY_WAIT, .id = id});
}

const z3d_device_ops z3d_device_ops_sim = {
    .name = "sim",
    .create = create,
    .destroy = destroy,
    .description = description,
    .threads = threads,
    .alloc = z3d_unbacked_alloc,
    .free = z3d_unbacked_free,
    .fuses = true,
    .launch = launch,
    .read = read_zeros,
    .write = z3d_unbacked_write,
    .copy_start = copy_start,
    .copy_wait = copy_wait,
};
