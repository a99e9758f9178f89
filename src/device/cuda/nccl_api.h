/* The part of NCCL's interface that we use. The library is found at run time and may differ from
 * the nccl.h of the build, which we do not use. Names, numbers and layouts are those of NCCL 2.27;
 * newer versions keep them. Tests implement the same functions over processes of the host
 * (tests/device/cuda_shim/plugin/collectives.c). */
#ifndef ZERO3D_DEVICE_CUDA_PLUGIN_NCCL_API_H
#define ZERO3D_DEVICE_CUDA_PLUGIN_NCCL_API_H

#include <cuda_runtime_api.h>

typedef enum ncclResult_t {
    ncclSuccess = 0,
    ncclSystemError = 2,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7
} ncclResult_t;

typedef enum ncclDataType_t {
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclFloat16 = 6,
    ncclFloat32 = 7,
    ncclFloat64 = 8,
    ncclBfloat16 = 9
} ncclDataType_t;

typedef enum ncclRedOp_t { ncclSum = 0, ncclMax = 2 } ncclRedOp_t;

typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow *ncclWindow_t;
typedef struct ncclUniqueId {
    char internal[128];
} ncclUniqueId;

typedef struct ncclConfig_t ncclConfig_t;

/* All members of a communicator use a window at equal offsets: the result's in all_gather and
 * all_reduce, the operand's in reduce_scatter and all_reduce. */
#define NCCL_WIN_COLL_SYMMETRIC 1

/* X(result, name, arguments). ncclCommSplit: config NULL means that of `comm`.
 * ncclCommWindowRegister is collective; *out stays NULL if NCCL would not use a window. */
#define NCCL_FUNCTIONS(X)                                                                          \
    X(ncclResult_t, ncclGetVersion, (int *version))                                                \
    X(const char *, ncclGetErrorString, (ncclResult_t result))                                     \
    X(const char *, ncclGetLastError, (ncclComm_t comm))                                           \
    X(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * out))                                         \
    X(ncclResult_t, ncclCommInitRank, (ncclComm_t * out, int size, ncclUniqueId id, int rank))     \
    X(ncclResult_t, ncclCommSplit,                                                                 \
      (ncclComm_t comm, int colour, int key, ncclComm_t *out, ncclConfig_t *config))               \
    X(ncclResult_t, ncclCommDestroy, (ncclComm_t comm))                                            \
    X(ncclResult_t, ncclCommAbort, (ncclComm_t comm))                                              \
    X(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t * out))                  \
    X(ncclResult_t, ncclMemAlloc, (void **out, size_t bytes))                                      \
    X(ncclResult_t, ncclMemFree, (void *memory))                                                   \
    X(ncclResult_t, ncclCommWindowRegister,                                                        \
      (ncclComm_t comm, void *memory, size_t bytes, ncclWindow_t *out, int flags))                 \
    X(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t window))              \
    X(ncclResult_t, ncclAllReduce,                                                                 \
      (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,              \
       ncclComm_t comm, cudaStream_t stream))                                                      \
    X(ncclResult_t, ncclReduceScatter,                                                             \
      (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,              \
       ncclComm_t comm, cudaStream_t stream))                                                      \
    X(ncclResult_t, ncclAllGather,                                                                 \
      (const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,             \
       cudaStream_t stream))                                                                       \
    X(ncclResult_t, ncclBroadcast,                                                                 \
      (const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,   \
       cudaStream_t stream))                                                                       \
    X(ncclResult_t, ncclSend,                                                                      \
      (const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,             \
       cudaStream_t stream))                                                                       \
    X(ncclResult_t, ncclRecv,                                                                      \
      (void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,                     \
       cudaStream_t stream))

#ifdef Z3D_CUDA_SHIM
#define X(result, name, arguments) result name arguments;
NCCL_FUNCTIONS(X)
#undef X
#endif

#endif
