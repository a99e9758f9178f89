/* Private to src/train: a file with the data that a rank received. It is written once and read
 * once, in order, in blocks; each block has a digest of itself and of all earlier blocks. */
#ifndef ZERO3D_TRAIN_REPLAY_FILE_H
#define ZERO3D_TRAIN_REPLAY_FILE_H

#include "src/base/base.h"

typedef struct z3d_block_file z3d_block_file;

/* Creates the file. ERR_IO. Close it also after an error. */
z3d_status z3d_block_file_create(const char *path, z3d_block_file **out);
z3d_status z3d_block_file_put(z3d_block_file *file, const void *data, int64_t bytes);
/* Writes everything that was put so far to the file. */
z3d_status z3d_block_file_flush(z3d_block_file *file);

/* Opens a file for reading. ERR_DATA: the file is no such file; or the path is a folder, a device
 * or a pipe. */
z3d_status z3d_block_file_open(const char *path, z3d_block_file **out);
/* Reads the next bytes. Bytes of a block are given only after its digest was checked. ERR_DATA: a
 * changed block, or fewer bytes; both name the file and the place. */
z3d_status z3d_block_file_get(z3d_block_file *file, void *data, int64_t bytes);
/* ERR_DATA if the file has more bytes. */
z3d_status z3d_block_file_at_end(z3d_block_file *file);
/* Whether a read failed at the end of the file. */
bool z3d_block_file_ended(const z3d_block_file *file);
const char *z3d_block_file_path(const z3d_block_file *file);
/* NULL is fine. Bytes that were not flushed are lost. */
void z3d_block_file_close(z3d_block_file *file);

#endif
