/* Log lines to standard error. */
#include "src/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

enum { LINE_BYTES = 4096 };

static _Atomic int log_level = Z3D_LOG_INFO;
static _Atomic int log_rank = -1;

void z3d_log_configure(z3d_log_level level, int rank) {
    atomic_store(&log_level, (int)level);
    atomic_store(&log_rank, rank);
}

static size_t write_prefix(char *line, size_t size, z3d_log_level level, int rank) {
    static const char *const marks[] = {"error: ", "warning: ", "", "debug: "};
    const char *mark = (unsigned)level < sizeof marks / sizeof *marks ? marks[level] : "";
    int length = rank > 0 ? snprintf(line, size, "zero3d[rank %d]: %s", rank, mark)
                          : snprintf(line, size, "zero3d: %s", mark);
    return (size_t)length;
}

/* Line breaks would make one message look like several; other control characters could drive the
 * reader's terminal. */
static void make_one_line(char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7f) text[i] = ' ';
    }
}

void z3d_log(z3d_log_level level, const char *format, ...) {
    int rank = atomic_load(&log_rank);
    if ((int)level > atomic_load(&log_level)) return;
    if (level >= Z3D_LOG_INFO && rank > 0) return;

    int saved_errno = errno;
    char line[LINE_BYTES];
    size_t prefix = write_prefix(line, sizeof line, level, rank);
    size_t room = sizeof line - prefix - 1;
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(line + prefix, room, format, arguments);
    va_end(arguments);
    size_t length = wanted < 0 ? 0 : (size_t)wanted < room ? (size_t)wanted : room - 1;
    make_one_line(line + prefix, length);
    line[prefix + length] = '\n';

    ssize_t written;
    do {
        written = write(STDERR_FILENO, line, prefix + length + 1);
    } while (written < 0 && errno == EINTR);
    errno = saved_errno;
}
