/* Two devices without memory and arithmetic. Their addresses are only numbers, which are never
 * dereferenced: they tell a kernel's buffers apart, and each says which space it belongs to.
 * record: z3d_device_set_recorder observes the launches. sim: runs a whole step program at any
 * size, and writes every launch and transfer with its cost on a tape; reads return zeros. */
#include <stdlib.h>
#include <string.h>

#include "src/device/interface/ops.h"
#include "src/device/sim/tape.h"

typedef struct sim {
    uint64_t used; /* bytes of addresses given so far */
    int threads;
    int64_t next_copy;
    z3d_tape *tape; /* record: NULL */
} sim;

/* ---- both devices ---- */

static z3d_status make(int threads, z3d_tape *tape, void **self) {
    sim *made;
    Z3D_TRY(z3d_new(1, sizeof *made, "a device without memory", &made));
    *made = (sim){.threads = threads, .tape = tape};
    *self = made;
    return Z3D_OK;
}

static z3d_status create_record(const z3d_device_config *config, void **self) {
    (void)config;
    return make(1, NULL, self);
}

static z3d_status create_sim(const z3d_device_config *config, void **self) {
    if (!config->tape) return Z3D_ERROR(Z3D_ERR_USAGE, "the sim device needs a tape");
    return make(config->threads, config->tape, self);
}

static const char *description(const void *self) {
    return ((const sim *)self)->tape ? "sim: no memory, no arithmetic, a virtual clock"
                                     : "record: no memory, no arithmetic";
}

/* 0: no scratch is planned, as for a GPU. */
static int threads(const void *self) {
    return ((const sim *)self)->threads;
}

/* Far above what any process maps (47 bits of user addresses). The two highest bits of an address
 * are its space. */
#define FIRST_ADDRESS ((uint64_t)1 << 48)
#define PAGE 4096
enum { SPACE_SHIFT = 62 };
_Static_assert(Z3D_SPACE_COUNT <= 4, "a space has two bits of an address");

/* A page lies between two blocks, so an extent that is too long never reaches into the next
 * block. */
static z3d_status alloc(void *self, z3d_space space, int64_t bytes, void **out) {
    sim *of = self;
    uint64_t size = ((uint64_t)bytes + PAGE - 1) / PAGE * PAGE + PAGE;
    if (size > ((uint64_t)1 << SPACE_SHIFT) - FIRST_ADDRESS - of->used)
        return Z3D_ERROR(Z3D_ERR_MEMORY,
                         "no addresses left for %lld bytes on a device without memory",
                         (long long)bytes);
    *out = (void *)(uintptr_t)(((uint64_t)space << SPACE_SHIFT) + FIRST_ADDRESS + of->used);
    of->used += size;
    return Z3D_OK;
}

static void free_nothing(void *self, z3d_space space, void *block, int64_t bytes) {
    (void)self, (void)space, (void)block, (void)bytes;
}

static z3d_status copy_nothing(void *self, void *to, const void *from, int64_t bytes) {
    (void)self, (void)to, (void)from, (void)bytes;
    return Z3D_OK;
}

/* ---- record ---- */

static z3d_status launch_nothing(void *self, const z3d_kernel *kernel) {
    (void)self, (void)kernel;
    return Z3D_OK;
}

const z3d_device_ops z3d_device_ops_record = {
    .name = "record",
    .create = create_record,
    .destroy = free,
    .description = description,
    .threads = threads,
    .alloc = alloc,
    .free = free_nothing,
    .launch = launch_nothing,
    .read = copy_nothing,
    .write = copy_nothing,
};

/* ---- sim ---- */

/* Smaller numbers (NULL, or an offset in the file) are DISK, which nobody allocates. */
static z3d_space space_of(const void *address) {
    const uint64_t value = (uint64_t)(uintptr_t)address;
    return value < FIRST_ADDRESS ? Z3D_SPACE_DISK : (z3d_space)(value >> SPACE_SHIFT);
}

/* A kernel that writes host memory is run by the host, because a device's kernels do not write
 * there. */
static z3d_status launch(void *self, const z3d_kernel *kernel) {
    z3d_space space = Z3D_SPACE_DEVICE;
    z3d_cost cost;
    z3d_kernel_cost(kernel, &cost);
    for (int i = 0; i < cost.num_operands; i++)
        if (cost.operands[i].written && space_of(cost.operands[i].pointer) == Z3D_SPACE_HOST)
            space = Z3D_SPACE_HOST;
    return z3d_tape_kernel(((const sim *)self)->tape, kernel, space, 0);
}

static z3d_status read_zeros(void *self, void *host, const void *source, int64_t bytes) {
    (void)self, (void)source;
    memset(host, 0, (size_t)bytes);
    return Z3D_OK;
}

static z3d_status copy_start(void *self, void *to, const void *from, int64_t bytes, int64_t *id) {
    sim *of = self;
    *id = ++of->next_copy;
    return z3d_tape_append(of->tape, &(z3d_event){.kind = Z3D_EVENT_COPY_START,
                                                  .from = (int)space_of(from),
                                                  .to = (int)space_of(to),
                                                  .id = *id,
                                                  .bytes = bytes});
}

static z3d_status copy_wait(void *self, int64_t id) {
    return z3d_tape_append(((const sim *)self)->tape,
                           &(z3d_event){.kind = Z3D_EVENT_COPY_WAIT, .id = id});
}

const z3d_device_ops z3d_device_ops_sim = {
    .name = "sim",
    .create = create_sim,
    .destroy = free,
    .description = description,
    .threads = threads,
    .alloc = alloc,
    .free = free_nothing,
    .fuses = true,
    .launch = launch,
    .read = read_zeros,
    .write = copy_nothing,
    .copy_start = copy_start,
    .copy_wait = copy_wait,
};
