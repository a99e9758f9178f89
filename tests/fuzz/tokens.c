/* Fuzzes the token files' reader: any bytes open or are refused, and what is open is read to its
 * end. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/train/data.h"

/* Documents are not empty and follow each other; the mask has a bit for each token. */
static void read_sections(const z3d_token_file *file, int64_t count) {
    int64_t documents = file->documents, before = 0;
    int32_t target[2] = {0, 0};
    if (documents > 0 && z3d_token_file_document(file, 0) != 0) abort();
    for (int64_t i = 1; i <= documents; i++) {
        int64_t first = z3d_token_file_document(file, i);
        if (first <= before || first > count) abort();
        before = first;
    }
    if (documents > 0 && before != count) abort();
    for (int64_t i = 0; i < count; i++) {
        bool trains = z3d_token_file_trains(file, i, 1);
        z3d_token_file_ignore(file, i, 1, target);
        if (trains != (target[0] == 0)) abort();
        target[0] = 0;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    int32_t ids[64];
    z3d_token_file *file;
    int fd = memfd_create("tokens", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (z3d_token_file_open(path, &file) == Z3D_OK) {
        int64_t count = file->tokens;
        for (int64_t first = 0; first < count; first += 64) {
            int64_t some = count - first < 64 ? count - first : 64;
            if (z3d_token_file_read(file, first, some, 257, ids) != Z3D_OK) break;
            for (int64_t i = 0; i < some; i++)
                if (ids[i] < 0 || ids[i] >= 257) abort();
        }
        read_sections(file, count);
        if (z3d_token_file_find_documents(file) == Z3D_OK) read_sections(file, count);
        z3d_token_file_close(file);
    }
    close(fd);
    return 0;
}
