/* Inside the stand-in for CUDA's libraries: what its files tell each other. */
#ifndef ZERO3D_TESTS_DEVICE_CUDA_SHIM_SHIM_H
#define ZERO3D_TESTS_DEVICE_CUDA_SHIM_SHIM_H

#include "cuda_runtime_api.h"
#include "src/base/dtype.h"

/* Something that a stream is to do: run(argument), once or (replayed) more than once;
 * drop(argument) when it is not wanted any more. */
typedef struct cuda_shim_work {
    void (*run)(void *argument);
    void (*drop)(void *argument);
    void *argument;
} cuda_shim_work;

/* streams.c: behind everything else on the stream; takes the argument over, whatever it answers. */
cudaError_t cuda_shim_enqueue(cudaStream_t stream, cuda_shim_work work);
/* The clock of events, in seconds: whatever is done takes a microsecond, unless it adds more. */
extern _Thread_local double cuda_shim_now;
/* Everything that was enqueued so far is done, on one stream, on all. */
cudaError_t cuda_shim_finish(cudaStream_t stream);
void cuda_shim_finish_all(void);
/* Whether something is left to do. */
int cuda_shim_is_busy(void);
cudaError_t cuda_shim_check_stream(cudaStream_t stream);
/* What calls without a stream use. */
cudaStream_t cuda_shim_legacy_stream(void);

/* graphs.c: where a stream or an event is in a capture: the nodes that it has come to. All zeros:
 * in none. Never freed. */
typedef struct cuda_shim_reach {
    long capture; /* its number */
    int *node, count, capacity;
} cuda_shim_reach;

/* An error while this thread captures, and the end of that: what waits, allocates or frees. */
cudaError_t cuda_shim_waits(void);
cudaError_t cuda_shim_refuse(cudaError_t error);
/* For streams that are in a capture; `captured` says whether that is so, or has become so. */
cudaError_t cuda_shim_capture_work(cuda_shim_reach *stream, cuda_shim_work work);
cudaError_t cuda_shim_capture_record(cuda_shim_reach *event, const cuda_shim_reach *stream);
cudaError_t cuda_shim_capture_wait(cuda_shim_reach *stream, const cuda_shim_reach *event);
/* streams.c */
cuda_shim_reach *cuda_shim_reach_of(cudaStream_t stream);

/* runtime.c: an error that a call answers stays, until somebody asks for it. */
cudaError_t cuda_shim_answer(cudaError_t error);
int cuda_shim_has_failed(void);
/* Whether these bytes lie in one block of the GPU's memory. */
int cuda_shim_is_device(const void *memory, size_t bytes);
/* What no program may do: says so and ends it. */
void cuda_shim_stop(const char *what);

/* runtime.c: element `at` of an array. */
double cuda_shim_get(const void *from, z3d_dtype type, int64_t at);
void cuda_shim_put(void *to, z3d_dtype type, int64_t at, double value);

#endif
