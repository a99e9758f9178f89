/* Copies of the cpu device. */
#include "src/device/cpu/memory.h"

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

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
