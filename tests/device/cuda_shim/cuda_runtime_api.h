/* As much of CUDA's runtime library as our plugin uses, on the host and in C: one GPU whose memory
 * is the heap, whose streams do what they have to as late as they may (streams.cc). With the
 * kernels compiled for the host (cuda_runtime.h) and what plugin/ has of other libraries it makes a
 * plugin that runs without a GPU, so that its tables, its copies and its order of calls are tested
 * on every machine. Names and meanings are those of the real library's documentation. */
#ifndef ZERO3D_TESTS_DEVICE_CUDA_SHIM_CUDA_RUNTIME_API_H
#define ZERO3D_TESTS_DEVICE_CUDA_SHIM_CUDA_RUNTIME_API_H

#include <stddef.h>

#define CUDART_VERSION 13000

#define CUDA_SHIM_ERRORS(X)                                                                        \
    X(cudaSuccess, 0)                                                                              \
    X(cudaErrorInvalidValue, 1)                                                                    \
    X(cudaErrorMemoryAllocation, 2)                                                                \
    X(cudaErrorInsufficientDriver, 35)                                                             \
    X(cudaErrorInvalidDeviceFunction, 98)                                                          \
    X(cudaErrorNoDevice, 100)                                                                      \
    X(cudaErrorNoKernelImageForDevice, 209)                                                        \
    X(cudaErrorNotReady, 600)                                                                      \
    X(cudaErrorIllegalAddress, 700)                                                                \
    X(cudaErrorLaunchFailure, 719)                                                                 \
    X(cudaErrorStreamCaptureUnsupported, 900)                                                      \
    X(cudaErrorStreamCaptureInvalidated, 901)                                                      \
    X(cudaErrorStreamCaptureUnjoined, 904)                                                         \
    X(cudaErrorStreamCaptureIsolation, 905)                                                        \
    X(cudaErrorCapturedEvent, 907)                                                                 \
    X(cudaErrorUnknown, 999)

typedef enum cudaError_t {
#define X(name, number) name = number,
    CUDA_SHIM_ERRORS(X)
#undef X
} cudaError_t;

enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };

typedef enum cudaMemcpyKind { cudaMemcpyDeviceToDevice = 3, cudaMemcpyDefault = 4 } cudaMemcpyKind;

enum {
    cudaStreamNonBlocking = 1,
    cudaEventDisableTiming = 2,
    cudaHostRegisterDefault = 0,
    cudaHostAllocDefault = 0
};
enum cudaDeviceAttr { cudaDevAttrMaxPitch = 11, cudaDevAttrHostNumaId = 134 };
enum { cudaGraphInstantiateFlagUseNodePriority = 8 };

typedef struct cuda_shim_stream *cudaStream_t;
typedef struct cuda_shim_event *cudaEvent_t;
typedef struct cuda_shim_graph *cudaGraph_t, *cudaGraphExec_t;
typedef struct cuda_shim_node *cudaGraphNode_t;

typedef struct cudaUUID_t {
    char bytes[16];
} cudaUUID_t;

struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
    size_t totalGlobalMem;
    int major, minor;
};

const char *cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetLastError(void);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device);
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceSynchronize(void);

cudaError_t cudaMemGetInfo(size_t *available, size_t *total);
cudaError_t cudaMalloc(void **out, size_t bytes);
cudaError_t cudaFree(void *block);
cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *memory);
cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaMemset(void *to, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream);

cudaError_t cudaDeviceGetStreamPriorityRange(int *lowest, int *highest);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end);

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out);
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t graph,
                                          unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);

/* What is the same as another here. */
#define cudaGetErrorString cudaGetErrorName
#define cudaStreamCreateWithFlags(out, flags) cudaStreamCreateWithPriority(out, flags, 0)
#define cudaEventCreate(out) cudaEventCreateWithFlags(out, 0)
#define cudaGraphExecDestroy cudaGraphDestroy

#endif
