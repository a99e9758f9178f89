/* TensorBoard event files: scalars as protocol buffers in TFRecord frames, written by hand (the
 * format is four fields). */
#ifndef ZERO3D_TRAIN_TENSORBOARD_H
#define ZERO3D_TRAIN_TENSORBOARD_H

#include <stdint.h>

#include "src/base/base.h"
#include "src/train/report/metrics.h"

typedef struct z3d_tensorboard {
    z3d_line_file file;
    z3d_string value, summary, event, record; /* buffers of z3d_tensorboard_write, kept for reuse */
} z3d_tensorboard;

typedef struct z3d_scalar {
    const char *tag; /* "train/loss" */
    double value;    /* stored as a float; left out if not finite */
} z3d_scalar;

/* Starts a new file, FOLDER/events.out.tfevents.<seconds>.zero3d; wall_time: seconds since 1970.
 * ERR_IO. */
z3d_status z3d_tensorboard_open(z3d_tensorboard *board, const char *folder, double wall_time);
/* Writes one event with all scalars of a step. ERR_IO, ERR_MEMORY. */
z3d_status z3d_tensorboard_write(z3d_tensorboard *board, double wall_time, int64_t step,
                                 const z3d_scalar *scalars, int count);
z3d_status z3d_tensorboard_close(z3d_tensorboard *board);

/* CRC-32C (Castagnoli) of bytes, and TFRecord's masked form: rotated right by 15 bits, plus
 * 0xa282ead8. */
uint32_t z3d_crc32c(const void *bytes, size_t count);
uint32_t z3d_crc32c_masked(const void *bytes, size_t count);

#endif
