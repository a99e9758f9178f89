/* Inside the stand-in for CUDA's libraries: what its files tell each other. */
#ifndef ZERO3D_TESTS_DEVICE_CUDA_SHIM_SHIM_H
#define ZERO3D_TESTS_DEVICE_CUDA_SHIM_SHIM_H

#include <stdbool.h>

#include "cuda_runtime_api.h"
#include "src/base/dtype.h"

/* Something that a stream is to do: run(argument), once or (in a graph) more than once;
 * drop(argument) when it is not wanted any more. */
typedef struct cuda_shim_work {
    void (*run)(void *argument);
    void (*drop)(void *argument);
    void *argument;
} cuda_shim_work;

/* streams.cc: behind everything else on the stream. */
cudaError_t cuda_shim_enqueue(cudaStream_t stream, cuda_shim_work work);
/* The clock of events, in seconds: whatever is done takes a microsecond, unless it adds more. */
extern double cuda_shim_now;
/* The number of the capture that gets what the stream is given; 0: none does. */
long cuda_shim_captures(cudaStream_t stream);
/* What waits, allocates or frees is an error while this thread captures, and the capture's end. */
cudaError_t cuda_shim_waits(void);

/* runtime.cc: an error that a call answers stays, until somebody asks for it. */
cudaError_t cuda_shim_answer(cudaError_t error);
bool cuda_shim_has_failed(void);
#define CUDA_SHIM_TRY(call)                                                                        \
    do {                                                                                           \
        cudaError_t error_ = (call);                                                               \
        if (error_ != cudaSuccess) return error_;                                                  \
    } while (0)
/* Whether these bytes lie in one block of the GPU's memory. */
bool cuda_shim_is_device(const void *memory, size_t bytes);
/* Of the environment. */
bool cuda_shim_is_set(const char *variable, const char *value);
/* What cannot go on: says why and ends the program. */
void cuda_shim_stop(const char *what) __attribute__((noreturn));
/* Element `at` of an array. */
double cuda_shim_get(const void *from, z3d_dtype type, int64_t at);
void cuda_shim_put(void *to, z3d_dtype type, int64_t at, double value);

#endif
