/* The table of the cuda device: choice of the GPU, memory, streams, copies, dispatch of kernels;
 * the plugin's one symbol. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/base/strings.h"
#include "src/device/cuda/cuda.h"
#include "src/device/cuda/kernels/scratch.h"

/* ---- errors ---- */

/* Whether a running kernel caused the error: any later call may report it. */
static bool is_belated(cudaError_t error) {
    return (error >= cudaErrorIllegalAddress && error <= cudaErrorLaunchFailure) ||
           error == cudaErrorUnknown;
}

z3d_status z3d_cuda_check(cudaError_t error, const char *call) {
    if (error == cudaSuccess) return Z3D_OK;
    int name = (int)strcspn(call, "(");
    cudaGetLastError(); /* clear an error that is not fatal */
    return Z3D_ERROR(error == cudaErrorMemoryAllocation ? Z3D_ERR_MEMORY : Z3D_ERR_DEVICE,
                     "cuda device: %.*s: %s (%s)%s", name, call, cudaGetErrorString(error),
                     cudaGetErrorName(error),
                     is_belated(error) ? "; kernels run on after their launch: with "
                                         "CUDA_LAUNCH_BLOCKING=1 the one that failed is named"
                                       : "");
}

/* The runtime keeps "not ready" like an error; libraries that check for errors after a launch would
 * find it. */
bool z3d_cuda_not_ready(cudaError_t error) {
    if (error == cudaErrorNotReady) cudaGetLastError();
    return error == cudaErrorNotReady;
}

/* ---- choice of the GPU ---- */

static z3d_status count_gpus(int *count) {
    *count = 0; /* not set without a driver */
    cudaError_t error = cudaGetDeviceCount(count);
    if (error == cudaErrorInsufficientDriver)
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                         "training.device cuda: no NVIDIA driver on this machine, or one older "
                         "than CUDA %d.%d, which the plugin was built with",
                         CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    if (error == cudaErrorNoDevice || (error == cudaSuccess && *count == 0))
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                         "training.device cuda: this machine has a driver but no GPU that this "
                         "process may use; look at nvidia-smi and CUDA_VISIBLE_DEVICES");
    return z3d_cuda_check(error, "cudaGetDeviceCount");
}

/* FNV-1a of the GPU's UUID; never 0. */
static uint64_t hash_identity(const cudaUUID_t *uuid) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < sizeof uuid->bytes; i++)
        hash = (hash ^ (unsigned char)uuid->bytes[i]) * 0x100000001b3u;
    return hash ? hash : 1;
}

static z3d_status choose_gpu(z3d_cuda *cuda, int local_rank, struct cudaDeviceProp *properties) {
    int count;
    Z3D_TRY(count_gpus(&count));
    cuda->gpu = local_rank % count;
    Z3D_CUDA_TRY(cudaGetDeviceProperties(properties, cuda->gpu));
    cuda->identity = hash_identity(&properties->uuid);
    const int compute_capability = properties->major * 10 + properties->minor;
    if (compute_capability < Z3D_CUDA_OLDEST)
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                         "training.device cuda: GPU %d (%s) has compute capability %d.%d; this "
                         "build needs %d.%d or later",
                         cuda->gpu, properties->name, properties->major, properties->minor,
                         Z3D_CUDA_OLDEST / 10, Z3D_CUDA_OLDEST % 10);
    Z3D_CUDA_TRY(cudaSetDevice(cuda->gpu));
    if (!z3d_cuda_has_kernels())
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                         "training.device cuda: this build has no kernels for GPU %d (%s, compute "
                         "capability %d.%d); build it with CMAKE_CUDA_ARCHITECTURES=%d-real",
                         cuda->gpu, properties->name, properties->major, properties->minor,
                         compute_capability);
    return Z3D_OK;
}

static void describe(z3d_cuda *cuda, const struct cudaDeviceProp *properties, bool tf32) {
    char bytes[32];
    snprintf(cuda->description, sizeof cuda->description,
             "cuda: GPU %d, %.100s, %s, compute %d.%d, CUDA %d.%d, attention by %s%s", cuda->gpu,
             properties->name,
             z3d_format_bytes((int64_t)properties->totalGlobalMem, bytes, sizeof bytes),
             properties->major, properties->minor, CUDART_VERSION / 1000,
             CUDART_VERSION % 1000 / 10, cuda->attention ? cuda->attention_by : "own kernels",
             tf32 ? ", fp32 products in TF32" : "");
}

/* ---- creation ---- */

static void free_scratch(z3d_cuda *cuda) {
    while (cuda->scratch) {
        z3d_cuda_block *first = cuda->scratch;
        cuda->scratch = first->next;
        cudaFree(first->memory);
        free(first);
    }
    cuda->lane.scratch = NULL;
    cuda->lane.scratch_bytes = 0;
}

static void destroy(void *self) {
    z3d_cuda *cuda = self;
    cudaDeviceSynchronize(); /* no work may use freed memory */
    z3d_cuda_nccl_destroy(cuda->nccl);
    z3d_cuda_attention_destroy(cuda->attention);
    z3d_cuda_gemms_destroy(cuda->gemms);
    for (int to_host = 0; to_host < 2; to_host++) {
        z3d_cuda_copies *way = &cuda->copies[to_host];
        for (int i = 0; i < Z3D_CUDA_EVENTS; i++)
            if (way->copied[i]) cudaEventDestroy(way->copied[i]);
        if (way->stream) cudaStreamDestroy(way->stream);
    }
    z3d_cuda_times_destroy(cuda);
    if (cuda->compute_position) cudaEventDestroy(cuda->compute_position);
    free_scratch(cuda);
    if (cuda->compute) cudaStreamDestroy(cuda->compute);
    free(cuda);
}

static z3d_status make_streams(z3d_cuda *cuda) {
    Z3D_CUDA_TRY(cudaStreamCreateWithFlags(&cuda->compute, cudaStreamNonBlocking));
    Z3D_CUDA_TRY(cudaEventCreateWithFlags(&cuda->compute_position, cudaEventDisableTiming));
    for (int to_host = 0; to_host < 2; to_host++) {
        z3d_cuda_copies *way = &cuda->copies[to_host];
        Z3D_CUDA_TRY(cudaStreamCreateWithFlags(&way->stream, cudaStreamNonBlocking));
        for (int i = 0; i < Z3D_CUDA_EVENTS; i++)
            Z3D_CUDA_TRY(cudaEventCreateWithFlags(&way->copied[i], cudaEventDisableTiming));
    }
    cuda->lane.stream = cuda->compute;
    return Z3D_OK;
}

static z3d_status create(const z3d_device_config *config, void **self) {
    z3d_cuda *cuda;
    struct cudaDeviceProp properties;
    z3d_status status;
    Z3D_TRY(z3d_new(1, sizeof *cuda, "the cuda device", &cuda));
    bool only_cudnn = config->attention == Z3D_ATTENTION_CUDNN;
    cuda->times_wanted = config->times || config->tape;
    cuda->windows = config->nccl_windows;
    Z3D_TRY_GOTO(status, choose_gpu(cuda, config->local_rank, &properties), failed);
    Z3D_TRY_GOTO(status, make_streams(cuda), failed);
    Z3D_TRY_GOTO(status, z3d_cuda_gemms_create(config->tf32, &cuda->gemms), failed);
    if (config->attention != Z3D_ATTENTION_OWN)
        Z3D_TRY_GOTO(status, z3d_cuda_attention_create(cuda, only_cudnn, !config->nondeterministic),
                     failed);
    describe(cuda, &properties, config->tf32);
    *self = cuda;
    return Z3D_OK;
failed:
    destroy(cuda);
    return status;
}

static const char *description(const void *self) {
    return ((const z3d_cuda *)self)->description;
}

static uint64_t identity(const void *self) {
    return ((const z3d_cuda *)self)->identity;
}

/* ---- memory ---- */

static void memory(const void *self, int64_t *all, int64_t *available) {
    (void)self;
    size_t left, total;
    if (cudaMemGetInfo(&left, &total) != cudaSuccess) return;
    *all = (int64_t)total;
    *available = (int64_t)left;
}

static void free_device(z3d_cuda *cuda, void *block) {
    if (!z3d_cuda_nccl_free(cuda, block)) cudaFree(block);
}

/* windows: allocate by NCCL, if possible; free_device frees both kinds. */
static z3d_status alloc_device(z3d_cuda *cuda, bool windows, int64_t bytes, void **out) {
    size_t available, total;
    Z3D_CUDA_TRY(cudaMemGetInfo(&available, &total));
    char wanted[32], have[32], whole[32];
    if ((size_t)bytes > available)
        return Z3D_ERROR(Z3D_ERR_MEMORY,
                         "cuda device: cannot allocate %s: GPU %d has %s of %s free",
                         z3d_format_bytes(bytes, wanted, sizeof wanted), cuda->gpu,
                         z3d_format_bytes((int64_t)available, have, sizeof have),
                         z3d_format_bytes((int64_t)total, whole, sizeof whole));
    if (!windows || !z3d_cuda_nccl_alloc(cuda, bytes, out))
        Z3D_CUDA_TRY(cudaMalloc(out, (size_t)bytes));
    z3d_status status = z3d_cuda_check(cudaMemset(*out, 0, (size_t)bytes), "cudaMemset");
    if (status == Z3D_OK) status = z3d_cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    if (status != Z3D_OK) {
        free_device(cuda, *out);
        *out = NULL;
    }
    return status;
}

static z3d_status alloc(void *self, z3d_space space, int64_t bytes, void **out) {
    *out = NULL;
    if (space == Z3D_SPACE_HOST) return z3d_cuda_alloc_host(self, bytes, out);
    return alloc_device(self, true, bytes > 0 ? bytes : 1, out);
}

static void free_block(void *self, z3d_space space, void *block, int64_t bytes) {
    (void)space, (void)bytes;
    cudaDeviceSynchronize();
    free_device(self, block);
}

z3d_status z3d_cuda_reserve(z3d_cuda *cuda, int64_t bytes) {
    char wanted[32], have[32];
    z3d_cuda_block *made;
    if (bytes <= cuda->lane.scratch_bytes) return Z3D_OK;
    Z3D_REQUIRE(!cuda->capturing,
                "the kernels' scratch memory must grow from %s to %s during graph capture: run the "
                "same work once before the capture",
                z3d_format_bytes(cuda->lane.scratch_bytes, have, sizeof have),
                z3d_format_bytes(bytes, wanted, sizeof wanted));
    Z3D_TRY(z3d_cuda_synchronize(cuda));
    if (!cuda->keeps_graph) free_scratch(cuda);
    Z3D_TRY(z3d_new(1, sizeof *made, "kernels' scratch", &made));
    made->bytes = z3d_round_up(bytes, (int64_t)1 << 20);
    z3d_status status = alloc_device(cuda, false, made->bytes, &made->memory);
    if (status != Z3D_OK) {
        free(made);
        return z3d_error_context(status, "kernels' scratch");
    }
    made->next = cuda->scratch;
    cuda->scratch = made;
    cuda->lane.scratch = made->memory;
    cuda->lane.scratch_bytes = made->bytes;
    return Z3D_OK;
}

/* ---- order ---- */

z3d_status z3d_cuda_follow_compute(z3d_cuda *cuda, cudaStream_t stream) {
    Z3D_CUDA_TRY(cudaEventRecord(cuda->compute_position, cuda->compute));
    Z3D_CUDA_TRY(cudaStreamWaitEvent(stream, cuda->compute_position, 0));
    return Z3D_OK;
}

/* Waits for the event, or for all of compute (NULL). A short wait ends before the first sleep; in a
 * long one others get the core. With a failed peer the wait would never end, so it checks the
 * communicators. */
static z3d_status poll(z3d_cuda *cuda, cudaEvent_t event) {
    enum { SPINS = 200, NANOSECONDS = 20000 };
    for (int64_t turn = 1;; turn++) {
        cudaError_t error = event ? cudaEventQuery(event) : cudaStreamQuery(cuda->compute);
        if (error == cudaSuccess) return Z3D_OK;
        if (!z3d_cuda_not_ready(error))
            return z3d_cuda_check(error, event ? "cudaEventQuery" : "cudaStreamQuery");
        if (turn % SPINS == 0 && cuda->nccl) Z3D_TRY(z3d_cuda_nccl_check(cuda->nccl));
        if (turn >= SPINS) nanosleep(&(struct timespec){.tv_nsec = NANOSECONDS}, NULL);
    }
}

z3d_status z3d_cuda_synchronize(void *self) {
    z3d_cuda *cuda = self;
    Z3D_TRY(poll(cuda, NULL));
    if (cuda->nccl) Z3D_TRY(z3d_cuda_nccl_check(cuda->nccl));
    z3d_cuda_times_collect(cuda);
    return Z3D_OK;
}

static z3d_status enqueue_copy(void *self, void *to, const void *from, int64_t bytes) {
    z3d_cuda *cuda = self;
    Z3D_CUDA_TRY(cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, cuda->compute));
    return Z3D_OK;
}

/* id: 2 x the copy's number in its direction, + 1 for copies to the host. */
static z3d_status copy_start(void *self, void *to, const void *from, int64_t bytes, int64_t *id) {
    z3d_cuda *cuda = self;
    const int to_host = z3d_cuda_is_pinned(cuda, to);
    z3d_cuda_copies *way = &cuda->copies[to_host];
    Z3D_TRY(z3d_cuda_follow_compute(cuda, way->stream));
    Z3D_CUDA_TRY(cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, way->stream));
    Z3D_CUDA_TRY(cudaEventRecord(way->copied[(way->count + 1) % Z3D_CUDA_EVENTS], way->stream));
    *id = 2 * ++way->count + to_host;
    return Z3D_OK;
}

/* The event may belong to a later copy on the same stream by now, which ends after this copy. */
static z3d_status find_copy(z3d_cuda *cuda, int64_t id, cudaEvent_t *end) {
    const z3d_cuda_copies *way = &cuda->copies[id % 2];
    Z3D_REQUIRE(id >= 2 && id / 2 <= way->count, "copy %lld was never started", (long long)id);
    *end = way->copied[id / 2 % Z3D_CUDA_EVENTS];
    return Z3D_OK;
}

static z3d_status copy_wait(void *self, int64_t id) {
    z3d_cuda *cuda = self;
    z3d_cuda_time *time;
    cudaEvent_t end = NULL;
    Z3D_TRY(find_copy(cuda, id, &end));
    Z3D_TRY(z3d_cuda_time_begin(cuda, cuda->compute, &cuda->waited_seconds, &time));
    Z3D_CUDA_TRY(cudaStreamWaitEvent(cuda->compute, end, 0));
    return z3d_cuda_time_end(cuda, cuda->compute, &cuda->waited_seconds, time);
}

static z3d_status copy_finish(void *self, int64_t id) {
    cudaEvent_t end = NULL;
    Z3D_TRY(find_copy(self, id, &end));
    return poll(self, end);
}

static double copies_waited(const void *self) {
    return ((const z3d_cuda *)self)->waited_seconds;
}

/* ---- kernels ---- */

z3d_status z3d_cuda_launch(void *self, const z3d_kernel *kernel) {
    z3d_cuda *cuda = self;
    bool done;
    Z3D_TRY(z3d_cuda_reserve(cuda, z3d_cuda_kernel_scratch(kernel)));
    Z3D_TRY(z3d_cuda_attention_launch(cuda, kernel, &done));
    if (done) return Z3D_OK;
    switch (kernel->kind) {
#define X(name, type)                                                                              \
    case Z3D_KERNEL_##name:                                                                        \
        return z3d_cuda_##name(&cuda->lane, &kernel->as.name);
        Z3D_KERNEL_MAP(X)
#undef X
    case Z3D_KERNEL_COUNT:
        break;
    }
    return Z3D_ERROR(Z3D_ERR_INTERNAL, "kernel kind %d", (int)kernel->kind);
}

static z3d_status launch_timed(void *self, const z3d_kernel *kernel, double *seconds) {
    z3d_cuda *cuda = self;
    z3d_cuda_time *time;
    const bool wanted = cuda->times_wanted;
    Z3D_TRY(z3d_cuda_synchronize(cuda));
    Z3D_TRY(z3d_cuda_launch(cuda, kernel)); /* so that the host is ahead, as in a step */
    *seconds = 0;
    cuda->times_wanted = true;
    z3d_status status = z3d_cuda_time_begin(cuda, cuda->compute, seconds, &time);
    cuda->times_wanted = wanted;
    Z3D_TRY(status);
    Z3D_TRY(z3d_cuda_launch(cuda, kernel));
    Z3D_TRY(z3d_cuda_time_end(cuda, cuda->compute, seconds, time));
    return z3d_cuda_synchronize(cuda);
}

const z3d_device_ops z3d_device_ops_cuda = {
    .name = "cuda",
    .create = create,
    .destroy = destroy,
    .description = description,
    .identity = identity,
    .memory = memory,
    .apart = true,
    .alloc = alloc,
    .free = free_block,
    .host_node = z3d_cuda_host_node,
    .pin = z3d_cuda_pin,
    .unpin = z3d_cuda_unpin,
    .fuses = true,
    .launch = z3d_cuda_launch,
    .launch_timed = launch_timed,
    .synchronize = z3d_cuda_synchronize,
    .enqueue_copy = enqueue_copy,
    .capture_begin = z3d_cuda_capture_begin,
    .capture_end = z3d_cuda_capture_end,
    .region_launch = z3d_cuda_region_launch,
    .region_destroy = z3d_cuda_region_destroy,
    .copy_start = copy_start,
    .copy_wait = copy_wait,
    .copy_finish = copy_finish,
    .copies_waited = copies_waited,
    .gemm_machine = z3d_cuda_gemm_machine,
    .gemm_choice = z3d_cuda_gemm_choice,
    .choose_gemm = z3d_cuda_gemm_choose,
};

/* The plugin's one symbol. */
__attribute__((visibility("default"))) z3d_plugin_tables_function z3d_plugin_tables;

const z3d_plugin *z3d_plugin_tables(void) {
    static const z3d_plugin plugin = {
        .magic = Z3D_PLUGIN_MAGIC,
        .interface = Z3D_PLUGIN_INTERFACE,
        .bytes = Z3D_PLUGIN_BYTES,
        .message = z3d_error_message,
        .device = &z3d_device_ops_cuda,
        .collectives = &z3d_cuda_collectives,
    };
    return &plugin;
}
