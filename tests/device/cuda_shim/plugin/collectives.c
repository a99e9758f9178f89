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
    long exchanges, sent[MOST_RANKS], received[MOST_RANKS];
    _Atomic ncclResult_t failure;
    atomic_int captured; /* its collectives in graphs */
    struct ncclWindow window;
};

/* ---- messages ---- */

/* One rank's `count` bytes for another, in their order; `place`: both must say the same. */
static ncclResult_t give(ncclComm_t comm, const char *queue, long number, int to, long place,
                         const void *bytes, size_t count) {
    char path[PATH + 64], hidden[PATH + 96];
    snprintf(path, sizeof path, "%s-%s%ld-%d-%d", comm->path, queue, number, comm->rank, to);
    snprintf(hidden, sizeof hidden, "%s.part", path);
    FILE *file = fopen(hidden, "wb");
    bool written = file && fwrite(&place, sizeof place, 1, file) == 1 &&
                   fwrite(bytes, 1, count, file) == count;
    if (file) written &= fclose(file) == 0;
    return written && rename(hidden, path) == 0 ? ncclSuccess : ncclSystemError;
}

/* Waits until it is there. */
static ncclResult_t take(ncclComm_t comm, const char *queue, long number, int from, long place,
                         void *bytes, size_t count) {
    char path[PATH + 64];
    FILE *file = NULL;
    long given;
    time_t begin = time(NULL);
    snprintf(path, sizeof path, "%s-%s%ld-%d-%d", comm->path, queue, number, from, comm->rank);
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
static ncclResult_t exchange(ncclComm_t comm, long place, const void *mine, size_t count,
                             void *all) {
    ncclResult_t result = ncclSuccess;
    long number = comm->exchanges++;
    for (int to = 0; to < comm->size && result == ncclSuccess; to++)
        result = give(comm, "all", number, to, place, mine, count);
    for (int from = 0; from < comm->size && result == ncclSuccess; from++)
        result = take(comm, "all", number, from, place, (char *)all + (size_t)from * count, count);
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

/* As NCCL: a least number needs a largest one. The order of two communicators' collectives must
 * have been asked for. */
ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
    int ranks[MOST_RANKS];
    const char *ordered = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    if (!ordered || strcmp(ordered, "1") != 0 || config->size != sizeof *config ||
        config->magic != 0xcafebeef || config->minCTAs > config->maxCTAs)
        return ncclInvalidArgument;
    if (getenv("ZERO3D_SHIM_TRACE"))
        fprintf(stderr, "NCCL: CTAs %d to %d, traffic class %d\n", config->minCTAs, config->maxCTAs,
                config->trafficClass);
    ncclResult_t result = make(out, id.internal, size, rank);
    return result == ncclSuccess ? exchange(*out, 0, &rank, sizeof rank, ranks) : result;
}

/* By key, and by rank where keys are equal. */
ncclResult_t ncclCommSplit(ncclComm_t comm, int colour, int key, ncclComm_t *out,
                           ncclConfig_t *config) {
    int mine[2] = {colour, key}, all[MOST_RANKS][2], size = 0, rank = 0;
    char path[PATH + 64];
    if (config || colour < 0) return ncclInvalidArgument;
    ncclResult_t result = exchange(comm, 0, mine, sizeof mine, all);
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
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *out) {
    *out = comm->failure;
    return ncclSuccess;
}

/* ---- windows ---- */

static const char *own; /* the block; it can have so many windows as there are communicators */
static size_t own_bytes;
static int windows;

ncclResult_t ncclMemAlloc(void **out, size_t bytes) {
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
    ncclResult_t result = exchange(comm, (long)bytes, &bytes, sizeof bytes, all);
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

ncclResult_t ncclGroupStart(void) {
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
    return ncclSuccess;
}

static z3d_dtype type_of(ncclDataType_t type) {
    static const z3d_dtype types[] = {
        [ncclUint8] = Z3D_U8,    [ncclInt32] = Z3D_I32,   [ncclFloat16] = Z3D_F16,
        [ncclFloat32] = Z3D_F32, [ncclFloat64] = Z3D_F64, [ncclBfloat16] = Z3D_BF16};
    return types[type];
}

static size_t size_of(ncclDataType_t type) {
    return (size_t)z3d_dtype_size(type_of(type));
}

/* ---- collectives ---- */

typedef enum kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, REDUCE, BROADCAST, SEND, RECV } kind;

typedef struct task {
    kind kind;
    const char *from;
    char *to;
    size_t count; /* elements that one rank has in the end, or sends */
    ncclDataType_t type;
    ncclRedOp_t op;
    int root; /* or the peer */
    ncclComm_t comm;
    bool captured;
} task;

/* What this rank gives: reduce_scatter's operand is all ranks' rows. */
static size_t bytes_given(const task *t) {
    return t->count * size_of(t->type) * (t->kind == REDUCE_SCATTER ? (size_t)t->comm->size : 1);
}

static size_t bytes_got(const task *t) {
    return t->count * size_of(t->type) * (t->kind == ALL_GATHER ? (size_t)t->comm->size : 1);
}

/* Element `first` + i of every rank, in the order of ranks. */
static void reduce(const task *t, const char *all, size_t first) {
    for (size_t i = 0; i < t->count; i++) {
        double result = cuda_shim_get(all, type_of(t->type), (int64_t)(first + i));
        for (int rank = 1; rank < t->comm->size; rank++) {
            double other = cuda_shim_get(all + (size_t)rank * bytes_given(t), type_of(t->type),
                                         (int64_t)(first + i));
            result = t->op == ncclSum ? result + other : result > other ? result : other;
        }
        cuda_shim_put(t->to, type_of(t->type), (int64_t)i, result);
    }
}

/* In place an operand that is more than the result is undefined afterwards. */
static void finish(const task *t, const char *all) {
    size_t rank = (size_t)t->comm->rank, bytes = t->count * size_of(t->type);
    bool scatter = t->kind == REDUCE_SCATTER;
    if (t->to == t->from + (scatter ? rank * bytes : 0) && (scatter || t->kind == REDUCE))
        memset((char *)(uintptr_t)t->from, 0xff, bytes_given(t));
    if (t->kind == ALL_GATHER)
        memcpy(t->to, all, bytes_got(t));
    else if (t->kind == BROADCAST)
        memcpy(t->to, all + (size_t)t->root * bytes, bytes);
    else if (t->kind != REDUCE || t->comm->rank == t->root)
        reduce(t, all, scatter ? rank * t->count : 0);
}

static ncclResult_t run_pair(const task *t) {
    ncclComm_t c = t->comm;
    if (t->kind == SEND)
        return give(c, "pair", c->sent[t->root]++, t->root, 0, t->from, bytes_given(t));
    return take(c, "pair", c->received[t->root]++, t->root, 0, t->to, bytes_got(t));
}

/* Where in the window the peers reach for it: they read operands of sums, and write what is
 * gathered. -1: they do not reach for it there. */
static long place_of(const task *t) {
    const struct ncclWindow *window = &t->comm->window;
    const char *at = t->kind == ALL_GATHER ? t->to : t->from;
    if (t->kind > ALL_GATHER || !window->memory || at < window->memory ||
        at >= window->memory + window->bytes)
        return -1;
    return at - window->memory;
}

static void run_task(void *argument) {
    const task *t = argument;
    if (t->comm->failure != ncclSuccess) return;
    if (t->kind == SEND || t->kind == RECV) {
        t->comm->failure = run_pair(t);
        return;
    }
    char *all = malloc(bytes_given(t) * (size_t)t->comm->size + 1);
    if (!all) cuda_shim_stop("no memory for a collective");
    t->comm->failure = exchange(t->comm, place_of(t), t->from, bytes_given(t), all);
    if (t->comm->failure == ncclSuccess) finish(t, all);
    free(all);
}

static void drop_task(void *argument) {
    task *t = argument;
    if (t->captured) t->comm->captured--;
    free(t);
}

/* Apart, or this rank's part of the larger operand. */
static bool is_in_place_or_apart(const task *t) {
    const char *from = t->from, *to = t->to;
    size_t given = bytes_given(t), got = bytes_got(t), rank = (size_t)t->comm->rank;
    if (t->kind == REDUCE_SCATTER && to == from + rank * got) return true;
    if (t->kind == ALL_GATHER && from == to + rank * given) return true;
    if (given == got && from == to) return true;
    return from + given <= to || to + got <= from;
}

static ncclResult_t enqueue(task what, cudaStream_t stream) {
    bool sends = what.kind != RECV, gets = what.kind != SEND;
    if (!what.comm || what.root < 0 || what.root >= what.comm->size ||
        (sends && !cuda_shim_is_device(what.from, bytes_given(&what))) ||
        (gets && !cuda_shim_is_device(what.to, bytes_got(&what))))
        return ncclInvalidArgument;
    if (sends && gets && !is_in_place_or_apart(&what)) return ncclInvalidUsage;
    task *t = malloc(sizeof *t);
    if (!t) return ncclSystemError;
    *t = what;
    t->captured = cuda_shim_reach_of(stream)->capture != 0;
    if (t->captured) what.comm->captured++;
    return cuda_shim_enqueue(stream, (cuda_shim_work){run_task, drop_task, t}) == cudaSuccess
               ? ncclSuccess
               : ncclInvalidArgument;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return enqueue((task){ALL_REDUCE, from, to, count, type, op, 0, comm, false}, stream);
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return enqueue((task){REDUCE_SCATTER, from, to, count, type, op, 0, comm, false}, stream);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    return enqueue((task){ALL_GATHER, from, to, count, type, ncclSum, 0, comm, false}, stream);
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
    return enqueue((task){REDUCE, from, to, count, type, op, root, comm, false}, stream);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
    return enqueue((task){BROADCAST, from, to, count, type, ncclSum, root, comm, false}, stream);
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    return enqueue((task){SEND, from, NULL, count, type, ncclSum, peer, comm, false}, stream);
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return enqueue((task){RECV, NULL, to, count, type, ncclSum, peer, comm, false}, stream);
}
