/* Reads the bytes of a file; unpacks them if its content says that gzip or zstd packed them. */
#ifndef ZERO3D_TRAIN_INPUT_H
#define ZERO3D_TRAIN_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/base.h"

typedef struct z3d_unpacker z3d_unpacker; /* one method of packing */

/* All zeros: not open; closing it does nothing. */
typedef struct z3d_input {
    const char *path; /* NULL: not open */
    int64_t position; /* bytes of the file read so far, before unpacking */
    /* Private. */
    int fd;
    const z3d_unpacker *unpacker; /* NULL: the file is not packed */
    void *state;
    unsigned char *packed;
    size_t at, have;
    bool between, ended;
} z3d_input;

/* Opens a file. `path` must outlive the input. Close also after a failure. ERR_IO, ERR_MEMORY. */
z3d_status z3d_input_open(z3d_input *input, const char *path);
/* Fills out[0 .. room - 1]; *count is less than `room` only at the end. ERR_IO; ERR_DATA: the
 * packed data are damaged or incomplete. */
z3d_status z3d_input_read(z3d_input *input, void *out, size_t room, size_t *count);
/* The next read begins at the beginning of the file. ERR_MEMORY. */
z3d_status z3d_input_rewind(z3d_input *input);
void z3d_input_close(z3d_input *input);

/* The length of a name without ".gz" or ".zst". */
size_t z3d_unpacked_name_length(const char *path);

#endif
