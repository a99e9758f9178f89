/* gpu_check: the cuda device against the cpu device, without a test framework, so that it builds
 * with a C compiler alone. Each check prints one line and is counted. With the host plugin
 * (tests/device/cuda_shim) it runs on every machine; scripts/gpu-check.sh runs it on a GPU. */
#ifndef ZERO3D_TESTS_GPU_CHECK_H
#define ZERO3D_TESTS_GPU_CHECK_H

#include "src/model/gpt/gpt.h"
#include "zero/zero.h"

/* What a line begins with: "ok", "FAILED", or "info", a number that is no check. */
typedef enum check_kind { CHECK_OK, CHECK_FAILED, CHECK_INFO, CHECK_KINDS } check_kind;

typedef struct check_context {
    z3d_world *world;
    z3d_device_config cuda; /* how the device under test is made */
    const char *part;       /* that runs */
    int steps;              /* of training or of a timing; 0: as the part has it */
    int tensor;             /* size, of parts that train */
    bool tiny;              /* sizes for a machine without a GPU */
    int said[CHECK_KINDS];
} check_context;

/* One line; rank 0's, or what failed on any. */
void check_say(check_context *context, check_kind kind, const char *name, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#define check_report(context, held, name, ...)                                                     \
    check_say(context, (held) ? CHECK_OK : CHECK_FAILED, name, __VA_ARGS__)
#define check_measured(context, name, ...) check_say(context, CHECK_INFO, name, __VA_ARGS__)

/* Whether it is OK; if not, that is a check that failed. Where others may wait for this rank, all
 * end. */
bool check_ran(check_context *context, z3d_status status, const char *name);

/* ops.c: every kernel in every type, small shapes, random inputs, poisoned outputs. */
z3d_status check_ops(check_context *context);
/* train.c: a small GPT over all ranks of the world (tensor x data): cuda against cpu, ZeRO stages
 * against each other, steps as a graph against steps that are not. */
z3d_status check_training(check_context *context);
/* capture.c: captured work without a model; what a capture refuses. */
z3d_status check_captures(check_context *context);
/* bench.c: seconds a step with a graph and without, and memory (speed, and more sizes: models); the
 * kernels of one step, each kind and shape with its sum (kernels), or only attention's. */
z3d_status check_speed(check_context *context);
/* Bandwidth of the device's memory and of copies to the host's, and the rate of a large product. */
z3d_status check_memory(check_context *context);
/* nccl.c: collectives between two processes that it starts itself, before anything of CUDA has
 * begun; not 0: something failed. */
int check_nccl(const z3d_device_config *config);

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
