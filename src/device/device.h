/* src/device: memory and kernels of one device. Each backend (cpu, record, sim; cuda in a plugin:
 * plugin/plugin.h) is one table of functions (interface/ops.h). This folder may call src/base.
 * Start reading at kernels.h. Every kernel is one struct, launched by Z3D_LAUNCH. interface/cost.c
 * says for every kind of kernel which memory it reads and writes and what it costs; the record and
 * sim devices need no more.
 *
 * A device belongs to one rank; no function here is collective. Kernels run in the order of their
 * launches. Pointers passed to kernels are device pointers: only kernels (and
 * z3d_device_read/_write) access their memory. */
#ifndef ZERO3D_DEVICE_DEVICE_H
#define ZERO3D_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/base.h"
#include "src/device/kernels.h"

typedef struct z3d_device z3d_device;

/* Where memory lies. HOST: host memory for offloaded data; on the cpu device it is a second arena.
 * DISK: a file of this rank; its content has offsets, not addresses (src/base/disk.h). */
typedef enum z3d_space {
    Z3D_SPACE_DEVICE,
    Z3D_SPACE_HOST,
    Z3D_SPACE_DISK,
    Z3D_SPACE_COUNT
} z3d_space;

/* How matrix products are computed. AUTO takes the method of z3d_gemm_from_table. A run keeps its
 * method, because another one gives other bits. Upcast: 16-bit operands are converted to fp32 in
 * scratch and multiplied in fp32. */
#define Z3D_GEMM_METHOD_MAP(X)                                                                     \
    X(AUTO, auto)                                                                                  \
    X(SGEMM, sgemm)       /* oneDNN dnnl_sgemm; 16-bit operands upcast */                          \
    X(MATMUL, matmul)     /* oneDNN matmul primitive in the operands' own type */                  \
    X(PORTABLE, portable) /* own loops: no library, for tests and bare builds */

typedef enum z3d_gemm_method {
#define X(NAME, name) Z3D_GEMM_##NAME,
    Z3D_GEMM_METHOD_MAP(X)
#undef X
        Z3D_GEMM_METHOD_COUNT
} z3d_gemm_method;

const char *z3d_gemm_method_name(z3d_gemm_method method);

struct z3d_tape;

/* cuda: which kernels compute attention. AUTO: cuDNN if it is installed and supports the case (fp16
 * and bf16, no dropout), else our own kernels. CUDNN refuses what it does not support. */
typedef enum z3d_attention_method {
    Z3D_ATTENTION_AUTO,
    Z3D_ATTENTION_CUDNN,
    Z3D_ATTENTION_OWN
} z3d_attention_method;

typedef struct z3d_device_config {
    const char *backend; /* "cpu", "cuda", "record" or "sim" */
    int threads; /* cpu: OpenMP threads of this rank; 0: all cores that this process may use. sim:
                    number of threads that scratch is planned for; 0: no scratch */
    z3d_gemm_method gemm[Z3D_DTYPE_COUNT]; /* by operand type */
    const char
        *isa; /* cpu: "avx512", "avx2", "generic" to force one, NULL: the best this CPU has */
    struct z3d_tape *tape; /* every launched kernel is written on it (src/device/sim/tape.h). sim
                              needs a tape. Another device with a tape runs each kernel alone and
                              writes its seconds, too. NULL: no tape */
    int local_rank; /* cuda: this rank's index on its node; it uses GPU local_rank modulo the number
                of GPUs */
    bool host_collectives; /* cuda: collectives go through host memory (MPI), not NCCL */
    bool nccl_windows; /* cuda: NCCL allocates and registers the memory that collectives work on */
    bool tf32; /* cuda: fp32 products in TF32 (10 bits of mantissa), several times as fast */
    z3d_attention_method attention;
    bool nondeterministic; /* cuda: results may differ from run to run in their last bits */
    bool times; /* cuda: events on streams time collectives and waits for copies; if false these
                   times are NAN */
} z3d_device_config;

/* Makes the device of config->backend; the caller destroys it. Errors: ERR_UNSUPPORTED (unknown
 * backend; an isa that this CPU lacks; cuda: no plugin, no driver, no GPU or a GPU that is too
 * old), ERR_MEMORY, ERR_DEVICE. */
z3d_status z3d_device_create(const z3d_device_config *config, z3d_device **out);
void z3d_device_destroy(z3d_device *device);

const char *z3d_device_backend(const z3d_device *device);
/* One line for people: "cpu: AMD EPYC, avx512, 2 threads, oneDNN 2.6.3". Valid while the device
 * lives. */
const char *z3d_device_description(const z3d_device *device);
int z3d_device_threads(const z3d_device *device);

/* An id of the physical device: two ranks have the same id exactly if they share a device. 0:
 * sharing does not matter (cpu). */
uint64_t z3d_device_identity(const z3d_device *device);
/* Bytes of the device's own memory that are in use, by other processes too; -1: it has no memory of
 * its own. */
int64_t z3d_device_used_bytes(const z3d_device *device);
/* Whether the host can access device memory. If not, collectives over MPI copy it to host memory
 * first. */
bool z3d_device_host_reads(const z3d_device *device);

/* Collectives that run on the device's own streams (collectives.h). NULL if the device has none or
 * config.host_collectives is set. Pass *self to the functions of the table. */
const struct z3d_stream_collectives *z3d_device_collectives(const z3d_device *device, void **self);
/* After a failed call of that table: copies the plugin's error text to this thread's error. Returns
 * `status`. */
z3d_status z3d_device_heard(const z3d_device *device, z3d_status status);

/* One block of `bytes` in `space`, 4096-aligned, first-touched (cuda: 512-aligned, zeroed; host
 * memory is pinned). The engine calls this once per space and plans all buffers inside the block.
 * An asynchronous save needs one more block for its copy. Errors: ERR_MEMORY, ERR_INTERNAL. On the
 * record and sim devices the addresses are only numbers: no memory belongs to them. */
z3d_status z3d_device_alloc(z3d_device *device, z3d_space space, int64_t bytes, void **out);
void z3d_device_free(z3d_device *device, z3d_space space, void *block, int64_t bytes);

/* Bytes of device memory, free or in use; INT64_MAX if unknown. */
int64_t z3d_device_memory(const z3d_device *device);
/* Free bytes of device memory; INT64_MAX if unknown. On the cpu device all ranks of a node, and
 * host space, share them. */
int64_t z3d_device_available(const z3d_device *device);

/* Scratch that kernels may use while they run (see z3d_kernel_scratch). Owned by the caller. */
void z3d_device_set_scratch(z3d_device *device, void *scratch, int64_t bytes);

/* A CPU moves no messages while it computes. So long kernels call `poll(context)` between tiles,
 * about every millisecond. The tiles do not depend on the polling. NULL: no polling. */
void z3d_device_set_poll(z3d_device *device, void (*poll)(void *context), void *context);

/* Launches one kernel; on an asynchronous device the call returns at once. sim: a kernel that
 * writes memory of HOST space counts as the host's work. See Z3D_LAUNCH. Errors: ERR_DEVICE,
 * ERR_INTERNAL. */
z3d_status z3d_launch(z3d_device *device, const z3d_kernel *kernel);

/* Waits for all kernels launched before. */
z3d_status z3d_device_synchronize(z3d_device *device);

/* read copies from the device to the host, write from the host to the device; both wait for the
 * copy. Use them for initial data, batches and results, never inside units. */
z3d_status z3d_device_read(z3d_device *device, void *host, const void *source, int64_t bytes);
z3d_status z3d_device_write(z3d_device *device, void *destination, const void *host, int64_t bytes);

/* The same, enqueued like a kernel. `host` is memory of HOST space; nobody else may access it
 * before the next z3d_device_synchronize. A device without a queue copies immediately. */
z3d_status z3d_device_post(z3d_device *device, void *destination, const void *host, int64_t bytes);
z3d_status z3d_device_fetch(z3d_device *device, void *host, const void *source, int64_t bytes);

/* Work that was captured once and is launched as one: on cuda a graph. */
typedef struct z3d_region z3d_region;
bool z3d_device_captures(const z3d_device *device);
/* Between begin and end, kernels, posts, fetches, copies and collectives of this device's own
 * streams are recorded and do not run. In between, waiting for the device and allocating memory are
 * errors. So the caller must have run the same work once before, at the same addresses. Before the
 * end the caller waits for all copies and collectives that it started. */
z3d_status z3d_capture_begin(z3d_device *device);
/* *launches: the number of single operations in the region. After a failure between begin and end,
 * call it with out NULL to discard the recording. */
z3d_status z3d_capture_end(z3d_device *device, z3d_region **out, int64_t *launches);
/* Enqueues the region like a kernel, any number of times. The memory that it uses must still
 * exist. */
z3d_status z3d_region_launch(z3d_device *device, const z3d_region *region);
/* Call it before you destroy the groups whose collectives the region contains. */
void z3d_region_destroy(z3d_device *device, z3d_region *region);

/* Copies `bytes` between device and host space beside compute, after the kernels launched so far,
 * in the order of the starts. Nobody may access source or destination until the copy's wait. Use
 * *copy once, in wait or finish. The cpu device copies with a separate thread. Errors:
 * ERR_DEVICE. */
typedef struct z3d_copy {
    int64_t id;
} z3d_copy;
z3d_status z3d_copy_start(z3d_device *device, void *to, const void *from, int64_t bytes,
                          z3d_copy *copy);
/* Kernels launched after this see the copied bytes. */
z3d_status z3d_copy_wait(z3d_device *device, z3d_copy copy);
/* As z3d_copy_wait; in addition the host may read and overwrite the copy's end in host space. For
 * each copy call only one of the two. */
z3d_status z3d_copy_finish(z3d_device *device, z3d_copy copy);

/* Seconds that kernels waited for copies while the host did not wait (z3d_copy_wait did not block),
 * from creation to the last synchronisation. 0 if the host waits; NAN if some were not timed. */
double z3d_copies_waited(const z3d_device *device);

/* The observer is called with every range of device and HOST memory before kernels (with their
 * scratch), copies, reads, writes or collectives access it. Tests use it to compare the memory in
 * use with the plan. NULL removes the observer. */
typedef void (*z3d_access_observer)(void *context, const void *memory, int64_t bytes);
void z3d_device_set_access_observer(z3d_device *device, z3d_access_observer observer,
                                    void *context);
/* A module that accesses device memory without a call of src/device reports it here (the
 * collectives). */
void z3d_device_touch(const z3d_device *device, const void *memory, int64_t bytes);

/* Reads, writes and costs of one kernel, computed from its struct alone; equal on every device. */
typedef struct z3d_operand {
    const void *pointer;
    int64_t bytes; /* extent from pointer: last byte + 1 */
    bool read, written;
} z3d_operand;

#define Z3D_MAX_OPERANDS 12

typedef struct z3d_cost {
    double flops; /* multiply and add count two; transcendentals one */
    int64_t bytes_read, bytes_written;
    int num_operands;
    z3d_operand operands[Z3D_MAX_OPERANDS]; /* without NULL pointers */
} z3d_cost;

void z3d_kernel_cost(const z3d_kernel *kernel, z3d_cost *out);
const char *z3d_kernel_name(z3d_kernel_kind kind);

/* Bytes of scratch that the cpu device needs for this kernel with `threads` threads: the most over
 * all gemm methods. */
int64_t z3d_kernel_scratch(const z3d_kernel *kernel, int threads);

/* The cpu device's method for AUTO. It depends only on the type and on this CPU's instruction set,
 * so two runs on CPUs of one kind have equal bits. */
z3d_gemm_method z3d_gemm_from_table(z3d_dtype dtype);

/* Measures products of the given shape (m x n x k, fp32 result) with every method and returns the
 * fastest one with its GFLOP/s. Takes well below a second. Devices without several methods answer
 * SGEMM; record and sim with 0 GFLOP/s. */
z3d_status z3d_device_measure_gemm(z3d_device *device, z3d_dtype dtype, int64_t m, int64_t n,
                                   int64_t k, z3d_gemm_method *best, double *gflops);

/* Fills device memory with `count` random numbers for measurements, and waits for the end. Zeros
 * would make the device look faster, because they cost less power. */
z3d_status z3d_device_fill_random(z3d_device *device, void *memory, int64_t count, z3d_dtype dtype);

/* cuda: the shape of a product, and the algorithm of cuda's library that computes it. Another
 * algorithm gives other bits. */
enum { Z3D_GEMM_NUMBERS = 18 };
typedef struct z3d_gemm_choice {
    int64_t number[Z3D_GEMM_NUMBERS]; /* the shape: sizes, types, epilogue, alignments
                                         (src/device/cuda/gemm.c) */
    int algorithms;                   /* number that the library has; 0: it does not compute this
                                         product: an empty one, or an epilogue that it lacks */
    int chosen; /* index of the algorithm in use, from 0; if it refuses to run, the next one is
                   taken. With an epilogue the index `algorithms` means separate kernels */
} z3d_gemm_choice;
/* Writes the GPU and the library that the meaning of `chosen` depends on: "NVIDIA H200, cuBLASLt
 * 130000". */
z3d_status z3d_device_gemm_machine(z3d_device *device, char *out, size_t size);
/* The shape of `gemm` with its choice. Only the operands' alignment matters, not their content. */
z3d_status z3d_device_gemm_choice(z3d_device *device, const z3d_gemm *gemm, z3d_gemm_choice *out);
/* Sets the algorithm of a shape from now on; `number` and `chosen` are read, `algorithms` is not.
 * ERR_CONFIG if the shape has fewer algorithms; if they are not known yet, the first product of the
 * shape reports it. */
z3d_status z3d_device_choose_gemm(z3d_device *device, const z3d_gemm_choice *choice);
/* Runs the kernel alone; *seconds is its time. */
z3d_status z3d_device_time(z3d_device *device, const z3d_kernel *kernel, double *seconds);

/* Calls `observe` for every launched kernel, before it runs. NULL: no calls. */
void z3d_device_set_recorder(z3d_device *device,
                             z3d_status (*observe)(void *context, const z3d_kernel *kernel),
                             void *context);

#endif
