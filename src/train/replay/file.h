/* Private to src/train: a file of what came into a rank, written and read once, in order, in blocks
 * that each have a digest of themselves and of all before them. */
#ifndef ZERO3D_TRAIN_REPLAY_FILE_H
#define ZERO3D_TRAIN_REPLAY_FILE_H

#include "src/base/base.h"

typedef struct z3d_block_file z3d_block_file;

/* ERR_IO. The caller closes it, also after an error. */
z3d_status z3d_block_file_create(const char *path, z3d_block_file **out);
z3d_status z3d_block_file_put(z3d_block_file *file, const void *data, int64_t bytes);
/* What was put is in the file. */
z3d_status z3d_block_file_flush(z3d_block_file *file);

/* ERR_DATA: it is no such file, or no file but a folder, a device or a pipe. */
z3d_status z3d_block_file_open(const char *path, z3d_block_file **out);
/* The next bytes; nothing is given that does not fit its digest. ERR_DATA: a changed block, or
 * fewer bytes; both name the file and the place. */
z3d_status z3d_block_file_get(z3d_block_file *file, void *data, int64_t bytes);
/* ERR_DATA: there are more. */
z3d_status z3d_block_file_at_end(z3d_block_file *file);
/* Whether the file's end was met where more was expected. */
bool z3d_block_file_ended(const z3d_block_file *file);
const char *z3d_block_file_path(const z3d_block_file *file);
/* NULL: nothing. What was not flushed is lost. */
void z3d_block_file_close(z3d_block_file *file);

#endif
