/* The stand-in's NCCL. Ranks are processes of this machine, which give each other their operands as
 * files; a collective happens when its stream comes to it, and then waits for its peers. It refuses
 * what NCCL's documentation forbids: operands that are not the GPU's memory, overlaps that are not
 * the in-place form, windows that ranks use at different offsets. As NCCL, it gives no communicator
 * up that a graph has. What a collective leaves undefined becomes 0xff, also where NCCL happens to
 * leave it alone. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"
#include "src/device/cuda/nccl_api.h"

enum { PATH = 256, MOST_RANKS = 16, PATIENCE = 20 /* seconds */ };

struct ncclWindow {
    const char *memory; /* NULL: closed */
    size_t bytes;
};

/* Never freed: what is still enqueued may name it. */
struct ncclComm {
    char path[PATH]; /* where every file's name begins */
    int size, rank, splits;
    long sent[MOST_RANKS], received[MOST_RANKS];
    _Atomic ncclResult_t failure;
    atomic_int captured; /* its collectives in graphs */
    struct ncclWindow window;
};

static const char *own; /* the block; it can have so many windows as there are communicators */
static size_t own_bytes;
static int windows;

/* ---- messages ---- */

/* One rank's bytes for another, in their order; `place`: both must say the same. */
static ncclResult_t give(ncclComm_t comm, int to, long place, const void *bytes, size_t count) {
    char path[PATH + 64], hidden[PATH + 96];
    snprintf(path, sizeof path, "%s-%d-%d-%ld", comm->path, comm->rank, to, comm->sent[to]++);
    snprintf(hidden, sizeof hidden, "%s.part", path);
    FILE *file = fopen(hidden, "wb");
    bool written = file && fwrite(&place, sizeof place, 1, file) == 1 &&
                   fwrite(bytes, 1, count, file) == count;
    if (file) written &= fclose(file) == 0;
    return written && rename(hidden, path) == 0 ? ncclSuccess : ncclSystemError;
}

/* Waits until it is there. */
static ncclResult_t take(ncclComm_t comm, int from, long place, void *bytes, size_t count) {
    char path[PATH + 64];
    FILE *file = NULL;
    long given;
    time_t begin = time(NULL);
    snprintf(path, sizeof path, "%s-%d-%d-%ld", comm->path, from, comm->rank,
             comm->received[from]++);
    while (!(file = fopen(path, "rb"))) {
        if (time(NULL) - begin > PATIENCE) return ncclRemoteError;
        nanosleep(&(struct timespec){0, 50000}, NULL);
    }
    bool whole = fread(&given, sizeof given, 1, file) == 1 && given == place &&
                 fread(bytes, 1, count, file) == count && fgetc(file) == EOF;
    fclose(file);
    unlink(path);
    return whole ? ncclSuccess : ncclInvalidArgument; /* ranks disagree */
}

/* Every rank's `count` bytes in all[size][count]. */
static ncclResult_t exchange(ncclComm_t comm, const void *mine, size_t count, void *all) {
    ncclResult_t result = ncclSuccess;
    for (int to = 0; to < comm->size && result == ncclSuccess; to++)
        result = give(comm, to, 0, mine, count);
    for (int from = 0; from < comm->size && result == ncclSuccess; from++)
        result = take(comm, from, 0, (char *)all + (size_t)from * count, count);
    return result;
}

/* ---- communicators ---- */

/* What the environment wants of this library. */
static bool is_asked(const char *what) {
    const char *asked = getenv("ZERO3D_SHIM_NCCL");
    return asked && strcmp(asked, what) == 0;
}

ncclResult_t ncclGetVersion(int *version) {
    *version = is_asked("old") ? 22005 : 22809;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
    return result == ncclRemoteError ? "remote process exited or there was a network error"
                                     : "unhandled system error";
}

const char *ncclGetLastError(ncclComm_t comm) {
    (void)comm;
    return "";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *out) {
    const char *folder = getenv("TMPDIR");
    memset(out, 0, sizeof *out);
    int length = snprintf(out->internal, sizeof out->internal - 8, "%s/z3d-nccl-XXXXXX",
                          folder ? folder : "/tmp");
    if (length >= (int)sizeof out->internal - 8 || !mkdtemp(out->internal)) return ncclSystemError;
    strcat(out->internal, "/w");
    return ncclSuccess;
}

static ncclResult_t make(ncclComm_t *out, const char *path, int size, int rank) {
    *out = calloc(1, sizeof **out);
    if (!*out || size > MOST_RANKS || rank < 0 || rank >= size) return ncclInvalidArgument;
    (*out)->size = size;
    (*out)->rank = rank;
    return snprintf((*out)->path, PATH, "%s", path) < PATH ? ncclSuccess : ncclInvalidArgument;
}

/* The order of two communicators' collectives must have been asked for. */
ncclResult_t ncclCommInitRank(ncclComm_t *out, int size, ncclUniqueId id, int rank) {
    int ranks[MOST_RANKS];
    const char *ordered = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    if (!ordered || strcmp(ordered, "1") != 0) return ncclInvalidArgument;
    ncclResult_t result = make(out, id.internal, size, rank);
    return result == ncclSuccess ? exchange(*out, &rank, sizeof rank, ranks) : result;
}

/* By key, and by rank where keys are equal. */
ncclResult_t ncclCommSplit(ncclComm_t comm, int colour, int key, ncclComm_t *out,
                           ncclConfig_t *config) {
    int mine[2] = {colour, key}, all[MOST_RANKS][2], size = 0, rank = 0;
    char path[PATH + 64];
    if (config || colour < 0) return ncclInvalidArgument;
    ncclResult_t result = exchange(comm, mine, sizeof mine, all);
    for (int r = 0; r < comm->size && result == ncclSuccess; r++) {
        if (all[r][0] != colour) continue;
        size++;
        rank += all[r][1] < key || (all[r][1] == key && r < comm->rank);
    }
    if (result != ncclSuccess) return result;
    snprintf(path, sizeof path, "%s.%d.%d", comm->path, comm->splits++, colour);
    return make(out, path, size, rank);
}

/* For ever, NCCL would. */
static void wait_for_graphs(ncclComm_t comm) {
    time_t begin = time(NULL);
    while (comm->captured) {
        if (time(NULL) - begin > PATIENCE) cuda_shim_stop("a communicator that a graph still has");
        nanosleep(&(struct timespec){0, 50000}, NULL);
    }
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    if (!comm) return ncclInvalidArgument;
    if (comm->window.memory) cuda_shim_stop("a communicator that has a window");
    wait_for_graphs(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    comm->failure = ncclRemoteError;
    wait_for_graphs(comm);
    ncclCommWindowDeregister(comm, &comm->window);
    own = NULL; /* it may stay */
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *out) {
    *out = comm->failure;
    return ncclSuccess;
}

/* ---- windows ---- */

ncclResult_t ncclMemAlloc(void **out, size_t bytes) {
    if (own) cuda_shim_stop("a block of NCCL's that NCCL has not freed");
    if (cudaMalloc(out, bytes) != cudaSuccess) return ncclSystemError;
    own = *out;
    own_bytes = bytes;
    return ncclSuccess;
}

ncclResult_t ncclMemFree(void *memory) {
    if (memory != own || windows > 0) cuda_shim_stop("memory that is not NCCL's, or has windows");
    own = NULL;
    return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclSystemError;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *memory, size_t bytes, ncclWindow_t *out,
                                    int flags) {
    size_t all[MOST_RANKS];
    *out = NULL;
    if (!own || memory != own || bytes > own_bytes || comm->window.memory ||
        flags != NCCL_WIN_COLL_SYMMETRIC)
        return ncclInvalidArgument;
    ncclResult_t result = exchange(comm, &bytes, sizeof bytes, all);
    for (int rank = 0; rank < comm->size && result == ncclSuccess; rank++)
        if (all[rank] != bytes) result = ncclInvalidArgument;
    if (result == ncclSuccess && is_asked("window") && comm->rank > 0) result = ncclSystemError;
    if (result != ncclSuccess) return result;
    comm->window = (struct ncclWindow){memory, bytes};
    windows++;
    *out = &comm->window;
    return ncclSuccess;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
    if (window != &comm->window || !window->memory) return ncclInvalidArgument;
    window->memory = NULL;
    windows--;
    return ncclSuccess;
}

/* ---- collectives ---- */

static z3d_dtype type_of(ncclDataType_t type) {
    static const z3d_dtype types[] = {
        [ncclUint8] = Z3D_U8,    [ncclInt32] = Z3D_I32,   [ncclFloat16] = Z3D_F16,
        [ncclFloat32] = Z3D_F32, [ncclFloat64] = Z3D_F64, [ncclBfloat16] = Z3D_BF16};
    return types[type];
}

/* The others are made of these. */
typedef enum kind { REDUCE, BROADCAST, SEND, RECV } kind;

typedef struct task {
    kind kind;
    const char *from; /* NULL: this rank gives nothing */
    char *to;         /* NULL: it gets nothing */
    size_t count;
    z3d_dtype type;
    ncclRedOp_t op;
    int root; /* or the peer */
    ncclComm_t comm;
    size_t bytes;
    bool captured;
} task;

/* Where in the window the peers reach for it: they read operands of sums, and write what is
 * gathered. -1: they do not reach for it there. */
static long place_of(const task *t) {
    const struct ncclWindow *window = &t->comm->window;
    const char *at = t->kind == REDUCE ? t->from : t->to;
    bool within = window->memory && at >= window->memory && at < window->memory + window->bytes;
    return within && t->kind <= BROADCAST ? at - window->memory : -1;
}

/* In the order of ranks. */
static ncclResult_t reduce(const task *t) {
    ncclResult_t result = ncclSuccess;
    double *sum = malloc((t->count + 1) * sizeof *sum);
    char *given = malloc(t->bytes + 1);
    if (!sum || !given) cuda_shim_stop("no memory for a sum");
    for (int rank = 0; rank < t->comm->size && result == ncclSuccess; rank++) {
        const char *from = rank == t->root ? t->from : given;
        if (rank != t->root) result = take(t->comm, rank, place_of(t), given, t->bytes);
        for (size_t i = 0; i < t->count && result == ncclSuccess; i++) {
            double x = cuda_shim_get(from, t->type, (int64_t)i);
            sum[i] = rank == 0 ? x : t->op == ncclSum ? sum[i] + x : x > sum[i] ? x : sum[i];
        }
    }
    for (size_t i = 0; i < t->count && result == ncclSuccess; i++)
        cuda_shim_put(t->to, t->type, (int64_t)i, sum[i]);
    free(given);
    free(sum);
    return result;
}

static ncclResult_t broadcast(const task *t) {
    ncclResult_t result = ncclSuccess;
    if (t->from != t->to) memcpy(t->to, t->from, t->bytes);
    for (int to = 0; to < t->comm->size && result == ncclSuccess; to++)
        if (to != t->root) result = give(t->comm, to, place_of(t), t->from, t->bytes);
    return result;
}

static void run_task(void *argument) {
    const task *t = argument;
    bool root = t->comm->rank == t->root;
    if (t->comm->failure != ncclSuccess) return;
    if (t->kind <= BROADCAST && root)
        t->comm->failure = t->kind == REDUCE ? reduce(t) : broadcast(t);
    else if (t->kind == RECV || t->kind == BROADCAST)
        t->comm->failure = take(t->comm, t->root, place_of(t), t->to, t->bytes);
    else
        t->comm->failure = give(t->comm, t->root, place_of(t), t->from, t->bytes);
    if (t->kind == REDUCE && !root && t->to == t->from) memset(t->to, 0xff, t->bytes);
}

static void drop_task(void *argument) {
    task *t = argument;
    if (t->captured) t->comm->captured--;
    free(t);
}

/* As NCCL, which was asked for it: in a graph, whose branches begin in any order, a collective
 * begins after the one before it, of whatever communicator. */
static cudaError_t enqueue_in_order(cudaStream_t stream, cuda_shim_work work) {
    static cudaEvent_t before;
    static long captured_before;
    const long capture = cuda_shim_captures(stream);
    if (!capture) return cuda_shim_enqueue(stream, work);
    if (!before) CUDA_SHIM_TRY(cudaEventCreateWithFlags(&before, cudaEventDisableTiming));
    if (captured_before == capture) CUDA_SHIM_TRY(cudaStreamWaitEvent(stream, before, 0));
    captured_before = capture;
    CUDA_SHIM_TRY(cuda_shim_enqueue(stream, work));
    return cudaEventRecord(before, stream);
}

static ncclResult_t enqueue(kind kind, const void *from, void *to, size_t count,
                            ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
                            cudaStream_t stream) {
    task *t = malloc(sizeof *t);
    if (!t) return ncclSystemError;
    *t = (task){kind, from, to, count, type_of(type), op, root, comm, 0, false};
    t->bytes = count * (size_t)z3d_dtype_size(t->type);
    if (root < 0 || root >= comm->size || (from && !cuda_shim_is_device(from, t->bytes)) ||
        (to && !cuda_shim_is_device(to, t->bytes)) ||
        (from && to && t->from != t->to && t->from + t->bytes > t->to &&
         t->to + t->bytes > t->from)) {
        free(t);
        return ncclInvalidArgument;
    }
    t->captured = cuda_shim_captures(stream) != 0;
    if (t->captured) comm->captured++;
    return enqueue_in_order(stream, (cuda_shim_work){run_task, drop_task, t}) == cudaSuccess
               ? ncclSuccess
               : ncclInvalidArgument;
}

static ncclResult_t reduce_to(const void *from, void *to, size_t count, ncclDataType_t type,
                              ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
    return enqueue(REDUCE, from, to, count, type, op, root, comm, stream);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
    return enqueue(BROADCAST, from, to, count, type, ncclSum, root, comm, stream);
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    ncclResult_t result = reduce_to(from, to, count, type, op, 0, comm, stream);
    return result == ncclSuccess ? ncclBroadcast(to, to, count, type, 0, comm, stream) : result;
}

static void trace(const char *call, size_t count) {
    if (getenv("ZERO3D_SHIM_TRACE")) fprintf(stderr, "NCCL: %s, rows of %zu\n", call, count);
}

/* In place all rows but this rank's are undefined afterwards. */
ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    ncclResult_t result = ncclSuccess;
    size_t bytes = count * (size_t)z3d_dtype_size(type_of(type));
    char *first = (char *)(uintptr_t)from;
    bool in_place = to == first + (size_t)comm->rank * bytes;
    trace("ncclReduceScatter", count);
    for (int row = 0; row < comm->size && result == ncclSuccess; row++) {
        char *at = first + (size_t)row * bytes;
        void *own = row == comm->rank ? to : in_place ? at : NULL;
        result = reduce_to(at, own, count, type, op, row, comm, stream);
    }
    return result;
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    ncclResult_t result = ncclSuccess;
    size_t bytes = count * (size_t)z3d_dtype_size(type_of(type));
    trace("ncclAllGather", count);
    for (int row = 0; row < comm->size && result == ncclSuccess; row++)
        result = ncclBroadcast(row == comm->rank ? from : NULL, (char *)to + (size_t)row * bytes,
                               count, type, row, comm, stream);
    return result;
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    return enqueue(SEND, from, NULL, count, type, ncclSum, peer, comm, stream);
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return enqueue(RECV, NULL, to, count, type, ncclSum, peer, comm, stream);
}
