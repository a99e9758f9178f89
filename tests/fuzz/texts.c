/* Fuzzes files of texts in JSON, lines and arrays, as they are and packed by gzip: any bytes are
 * read, or refused with their place. zstd's frames are left out: they may ask for 2 GiB. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/train/text/json_lines.h"

enum { MOST = 1000 };

static void read_texts(const char *path) {
    const char *text;
    size_t length;
    z3d_json_lines lines = {.path = path, .key = "a"};
    z3d_status status = z3d_json_lines_open(&lines);
    if (status != Z3D_OK) abort();
    for (int i = 0; i < MOST; i++) {
        status = z3d_json_lines_next(&lines, &text, &length);
        if (status != Z3D_OK && status != Z3D_ERR_DATA) abort();
        if (status != Z3D_OK && !strstr(z3d_error_message(), path)) abort();
        if (status == Z3D_OK && text && memchr(text, 0, length + 1) == NULL) abort();
        if ((status != Z3D_OK && !lines.bad) || (status == Z3D_OK && !text)) break;
    }
    z3d_json_lines_free(&lines);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    if (memmem(data, size, "\x28\xb5\x2f\xfd", 4)) return 0;
    int fd = memfd_create("texts", 0);
    if (fd < 0 || (size && write(fd, data, size) != (ssize_t)size)) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const z3d_json_look look = z3d_look_for_json(path);
    if (look < Z3D_LOOK_TEXT || look > Z3D_LOOK_LIST) abort();
    if (z3d_refuse_raw_json(path) != Z3D_ERR_USAGE) abort();
    read_texts(path);
    close(fd);
    return 0;
}
