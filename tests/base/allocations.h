// Counts allocations: those of our own objects, which the linker hands to __wrap_malloc and its kin
// (see zero3d_count_allocations in cmake/tests.cmake), and, but for sanitizers, those of all
// libraries by the library that asks, because malloc and its kin are this program's then. For one
// source file of a program.
#ifndef ZERO3D_TESTS_BASE_ALLOCATIONS_H
#define ZERO3D_TESTS_BASE_ALLOCATIONS_H

#include <dlfcn.h>
#include <sys/types.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

namespace allocations {

inline std::atomic<long> ours{0};

// By the file name of who asked, up to 31 characters; nothing here may allocate.
struct Library {
    std::atomic<bool> used;
    char name[32];
    std::atomic<long> calls;
};
constexpr int MOST = 64;
inline Library library[MOST];
inline std::atomic<bool> counting{false};
inline std::atomic_flag table = ATOMIC_FLAG_INIT;

inline void count(void *caller) {
    if (!counting) return;
    Dl_info info;
    const char *name = "?";
    if (dladdr(caller, &info) && info.dli_fname) name = info.dli_fname;
    if (const char *slash = strrchr(name, '/')) name = slash + 1;
    while (table.test_and_set()) {
    }
    Library *l = library;
    while (l < library + MOST - 1 && l->used && strncmp(l->name, name, sizeof l->name - 1) != 0)
        l++;
    if (!l->used) strncpy(l->name, name, sizeof l->name - 1);
    l->used = true;
    l->calls++;
    table.clear();
}

inline void begin() {
    for (Library &l : library) l.calls = 0;
    counting = true;
}

// Calls since begin, by library.
inline std::map<std::string, long> end() {
    std::map<std::string, long> calls;
    counting = false;
    for (Library &l : library)
        if (l.used && l.calls > 0) calls[l.name] = l.calls;
    return calls;
}

} // namespace allocations

#ifndef ZERO3D_SANITIZED
extern "C" {
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void *malloc(size_t bytes) noexcept {
    allocations::count(__builtin_return_address(0));
    return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes) noexcept {
    allocations::count(__builtin_return_address(0));
    return __libc_calloc(count, bytes);
}
void *realloc(void *old, size_t bytes) noexcept {
    allocations::count(__builtin_return_address(0));
    return __libc_realloc(old, bytes);
}
int posix_memalign(void **out, size_t alignment, size_t bytes) noexcept {
    allocations::count(__builtin_return_address(0));
    *out = __libc_memalign(alignment, bytes);
    return *out ? 0 : ENOMEM;
}
void *aligned_alloc(size_t alignment, size_t bytes) noexcept {
    allocations::count(__builtin_return_address(0));
    return __libc_memalign(alignment, bytes);
}
void *memalign(size_t alignment, size_t bytes) noexcept {
    allocations::count(__builtin_return_address(0));
    return __libc_memalign(alignment, bytes);
}
}
#endif

extern "C" {
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
int __real_posix_memalign(void **out, size_t alignment, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__real_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
void *__wrap_malloc(size_t bytes) {
    allocations::ours++;
    return __real_malloc(bytes);
}
void *__wrap_calloc(size_t count, size_t bytes) {
    allocations::ours++;
    return __real_calloc(count, bytes);
}
void *__wrap_realloc(void *old, size_t bytes) {
    allocations::ours++;
    return __real_realloc(old, bytes);
}
int __wrap_posix_memalign(void **out, size_t alignment, size_t bytes) {
    allocations::ours++;
    return __real_posix_memalign(out, alignment, bytes);
}
void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    allocations::ours++;
    return __real_aligned_alloc(alignment, bytes);
}
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
    allocations::ours++;
    return __real_mmap(at, bytes, protection, flags, file, offset);
}
}

#endif
