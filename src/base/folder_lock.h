/* A folder that one job at a time may use: a lock file in it. The lock ends with the process that
 * has it, however that ends; the file stays. */
#ifndef ZERO3D_BASE_FOLDER_LOCK_H
#define ZERO3D_BASE_FOLDER_LOCK_H

#include "src/base/status.h"

/* What is locked, for one use of the folder. The texts outlive the lock. */
typedef struct z3d_folder_lock_use {
    const char *file; /* the lock file's name in the folder: "lock" */
    const char *busy; /* what an error says behind "DIR: " when another job has it, before its
                         process and host */
    const char *lost; /* what it says when the lock file was removed meanwhile */
} z3d_folder_lock_use;

/* Takes DIR/file, held by *fd until z3d_folder_lock_release. ERR_IO: another process has it (or
 * another descriptor of this one), or the file cannot be made. A file system without locks is a
 * warning, and the lock counts as taken. *fd is -1, or the caller's to release even after an error.
 */
z3d_status z3d_folder_lock_take(const char *dir, const z3d_folder_lock_use *use, int *fd);
/* ERR_IO where the lock file is no longer the folder's: what lies there may be another job's. */
z3d_status z3d_folder_lock_check(const char *dir, const z3d_folder_lock_use *use, int fd);
/* Takes it again where the lock file is no longer the folder's: somebody removed it, or the folder.
 * ERR_IO as of z3d_folder_lock_take; *fd is then as it was. */
z3d_status z3d_folder_lock_keep(const char *dir, const z3d_folder_lock_use *use, int *fd);
/* Lets it go; *fd is -1 after. Nothing when it is -1 already. */
void z3d_folder_lock_release(int *fd);

#endif
