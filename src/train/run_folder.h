/* The run's folder. One job at a time uses it, and the files of an earlier run are kept. Rank 0
 * only. */
#ifndef ZERO3D_TRAIN_RUN_FOLDER_H
#define ZERO3D_TRAIN_RUN_FOLDER_H

#include "src/base/base.h"

typedef struct z3d_run_folder {
    const char *path; /* NULL: not taken */
    int lock;
    int number;      /* the number in the names of kept files: metrics.1.jsonl */
    int kept;        /* files kept since the last z3d_run_folder_say */
    z3d_string list; /* the names of the first few of these */
} z3d_run_folder;

/* Creates the folder and locks it. `path` must outlive *folder. ERR_IO: the folder cannot be
 * written to, or another job uses it. */
z3d_status z3d_run_folder_take(z3d_run_folder *folder, const char *path);
/* Renames the files that match the pattern (of fnmatch): they get a number before the last point.
 * TensorBoard's files are moved to the folder events.1, so that TensorBoard does not draw them and
 * the new run as one curve. Empty files, devices and pipes stay. ERR_IO. */
z3d_status z3d_run_folder_keep(z3d_run_folder *folder, const char *pattern);
/* Sets *path to FOLDER/metrics.1.jsonl for the name metrics.jsonl, and counts the file as kept. */
z3d_status z3d_run_folder_kept_path(z3d_run_folder *folder, const char *name, z3d_string *path);
/* Prints one line about the files that were kept since the last call, if there are any. */
void z3d_run_folder_say(z3d_run_folder *folder);
void z3d_run_folder_release(z3d_run_folder *folder);

#endif
