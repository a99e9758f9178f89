/* Private to the CUDA plugin. device.c is the device's table: memory, streams, copies, dispatch of
 * kernels; graph.c captures work; gemm.c has products by cuBLASLt; attention.c has attention by
 * cuDNN, where possible (plans: attention_plan.c); kernels/ has all other kernels; nccl.c has
 * collectives, times.c their times; host_memory.c pins memory. Every CUDA call goes through
 * z3d_cuda_check, so that an error names the call. */
#ifndef ZERO3D_DEVICE_CUDA_PLUGIN_CUDA_H
#define ZERO3D_DEVICE_CUDA_PLUGIN_CUDA_H

#include <cuda_runtime_api.h>

#include "src/device/cuda/kernels/cuda_kernels.h"
#include "src/device/plugin/plugin.h"

/* Number of events of a side stream. This is no limit: an event may be recorded again, because a
 * wait for the later use includes the earlier one. */
enum { Z3D_CUDA_EVENTS = 64 };
enum { Z3D_CUDA_TIMES = 4096 }; /* between two synchronisations */

/* The time from begin to end, which is added to *seconds after `end`; NULL: not in use. */
typedef struct z3d_cuda_time {
    cudaEvent_t begin, end;
    double *seconds;
} z3d_cuda_time;

/* Copies in one direction; those in the other direction run at the same time. */
typedef struct z3d_cuda_copies {
    cudaStream_t stream;
    cudaEvent_t copied[Z3D_CUDA_EVENTS]; /* the end of copy n is at n % Z3D_CUDA_EVENTS */
    int64_t count;                       /* started so far */
} z3d_cuda_copies;

/* A list of memory blocks. */
typedef struct z3d_cuda_block {
    void *memory;
    int64_t bytes;
    bool allocated; /* pinned memory: by cudaHostAlloc */
    struct z3d_cuda_block *next;
} z3d_cuda_block;

typedef struct z3d_cuda {
    z3d_cuda_lane lane; /* of all kernels; the first member, so a lane can be cast to its device */
    int gpu;
    cudaStream_t compute;
    cudaEvent_t compute_position; /* recorded when another stream must wait for compute */
    z3d_cuda_copies copies[2];    /* to the device, to the host */
    double waited_seconds;        /* compute waited for copies */
    bool times_wanted;
    int timed; /* so far */
    z3d_cuda_time times[Z3D_CUDA_TIMES];
    bool capturing;          /* from capture_begin to capture_end */
    bool keeps_graph;        /* a graph exists, which uses the scratch's address */
    z3d_cuda_block *scratch; /* the lane's block; then older, smaller ones that graphs use */
    z3d_cuda_block *pinned;  /* host memory */
    struct z3d_cuda_gemms *gemms;
    struct z3d_cuda_attention *attention; /* NULL: our kernels compute all attention */
    char attention_by[32];                /* "cuDNN 9.19.0", if attention is set */
    struct z3d_cuda_nccl *nccl;           /* NULL until connected */
    bool windows;                         /* training.nccl.windows */
    uint64_t identity;
    char description[256];
} z3d_cuda;

/* OK, or ERR_DEVICE (ERR_MEMORY) with the call and CUDA's text. */
z3d_status z3d_cuda_check(cudaError_t error, const char *call);
#define Z3D_CUDA_TRY(call) Z3D_TRY(z3d_cuda_check((call), #call))
/* Whether a query's answer is "not ready". Clears it, since it is no error. */
bool z3d_cuda_not_ready(cudaError_t error);

/* Makes `stream` wait for all work that compute has now. */
z3d_status z3d_cuda_follow_compute(z3d_cuda *cuda, cudaStream_t stream);
/* The table's synchronize: the host waits until compute is done or a communicator has failed. */
z3d_status z3d_cuda_synchronize(void *self);
/* Makes the lane's scratch at least `bytes` large. If it must grow, waits for all kernels;
 * ERR_INTERNAL in a capture. */
z3d_status z3d_cuda_reserve(z3d_cuda *cuda, int64_t bytes);

/* times.c. Times the work that `stream` gets between begin and end; pairs must not be nested. A
 * later synchronisation adds the time to *seconds. *seconds becomes NAN if the work is not timed:
 * times are not wanted, the work is captured, or too many times are pending. */
z3d_status z3d_cuda_time_begin(z3d_cuda *cuda, cudaStream_t stream, double *seconds,
                               z3d_cuda_time **out);
z3d_status z3d_cuda_time_end(z3d_cuda *cuda, cudaStream_t stream, double *seconds,
                             z3d_cuda_time *time);
void z3d_cuda_times_collect(z3d_cuda *cuda);
/* Drops pending times, whose pointers to seconds become invalid. */
void z3d_cuda_times_forget(z3d_cuda *cuda);
void z3d_cuda_times_destroy(z3d_cuda *cuda);

/* host_memory.c: functions of the device's table. */
int z3d_cuda_host_node(const void *self);
z3d_status z3d_cuda_pin(void *self, void *block, int64_t bytes);
/* Allocates pinned memory. Some machines cannot pin a process's own memory, but allow this. */
z3d_status z3d_cuda_alloc_host(z3d_cuda *cuda, int64_t bytes, void **out);
bool z3d_cuda_unpin(void *self, void *block);
bool z3d_cuda_is_pinned(const z3d_cuda *cuda, const void *address);

/* graph.c: functions of the device's table. */
z3d_status z3d_cuda_capture_begin(void *self);
z3d_status z3d_cuda_capture_end(void *self, void **region, int64_t *launches);
z3d_status z3d_cuda_region_launch(void *self, const void *region);
void z3d_cuda_region_destroy(void *self, void *region);

/* The plugin's two tables: device.c, nccl.c. */
extern const z3d_device_ops z3d_device_ops_cuda;
extern const z3d_stream_collectives z3d_cuda_collectives;

/* The table's launch. */
z3d_status z3d_cuda_launch(void *self, const z3d_kernel *kernel);

/* gemm.c */
z3d_status z3d_cuda_gemms_create(bool tf32, struct z3d_cuda_gemms **out);
void z3d_cuda_gemms_destroy(struct z3d_cuda_gemms *gemms);
/* z3d_cuda_gemm is here, too. It chooses an algorithm once for each shape. Functions of the
 * device's table to change the choice: */
z3d_status z3d_cuda_gemm_machine(void *self, char *out, size_t size);
z3d_status z3d_cuda_gemm_choice(void *self, const z3d_gemm *g, z3d_gemm_choice *out);
z3d_status z3d_cuda_gemm_choose(void *self, const z3d_gemm_choice *choice);

/* attention.c. Without cuDNN cuda->attention stays NULL. required: then this, and each case that
 * cuDNN cannot compute, is an error. */
z3d_status z3d_cuda_attention_create(z3d_cuda *cuda, bool required, bool deterministic);
void z3d_cuda_attention_destroy(struct z3d_cuda_attention *attention);
/* *done: cuDNN computes this kernel: 16-bit attention without dropout, of a shape with engines for
 * both directions. ERR_UNSUPPORTED: it does not, but is required. */
z3d_status z3d_cuda_attention_launch(z3d_cuda *cuda, const z3d_kernel *kernel, bool *done);

/* nccl.c. ERR_COMM: a communicator has failed; the message names its group and rank, and all
 * communicators are aborted. */
z3d_status z3d_cuda_nccl_check(struct z3d_cuda_nccl *nccl);
void z3d_cuda_nccl_destroy(struct z3d_cuda_nccl *nccl);
/* Allocates the block that communicators can have windows of. False: there is one already, NCCL
 * cannot, or windows are not wanted. */
bool z3d_cuda_nccl_alloc(const z3d_cuda *cuda, int64_t bytes, void **out);
/* Closes the block's windows and frees it. False: it is another block. */
bool z3d_cuda_nccl_free(z3d_cuda *cuda, void *memory);
/* A capture begins or ends: no collective is under way, and none on one side is waited for on the
 * other. */
void z3d_cuda_nccl_begin(struct z3d_cuda_nccl *nccl);

#endif
