/* Host memory is mapped once, in huge pages if the system has them, and zeroed by several threads:
 * the first touch of a page decides its memory node, and one thread alone would be slow. */
#include <errno.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/device/interface/shared.h"

#define PAGE ((int64_t)4096)
#define HUGE_PAGE ((int64_t)2 << 20)

static z3d_status too_much(int64_t bytes, const char *why) {
    char wanted[32];
    return Z3D_ERROR(Z3D_ERR_MEMORY, "cannot allocate %s of host memory: %s",
                     z3d_format_bytes(bytes, wanted, sizeof wanted), why);
}

/* The mapping's length for a block: never 0; negative: there is no such length. */
static int64_t mapped_size(int64_t bytes) {
    const int64_t size = z3d_round_up(bytes > 0 ? bytes : 1, PAGE);
    return size <= INT64_MAX - HUGE_PAGE ? size : -1;
}

/* The result does not matter: a machine without nodes, or a container that forbids the call,
 * refuses it. */
static void prefer_node(char *block, int64_t size, int node) {
    unsigned long nodes = node >= 0 && node < 64 ? 1ul << node : 0;
    if (nodes) syscall(SYS_mbind, block, (size_t)size, MPOL_PREFERRED, &nodes, 8 * sizeof nodes, 0);
}

/* A thread for each 64 MiB, at most MOST and at most the cores that this process may use. */
static int enough_threads(int64_t bytes) {
    enum { MOST = 16 };
    const int64_t worth = bytes / ((int64_t)64 << 20) + 1;
    cpu_set_t set;
    int threads = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    if (threads > MOST) threads = MOST;
    return threads > worth ? (int)worth : threads;
}

static void touch(char *block, int64_t size, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t at = 0; at < size; at += HUGE_PAGE)
        memset(block + at, 0, (size_t)(size - at < HUGE_PAGE ? size - at : HUGE_PAGE));
}

z3d_status z3d_host_map(int64_t bytes, int threads, int node, void **out) {
    const int64_t size = mapped_size(bytes);
    *out = NULL;
    if (bytes < 0 || size < 0) return too_much(bytes, "no such size");
    /* The system promises more memory than it has: without this check it would kill the run at the
     * first touch. */
    z3d_host_memory there;
    char text[32], why[256];
    z3d_host_memory_find(&there);
    snprintf(why, sizeof why, "%s are available%s",
             z3d_format_bytes(there.bytes, text, sizeof text), there.from);
    if (size > there.bytes) return too_much(bytes, why);
    int64_t spare = size >= HUGE_PAGE ? HUGE_PAGE : 0;
    char *mapped = mmap(NULL, (size_t)(size + spare), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return too_much(bytes, strerror(errno));
    if (spare) { /* the block begins at a huge page; the ends before and after it are unmapped */
        int64_t before = (HUGE_PAGE - (int64_t)((uintptr_t)mapped % (uintptr_t)HUGE_PAGE)) % spare;
        if (before) munmap(mapped, (size_t)before);
        mapped += before;
        if (spare - before) munmap(mapped + size, (size_t)(spare - before));
        madvise(mapped, (size_t)size, MADV_HUGEPAGE); /* a refusal does not matter */
    }
    prefer_node(mapped, size, node);
    touch(mapped, size, threads > 0 ? threads : enough_threads(size));
    *out = mapped;
    return Z3D_OK;
}

void z3d_host_unmap(void *block, int64_t bytes) {
    if (block) munmap(block, (size_t)mapped_size(bytes));
}
