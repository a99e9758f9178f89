/* Status names and this thread's error text. Each thread has its own text, so storing an error
 * cannot fail, and messages of two threads do not mix. */
#include "src/base/status.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local z3d_kept_error last;

static const char *const names[] = {
#define X(name, text) #name,
    Z3D_STATUS_MAP(X)
#undef X
};
static const char *const texts[] = {
#define X(name, text) text,
    Z3D_STATUS_MAP(X)
#undef X
};

const char *z3d_status_name(z3d_status status) {
    return (unsigned)status < Z3D_STATUS_COUNT ? names[status] : "?";
}

const char *z3d_status_text(z3d_status status) {
    return (unsigned)status < Z3D_STATUS_COUNT ? texts[status] : "?";
}

/* Makes a message one printable line, also if a file name or a value in it has control characters.
 */
static void make_printable(char *text, bool lines) {
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '\n' && lines) continue;
        if (c == '\n' || c == '\t' || c == '\r') {
            *text = ' ';
        } else if (c < 0x20 || c == 0x7f) {
            *text = '?';
        }
    }
}

/* The stored text may be among the arguments, so it is overwritten only when the new text is
 * complete. If there is no room, `tail` (the old text) is cut first. */
static void store(const char *text, int length, const char *tail, bool lines) {
    char whole[sizeof last.message];
    int bytes = sizeof whole;
    int written = snprintf(whole, sizeof whole, "%s%s%s", text, tail ? ": " : "", tail ? tail : "");
    if (written >= bytes || length >= bytes) {
        memcpy(whole + bytes - 4, "...", 4);
    }
    make_printable(whole, lines);
    memcpy(last.message, whole, sizeof whole);
}

/* The build may name files by absolute paths: keeps the part after the root of the tree. */
static const char *path_in_tree(const char *file) {
    static const char self[] = __FILE__;
    static const char self_in_tree[] = "src/base/status.c";
    enum { SELF = sizeof self, IN_TREE = sizeof self_in_tree };
    size_t root = SELF > IN_TREE ? SELF - IN_TREE : 0;
    return strncmp(file, self, root) == 0 ? file + root : file;
}

z3d_status z3d_error_set(z3d_status status, const char *file, int line, const char *format, ...) {
    char text[sizeof last.message];
    char place[sizeof last.place];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length < 0) snprintf(text, sizeof text, "(message cannot be formatted) %s", format);
    snprintf(place, sizeof place, "%s:%d", path_in_tree(file), line);
    store(text, length, NULL, false);
    memcpy(last.place, place, sizeof place);
    return status;
}

z3d_status z3d_error_set_lines(z3d_status status, const char *file, int line, const char *lines) {
    store(lines, (int)strnlen(lines, sizeof last.message), NULL, true);
    snprintf(last.place, sizeof last.place, "%s:%d", path_in_tree(file), line);
    return status;
}

z3d_status z3d_error_context(z3d_status status, const char *format, ...) {
    char text[sizeof last.message];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length < 0) snprintf(text, sizeof text, "(context cannot be formatted) %s", format);
    make_printable(text, false);
    store(text, length, last.message, true);
    return status;
}

const char *z3d_error_message(void) {
    return last.message;
}

const char *z3d_error_place(void) {
    return last.place;
}

z3d_kept_error z3d_error_keep(z3d_status status) {
    z3d_kept_error kept = last;
    kept.status = status;
    return kept;
}

z3d_status z3d_error_restore(const z3d_kept_error *kept) {
    if (kept->status != Z3D_OK) last = *kept;
    return kept->status;
}

z3d_status z3d_new(size_t count, size_t bytes, const char *what, void *out_pointer) {
    size_t total;
    bool fits = !__builtin_mul_overflow(count ? count : 1, bytes ? bytes : 1, &total);
    void *memory = fits ? calloc(1, total) : NULL;
    if (!memory) {
        return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for %s: %zu x %zu bytes", what, count, bytes);
    }
    memcpy(out_pointer, &memory, sizeof memory);
    return Z3D_OK;
}

z3d_status z3d_grow(int64_t count, int64_t *capacity, size_t bytes, const char *what, void *array) {
    enum { FEWEST = 64 };
    const int64_t more = *capacity ? 2 * *capacity : FEWEST;
    void *old, *grown;
    if (count < *capacity) return Z3D_OK;
    memcpy(&old, array, sizeof old);
    grown = realloc(old, (size_t)more * bytes);
    if (!grown) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for %s", what);
    memcpy(array, &grown, sizeof grown);
    *capacity = more;
    return Z3D_OK;
}
