/* Memory of the cpu device: mapped once, in huge pages if there are any, and zeroed by the threads
 * that will use it (the first touch decides the memory node, and is slow page by page). */
#include "src/device/cpu/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "src/base/host_memory.h"
#include "src/base/strings.h"

#define PAGE ((int64_t)4096)
#define HUGE_PAGE ((int64_t)2 << 20)

static z3d_status too_much(int64_t bytes, const char *why) {
    char wanted[32];
    return Z3D_ERROR(Z3D_ERR_MEMORY, "cpu device: cannot allocate %s: %s",
                     z3d_format_bytes(bytes, wanted, sizeof wanted), why);
}

/* The mapping's length for a block: never 0. */
static bool mapped_size(int64_t bytes, int64_t *out) {
    if (!z3d_add_i64(bytes, PAGE, out)) return false;
    *out = bytes == 0 ? PAGE : (bytes + PAGE - 1) / PAGE * PAGE;
    return *out <= INT64_MAX - HUGE_PAGE;
}

static void touch(char *block, int64_t size, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t at = 0; at < size; at += HUGE_PAGE)
        memset(block + at, 0, (size_t)(size - at < HUGE_PAGE ? size - at : HUGE_PAGE));
}

z3d_status z3d_cpu_memory_map(int64_t bytes, int threads, void **out) {
    int64_t size;
    *out = NULL;
    if (bytes < 0 || !mapped_size(bytes, &size)) return too_much(bytes, "no such size");
    /* Untouched memory is only promised: without this the run would be killed while touching it. */
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
    if (spare) { /* begin at a huge page: give back what is before and after */
        int64_t before = (HUGE_PAGE - (int64_t)((uintptr_t)mapped % (uintptr_t)HUGE_PAGE)) % spare;
        if (before) munmap(mapped, (size_t)before);
        mapped += before;
        if (spare - before) munmap(mapped + size, (size_t)(spare - before));
        madvise(mapped, (size_t)size, MADV_HUGEPAGE); /* a wish: refused is fine */
    }
    touch(mapped, size, threads);
    *out = mapped;
    return Z3D_OK;
}

void z3d_cpu_memory_unmap(void *block, int64_t bytes) {
    int64_t size;
    if (block && mapped_size(bytes, &size)) munmap(block, (size_t)size);
}

#ifdef __SSE2__
/* `to` is 16-aligned, bytes a multiple of 64. */
static void copy_past_caches(char *to, const char *from, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += 64) {
        __m128i line[4];
        memcpy(line, from + at, sizeof line);
        for (int i = 0; i < 4; i++) _mm_stream_si128((__m128i *)(to + at) + i, line[i]);
    }
    _mm_sfence();
}
#endif

void z3d_cpu_memory_copy(void *to, const void *from, int64_t bytes) {
#ifdef __SSE2__
    enum { LARGE = 4 << 20 };
    if (bytes >= LARGE) {
        int64_t head = (int64_t)(-(uintptr_t)to & 15), body = (bytes - head) / 64 * 64;
        memcpy(to, from, (size_t)head);
        copy_past_caches((char *)to + head, (const char *)from + head, body);
        to = (char *)to + head + body, from = (const char *)from + head + body;
        bytes -= head + body;
    }
#endif
    if (bytes > 0) memcpy(to, from, (size_t)bytes);
}
