/* Writes one token file (token_file.h), under a temporary name until it is complete. The tables
 * that follow the tokens are collected in unnamed files beside it. */
#ifndef ZERO3D_TRAIN_TOKEN_WRITER_H
#define ZERO3D_TRAIN_TOKEN_WRITER_H

#include <stdint.h>
#include <stdio.h>

#include "src/base/base.h"

/* A flag in a token id: the token is not trained as a target. */
enum { Z3D_TOKEN_UNTRAINED = 1 << 30 };

typedef struct z3d_token_writer {
    char *path, *temporary;
    FILE *file;
    int bytes_per_token; /* 2, or 4 for a vocabulary beyond 65536 */
    int64_t tokens;
    uint64_t digest; /* of the tokenizer; set by the caller; 0: the file does not say */
    int32_t vocab_size;
    FILE *mask, *borders; /* NULL: not written */
    int64_t documents, untrained;
    unsigned char bits; /* the mask's last byte, not written yet */
} z3d_token_writer;

/* Makes the folder of `path` and opens the temporary file in it. Zero-initialise *writer before;
 * call discard after a failure of any of these functions. Errors of all of them: ERR_IO,
 * ERR_MEMORY. Not collective. */
z3d_status z3d_token_writer_open(z3d_token_writer *writer, const char *path, int32_t vocab_size);
/* From now on Z3D_TOKEN_UNTRAINED is removed from ids and kept in a mask; the file gets the mask if
 * one token has the flag. Without this call ids are written unchanged. */
z3d_status z3d_token_writer_mask(z3d_token_writer *writer);
/* The next token begins a document. */
z3d_status z3d_token_writer_document(z3d_token_writer *writer);
z3d_status z3d_token_writer_append(z3d_token_writer *writer, const int32_t *ids, size_t count);
/* Writes the tables after the tokens and the header, and syncs the file to the disk; the file keeps
 * its temporary name. */
z3d_status z3d_token_writer_finish(z3d_token_writer *writer);
/* Gives the finished file its name. */
z3d_status z3d_token_writer_publish(z3d_token_writer *writer);
/* Frees; removes the temporary file unless it was published. */
void z3d_token_writer_discard(z3d_token_writer *writer);

#endif
