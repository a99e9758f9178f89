/* gpu_check: the cuda device against the cpu device, without a test framework, so that it builds
 * with a C compiler alone. Each check prints one line and is counted. With the host plugin
 * (tests/device/cuda_shim) it runs on every machine; scripts/gpu-check.sh runs it on a GPU. */
#ifndef ZERO3D_TESTS_GPU_CHECK_H
#define ZERO3D_TESTS_GPU_CHECK_H

#include "src/model/gpt/gpt.h"
#include "zero/zero.h"

typedef struct check_context {
    z3d_world *world;
    z3d_device_config cuda; /* how the device under test is made */
    int failed, passed;
} check_context;

/* "ok  name  detail" or "FAILED ..."; rank 0 prints. */
void check_report(check_context *context, bool ok, const char *name, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* "info  name  ...": a number that is no check, for the result's page. */
void check_measured(check_context *context, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ops.c: every kernel in every type, small shapes, random inputs, poisoned outputs. */
z3d_status check_ops(check_context *context);
/* train.c: losses of `steps` steps of a small GPT, cuda against cpu and ZeRO stages against each
 * other, over all ranks of the world (tensor x data). tiny: fp32 with dropout, stages 0 and 3. */
z3d_status check_training(check_context *context, bool tiny, int steps, int tensor);
/* graph.c: steps that were captured against steps that were not; what a capture refuses. */
z3d_status check_graphs(check_context *context, bool tiny, int tensor);
/* bench.c: GPT-2 124M and 1.5B: seconds a step with a graph and without, memory. */
z3d_status check_speed(check_context *context, bool tiny, int steps);
/* The same with 350M, several micro-batches, and one sample only. */
z3d_status check_models(check_context *context, bool tiny, int steps);
/* The kernels of one step, each kind and shape with its sum. */
z3d_status check_kernels(check_context *context, bool tiny);
z3d_status check_attention_speed(check_context *context, bool tiny);
/* Bandwidth of the device's memory and of copies to the host's, and the rate of a large product. */
z3d_status check_memory(check_context *context, bool tiny);
/* nccl.c: every collective between two ranks, which may share a GPU, against the cpu device's. */
z3d_status check_nccl(check_context *context);

/* ---- kernels with their operands ---- */

enum { CHECK_RESULTS = 4 };

/* A kernel on host memory, and what is to be compared. */
typedef struct check_case {
    char name[64];
    z3d_kernel kernel;
    const void *result[CHECK_RESULTS];
    z3d_dtype type[CHECK_RESULTS];
    double tolerance; /* of a result's root mean square, beside its type's rounding */
    double roundings; /* to the type on the way there that one of the devices may leave out */
    /* What each element may be off beside that; NULL: no more. */
    const double *slack[CHECK_RESULTS];
    void *block[16]; /* host memory, freed with the case */
    int blocks;
} check_case;

/* cases.c: calls `use` with one case after the other, at the given sizes; `use` must not keep it.
 */
typedef struct check_sizes {
    int64_t batch, seq, heads, head_dim, vocabulary;
} check_sizes;
z3d_status check_each_case(const check_sizes *sizes, z3d_dtype dtype,
                           z3d_status (*use)(void *argument, check_case *c), void *argument);

/* Element i of an array of any of our floating types. */
double check_number(const void *from, z3d_dtype type, int64_t i);
void check_set_number(void *to, z3d_dtype type, int64_t i, double value);

/* attention.c: the plain formula in double. Fills in out, log_sum_exp, and the slack of out and
 * (unless NULL) of dqkv, which has to be zeros. The numbers are of dtype, laid out as the kernels
 * have them. */
typedef struct check_attention {
    int64_t batch, seq, heads, head_dim;
    z3d_dtype dtype;
    const void *qkv, *dout; /* dout: only for dqkv_slack */
    void *out;
    float *log_sum_exp;
    double *out_slack, *dqkv_slack;
} check_attention;
z3d_status check_attention_reference(const check_attention *attention);

#endif
