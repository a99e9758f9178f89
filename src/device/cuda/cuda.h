/* Inside the CUDA plugin only. device.c is the table: memory, streams, copies, dispatch of kernels;
 * graph.c captures work; gemm.c multiplies by cuBLASLt, attention.c computes attention by cuDNN
 * where it can (attention_plan.c: its plans), kernels/ is the rest; nccl.c are the collectives;
 * times.c times them; host_memory.c pins memory. Every CUDA call goes through z3d_cuda_check, so
 * that an error names the call. */
#ifndef ZERO3D_DEVICE_CUDA_PLUGIN_CUDA_H
#define ZERO3D_DEVICE_CUDA_PLUGIN_CUDA_H

#include <cuda_runtime_api.h>

#include "src/device/cuda/kernels/cuda_kernels.h"
#include "src/device/plugin/plugin.h"

/* Events of what runs beside compute. One that is recorded again by the same stream is waited for
 * as well as the earlier one, so this is no limit. */
enum { Z3D_CUDA_EVENTS = 64 };
enum { Z3D_CUDA_TIMES = 4096 }; /* between two synchronisations */

/* What is added to *seconds when `end` has happened; NULL: nothing. */
typedef struct z3d_cuda_time {
    cudaEvent_t begin, end;
    double *seconds;
} z3d_cuda_time;

/* Copies in one direction, which run beside those in the other. */
typedef struct z3d_cuda_copies {
    cudaStream_t stream;
    cudaEvent_t copied[Z3D_CUDA_EVENTS]; /* copy n's end, at n modulo their number */
    int64_t count;                       /* started so far */
} z3d_cuda_copies;

/* Memory in a list. */
typedef struct z3d_cuda_block {
    void *memory;
    int64_t bytes;
    bool allocated; /* pinned memory: by cudaHostAlloc */
    struct z3d_cuda_block *next;
} z3d_cuda_block;

typedef struct z3d_cuda {
    z3d_cuda_lane lane; /* what kernels are launched on; first, so that a lane is its device */
    int gpu;
    cudaStream_t compute;
    cudaEvent_t compute_position; /* recorded where another stream begins to wait for compute */
    z3d_cuda_copies copies[2];    /* to the device, to the host */
    double waited_seconds;        /* by compute for copies */
    bool times_wanted;
    int timed; /* so far */
    z3d_cuda_time times[Z3D_CUDA_TIMES];
    bool capturing;          /* from capture_begin to capture_end */
    bool keeps_graph;        /* a graph has been made: it knows the scratch's address */
    z3d_cuda_block *scratch; /* the lane's; behind it what became too small, but is a graph's */
    z3d_cuda_block *pinned;  /* host memory */
    struct z3d_cuda_gemms *gemms;
    struct z3d_cuda_attention *attention; /* NULL: no cuDNN, or not wanted */
    char attention_by[32];                /* "cuDNN 9.19.0", where there is attention */
    struct z3d_cuda_nccl *nccl;           /* NULL until connected */
    bool windows;                         /* of it are wanted */
    uint64_t identity;
    char description[256];
} z3d_cuda;

/* OK, or ERR_DEVICE (ERR_MEMORY) with the call and what CUDA says. */
z3d_status z3d_cuda_check(cudaError_t error, const char *call);
#define Z3D_CUDA_TRY(call) Z3D_TRY(z3d_cuda_check((call), #call))
/* Whether a query's answer is "not ready", which is no error and is not kept as one. */
bool z3d_cuda_not_ready(cudaError_t error);

/* `stream` goes on when compute has come to where it is now. */
z3d_status z3d_cuda_follow_compute(z3d_cuda *cuda, cudaStream_t stream);
/* Waits on the host until compute is done, or a communicator has failed: the table's
 * synchronize. */
z3d_status z3d_cuda_synchronize(void *self);
/* At least `bytes` of scratch in the lane; waits for all kernels where it has to grow, which it
 * cannot within a capture. */
z3d_status z3d_cuda_reserve(z3d_cuda *cuda, int64_t bytes);

/* times.c: what `stream` does between the two calls is added to *seconds after the first
 * synchronisation that finds it over, if both came; one after the other, never nested. *seconds
 * becomes NAN where it is not timed: no times are wanted, the work is captured, or too much is
 * under way. */
z3d_status z3d_cuda_time_begin(z3d_cuda *cuda, cudaStream_t stream, double *seconds,
                               z3d_cuda_time **out);
z3d_status z3d_cuda_time_end(z3d_cuda *cuda, cudaStream_t stream, double *seconds,
                             z3d_cuda_time *time);
void z3d_cuda_times_collect(z3d_cuda *cuda);
/* Who gave pointers to seconds is about to go. */
void z3d_cuda_times_forget(z3d_cuda *cuda);
void z3d_cuda_times_destroy(z3d_cuda *cuda);

/* host_memory.c: what the device's table has for memory of the host. */
int z3d_cuda_host_node(const void *self);
z3d_status z3d_cuda_pin(void *self, void *block, int64_t bytes);
/* Some machines let no process pin memory that it has, but have the driver make its own. */
z3d_status z3d_cuda_alloc_host(z3d_cuda *cuda, int64_t bytes, void **out);
bool z3d_cuda_unpin(void *self, void *block);
bool z3d_cuda_is_pinned(const z3d_cuda *cuda, const void *address);

/* graph.c: what the device's table has for captured work. */
z3d_status z3d_cuda_capture_begin(void *self);
z3d_status z3d_cuda_capture_end(void *self, void **region, int64_t *launches);
z3d_status z3d_cuda_region_launch(void *self, const void *region);
void z3d_cuda_region_destroy(void *self, void *region);

/* The two tables that the plugin gives: device.c, nccl.c. */
extern const z3d_device_ops z3d_device_ops_cuda;
extern const z3d_stream_collectives z3d_cuda_collectives;

/* One kernel: what the device's table has as launch. */
z3d_status z3d_cuda_launch(void *self, const z3d_kernel *kernel);

/* gemm.c */
z3d_status z3d_cuda_gemms_create(bool tf32, struct z3d_cuda_gemms **out);
void z3d_cuda_gemms_destroy(struct z3d_cuda_gemms *gemms);
/* z3d_cuda_gemm is here: the choice of an algorithm is made once per shape and kept. What the
 * device's table has to change it: */
z3d_status z3d_cuda_gemm_machine(void *self, char *out, size_t size);
z3d_status z3d_cuda_gemm_choice(void *self, const z3d_gemm *g, z3d_gemm_choice *out);
z3d_status z3d_cuda_gemm_choose(void *self, const z3d_gemm_choice *choice);

/* attention.c. No cuda->attention where cuDNN is not there. required: that is an error then, and so
 * is what it cannot compute. */
z3d_status z3d_cuda_attention_create(z3d_cuda *cuda, bool required, bool deterministic);
void z3d_cuda_attention_destroy(struct z3d_cuda_attention *attention);
/* *done: cuDNN computes this one: 16-bit attention, no dropout, a shape that it has engines for in
 * both directions. Errors: ERR_UNSUPPORTED where it does not, but is required. */
z3d_status z3d_cuda_attention_launch(z3d_cuda *cuda, const z3d_kernel *kernel, bool *done);

/* nccl.c: an error that a communicator met meanwhile, its group and rank named; all are aborted
 * then. */
z3d_status z3d_cuda_nccl_check(struct z3d_cuda_nccl *nccl);
void z3d_cuda_nccl_destroy(struct z3d_cuda_nccl *nccl);
/* One block at a time, of which communicators can have windows. False: there is another, NCCL has
 * none, or nobody wants one. */
bool z3d_cuda_nccl_alloc(const z3d_cuda *cuda, int64_t bytes, void **out);
/* False: it is no such block. Closes its windows. */
bool z3d_cuda_nccl_free(z3d_cuda *cuda, void *memory);
/* No collective is under way any more: a capture begins or ends, and none within waits for one
 * without, nor the other way round. */
void z3d_cuda_nccl_begin(struct z3d_cuda_nccl *nccl);

#endif
