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

/* A wish: a machine without nodes, or a container that forbids it, refuses. */
static void prefer_node(const z3d_cuda *cuda, const z3d_cuda_block *block) {
    (void)cuda;
    int node = -1;
#if CUDART_VERSION >= 12020
    if (cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, cuda->gpu) != cudaSuccess)
        cudaGetLastError();
#endif
    unsigned long nodes = node >= 0 && node < 64 ? 1ul << node : 0;
    if (nodes)
        syscall(SYS_mbind, block->memory, (size_t)block->bytes, MPOL_PREFERRED, &nodes,
                8 * sizeof nodes, 0);
}

typedef struct piece {
    char *memory;
    size_t bytes, threads;
} piece;

/* One half by half of the threads, the other here by the others. */
static void *clear(void *argument) {
    const piece *p = argument;
    const size_t threads = p->threads / 2, bytes = p->bytes / p->threads * threads;
    piece first = {p->memory, bytes, threads};
    piece rest = {p->memory + bytes, p->bytes - bytes, p->threads - threads};
    pthread_t thread;
    if (threads > 0 && pthread_create(&thread, NULL, clear, &first) == 0) {
        clear(&rest);
        pthread_join(thread, NULL);
    } else {
        memset(p->memory, 0, p->bytes);
    }
    return NULL;
}

static void touch(const z3d_cuda_block *block) {
    piece whole = {block->memory, (size_t)block->bytes, 1};
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) whole.threads = (size_t)CPU_COUNT(&set);
    if (whole.threads > MOST_THREADS) whole.threads = MOST_THREADS;
    if (whole.threads > whole.bytes / PART + 1) whole.threads = whole.bytes / PART + 1;
    clear(&whole);
}

z3d_status z3d_cuda_host_alloc(z3d_cuda *cuda, int64_t bytes, void **out) {
    const size_t size = (size_t)bytes;
    char wanted[32];
    z3d_cuda_block *made;
    Z3D_TRY(z3d_new(1, sizeof *made, "pinned memory", &made));
    *made = (z3d_cuda_block){.bytes = bytes, .next = cuda->pinned};
    made->memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made->memory != MAP_FAILED) {
        madvise(made->memory, size, MADV_HUGEPAGE); /* a wish, too */
        prefer_node(cuda, made);
        touch(made);
        if (cudaHostRegister(made->memory, size, cudaHostRegisterDefault) == cudaSuccess) {
            cuda->pinned = made;
            *out = made->memory;
            return Z3D_OK;
        }
        cudaGetLastError();
        munmap(made->memory, size);
    }
    free(made);
    return Z3D_ERROR(Z3D_ERR_MEMORY, "cuda device: cannot allocate %s of pinned host memory",
                     z3d_format_bytes(bytes, wanted, sizeof wanted));
}

void z3d_cuda_host_free(z3d_cuda *cuda, void *memory) {
    z3d_cuda_block **link = &cuda->pinned;
    while (*link && (*link)->memory != memory) link = &(*link)->next;
    z3d_cuda_block *found = *link;
    if (!found) return;
    *link = found->next;
    cudaHostUnregister(memory);
    munmap(memory, (size_t)found->bytes);
    free(found);
}

bool z3d_cuda_is_host(const z3d_cuda *cuda, const void *address) {
    for (const z3d_cuda_block *block = cuda->pinned; block; block = block->next) {
        const char *begin = block->memory, *at = address;
        if (at >= begin && at < begin + block->bytes) return true;
    }
    return false;
}
