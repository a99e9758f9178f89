/* The cpu backend: reads the configuration, picks the instruction set, launches kernels. */
#include "src/device/cpu/cpu.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/host_memory.h"
#include "src/device/cpu/gemm.h"
#include "src/device/interface/ops.h"
#include "src/device/interface/shared.h"

#ifdef Z3D_HAVE_X86_ISAS
#include <cpuid.h>
#endif

#define MAX_THREADS 4096

/* Best first. */
typedef struct instruction_set {
    const z3d_cpu_isa *isa;
    bool here; /* this CPU has it */
} instruction_set;

#ifdef Z3D_HAVE_X86_ISAS
/* clang 14 has no name for F16C in __builtin_cpu_supports. The callers also check AVX, which shows
 * that the system saves the registers. */
static bool has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}
#endif

static z3d_status pick_isa(const char *wanted, const z3d_cpu_isa **out) {
    const instruction_set sets[] = {
#ifdef Z3D_HAVE_X86_ISAS
        {&z3d_cpu_isa_avx512,
         __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("fma") && has_f16c()},
        {&z3d_cpu_isa_avx2,
         __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()},
#endif
        {&z3d_cpu_isa_generic, true},
    };
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        if (wanted && strcmp(wanted, sets[i].isa->name)) continue;
        if (!wanted && !sets[i].here) continue;
        if (!sets[i].here)
            return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "this CPU has no %s; leave the choice to zero3d",
                             wanted);
        *out = sets[i].isa;
        return Z3D_OK;
    }
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                     "instruction set '%s' is unknown here; there are avx512, avx2 (x86-64) and "
                     "generic",
                     wanted);
}

static z3d_status pick_threads(int wanted, int *out) {
    if (wanted < 0 || wanted > MAX_THREADS)
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "%d threads; 1 to %d, or 0 for all cores", wanted,
                         MAX_THREADS);
    *out = wanted;
    if (wanted) return Z3D_OK;
    cpu_set_t cores;
    *out = sched_getaffinity(0, sizeof cores, &cores) ? omp_get_num_procs() : CPU_COUNT(&cores);
    return Z3D_OK;
}

static z3d_status pick_methods(const z3d_device_config *config, z3d_gemm_method *out) {
    for (int dtype = 0; dtype < Z3D_DTYPE_COUNT; dtype++) {
        z3d_gemm_method method = config->gemm[dtype];
        if ((unsigned)method >= Z3D_GEMM_METHOD_COUNT ||
            !z3d_cpu_gemm_has_method((z3d_dtype)dtype, method))
            return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "products of %s by method '%s'",
                             z3d_dtype_name((z3d_dtype)dtype), z3d_gemm_method_name(method));
        out[dtype] = method == Z3D_GEMM_AUTO ? z3d_gemm_from_table((z3d_dtype)dtype) : method;
    }
    return Z3D_OK;
}

static void cpu_model(char *out, size_t size) {
    snprintf(out, size, "CPU");
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (!file) return;
    char line[256];
    while (fgets(line, sizeof line, file)) {
        char *name = strncmp(line, "model name", 10) ? NULL : strchr(line, ':');
        if (!name) continue;
        name += strspn(name, ": \t");
        name[strcspn(name, "\n")] = 0;
        snprintf(out, size, "%s", name);
        break;
    }
    fclose(file);
}

static const char *library_isa(void) {
    static const struct {
        dnnl_cpu_isa_t isa;
        const char *name;
    } known[] = {{dnnl_cpu_isa_sse41, "sse4.1"},
                 {dnnl_cpu_isa_avx, "avx"},
                 {dnnl_cpu_isa_avx2, "avx2"},
                 {dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
                 {dnnl_cpu_isa_avx512_core, "avx512"},
                 {dnnl_cpu_isa_avx512_core_vnni, "avx512_vnni"},
                 {dnnl_cpu_isa_avx512_core_bf16, "avx512_bf16"},
                 {dnnl_cpu_isa_avx512_core_amx, "avx512_amx"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].isa == dnnl_get_effective_cpu_isa()) return known[i].name;
    return "any isa";
}

static void describe(z3d_cpu *cpu) {
    char model[128];
    cpu_model(model, sizeof model);
    const dnnl_version_t *library = dnnl_version();
    snprintf(cpu->description, sizeof cpu->description,
             "cpu: %s, %s, %d thread%s, oneDNN %d.%d.%d (%s)", model, cpu->isa->name, cpu->threads,
             cpu->threads == 1 ? "" : "s", library->major, library->minor, library->patch,
             library_isa());
}

static void destroy(void *self) {
    z3d_cpu *cpu = self;
    z3d_cpu_transfer_destroy(cpu->transfer);
    z3d_cpu_gemm_state_destroy(cpu->gemm_state);
    free(cpu);
}

static z3d_status create(const z3d_device_config *config, void **self) {
    z3d_cpu *cpu;
    z3d_status status;
    Z3D_TRY(z3d_new(1, sizeof *cpu, "the cpu device", &cpu));
    Z3D_TRY_GOTO(status, pick_isa(config->isa, &cpu->isa), failed);
    Z3D_TRY_GOTO(status, pick_threads(config->threads, &cpu->threads), failed);
    Z3D_TRY_GOTO(status, pick_methods(config, cpu->gemm), failed);
    Z3D_TRY_GOTO(status, z3d_cpu_gemm_state_create(cpu->threads, &cpu->gemm_state), failed);
    describe(cpu);
    *self = cpu;
    return Z3D_OK;
failed:
    destroy(cpu);
    return status;
}

static const char *description(const void *self) {
    return ((const z3d_cpu *)self)->description;
}

static int threads(const void *self) {
    return ((const z3d_cpu *)self)->threads;
}

static z3d_status alloc(void *self, z3d_space space, int64_t bytes, void **out) {
    (void)space;
    return z3d_host_map(bytes, threads(self), -1, out);
}

/* After a failure, copies may still run that nobody waited for: they end first. */
static void free_block(void *self, z3d_space space, void *block, int64_t bytes) {
    z3d_cpu *cpu = self;
    (void)space;
    z3d_cpu_transfer_destroy(cpu->transfer);
    cpu->transfer = NULL;
    z3d_host_unmap(block, bytes);
}

static void set_scratch(void *self, void *scratch, int64_t bytes) {
    z3d_cpu *cpu = self;
    cpu->scratch = scratch;
    cpu->scratch_bytes = bytes;
}

static void set_poll(void *self, void (*poll)(void *context), void *context) {
    z3d_cpu *cpu = self;
    cpu->poll = poll;
    cpu->poll_context = context;
}

/* oneDNN takes its number of threads from OpenMP's default of the calling thread. Set it to 1,
 * because we cut the work into tiles ourselves; our own regions use num_threads. Only for the call,
 * because the thread belongs to the application. */
static int begin_library(void) {
    int before = omp_get_max_threads();
    omp_set_num_threads(1);
    return before;
}

/* A product's scratch depends on its method: z3d_cpu_gemm checks it. */
static z3d_status launch(void *self, const z3d_kernel *kernel) {
    z3d_cpu *cpu = self;
    const bool product = kernel->kind == Z3D_KERNEL_gemm;
    const int64_t wanted = product ? 0 : z3d_kernel_scratch(kernel, cpu->threads);
    Z3D_REQUIRE(cpu->scratch_bytes >= wanted, "kernel %s: scratch of %lld bytes, %lld wanted",
                z3d_kernel_name(kernel->kind), (long long)cpu->scratch_bytes, (long long)wanted);
    int before = begin_library();
    z3d_status status = cpu->isa->kernel[kernel->kind](cpu, kernel);
    omp_set_num_threads(before);
    return status;
}

static z3d_status copy(void *self, void *to, const void *from, int64_t bytes) {
    (void)self;
    z3d_cpu_copy(to, from, bytes);
    return Z3D_OK;
}

static z3d_status measure_gemm(void *self, z3d_dtype dtype, int64_t m, int64_t n, int64_t k,
                               z3d_gemm_method *best, double *gflops) {
    int before = begin_library();
    z3d_status status = z3d_cpu_measure_gemm(self, dtype, m, n, k, best, gflops);
    omp_set_num_threads(before);
    return status;
}

/* The transfer thread is started at the first copy. */
static z3d_status copy_start(void *self, void *to, const void *from, int64_t bytes, int64_t *id) {
    z3d_cpu *cpu = self;
    if (!cpu->transfer) Z3D_TRY(z3d_cpu_transfer_create(&cpu->transfer));
    z3d_cpu_transfer_start(cpu->transfer, to, from, bytes, id);
    return Z3D_OK;
}

static z3d_status copy_wait(void *self, int64_t id) {
    z3d_cpu *cpu = self;
    Z3D_REQUIRE(cpu->transfer, "a wait for a copy, but none was started");
    return z3d_cpu_transfer_wait(cpu->transfer, id);
}

static void memory(const void *self, int64_t *all, int64_t *available) {
    z3d_host_memory there;
    (void)self;
    z3d_host_memory_find(&there);
    *all = there.nominal;
    *available = there.bytes;
}

const z3d_device_ops z3d_device_ops_cpu = {
    .name = "cpu",
    .create = create,
    .destroy = destroy,
    .description = description,
    .threads = threads,
    .alloc = alloc,
    .free = free_block,
    .memory = memory,
    .set_scratch = set_scratch,
    .set_poll = set_poll,
    .launch = launch,
    .read = copy,
    .write = copy,
    .copy_start = copy_start,
    .copy_wait = copy_wait,
    .measure_gemm = measure_gemm,
};
