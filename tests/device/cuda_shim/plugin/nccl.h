/* As much of NCCL as our plugin uses, on the host, between processes of one machine
 * (collectives.c). Names, numbers and meanings are those of the real library. */
#ifndef ZERO3D_TESTS_DEVICE_CUDA_SHIM_NCCL_H
#define ZERO3D_TESTS_DEVICE_CUDA_SHIM_NCCL_H

#include "cuda_runtime_api.h"

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
typedef struct ncclConfig ncclConfig_t;
typedef struct ncclUniqueId {
    char internal[128];
} ncclUniqueId;

ncclResult_t ncclGetVersion(int *version);
const char *ncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclGetUniqueId(ncclUniqueId *out);
ncclResult_t ncclCommInitRank(ncclComm_t *out, int size, ncclUniqueId id, int rank);
ncclResult_t ncclCommSplit(ncclComm_t comm, int colour, int key, ncclComm_t *out,
                           ncclConfig_t *config);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *out);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);

#endif
