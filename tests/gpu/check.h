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

/* ops.c: every kernel in every type, in all shapes and forms of cases.c. */
z3d_status check_ops(check_context *context);
/* train.c: a small GPT over all ranks of the world (tensor x data): cuda against cpu, ZeRO stages
 * against each other, steps as a graph against steps that are not. */
z3d_status check_training(check_context *context);
/* capture.c: captured work without a model; what a capture refuses. */
z3d_status check_captures(check_context *context);
/* bench.c: seconds a step with a graph and without, and memory (speed, more sizes: models, llama);
 * the kernels of one step, each kind and shape with its sum (kernels), or only attention's. */
z3d_status check_speed(check_context *context);
/* Bandwidth of the device's memory and of copies to the host's, and the rate of a large product. */
z3d_status check_memory(check_context *context);
/* nccl.c: every collective between two ranks, which may share a GPU, against the cpu device's. */
z3d_status check_nccl(check_context *context);

/* ---- kernels with their operands ---- */

/* An array in host memory, and, where the kernel writes it, how far an element may be from the cpu
 * device's: one rounding of a 16-bit type, `relative` of the element, `absolute`, and its slack.
 * All 0: equal. */
typedef struct check_array {
    void *data;
    z3d_dtype type;
    int64_t count;
    double relative, absolute;
    double *slack; /* NULL: none; INFINITY: the element may be anything */
} check_array;

enum { CHECK_ARRAYS = 16 };

typedef struct check_case {
    z3d_kernel kernel; /* its pointers are into the arrays */
    z3d_dtype type;    /* the model's */
    check_array array[CHECK_ARRAYS];
    int arrays;
} check_case;

/* cases.c: calls `use` with one case after the other, which it must not keep. gpu: products, too,
 * and what a GPU's arithmetic and libraries may be off; else our kernels alone, as the host
 * computes them. The cpu device prepares operands. */
void check_each_case(z3d_dtype type, bool gpu, z3d_device *cpu,
                     void (*use)(void *argument, const check_case *c), void *argument);

/* Element i of an array of any of our types. */
double check_number(const void *from, z3d_dtype type, int64_t i);
void check_set_number(void *to, z3d_dtype type, int64_t i, double value);

/* attention.c: how far tensor cores may be off: the slack of out, laid out like it, or (backward
 * given) of dq, dk and dv, which are parts of one matrix. It is added to what is there. */
void check_attention_slack(const z3d_attention_forward *forward,
                           const z3d_attention_backward *backward, double *slack);

/* ops.c: where the kernels run that are compared with the cpu device's. */
typedef struct check_target {
    z3d_device *device; /* NULL: our kernels alone, compiled for the host */
    int ways;           /* each case runs in so many, which must give the same bits */
    /* The operands are in host memory, before and after. */
    z3d_status (*launch)(const struct check_target *target, const z3d_kernel *kernel, int way);
} check_target;

/* Runs and reports all cases of a type, with and without operands aligned to 16 bytes; what a
 * kernel does not read is NaN before. */
void check_all_kernels(check_context *context, const check_target *target, z3d_dtype type);
/* Ends the program with the error; so does the other, of zeros, where there is no memory. */
void check_must(z3d_status status);
void *check_new(int64_t bytes);
/* The struct's words that point into the operand point into `to` afterwards. */
void check_move_operand(z3d_kernel *kernel, const void *from, int64_t bytes, void *to);
/* The kernel on the cpu device, with exactly the scratch that it says it wants. */
void check_launch_cpu(z3d_device *cpu, const z3d_kernel *kernel);

/* Of the cpu device: the bare build leaves out oneDNN's products in bf16, which some CPUs have. */
#define CHECK_GEMM .gemm = {[Z3D_BF16] = Z3D_GEMM_SGEMM}

#endif
