/* The device interface: finds the backend by name, checks the arguments that all backends share,
 * and calls the backend's table. */
#include "src/device/device.h"

#include <stdlib.h>
#include <string.h>

#include "src/device/interface/epilogue.h"
#include "src/device/interface/ops.h"
#include "src/device/interface/shared.h"
#include "src/device/plugin/plugin.h"
#include "src/device/sim/tape.h"

struct z3d_device {
    const z3d_device_ops *ops;
    void *self;
    const z3d_plugin *plugin; /* NULL: the table is our own */
    z3d_tape *tape;           /* NULL: kernels are not timed */
    bool host_collectives;
    void *scratch;
    z3d_access_observer observer; /* NULL: none */
    void *access_context;
    z3d_status (*record)(void *context, const z3d_kernel *kernel); /* NULL: none */
    void *record_context;
};

static const z3d_device_ops *const backends[] = {&z3d_device_ops_cpu, &z3d_device_ops_record,
                                                 &z3d_device_ops_sim};

const char *z3d_gemm_method_name(z3d_gemm_method method) {
    static const char *const names[] = {
#define X(NAME, name) #name,
        Z3D_GEMM_METHOD_MAP(X)
#undef X
    };
    return (unsigned)method < Z3D_GEMM_METHOD_COUNT ? names[method] : "?";
}

const char *z3d_kernel_name(z3d_kernel_kind kind) {
    static const char *const names[] = {
#define X(name, type) #name,
        Z3D_KERNEL_MAP(X)
#undef X
    };
    return (unsigned)kind < Z3D_KERNEL_COUNT ? names[kind] : "?";
}

z3d_status z3d_device_heard(const z3d_device *device, z3d_status status) {
    if (status == Z3D_OK || status == Z3D_AGAIN || !device->plugin) return status;
    return Z3D_ERROR(status, "%s", device->plugin->message());
}

static z3d_status find_backend(const char *name, z3d_device *device) {
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
        if (!strcmp(backends[i]->name, name)) device->ops = backends[i];
    if (device->ops) return Z3D_OK;
    if (strcmp(name, "cuda") != 0)
        return Z3D_ERROR(
            Z3D_ERR_UNSUPPORTED,
            "device backend '%s' is unknown; there are 'cpu', 'cuda', 'record' and 'sim'", name);
    Z3D_TRY(z3d_plugin_load(&device->plugin));
    device->ops = device->plugin->device;
    return Z3D_OK;
}

z3d_status z3d_device_create(const z3d_device_config *config, z3d_device **out) {
    *out = NULL;
    z3d_device *device;
    Z3D_TRY(z3d_new(1, sizeof *device, "a device", &device));
    device->host_collectives = config->host_collectives;
    z3d_status status = find_backend(config->backend ? config->backend : "", device);
    if (device->ops != &z3d_device_ops_sim) device->tape = config->tape; /* sim writes its own */
    if (status == Z3D_OK)
        status = z3d_device_heard(device, device->ops->create(config, &device->self));
    if (status != Z3D_OK) {
        free(device);
        return status;
    }
    *out = device;
    return Z3D_OK;
}

void z3d_device_destroy(z3d_device *device) {
    if (!device) return;
    device->ops->destroy(device->self);
    free(device);
}

const char *z3d_device_backend(const z3d_device *device) {
    return device->ops->name;
}

const char *z3d_device_description(const z3d_device *device) {
    return device->ops->description(device->self);
}

int z3d_device_threads(const z3d_device *device) {
    return device->ops->threads ? device->ops->threads(device->self) : 0;
}

uint64_t z3d_device_identity(const z3d_device *device) {
    return device->ops->identity ? device->ops->identity(device->self) : 0;
}

bool z3d_device_host_reads(const z3d_device *device) {
    return !device->ops->apart;
}

const struct z3d_stream_collectives *z3d_device_collectives(const z3d_device *device, void **self) {
    *self = device->self;
    return device->plugin && !device->host_collectives ? device->plugin->collectives : NULL;
}

static z3d_status alloc_pinned(z3d_device *device, int64_t bytes, void **out) {
    Z3D_TRY(z3d_host_map(bytes, 0, device->ops->host_node(device->self), out));
    z3d_status status = z3d_device_heard(device, device->ops->pin(device->self, *out, bytes));
    if (status == Z3D_OK) return Z3D_OK;
    z3d_host_unmap(*out, bytes);
    *out = NULL;
    if (device->ops->alloc(device->self, Z3D_SPACE_HOST, bytes, out) == Z3D_OK) return Z3D_OK;
    return status;
}

z3d_status z3d_device_alloc(z3d_device *device, z3d_space space, int64_t bytes, void **out) {
    *out = NULL;
    Z3D_REQUIRE((unsigned)space < Z3D_SPACE_COUNT, "invalid memory space %d of %d", (int)space,
                (int)Z3D_SPACE_COUNT);
    Z3D_REQUIRE(bytes >= 0, "invalid size of device memory: %lld bytes", (long long)bytes);
    if (space == Z3D_SPACE_HOST && device->ops->pin) return alloc_pinned(device, bytes, out);
    return z3d_device_heard(device, device->ops->alloc(device->self, space, bytes, out));
}

void z3d_device_free(z3d_device *device, z3d_space space, void *block, int64_t bytes) {
    if (!block) return;
    if (space == Z3D_SPACE_HOST && device->ops->pin) {
        if (device->ops->unpin(device->self, block)) z3d_host_unmap(block, bytes);
    } else {
        device->ops->free(device->self, space, block, bytes);
    }
}

int64_t z3d_device_memory(const z3d_device *device) {
    int64_t all = INT64_MAX, available = INT64_MAX;
    if (device->ops->memory) device->ops->memory(device->self, &all, &available);
    return all;
}

int64_t z3d_device_available(const z3d_device *device) {
    int64_t all = INT64_MAX, available = INT64_MAX;
    if (device->ops->memory) device->ops->memory(device->self, &all, &available);
    return available;
}

int64_t z3d_device_used_bytes(const z3d_device *device) {
    int64_t all = INT64_MAX, available = INT64_MAX;
    if (device->ops->apart && device->ops->memory)
        device->ops->memory(device->self, &all, &available);
    return all < INT64_MAX ? all - available : -1;
}

void z3d_device_set_scratch(z3d_device *device, void *scratch, int64_t bytes) {
    device->scratch = scratch;
    if (device->ops->set_scratch)
        device->ops->set_scratch(device->self, scratch, scratch && bytes > 0 ? bytes : 0);
}

void z3d_device_set_poll(z3d_device *device, void (*poll)(void *context), void *context) {
    if (device->ops->set_poll) device->ops->set_poll(device->self, poll, context);
}

/* ---- access to device memory ---- */

void z3d_device_set_access_observer(z3d_device *device, z3d_access_observer observer,
                                    void *context) {
    device->observer = observer;
    device->access_context = context;
}

void z3d_device_touch(const z3d_device *device, const void *memory, int64_t bytes) {
    if (device->observer && bytes > 0) device->observer(device->access_context, memory, bytes);
}

static void touch_operands(const z3d_device *device, const z3d_kernel *kernel) {
    z3d_cost cost;
    z3d_kernel_cost(kernel, &cost);
    for (int i = 0; i < cost.num_operands; i++)
        z3d_device_touch(device, cost.operands[i].pointer, cost.operands[i].bytes);
    if (device->scratch)
        z3d_device_touch(device, device->scratch,
                         z3d_kernel_scratch(kernel, z3d_device_threads(device)));
}

static z3d_status check_gemm(const z3d_gemm *g) {
    Z3D_REQUIRE(g->m >= 0 && g->n >= 0 && g->k >= 0, "kernel gemm: %lld x %lld x %lld",
                (long long)g->m, (long long)g->n, (long long)g->k);
    Z3D_REQUIRE(g->dtype <= Z3D_F16 && g->c_dtype <= Z3D_F16,
                "kernel gemm: types %s and %s; fp32, bf16 and fp16 are possible",
                z3d_dtype_name(g->dtype), z3d_dtype_name(g->c_dtype));
    Z3D_REQUIRE(g->lda >= (g->transpose_a ? g->m : g->k) &&
                    g->ldb >= (g->transpose_b ? g->k : g->n) && g->ldc >= g->n,
                "kernel gemm: %lld x %lld x %lld with rows of %lld, %lld, %lld elements: too short",
                (long long)g->m, (long long)g->n, (long long)g->k, (long long)g->lda,
                (long long)g->ldb, (long long)g->ldc);
    const bool whole =
        (!g->gelu && !g->before_gelu && !g->residual) || (g->ldc == g->n && g->c_dtype == g->dtype);
    const bool gathered = !g->bias_gradient || (g->transpose_a && g->lda == g->m);
    Z3D_REQUIRE(whole && gathered,
                "kernel gemm: gelu or a residual needs C in A's type without gaps, a bias gradient "
                "needs A transposed without gaps; rows of C %lld of %lld elements in %s, of A %lld "
                "of %lld%s",
                (long long)g->n, (long long)g->ldc, z3d_dtype_name(g->c_dtype), (long long)g->m,
                (long long)g->lda, g->transpose_a ? "" : ", not transposed");
    return Z3D_OK;
}

static z3d_status launch_parts(z3d_device *device, const z3d_gemm *gemm) {
    z3d_kernel part[Z3D_GEMM_PARTS];
    int parts = z3d_gemm_parts(gemm, part);
    for (int i = 0; i < parts; i++) Z3D_TRY(z3d_launch(device, &part[i]));
    return Z3D_OK;
}

z3d_status z3d_device_time(z3d_device *device, const z3d_kernel *kernel, double *seconds) {
    const z3d_device_ops *ops = device->ops;
    if (kernel->kind == Z3D_KERNEL_gemm) Z3D_TRY(check_gemm(&kernel->as.gemm));
    const double begin = z3d_now();
    if (ops->launch_timed)
        return z3d_device_heard(device, ops->launch_timed(device->self, kernel, seconds));
    Z3D_TRY(z3d_device_heard(device, ops->launch(device->self, kernel)));
    *seconds = z3d_now() - begin;
    return Z3D_OK;
}

z3d_status z3d_launch(z3d_device *device, const z3d_kernel *kernel) {
    Z3D_REQUIRE((unsigned)kernel->kind < Z3D_KERNEL_COUNT, "kernel kind %d of %d",
                (int)kernel->kind, (int)Z3D_KERNEL_COUNT);
    if (kernel->kind == Z3D_KERNEL_gemm) {
        Z3D_TRY(check_gemm(&kernel->as.gemm));
        if (!device->ops->fuses && !z3d_gemm_is_plain(&kernel->as.gemm))
            return launch_parts(device, &kernel->as.gemm);
    }
    if (device->observer) touch_operands(device, kernel);
    if (device->record) Z3D_TRY(device->record(device->record_context, kernel));
    if (device->tape) {
        double seconds;
        Z3D_TRY(z3d_device_time(device, kernel, &seconds));
        return z3d_tape_kernel(device->tape, kernel, Z3D_SPACE_DEVICE, seconds);
    }
    return z3d_device_heard(device, device->ops->launch(device->self, kernel));
}

z3d_status z3d_device_synchronize(z3d_device *device) {
    if (!device->ops->synchronize) return Z3D_OK;
    return z3d_device_heard(device, device->ops->synchronize(device->self));
}

z3d_status z3d_copy_start(z3d_device *device, void *to, const void *from, int64_t bytes,
                          z3d_copy *copy) {
    Z3D_REQUIRE(bytes >= 0, "copy of %lld bytes", (long long)bytes);
    copy->id = 0;
    z3d_device_touch(device, from, bytes);
    z3d_device_touch(device, to, bytes);
    if (!device->ops->copy_start) return Z3D_OK;
    return z3d_device_heard(device,
                            device->ops->copy_start(device->self, to, from, bytes, &copy->id));
}

z3d_status z3d_copy_wait(z3d_device *device, z3d_copy copy) {
    if (!device->ops->copy_wait) return Z3D_OK;
    return z3d_device_heard(device, device->ops->copy_wait(device->self, copy.id));
}

z3d_status z3d_copy_finish(z3d_device *device, z3d_copy copy) {
    if (!device->ops->copy_finish) return z3d_copy_wait(device, copy);
    return z3d_device_heard(device, device->ops->copy_finish(device->self, copy.id));
}

double z3d_copies_waited(const z3d_device *device) {
    return device->ops->copies_waited ? device->ops->copies_waited(device->self) : 0;
}

/* Copies by `copy`, or by the device's queue if it has one. memory: the end in device memory. A
 * copy of memory that is not pinned may block until all launched work ends, and such a wait does
 * not see that a peer failed. So `now` waits for the device first. */
static z3d_status copy_bytes(z3d_device *device, bool now, const void *memory,
                             z3d_status (*copy)(void *self, void *to, const void *from,
                                                int64_t bytes),
                             void *to, const void *from, int64_t bytes) {
    const bool queued = device->ops->enqueue_copy != NULL;
    Z3D_REQUIRE(bytes >= 0, "copy of %lld bytes", (long long)bytes);
    z3d_device_touch(device, memory, bytes);
    if (queued) copy = device->ops->enqueue_copy;
    if (queued && now) Z3D_TRY(z3d_device_synchronize(device));
    Z3D_TRY(z3d_device_heard(device, copy(device->self, to, from, bytes)));
    return queued && now ? z3d_device_synchronize(device) : Z3D_OK;
}

z3d_status z3d_device_read(z3d_device *device, void *host, const void *source, int64_t bytes) {
    return copy_bytes(device, true, source, device->ops->read, host, source, bytes);
}

z3d_status z3d_device_write(z3d_device *device, void *destination, const void *host,
                            int64_t bytes) {
    return copy_bytes(device, true, destination, device->ops->write, destination, host, bytes);
}

z3d_status z3d_device_post(z3d_device *device, void *destination, const void *host, int64_t bytes) {
    return copy_bytes(device, false, destination, device->ops->write, destination, host, bytes);
}

z3d_status z3d_device_fetch(z3d_device *device, void *host, const void *source, int64_t bytes) {
    return copy_bytes(device, false, source, device->ops->read, host, source, bytes);
}

/* ---- captured work ---- */

bool z3d_device_captures(const z3d_device *device) {
    return device->ops->capture_begin != NULL;
}

z3d_status z3d_capture_begin(z3d_device *device) {
    Z3D_REQUIRE(z3d_device_captures(device), "the %s device does not support graph capture",
                device->ops->name);
    return z3d_device_heard(device, device->ops->capture_begin(device->self));
}

z3d_status z3d_capture_end(z3d_device *device, z3d_region **out, int64_t *launches) {
    void *region = NULL;
    z3d_status status = z3d_device_heard(
        device, device->ops->capture_end(device->self, out ? &region : NULL, launches));
    if (out) *out = region;
    return status;
}

z3d_status z3d_region_launch(z3d_device *device, const z3d_region *region) {
    return z3d_device_heard(device, device->ops->region_launch(device->self, region));
}

void z3d_region_destroy(z3d_device *device, z3d_region *region) {
    if (region) device->ops->region_destroy(device->self, region);
}

z3d_status z3d_device_measure_gemm(z3d_device *device, z3d_dtype dtype, int64_t m, int64_t n,
                                   int64_t k, z3d_gemm_method *best, double *gflops) {
    *best = Z3D_GEMM_SGEMM;
    *gflops = 0;
    Z3D_REQUIRE(m > 0 && n > 0 && k > 0, "cannot measure a matrix product of %lld x %lld x %lld",
                (long long)m, (long long)n, (long long)k);
    if (device->ops->measure_gemm)
        return z3d_device_heard(
            device, device->ops->measure_gemm(device->self, dtype, m, n, k, best, gflops));
    if (!device->ops->synchronize) return Z3D_OK; /* the device computes nothing */
    return z3d_measure_products(device, dtype, m, n, k, gflops);
}

z3d_status z3d_device_gemm_machine(z3d_device *device, char *out, size_t size) {
    Z3D_REQUIRE(device->ops->gemm_machine, "the %s device chooses no algorithms of products",
                device->ops->name);
    return z3d_device_heard(device, device->ops->gemm_machine(device->self, out, size));
}

z3d_status z3d_device_gemm_choice(z3d_device *device, const z3d_gemm *gemm, z3d_gemm_choice *out) {
    *out = (z3d_gemm_choice){.algorithms = 0};
    Z3D_TRY(check_gemm(gemm));
    return z3d_device_heard(device, device->ops->gemm_choice(device->self, gemm, out));
}

z3d_status z3d_device_choose_gemm(z3d_device *device, const z3d_gemm_choice *choice) {
    return z3d_device_heard(device, device->ops->choose_gemm(device->self, choice));
}

void z3d_device_set_recorder(z3d_device *device,
                             z3d_status (*observe)(void *context, const z3d_kernel *kernel),
                             void *context) {
    device->record = observe;
    device->record_context = context;
}
