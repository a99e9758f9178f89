/* The stand-in's NCCL. Ranks are processes of this machine, which give each other their operands as
 * files; a collective happens when its stream comes to it, and then waits for its peers. It refuses
 * what NCCL's documentation forbids: operands that are not the GPU's memory, and overlaps that are
 * not the in-place form. As NCCL, it gives no communicator up that a graph has. What a collective
 * leaves undefined becomes 0xff, also where NCCL happens to leave it alone. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "nccl.h"
#include "shim.h"

enum { PATH = 256, MOST_RANKS = 16, PATIENCE = 20 /* seconds */ };

/* Never freed: what is still enqueued may name it. */
struct ncclComm {
    char path[PATH]; /* where every file's name begins */
    int size, rank, splits;
    long exchanges, sent[MOST_RANKS], received[MOST_RANKS];
    _Atomic ncclResult_t failure;
    atomic_int captured; /* its collectives in graphs */
};

/* ---- files ---- */

static ncclResult_t give(const char *path, const void *bytes, size_t count) {
    char hidden[PATH + 96];
    snprintf(hidden, sizeof hidden, "%s.part", path);
    FILE *file = fopen(hidden, "wb");
    bool written = file && fwrite(bytes, 1, count, file) == count;
    if (file) written &= fclose(file) == 0;
    return written && rename(hidden, path) == 0 ? ncclSuccess : ncclSystemError;
}

/* Waits until it is there. */
static ncclResult_t take(const char *path, void *bytes, size_t count) {
    FILE *file = NULL;
    time_t begin = time(NULL);
    while (!(file = fopen(path, "rb"))) {
        if (time(NULL) - begin > PATIENCE) return ncclRemoteError;
        nanosleep(&(struct timespec){0, 50000}, NULL);
    }
    bool whole = fread(bytes, 1, count, file) == count && fgetc(file) == EOF;
    fclose(file);
    return whole ? ncclSuccess : ncclInvalidArgument; /* ranks disagree about the size */
}

/* Every rank's `count` bytes in all[size][count]. Who has the others' knows that they have read
 * what it gave in the exchange before. */
static ncclResult_t exchange(ncclComm_t comm, const void *mine, size_t count, char *all) {
    char path[PATH + 64];
    long number = comm->exchanges++;
    snprintf(path, sizeof path, "%s-%ld-%d", comm->path, number, comm->rank);
    ncclResult_t result = give(path, mine, count);
    for (int rank = 0; rank < comm->size && result == ncclSuccess; rank++) {
        snprintf(path, sizeof path, "%s-%ld-%d", comm->path, number, rank);
        result = take(path, all + (size_t)rank * count, count);
    }
    snprintf(path, sizeof path, "%s-%ld-%d", comm->path, number - 1, comm->rank);
    unlink(path);
    return result;
}

/* ---- order ---- */

static bool keeps_order(void) {
    const char *asked = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    return asked && strcmp(asked, "1") == 0;
}

ncclResult_t ncclGetVersion(int *version) {
    const char *given = getenv("ZERO3D_SHIM_NCCL");
    *version = given && strcmp(given, "old") == 0 ? 22005 : 22809;
    return ncclSuccess;
}

/* ---- communicators ---- */

const char *ncclGetErrorString(ncclResult_t result) {
    return result == ncclRemoteError       ? "remote process exited or there was a network error"
           : result == ncclInvalidUsage    ? "invalid usage"
           : result == ncclInvalidArgument ? "invalid argument"
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

ncclResult_t ncclCommInitRank(ncclComm_t *out, int size, ncclUniqueId id, int rank) {
    int ranks[MOST_RANKS];
    ncclResult_t result = make(out, id.internal, size, rank);
    return result == ncclSuccess ? exchange(*out, &rank, sizeof rank, (char *)ranks) : result;
}

/* By key, and by rank where keys are equal. */
ncclResult_t ncclCommSplit(ncclComm_t comm, int colour, int key, ncclComm_t *out,
                           ncclConfig_t *config) {
    int mine[2] = {colour, key}, all[MOST_RANKS][2], size = 0, rank = 0;
    char path[PATH + 64];
    if (config || colour < 0) return ncclInvalidArgument;
    ncclResult_t result = exchange(comm, mine, sizeof mine, (char *)all);
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

/* The last exchange's files stay: peers may still want them. */
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    if (!comm) return ncclInvalidArgument;
    wait_for_graphs(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    comm->failure = ncclRemoteError;
    wait_for_graphs(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *out) {
    *out = comm->failure;
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void) {
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
    return ncclSuccess;
}

static z3d_dtype type_of(ncclDataType_t type) {
    return type == ncclUint8     ? Z3D_U8
           : type == ncclInt32   ? Z3D_I32
           : type == ncclFloat16 ? Z3D_F16
           : type == ncclFloat32 ? Z3D_F32
           : type == ncclFloat64 ? Z3D_F64
                                 : Z3D_BF16;
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
    long number; /* of this process's, from 1 */
    bool captured;
} task;

static _Thread_local long enqueued, run;

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

/* What is left undefined: an operand in place but for the result. */
static void spoil(const task *t) {
    size_t bytes = t->count * size_of(t->type);
    char *from = (char *)(uintptr_t)t->from;
    if (t->kind == REDUCE && t->from == t->to && t->comm->rank != t->root)
        memset(t->to, 0xff, bytes);
    if (t->kind != REDUCE_SCATTER || t->to != from + (size_t)t->comm->rank * bytes) return;
    for (int row = 0; row < t->comm->size; row++)
        if (row != t->comm->rank) memset(from + (size_t)row * bytes, 0xff, bytes);
}

static void finish(const task *t, const char *all) {
    size_t bytes = t->count * size_of(t->type);
    switch (t->kind) {
    case ALL_GATHER:
        memcpy(t->to, all, bytes_got(t));
        break;
    case BROADCAST:
        memcpy(t->to, all + (size_t)t->root * bytes, bytes);
        break;
    case REDUCE_SCATTER:
        reduce(t, all, (size_t)t->comm->rank * t->count);
        break;
    default:
        if (t->kind == ALL_REDUCE || t->comm->rank == t->root) reduce(t, all, 0);
    }
    spoil(t);
}

static ncclResult_t run_pair(const task *t) {
    char path[PATH + 64];
    bool sends = t->kind == SEND;
    int from = sends ? t->comm->rank : t->root, to = sends ? t->root : t->comm->rank;
    long number = sends ? t->comm->sent[to]++ : t->comm->received[from]++;
    snprintf(path, sizeof path, "%s-from%d-to%d-%ld", t->comm->path, from, to, number);
    if (sends) return give(path, t->from, bytes_given(t));
    ncclResult_t result = take(path, t->to, bytes_got(t));
    unlink(path);
    return result;
}

static void run_task(void *argument) {
    const task *t = argument;
    if (t->number != ++run && !keeps_order())
        cuda_shim_stop("a collective overtakes one of another communicator");
    if (t->comm->failure != ncclSuccess) return;
    if (t->kind == SEND || t->kind == RECV) {
        t->comm->failure = run_pair(t);
        return;
    }
    char *all = malloc(bytes_given(t) * (size_t)t->comm->size + 1);
    if (!all) cuda_shim_stop("no memory for a collective");
    t->comm->failure = exchange(t->comm, t->from, bytes_given(t), all);
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
    t->number = ++enqueued;
    t->captured = cuda_shim_captures(stream);
    if (t->captured) what.comm->captured++;
    return cuda_shim_enqueue(stream, (cuda_shim_work){run_task, drop_task, t}) == cudaSuccess
               ? ncclSuccess
               : ncclInvalidArgument;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return enqueue((task){ALL_REDUCE, from, to, count, type, op, 0, comm, 0, false}, stream);
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return enqueue((task){REDUCE_SCATTER, from, to, count, type, op, 0, comm, 0, false}, stream);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    return enqueue((task){ALL_GATHER, from, to, count, type, ncclSum, 0, comm, 0, false}, stream);
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
    return enqueue((task){REDUCE, from, to, count, type, op, root, comm, 0, false}, stream);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
    return enqueue((task){BROADCAST, from, to, count, type, ncclSum, root, comm, 0, false}, stream);
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    return enqueue((task){SEND, from, NULL, count, type, ncclSum, peer, comm, 0, false}, stream);
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return enqueue((task){RECV, NULL, to, count, type, ncclSum, peer, comm, 0, false}, stream);
}
