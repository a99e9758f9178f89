/* Writes one token file in llm.c's format: under a temporary name until it is whole. */
#ifndef ZERO3D_TRAIN_TOKEN_WRITER_H
#define ZERO3D_TRAIN_TOKEN_WRITER_H

#include <stdint.h>
#include <stdio.h>

#include "src/base/base.h"

typedef struct z3d_token_writer {
    char *path, *temporary;
    FILE *file;
    int bytes_per_token; /* 2, or 4 for a vocabulary beyond 65536 */
    int64_t tokens;
    uint64_t digest; /* of the tokenizer, and its ids: set by whoever knows them */
    int32_t vocab_size;
} z3d_token_writer;

/* Makes the folder of `path` and opens the temporary file beside it. Zero-initialise before; call
 * discard after a failure of any of these. ERR_IO. */
z3d_status z3d_token_writer_open(z3d_token_writer *writer, const char *path, int32_t vocab_size);
z3d_status z3d_token_writer_append(z3d_token_writer *writer, const int32_t *ids, size_t count);
/* Writes the header and hands everything to the disk; the file keeps its temporary name. */
z3d_status z3d_token_writer_finish(z3d_token_writer *writer);
/* Gives the finished file its name. */
z3d_status z3d_token_writer_publish(z3d_token_writer *writer);
/* Frees; removes the temporary file unless it was published. */
void z3d_token_writer_discard(z3d_token_writer *writer);

#endif
