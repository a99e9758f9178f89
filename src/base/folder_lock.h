/* Locks a folder for one job at a time, with a lock file in it. The system removes the lock when
 * its process ends, in whatever way; the file stays. */
#ifndef ZERO3D_BASE_FOLDER_LOCK_H
#define ZERO3D_BASE_FOLDER_LOCK_H

#include "src/base/status.h"

/* The lock file and the messages, for one use of the folder. The texts outlive the lock. */
typedef struct z3d_folder_lock_use {
    const char *file; /* the lock file's name in the folder: "lock" */
    const char *busy; /* the error after "DIR: " if another job holds the lock; that job's process
                         and host follow it */
    const char *lost; /* the error if the lock file was removed meanwhile */
} z3d_folder_lock_use;

/* Locks DIR/file; *fd holds it until z3d_folder_lock_release. ERR_IO: another process holds it (or
 * another descriptor of this one), or the file cannot be created. On a file system without locks it
 * warns and counts as locked. *fd is -1, or the caller must release it, even after an error. */
z3d_status z3d_folder_lock_take(const char *dir, const z3d_folder_lock_use *use, int *fd);
/* ERR_IO if the lock file is no longer in the folder: a file there may be another job's. */
z3d_status z3d_folder_lock_check(const char *dir, const z3d_folder_lock_use *use, int fd);
/* Locks again if the lock file or the folder was removed. ERR_IO as z3d_folder_lock_take; *fd is
 * then unchanged. */
z3d_status z3d_folder_lock_keep(const char *dir, const z3d_folder_lock_use *use, int *fd);
/* Releases the lock and sets *fd to -1. Does nothing if *fd is -1. */
void z3d_folder_lock_release(int *fd);

#endif
