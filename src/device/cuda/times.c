/* Times of work on streams, by events. Only runs with z3d_device_config.times have them, because
 * events cost launches. */
#include <math.h>

#include "src/device/cuda/cuda.h"

z3d_status z3d_cuda_time_begin(z3d_cuda *cuda, cudaStream_t stream, double *seconds,
                               z3d_cuda_time **out) {
    z3d_cuda_time *time = &cuda->times[cuda->timed % Z3D_CUDA_TIMES];
    *out = NULL;
    if (!cuda->times_wanted || cuda->capturing || time->seconds) {
        *seconds = NAN;
        return Z3D_OK;
    }
    if (!time->begin) Z3D_CUDA_TRY(cudaEventCreate(&time->begin));
    if (!time->end) Z3D_CUDA_TRY(cudaEventCreate(&time->end));
    Z3D_CUDA_TRY(cudaEventRecord(time->begin, stream));
    *out = time;
    return Z3D_OK;
}

z3d_status z3d_cuda_time_end(z3d_cuda *cuda, cudaStream_t stream, double *seconds,
                             z3d_cuda_time *time) {
    if (!time) return Z3D_OK;
    Z3D_CUDA_TRY(cudaEventRecord(time->end, stream));
    time->seconds = seconds;
    cuda->timed++;
    return Z3D_OK;
}

void z3d_cuda_times_collect(z3d_cuda *cuda) {
    for (int i = 0; i < Z3D_CUDA_TIMES; i++) {
        z3d_cuda_time *time = &cuda->times[i];
        float milliseconds = 0;
        if (!time->seconds || z3d_cuda_not_ready(cudaEventQuery(time->end))) continue;
        cudaEventElapsedTime(&milliseconds, time->begin, time->end);
        *time->seconds += (double)milliseconds * 1e-3;
        time->seconds = NULL;
    }
}

void z3d_cuda_times_forget(z3d_cuda *cuda) {
    for (int i = 0; i < Z3D_CUDA_TIMES; i++) cuda->times[i].seconds = NULL;
}

void z3d_cuda_times_destroy(z3d_cuda *cuda) {
    for (int i = 0; i < Z3D_CUDA_TIMES; i++) {
        if (cuda->times[i].begin) cudaEventDestroy(cuda->times[i].begin);
        if (cuda->times[i].end) cudaEventDestroy(cuda->times[i].end);
    }
}
