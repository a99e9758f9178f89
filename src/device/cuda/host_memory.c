/* Pinned host memory, on the node of the GPU where the machine has several, its pages made by
 * several threads: for offloaded states that is most of a machine. */
#include <linux/mempolicy.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/base/strings.h"
#include "src/device/cuda/cuda.h"

enum { MOST_THREADS = 16 };
#define PART ((size_t)64 << 20) /* what is worth a thread */

typedef struct z3d_cuda_pinned {
    char *memory;
    size_t bytes;
    struct z3d_cuda_pinned *next;
} pinned;

/* A wish: a machine without nodes, or a container that forbids it, refuses. */
static void prefer_node(const z3d_cuda *cuda, const pinned *block) {
    (void)cuda;
    int node = -1;
#if CUDART_VERSION >= 12020
    if (cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, cuda->gpu) != cudaSuccess)
        cudaGetLastError();
#endif
    unsigned long nodes = node >= 0 && node < 64 ? 1ul << node : 0;
    if (nodes)
        syscall(SYS_mbind, block->memory, block->bytes, MPOL_PREFERRED, &nodes, 8 * sizeof nodes,
                0);
}

typedef struct piece {
    char *memory;
    size_t bytes;
    pthread_t thread;
    bool has_thread;
} piece;

static void *clear(void *argument) {
    const piece *p = argument;
    memset(p->memory, 0, p->bytes);
    return NULL;
}

static void touch(const pinned *block) {
    piece pieces[MOST_THREADS];
    cpu_set_t set;
    size_t count = sched_getaffinity(0, sizeof set, &set) == 0 ? (size_t)CPU_COUNT(&set) : 1;
    if (count > MOST_THREADS) count = MOST_THREADS;
    if (count > block->bytes / PART + 1) count = block->bytes / PART + 1;
    for (size_t i = 0; i < count; i++) {
        size_t first = block->bytes / count * i;
        size_t end = i + 1 < count ? block->bytes / count * (i + 1) : block->bytes;
        pieces[i] = (piece){.memory = block->memory + first, .bytes = end - first};
        pieces[i].has_thread =
            i > 0 && pthread_create(&pieces[i].thread, NULL, clear, &pieces[i]) == 0;
    }
    for (size_t i = 0; i < count; i++)
        if (pieces[i].has_thread)
            pthread_join(pieces[i].thread, NULL);
        else
            clear(&pieces[i]);
}

z3d_status z3d_cuda_host_alloc(z3d_cuda *cuda, int64_t bytes, void **out) {
    pinned *made;
    char wanted[32];
    Z3D_TRY(z3d_new(1, sizeof *made, "pinned memory", &made));
    made->bytes = (size_t)bytes;
    made->memory =
        mmap(NULL, made->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool mapped = made->memory != MAP_FAILED;
    if (mapped) {
        madvise(made->memory, made->bytes, MADV_HUGEPAGE); /* a wish, too */
        prefer_node(cuda, made);
        touch(made);
        if (cudaHostRegister(made->memory, made->bytes, cudaHostRegisterDefault) == cudaSuccess) {
            made->next = cuda->pinned;
            cuda->pinned = made;
            *out = made->memory;
            return Z3D_OK;
        }
        cudaGetLastError();
        munmap(made->memory, made->bytes);
    }
    free(made);
    return Z3D_ERROR(Z3D_ERR_MEMORY, "cuda device: cannot allocate %s of pinned host memory",
                     z3d_format_bytes(bytes, wanted, sizeof wanted));
}

void z3d_cuda_host_free(z3d_cuda *cuda, void *block) {
    pinned **link = &cuda->pinned;
    while (*link && (*link)->memory != (char *)block) link = &(*link)->next;
    pinned *found = *link;
    if (!found) return;
    *link = found->next;
    cudaHostUnregister(found->memory);
    munmap(found->memory, found->bytes);
    free(found);
}

bool z3d_cuda_is_host(const z3d_cuda *cuda, const void *address) {
    const char *at = address;
    for (const pinned *block = cuda->pinned; block; block = block->next)
        if (at >= block->memory && at < block->memory + block->bytes) return true;
    return false;
}
