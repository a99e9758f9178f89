/* Inside the stand-in for CUDA's libraries: what its files tell each other. */
#ifndef ZERO3D_TESTS_DEVICE_CUDA_SHIM_SHIM_H
#define ZERO3D_TESTS_DEVICE_CUDA_SHIM_SHIM_H

#include "cuda_runtime_api.h"

/* Something that a stream is to do: run(argument), once or (replayed) more than once;
 * drop(argument) when it is not wanted any more. */
typedef struct cuda_shim_work {
    void (*run)(void *argument);
    void (*drop)(void *argument);
    void *argument;
} cuda_shim_work;

/* streams.c: behind everything else on the stream; takes the argument over, whatever it answers. */
cudaError_t cuda_shim_enqueue(cudaStream_t stream, cuda_shim_work work);
/* Everything that was enqueued so far is done, on one stream, on all. */
cudaError_t cuda_shim_finish(cudaStream_t stream);
void cuda_shim_finish_all(void);
/* Whether something is left to do. */
int cuda_shim_is_busy(void);
cudaError_t cuda_shim_check_stream(cudaStream_t stream);
/* What calls without a stream use. */
cudaStream_t cuda_shim_legacy_stream(void);

/* runtime.c: an error that a call answers stays, until somebody asks for it. */
cudaError_t cuda_shim_answer(cudaError_t error);
int cuda_shim_has_failed(void);
/* Whether these bytes lie in one block of the GPU's memory. */
int cuda_shim_is_device(const void *memory, size_t bytes);
/* What no program may do: says so and ends it. */
void cuda_shim_stop(const char *what);

#endif
