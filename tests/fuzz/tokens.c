/* Fuzzes the token files' reader: any bytes open or are refused, and what is open is read to its
 * end. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/train/data.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    int32_t ids[64];
    z3d_token_file *file;
    int fd = memfd_create("tokens", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (z3d_token_file_open(path, &file) == Z3D_OK) {
        int64_t count = z3d_token_file_tokens(file);
        for (int64_t first = 0; first < count; first += 64) {
            int64_t some = count - first < 64 ? count - first : 64;
            if (z3d_token_file_read(file, first, some, 257, ids) != Z3D_OK) break;
            for (int64_t i = 0; i < some; i++)
                if (ids[i] < 0 || ids[i] >= 257) abort();
        }
        z3d_token_file_close(file);
    }
    close(fd);
    return 0;
}
