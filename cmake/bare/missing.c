/* What the bare build (ZERO3D_BARE) leaves out, in place of src/device/cpu/matmul.c (oneDNN's
 * primitives), zero/execute/observe.c (digests by xxHash), src/base/disk/ (xxHash, liburing) and
 * src/model/patterns.c (the configuration's messages). */
#include "src/base/disk.h"
#include "src/device/cpu/gemm.h"
#include "src/model/model.h"
#include "zero/execute/executor.h"

z3d_status z3d_cpu_gemm_state_create(int threads, struct z3d_gemm_state **out) {
    (void)threads;
    *out = NULL;
    return Z3D_OK;
}

void z3d_cpu_gemm_state_destroy(struct z3d_gemm_state *state) {
    (void)state;
}

z3d_status z3d_cpu_matmul_get(z3d_cpu *cpu, const z3d_matmul_shape *shape, z3d_matmul **out) {
    (void)cpu, (void)shape;
    *out = NULL;
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "a bare build has no oneDNN");
}

bool z3d_cpu_matmul_run(z3d_cpu *cpu, z3d_matmul *matmul, int thread, const void *a, const void *b,
                        float *c) {
    (void)cpu, (void)matmul, (void)thread, (void)a, (void)b, (void)c;
    return false;
}

void z3d_model_set_optimizer_groups(const z3d_config *config, z3d_model *model, z3d_string *wrong) {
    (void)config;
    (void)model;
    (void)wrong;
}

void z3d_model_set_frozen(const z3d_config *config, z3d_model *model, z3d_string *wrong) {
    z3d_model_set_optimizer_groups(config, model, wrong);
}

z3d_status z3d_config_error(const z3d_config *config, const char *path, const char *format, ...) {
    (void)config, (void)format;
    return Z3D_ERROR(Z3D_ERR_CONFIG, "%s is wrong", path);
}

z3d_status z3d_executor_digest(z3d_executor *executor) {
    (void)executor;
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "a bare build has no digests");
}

z3d_status z3d_disk_create(const z3d_disk_config *config, z3d_disk **out) {
    (void)config;
    *out = NULL;
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "a bare build has no disk lane");
}

void z3d_disk_destroy(z3d_disk *disk) {
    (void)disk;
}

const char *z3d_disk_description(const z3d_disk *disk) {
    (void)disk;
    return "";
}

int64_t z3d_disk_memory(const z3d_disk_config *config) {
    (void)config;
    return 0;
}

z3d_status z3d_disk_start(z3d_disk *disk, bool write, int64_t offset, void *memory, int64_t bytes,
                          int64_t *ticket) {
    (void)disk, (void)write, (void)offset, (void)memory, (void)bytes, (void)ticket;
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "a bare build has no disk lane");
}

z3d_status z3d_disk_read(z3d_disk *disk, int64_t offset, void *memory, int64_t bytes) {
    return z3d_disk_start(disk, false, offset, memory, bytes, NULL);
}

z3d_status z3d_disk_write(z3d_disk *disk, int64_t offset, const void *memory, int64_t bytes) {
    return z3d_disk_start(disk, true, offset, (void *)(uintptr_t)memory, bytes, NULL);
}

z3d_status z3d_disk_wait(z3d_disk *disk, int64_t ticket) {
    (void)disk, (void)ticket;
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "a bare build has no disk lane");
}
