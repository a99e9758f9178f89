/* Collectives by NCCL, which is loaded when it is first needed. Each communicator has a stream.
 * NCCL runs a stream's operations in order, and all ranks enqueue in the same order, also across
 * communicators (the verifier checks this). If GPUs began the collectives of two communicators in
 * different orders, they would deadlock. With NCCL_LAUNCH_ORDER_IMPLICIT NCCL keeps the order of
 * the calls (since 2.27 also in graphs): a collective begins after the one before has begun, or
 * with a driver before CUDA 12.9 after it has ended. NCCL adds in the order of its own rings and
 * trees, which it chooses by machine and size. So equal calls give equal bits on one machine, but
 * other bits than the other backends. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/device/cuda/cuda.h"
#include "src/device/cuda/nccl_api.h"

#ifdef Z3D_CUDA_SHIM /* the tests' stand-in is part of the plugin */
#define OPEN_LIBRARY() dlopen(NULL, RTLD_NOW)
#define FIND(library, name) ((void *)(name))
#else
#define OPEN_LIBRARY() dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL)
#define FIND(library, name) dlsym((library), #name)
#endif

/* The first version that keeps the order of calls in graphs and has windows. */
enum { OLDEST = 22700 };

typedef struct communicator {
    z3d_cuda *cuda;
    ncclComm_t comm;
    pthread_t abortion; /* the thread that aborts it */
    bool is_aborted;
    char name[16];
    int size, index;
    int users;           /* number of owners */
    ncclWindow_t window; /* of nccl->memory, or NULL */
    bool window_asked; /* registered or refused since the last close; groups share a communicator */
    cudaStream_t stream; /* the world, which is only split, has none of these members */
    int *token;          /* the operand of barriers */
    void *packed;        /* a bucket's rows without gaps; NULL: not reserved */
    int64_t packed_bytes;
    int longest_pitch;                  /* of one copy of rows */
    cudaEvent_t ended[Z3D_CUDA_EVENTS]; /* the end of collective n is at n % Z3D_CUDA_EVENTS */
    int64_t started, before; /* number so far; number at the latest begin or end of a capture */
    struct communicator *next;
} communicator;

struct z3d_cuda_nccl {
    void *library;
#define X(result, name, arguments) result(*name) arguments;
    NCCL_FUNCTIONS(X)
#undef X
    communicator *world; /* NULL: not connected */
    int rank;
    communicator *communicators;
    void *memory; /* the block of z3d_cuda_nccl_alloc; NULL: none */
    bool aborted;
};

/* ---- errors ---- */

static z3d_status check(const communicator *c, ncclResult_t code, const char *call) {
    const struct z3d_cuda_nccl *nccl = c->cuda->nccl;
    if (code == ncclSuccess || code == ncclInProgress) return Z3D_OK;
    const char *more = nccl->ncclGetLastError(c->comm);
    return Z3D_ERROR(Z3D_ERR_COMM, "NCCL: %s of the %s group on rank %d: %s%s%s", call, c->name,
                     nccl->rank, nccl->ncclGetErrorString(code), more && *more ? ": " : "",
                     more ? more : "");
}

static void *run_abortion(void *argument) {
    const communicator *c = argument;
    c->cuda->nccl->ncclCommAbort(c->comm);
    return NULL;
}

/* Only an abort ends kernels that wait for a dead peer. ncclCommAbort returns when no graph uses
 * the communicator and the kernels of all communicators have ended. These may wait for each other,
 * so each communicator is aborted in its own thread, and the thread that found the failure can
 * report it. If a thread cannot start, the end of the process ends its kernels. */
static void abort_all(struct z3d_cuda_nccl *nccl) {
    if (nccl->aborted) return;
    nccl->aborted = true;
    for (communicator *c = nccl->communicators; c; c = c->next)
        c->is_aborted = pthread_create(&c->abortion, NULL, run_abortion, c) == 0;
}

z3d_status z3d_cuda_nccl_check(struct z3d_cuda_nccl *nccl) {
    for (communicator *c = nccl->communicators; c; c = c->next) {
        ncclResult_t code = ncclSuccess;
        if (!nccl->aborted) nccl->ncclCommGetAsyncError(c->comm, &code);
        z3d_status status = check(c, code, "a collective");
        if (status == Z3D_OK) continue;
        abort_all(nccl);
        return status;
    }
    if (nccl->aborted) return Z3D_ERROR(Z3D_ERR_COMM, "NCCL: the communicators were aborted");
    return Z3D_OK;
}

/* ---- windows ---- */

bool z3d_cuda_nccl_alloc(const z3d_cuda *cuda, int64_t bytes, void **out) {
    struct z3d_cuda_nccl *nccl = cuda->nccl;
    if (!nccl || nccl->memory || !cuda->windows) return false;
    bool made = nccl->ncclMemAlloc(out, (size_t)bytes) == ncclSuccess;
    if (made)
        nccl->memory = *out;
    else
        cudaGetLastError(); /* another allocator may work */
    return made;
}

static void close_window(communicator *c) {
    const struct z3d_cuda_nccl *nccl = c->cuda->nccl;
    if (c->window && !nccl->aborted) nccl->ncclCommWindowDeregister(c->comm, c->window);
    c->window = NULL;
    c->window_asked = false;
}

static void close_windows(void *device) {
    const z3d_cuda *cuda = device;
    for (communicator *c = cuda->nccl->communicators; c; c = c->next) close_window(c);
}

bool z3d_cuda_nccl_free(z3d_cuda *cuda, void *memory) {
    struct z3d_cuda_nccl *nccl = cuda->nccl;
    if (!nccl || memory != nccl->memory) return false;
    close_windows(cuda);
    if (!nccl->aborted) nccl->ncclMemFree(memory); /* aborting threads may still use it */
    nccl->memory = NULL;
    return true;
}

static bool allocated(const void *device, const void *memory) {
    const z3d_cuda *cuda = device;
    return cuda->nccl && memory == cuda->nccl->memory;
}

static z3d_status open_window(void *self, void *memory, int64_t bytes, bool *open) {
    communicator *c = self;
    const struct z3d_cuda_nccl *nccl = c->cuda->nccl;
    ncclResult_t code = ncclSuccess;
    if (!c->window_asked)
        code = nccl->ncclCommWindowRegister(c->comm, memory, (size_t)bytes, &c->window,
                                            NCCL_WIN_COLL_SYMMETRIC);
    c->window_asked = true;
    *open = c->window != NULL;
    return check(c, code, "ncclCommWindowRegister");
}

/* ---- making ---- */

static bool put(void *function, void *symbol) {
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* Stops at the first missing function, which dlerror then names. */
static bool find_functions(struct z3d_cuda_nccl *nccl) {
    bool whole = true;
#define X(result, name, arguments) whole = whole && put(&nccl->name, FIND(nccl->library, name));
    NCCL_FUNCTIONS(X)
#undef X
    return whole;
}

/* NCCL reads the variable when it is loaded. */
static z3d_status ask_for_order(void) {
    static const char variable[] = "NCCL_LAUNCH_ORDER_IMPLICIT";
    setenv(variable, "1", 0);
    if (strcmp(getenv(variable), "1") == 0) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                     "%s is %s in the environment: collectives of two groups could wait for each "
                     "other for ever; unset it",
                     variable, getenv(variable));
}

static z3d_status load(void *device) {
    z3d_cuda *cuda = device;
    struct z3d_cuda_nccl *nccl;
    if (cuda->nccl) return Z3D_OK;
    Z3D_TRY(ask_for_order());
    Z3D_TRY(z3d_new(1, sizeof *nccl, "NCCL", &nccl));
    nccl->library = OPEN_LIBRARY();
    bool whole = nccl->library && find_functions(nccl);
    int version = 0;
    if (whole && nccl->ncclGetVersion(&version) == ncclSuccess && version >= OLDEST) {
        cuda->nccl = nccl;
        return Z3D_OK;
    }
    char found[32];
    snprintf(found, sizeof found, "its version is %d", version);
    z3d_status status = Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                                  "training.collectives nccl: %s; install NCCL 2.%d or later "
                                  "(LD_LIBRARY_PATH), or set training.collectives: host",
                                  whole ? found : dlerror(), OLDEST / 100 % 100);
    if (nccl->library) dlclose(nccl->library);
    free(nccl);
    return status;
}

static z3d_status make_id(void *device, void *id) {
    z3d_cuda *cuda = device;
    const communicator world = {.cuda = cuda, .name = "world"};
    _Static_assert(sizeof(ncclUniqueId) == Z3D_COLLECTIVES_ID_BYTES, "the id's size");
    return check(&world, cuda->nccl->ncclGetUniqueId(id), "ncclGetUniqueId");
}

static bool connected(const void *device) {
    const z3d_cuda *cuda = device;
    return cuda->nccl && cuda->nccl->world;
}

static void destroy(void *self) {
    communicator *c = self;
    struct z3d_cuda_nccl *nccl = c->cuda->nccl;
    z3d_cuda_times_forget(c->cuda);
    if (--c->users > 0) return;
    if (c->is_aborted) pthread_join(c->abortion, NULL);
    if (c->stream) cudaStreamSynchronize(c->stream);
    communicator **link = &nccl->communicators;
    while (*link != c) link = &(*link)->next;
    *link = c->next;
    close_window(c);
    if (c->comm && !nccl->aborted) nccl->ncclCommDestroy(c->comm);
    for (int i = 0; i < Z3D_CUDA_EVENTS; i++)
        if (c->ended[i]) cudaEventDestroy(c->ended[i]);
    if (c->token) cudaFree(c->token);
    if (c->packed) cudaFree(c->packed);
    if (c->stream) cudaStreamDestroy(c->stream);
    free(c);
}

static z3d_status make(z3d_cuda *cuda, int index, int size, const char *name, communicator **out) {
    communicator *c;
    Z3D_TRY(z3d_new(1, sizeof *c, "a communicator", &c));
    c->cuda = cuda;
    c->index = index;
    c->size = size;
    c->users = 1;
    snprintf(c->name, sizeof c->name, "%s", name);
    c->next = cuda->nccl->communicators;
    cuda->nccl->communicators = c;
    *out = c;
    return Z3D_OK;
}

static z3d_status fill(communicator *c, int colour) {
    struct z3d_cuda_nccl *nccl = c->cuda->nccl;
    int lowest = 0, highest = 0;
    Z3D_TRY(check(c, nccl->ncclCommSplit(nccl->world->comm, colour, c->index, &c->comm, NULL),
                  "ncclCommSplit"));
    /* Collectives, for which other ranks wait, have priority over compute. */
    Z3D_CUDA_TRY(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    Z3D_CUDA_TRY(cudaStreamCreateWithPriority(&c->stream, cudaStreamNonBlocking, highest));
    Z3D_CUDA_TRY(cudaMalloc((void **)&c->token, sizeof *c->token));
    Z3D_CUDA_TRY(cudaMemset(c->token, 0, sizeof *c->token));
    for (int i = 0; i < Z3D_CUDA_EVENTS; i++)
        Z3D_CUDA_TRY(cudaEventCreateWithFlags(&c->ended[i], cudaEventDisableTiming));
    return Z3D_OK;
}

static z3d_status split(void *device, int colour, int index, int size, const char *name,
                        void **out) {
    z3d_cuda *cuda = device;
    communicator *c;
    *out = NULL;
    Z3D_TRY(make(cuda, index, size, name, &c));
    z3d_status status = fill(c, colour);
    if (status == Z3D_OK)
        *out = c;
    else
        destroy(c);
    return status;
}

static z3d_status connect_ranks(void *device, const void *id, int size, int rank) {
    z3d_cuda *cuda = device;
    struct z3d_cuda_nccl *nccl = cuda->nccl;
    communicator *world;
    ncclUniqueId made;
    memcpy(&made, id, sizeof made);
    nccl->rank = rank;
    Z3D_TRY(make(cuda, rank, size, "world", &world));
    z3d_status status =
        check(world, nccl->ncclCommInitRank(&world->comm, size, made, rank), "ncclCommInitRank");
    if (status == Z3D_OK)
        nccl->world = world;
    else
        destroy(world);
    return status;
}

static void share(void *self) {
    ((communicator *)self)->users++;
}

/* This memory has no window: NCCL uses its own buffers for it. */
static z3d_status reserve(void *self, int64_t bytes) {
    communicator *c = self;
    if (bytes <= c->packed_bytes) return Z3D_OK;
    if (c->packed) cudaFree(c->packed);
    c->packed = NULL;
    c->packed_bytes = 0;
    Z3D_CUDA_TRY(cudaDeviceGetAttribute(&c->longest_pitch, cudaDevAttrMaxPitch, c->cuda->gpu));
    Z3D_CUDA_TRY(cudaMalloc(&c->packed, (size_t)bytes));
    c->packed_bytes = bytes;
    return Z3D_OK;
}

void z3d_cuda_nccl_destroy(struct z3d_cuda_nccl *nccl) {
    if (!nccl) return;
    if (nccl->world) destroy(nccl->world);
    free(nccl); /* the library stays, since unloading is not safe */
}

void z3d_cuda_nccl_begin(struct z3d_cuda_nccl *nccl) {
    for (communicator *c = nccl->communicators; c; c = c->next) c->before = c->started;
}

/* ---- collectives ---- */

static ncclDataType_t type_of(z3d_dtype dtype) {
    static const ncclDataType_t types[Z3D_DTYPE_COUNT] = {
        [Z3D_F32] = ncclFloat32, [Z3D_BF16] = ncclBfloat16, [Z3D_F16] = ncclFloat16,
        [Z3D_F64] = ncclFloat64, [Z3D_I32] = ncclInt32,     [Z3D_U8] = ncclUint8};
    return types[dtype];
}

static char *row_at(const z3d_collective *call, int row) {
    return (char *)call->buffer + row * call->stride * (int64_t)z3d_dtype_size(call->dtype);
}

/* Whether a bucket's rows have gaps in the group's matrix; NCCL needs rows without gaps. */
static bool is_apart(const z3d_collective *call) {
    return (call->kind == Z3D_COLLECTIVE_REDUCE_SCATTER ||
            call->kind == Z3D_COLLECTIVE_ALL_GATHER) &&
           call->count > 0 && call->count < call->stride;
}

/* Copies rows to c->packed, or back. */
static z3d_status copy_rows(const communicator *c, const z3d_collective *call, bool back) {
    const size_t size = z3d_dtype_size(call->dtype), width = (size_t)call->count * size,
                 pitch = (size_t)call->stride * size;
    if (pitch <= (size_t)c->longest_pitch)
        return z3d_cuda_check(
            cudaMemcpy2DAsync(back ? call->buffer : c->packed, back ? pitch : width,
                              back ? c->packed : call->buffer, back ? width : pitch, width,
                              (size_t)c->size, cudaMemcpyDeviceToDevice, c->stream),
            "cudaMemcpy2DAsync");
    for (int row = 0; row < c->size; row++) {
        char *packed = (char *)c->packed + (size_t)row * width, *apart = row_at(call, row);
        Z3D_CUDA_TRY(cudaMemcpyAsync(back ? apart : packed, back ? packed : apart, width,
                                     cudaMemcpyDeviceToDevice, c->stream));
    }
    return Z3D_OK;
}

static ncclResult_t run(const communicator *c, const z3d_collective *call) {
    const struct z3d_cuda_nccl *nccl = c->cuda->nccl;
    ncclDataType_t type = type_of(call->dtype);
    ncclRedOp_t op = call->op == Z3D_MAX ? ncclMax : ncclSum;
    size_t count = (size_t)call->count;
    void *at = call->buffer, *rows = is_apart(call) ? c->packed : at, *own = row_at(call, c->index);
    switch (call->kind) {
    case Z3D_COLLECTIVE_ALL_REDUCE:
        return nccl->ncclAllReduce(at, at, count, type, op, c->comm, c->stream);
    case Z3D_COLLECTIVE_REDUCE_SCATTER:
        return nccl->ncclReduceScatter(rows, own, count, type, op, c->comm, c->stream);
    case Z3D_COLLECTIVE_ALL_GATHER:
        return nccl->ncclAllGather(own, rows, count, type, c->comm, c->stream);
    case Z3D_COLLECTIVE_BROADCAST:
        return nccl->ncclBroadcast(at, at, count, type, call->peer, c->comm, c->stream);
    case Z3D_COLLECTIVE_SEND:
        return nccl->ncclSend(at, count, type, call->peer, c->comm, c->stream);
    case Z3D_COLLECTIVE_RECV:
        return nccl->ncclRecv(at, count, type, call->peer, c->comm, c->stream);
    case Z3D_COLLECTIVE_BARRIER:
        return nccl->ncclAllReduce(c->token, c->token, 1, ncclInt32, ncclSum, c->comm, c->stream);
    case Z3D_COLLECTIVE_COUNT:
        break;
    }
    return ncclInvalidArgument;
}

/* Runs a collective as one call of NCCL; a bucket's rows are copied before and after it. */
static z3d_status run_packed(const communicator *c, const z3d_collective *call) {
    static const char *const names[] = {
#define X(NAME, name) #name,
        Z3D_COLLECTIVE_MAP(X)
#undef X
    };
    const bool apart = is_apart(call), gathers = call->kind == Z3D_COLLECTIVE_ALL_GATHER;
    const int64_t bytes = apart ? c->size * call->count * (int64_t)z3d_dtype_size(call->dtype) : 0;
    Z3D_REQUIRE(bytes <= c->packed_bytes, "a bucket of %lld bytes of the %s group; %lld reserved",
                (long long)bytes, c->name, (long long)c->packed_bytes);
    if (apart && !gathers) Z3D_TRY(copy_rows(c, call, false));
    Z3D_TRY(check(c, run(c, call), names[call->kind]));
    return apart && gathers ? copy_rows(c, call, true) : Z3D_OK;
}

static z3d_status start(void *self, const z3d_collective *call, double *seconds, int64_t *id) {
    communicator *c = self;
    struct z3d_cuda_nccl *nccl = c->cuda->nccl;
    cudaEvent_t end = c->ended[(c->started + 1) % Z3D_CUDA_EVENTS];
    z3d_cuda_time *time;
    if (nccl->aborted) return z3d_cuda_nccl_check(nccl);
    Z3D_TRY(z3d_cuda_follow_compute(c->cuda, c->stream));
    Z3D_TRY(z3d_cuda_time_begin(c->cuda, c->stream, seconds, &time));
    z3d_status status = run_packed(c, call);
    if (status != Z3D_OK) {
        abort_all(nccl);
        return status;
    }
    Z3D_TRY(z3d_cuda_time_end(c->cuda, c->stream, seconds, time));
    Z3D_CUDA_TRY(cudaEventRecord(end, c->stream));
    *id = ++c->started;
    return Z3D_OK;
}

static z3d_status wait(void *self, int64_t id, double *exposed) {
    const communicator *c = self;
    z3d_cuda_time *time;
    Z3D_REQUIRE(id > c->before && id <= c->started, "collective %lld of the %s group",
                (long long)id, c->name);
    Z3D_TRY(z3d_cuda_time_begin(c->cuda, c->cuda->compute, exposed, &time));
    Z3D_CUDA_TRY(cudaStreamWaitEvent(c->cuda->compute, c->ended[id % Z3D_CUDA_EVENTS], 0));
    return z3d_cuda_time_end(c->cuda, c->cuda->compute, exposed, time);
}

const z3d_stream_collectives z3d_cuda_collectives = {
    .load = load,
    .make_id = make_id,
    .connect = connect_ranks,
    .connected = connected,
    .split = split,
    .allocated = allocated,
    .open_window = open_window,
    .reserve = reserve,
    .close_windows = close_windows,
    .share = share,
    .destroy = destroy,
    .start = start,
    .wait = wait,
};
