/* The timed device: the cpu device with a clock. It runs every kernel and writes it on a tape with
 * its cost and its seconds. This measures a machine with kernels as training launches them. */
#include <stdlib.h>

#include "src/device/interface/ops.h"
#include "src/device/sim/tape.h"

typedef struct timed {
    void *cpu; /* the cpu device's own */
    z3d_tape *tape;
} timed;

static void *cpu_of(const void *self) {
    return ((const timed *)self)->cpu;
}

static z3d_status create(const z3d_device_config *config, void **self) {
    if (!config->tape) return Z3D_ERROR(Z3D_ERR_USAGE, "the timed device needs a tape");
    timed *made;
    Z3D_TRY(z3d_new(1, sizeof *made, "the timed device", &made));
    made->tape = config->tape;
    z3d_status status = z3d_device_ops_cpu.create(config, &made->cpu);
    if (status == Z3D_OK)
        *self = made;
    else
        free(made);
    return status;
}

static void destroy(void *self) {
    z3d_device_ops_cpu.destroy(cpu_of(self));
    free(self);
}

static const char *description(const void *self) {
    return z3d_device_ops_cpu.description(cpu_of(self));
}

static int threads(const void *self) {
    return z3d_device_ops_cpu.threads(cpu_of(self));
}

static z3d_status alloc(void *self, z3d_space space, int64_t bytes, void **out) {
    return z3d_device_ops_cpu.alloc(cpu_of(self), space, bytes, out);
}

static void free_block(void *self, z3d_space space, void *block, int64_t bytes) {
    z3d_device_ops_cpu.free(cpu_of(self), space, block, bytes);
}

static void set_scratch(void *self, void *scratch, int64_t bytes) {
    z3d_device_ops_cpu.set_scratch(cpu_of(self), scratch, bytes);
}

static z3d_status launch(void *self, const z3d_kernel *kernel) {
    const timed *to = self;
    double begin = z3d_now();
    Z3D_TRY(z3d_device_ops_cpu.launch(to->cpu, kernel));
    return z3d_tape_kernel(to->tape, kernel, Z3D_SPACE_DEVICE, z3d_now() - begin);
}

static z3d_status read_bytes(void *self, void *host, const void *source, int64_t bytes) {
    return z3d_device_ops_cpu.read(cpu_of(self), host, source, bytes);
}

static z3d_status write_bytes(void *self, void *destination, const void *host, int64_t bytes) {
    return z3d_device_ops_cpu.write(cpu_of(self), destination, host, bytes);
}

static z3d_status copy_start(void *self, void *to, const void *from, int64_t bytes, int64_t *id) {
    return z3d_device_ops_cpu.copy_start(cpu_of(self), to, from, bytes, id);
}

static z3d_status copy_wait(void *self, int64_t id) {
    return z3d_device_ops_cpu.copy_wait(cpu_of(self), id);
}

const z3d_device_ops z3d_device_ops_timed = {
    .name = "timed",
    .create = create,
    .destroy = destroy,
    .description = description,
    .threads = threads,
    .alloc = alloc,
    .free = free_block,
    .set_scratch = set_scratch,
    .launch = launch,
    .read = read_bytes,
    .write = write_bytes,
    .copy_start = copy_start,
    .copy_wait = copy_wait,
};
