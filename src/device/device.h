/* src/device: memory and kernels of one device, behind one table per backend (cpu, record, sim;
 * cuda's is in a plugin: plugin/plugin.h). It may call src/base. Start reading at kernels.h.
 * Every kernel is one struct, launched by Z3D_LAUNCH. Each backend has a table by kernel kind.
 * interface/cost.c says for every kind which memory it reads and writes and what it costs; the
 * recording device and sim need no more.
 *
 * A device belongs to one rank. Its kernels run in the order of their launches. Pointers passed to
 * kernels are device pointers: only kernels (and z3d_device_read/_write) access their memory. */
#ifndef ZERO3D_DEVICE_DEVICE_H
#define ZERO3D_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/base.h"
#include "src/device/kernels.h"

typedef struct z3d_device z3d_device;

/* Where memory lies. HOST: what is offloaded from the device; on the cpu device it is a second
 * arena. DISK: a file of this rank, in which nothing has an address (src/base/disk.h). */
typedef enum z3d_space {
    Z3D_SPACE_DEVICE,
    Z3D_SPACE_HOST,
    Z3D_SPACE_DISK,
    Z3D_SPACE_COUNT
} z3d_space;

/* How matrix products are computed. AUTO is z3d_gemm_from_table's. A run keeps its choice, because
 * another one gives other bits. Upcast: 16-bit operands are converted to fp32 in scratch
 * and multiplied in fp32. */
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

/* cuda: who computes attention. AUTO: cuDNN if it is installed and supports the case (fp16 and
 * bf16, no dropout), else our own kernels. CUDNN refuses what it does not support. */
typedef enum z3d_attention_method {
    Z3D_ATTENTION_AUTO,
    Z3D_ATTENTION_CUDNN,
    Z3D_ATTENTION_OWN
} z3d_attention_method;

typedef struct z3d_device_config {
    const char *backend; /* "cpu", "cuda", "record" or "sim" */
    int threads; /* cpu: OpenMP threads of this rank; 0: all cores that this process may use. sim:
                    threads for which scratch is counted; 0: none */
    z3d_gemm_method gemm[Z3D_DTYPE_COUNT]; /* by operand type */
    const char
        *isa; /* cpu: "avx512", "avx2", "generic" to force one, NULL: the best this CPU has */
    struct z3d_tape
        *tape;      /* what is launched is written on it (src/device/sim/tape.h). sim needs
                       one; others run each kernel alone then, with its seconds. NULL: none */
    int local_rank; /* cuda: this rank's index on its node; it uses GPU local_rank modulo the number
                of GPUs */
    bool host_collectives; /* cuda: collectives go through host memory (MPI), not NCCL */
    bool nccl_windows; /* cuda: NCCL allocates what collectives work on, and has it registered */
    bool tf32; /* cuda: fp32 products in TF32 (10 bits of mantissa), several times as fast */
    z3d_attention_method attention;
    bool nondeterministic; /* cuda: results may differ from run to run in their last bits */
    bool times; /* cuda: collectives and waits for copies are timed, by events on streams; else
                   their times are NAN */
} z3d_device_config;

/* Errors: ERR_UNSUPPORTED (unknown backend, isa not in this CPU; cuda: no plugin, no driver, no or
 * too old a GPU), ERR_MEMORY, ERR_DEVICE. */
z3d_status z3d_device_create(const z3d_device_config *config, z3d_device **out);
void z3d_device_destroy(z3d_device *device);

const char *z3d_device_backend(const z3d_device *device);
/* One line for people: "cpu: AMD EPYC, avx512, 2 threads, oneDNN 2.6.3". Valid while the device
 * lives. */
const char *z3d_device_description(const z3d_device *device);
int z3d_device_threads(const z3d_device *device);

/* An id of the physical device: equal for two ranks exactly if they share one. 0: sharing does not
 * matter (cpu). */
uint64_t z3d_device_identity(const z3d_device *device);
/* Bytes of the device's own memory that are in use, by other processes too; -1: it has no memory of
 * its own. */
int64_t z3d_device_used_bytes(const z3d_device *device);
/* Whether the host can access device memory. If not, collectives over MPI copy. */
bool z3d_device_host_reads(const z3d_device *device);

/* Collectives that run on the device's own streams (collectives.h); NULL: none, or
 * config.host_collectives. Pass *self to its functions. */
const struct z3d_stream_collectives *z3d_device_collectives(const z3d_device *device, void **self);
/* After a failed call of that table: copies its text to this thread's error. Returns `status`. */
z3d_status z3d_device_heard(const z3d_device *device, z3d_status status);

/* One block of `bytes` in `space`, 4096-aligned, first-touched (cuda: 512-aligned, zeroed; host
 * memory is pinned). The engine calls this once per space: everything else is planned inside. An
 * asynchronous save needs one more block for its copy. On the record device the addresses have no
 * memory behind them. */
z3d_status z3d_device_alloc(z3d_device *device, z3d_space space, int64_t bytes, void **out);
void z3d_device_free(z3d_device *device, z3d_space space, void *block, int64_t bytes);

/* Bytes of device memory, whatever is free; INT64_MAX if unknown. */
int64_t z3d_device_memory(const z3d_device *device);
/* Free bytes of device memory; INT64_MAX if unknown. On the cpu device all ranks of a node, and
 * host space, share them. */
int64_t z3d_device_available(const z3d_device *device);

/* Scratch that kernels may use while they run (see z3d_kernel_scratch). Owned by the caller. */
void z3d_device_set_scratch(z3d_device *device, void *scratch, int64_t bytes);

/* A CPU moves no messages while it computes. So long kernels call `poll(context)` about every
 * millisecond, between tiles; the tiles do not depend on it. NULL: none. */
void z3d_device_set_poll(z3d_device *device, void (*poll)(void *context), void *context);

/* Launches one kernel; asynchronous if the device is. sim: one that writes memory of HOST space is
 * the host's, as where another device computes there. See Z3D_LAUNCH. Errors: ERR_DEVICE,
 * ERR_INTERNAL. */
z3d_status z3d_launch(z3d_device *device, const z3d_kernel *kernel);

/* Waits for all kernels launched before. */
z3d_status z3d_device_synchronize(z3d_device *device);

/* Copies host <- device and device <- host, synchronously. For initial data, batches, results;
 * never inside units. */
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
 * streams are recorded and do not run. Waiting for the device and allocating memory are errors
 * there. So the caller must have run all of it before, at the same addresses. The caller waits for
 * all started copies and collectives before the end. */
z3d_status z3d_capture_begin(z3d_device *device);
/* *launches: the number of single operations in it. After a failure in between, call it with out
 * NULL to discard the recording. */
z3d_status z3d_capture_end(z3d_device *device, z3d_region **out, int64_t *launches);
/* Enqueued like a kernel, any number of times. The memory that it uses must still exist. */
z3d_status z3d_region_launch(z3d_device *device, const z3d_region *region);
/* Call it before destroying the groups whose collectives it contains. */
void z3d_region_destroy(z3d_device *device, z3d_region *region);

/* Copies `bytes` between device and host space beside compute, after the kernels launched so far,
 * in the order of the starts. Nobody may access either end until the copy's wait. Use *copy once,
 * in wait or finish. The cpu device copies with a separate thread. Errors: ERR_DEVICE. */
typedef struct z3d_copy {
    int64_t id;
} z3d_copy;
z3d_status z3d_copy_start(z3d_device *device, void *to, const void *from, int64_t bytes,
                          z3d_copy *copy);
/* Kernels launched after this see the copied bytes. */
z3d_status z3d_copy_wait(z3d_device *device, z3d_copy copy);
/* The same, and the host may read and overwrite either end in host space. Use one of the two. */
z3d_status z3d_copy_finish(z3d_device *device, z3d_copy copy);

/* Seconds that kernels waited for copies while the host did not wait (z3d_copy_wait did not block),
 * from creation to the last synchronisation. 0 if the host waits; NAN if some were not timed. */
double z3d_copies_waited(const z3d_device *device);

/* Called with every range of device (and host-space) memory that something is about to access:
 * kernels and their scratch, copies, reads, writes, collectives. For tests that compare the memory
 * in use with the plan. NULL: none. */
typedef void (*z3d_access_observer)(void *context, const void *memory, int64_t bytes);
void z3d_device_set_access_observer(z3d_device *device, z3d_access_observer observer,
                                    void *context);
/* Whoever accesses device memory without a call of this module reports it here (the collectives).
 */
void z3d_device_touch(const z3d_device *device, const void *memory, int64_t bytes);

/* What one kernel reads, writes and costs, from its struct alone; the same on every device. */
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
    z3d_operand operands[Z3D_MAX_OPERANDS]; /* pointers that are NULL are left out */
} z3d_cost;

void z3d_kernel_cost(const z3d_kernel *kernel, z3d_cost *out);
const char *z3d_kernel_name(z3d_kernel_kind kind);

/* Bytes of scratch that the CPU backend needs for this kernel with `threads` threads (the maximum
 * over gemm methods). */
int64_t z3d_kernel_scratch(const z3d_kernel *kernel, int threads);

/* The method of the cpu device for AUTO: by the type and this CPU's instruction set alone, so that
 * two runs on CPUs of one kind have equal bits. */
z3d_gemm_method z3d_gemm_from_table(z3d_dtype dtype);

/* Measures products of the given shape (m x n x k, fp32 result) with every method and returns the
 * fastest one with its GFLOP/s. Takes well below a second. Devices without a choice answer SGEMM;
 * record and sim with 0 GFLOP/s. */
z3d_status z3d_device_measure_gemm(z3d_device *device, z3d_dtype dtype, int64_t m, int64_t n,
                                   int64_t k, z3d_gemm_method *best, double *gflops);

/* Fills device memory with `count` numbers for measuring: zeros would flatter, since they cost less
 * power. Waits until they are there. */
z3d_status z3d_device_fill_random(z3d_device *device, void *memory, int64_t count, z3d_dtype dtype);

/* cuda: a shape of product, and which of its library's algorithms it uses. Another one gives other
 * bits. */
enum { Z3D_GEMM_NUMBERS = 18 };
typedef struct z3d_gemm_choice {
    int64_t number[Z3D_GEMM_NUMBERS]; /* the shape: sizes, types, epilogue, alignments
                                         (src/device/cuda/gemm.c) */
    int algorithms;                   /* the library has; 0: this is no product of its own */
    int chosen; /* of them, from 0; one that refuses to run leaves it to the next. With an
                   epilogue `algorithms` means: separate kernels */
} z3d_gemm_choice;
/* What a number of `chosen` depends on: "NVIDIA H200, cuBLASLt 130000". */
z3d_status z3d_device_gemm_machine(z3d_device *device, char *out, size_t size);
/* Of its operands only the alignment matters. */
z3d_status z3d_device_gemm_choice(z3d_device *device, const z3d_gemm *gemm, z3d_gemm_choice *out);
/* From now on; number and chosen count. Errors: ERR_CONFIG: the shape has not so many algorithms,
 * which may be found later, by the first such product. */
z3d_status z3d_device_choose_gemm(z3d_device *device, const z3d_gemm_choice *choice);
/* Runs the kernel alone, which takes *seconds. */
z3d_status z3d_device_time(z3d_device *device, const z3d_kernel *kernel, double *seconds);

/* Recording and sim device: calls `observe` for every launched kernel. */
void z3d_device_set_recorder(z3d_device *device,
                             z3d_status (*observe)(void *context, const z3d_kernel *kernel),
                             void *context);

#endif
