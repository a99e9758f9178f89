/* Fuzzes the reader of tokenizer.json: any file is read or refused, and with one that is read any
 * text becomes ids of its vocabulary, which have a text. The input is both, 0xff between. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/train/tokenizer.h"

static int file_of(const uint8_t *data, size_t size, char *path, size_t path_size) {
    int fd = memfd_create("tokenizer", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    snprintf(path, path_size, "/proc/self/fd/%d", fd);
    return fd;
}

static void try_text(z3d_tokenizer *t, const char *text, size_t length) {
    z3d_token_list ids = {0}, again = {0};
    z3d_string back = {0};
    z3d_status status = z3d_tokenizer_encode(t, text, length, true, &ids);
    if (status == Z3D_OK) {
        for (size_t i = 0; i < ids.count; i++)
            if (ids.id[i] < 0 || ids.id[i] >= t->vocab_size) abort();
        if (z3d_tokenizer_decode(t, ids.id, ids.count, true, &back) != Z3D_OK) abort();
        /* What is remembered gives the same. */
        if (z3d_tokenizer_encode(t, text, length, true, &again) != Z3D_OK ||
            again.count != ids.count ||
            (ids.count && memcmp(again.id, ids.id, ids.count * sizeof *ids.id) != 0))
            abort();
    } else if (status != Z3D_ERR_DATA) { /* a pattern that takes too long */
        abort();
    }
    z3d_token_list_free(&ids);
    z3d_token_list_free(&again);
    z3d_string_free(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    z3d_tokenizer *tokenizer;
    const uint8_t *end = data + size, *second = size ? memchr(data, 0xff, size) : NULL;
    if (!second) return 0;
    z3d_log_configure(Z3D_LOG_ERROR, 0);
    int fd = file_of(data, (size_t)(second - data), path, sizeof path);
    if (z3d_tokenizer_create(Z3D_TOKENIZER_HUGGINGFACE, path, NULL, &tokenizer) == Z3D_OK) {
        if (tokenizer->end_of_text < 0 || tokenizer->end_of_text >= tokenizer->vocab_size ||
            tokenizer->begin_of_text >= tokenizer->vocab_size)
            abort();
        try_text(tokenizer, (const char *)second + 1, (size_t)(end - second - 1));
        z3d_tokenizer_destroy(tokenizer);
    }
    close(fd);
    return 0;
}
