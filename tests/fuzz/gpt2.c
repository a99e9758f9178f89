/* Fuzzes GPT-2's tokenizer: any vocab.json and merges.txt are read or refused, and with those that
 * are read any text comes back from its tokens. The input is the three of them, 0xff between. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/train/text/bpe.h"

static int file_of(const uint8_t *data, size_t size, char *path, size_t path_size) {
    int fd = memfd_create("gpt2", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    snprintf(path, path_size, "/proc/self/fd/%d", fd);
    return fd;
}

static void try_text(z3d_tokenizer *t, const char *text, size_t length) {
    z3d_token_list ids = {0};
    z3d_string back = {0};
    if (z3d_tokenizer_encode(t, text, length, true, &ids) != Z3D_OK || ids.count > length) abort();
    for (size_t i = 0; i < ids.count; i++)
        if (ids.id[i] < 0 || ids.id[i] >= t->vocab_size) abort();
    if (z3d_tokenizer_decode(t, ids.id, ids.count, true, &back) != Z3D_OK) abort();
    bool marked = memmem(text, length, Z3D_END_OF_TEXT, sizeof Z3D_END_OF_TEXT - 1);
    if (!marked && (back.length != length || (length && memcmp(back.text, text, length) != 0)))
        abort();
    z3d_string_free(&back);
    z3d_token_list_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char vocab[64], merges[64];
    z3d_tokenizer *tokenizer;
    const uint8_t *end = data + size, *second = size ? memchr(data, 0xff, size) : NULL;
    const uint8_t *third = second ? memchr(second + 1, 0xff, (size_t)(end - second - 1)) : NULL;
    if (!third) return 0;
    int fds[2] = {file_of(data, (size_t)(second - data), vocab, sizeof vocab),
                  file_of(second + 1, (size_t)(third - second - 1), merges, sizeof merges)};
    if (z3d_tokenizer_create(Z3D_TOKENIZER_GPT2, vocab, merges, &tokenizer) == Z3D_OK) {
        try_text(tokenizer, (const char *)third + 1, (size_t)(end - third - 1));
        z3d_tokenizer_destroy(tokenizer);
    }
    for (int i = 0; i < 2; i++) close(fds[i]);
    return 0;
}
