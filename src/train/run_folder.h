/* The run's folder: one job at a time uses it, and nothing that an earlier run left there is lost.
 * Rank 0 only. */
#ifndef ZERO3D_TRAIN_RUN_FOLDER_H
#define ZERO3D_TRAIN_RUN_FOLDER_H

#include "src/base/base.h"

typedef struct z3d_run_folder {
    const char *path; /* NULL: not taken */
    int lock;
    int number;      /* of what is kept: metrics.1.jsonl */
    int kept;        /* files since the last z3d_run_folder_say */
    z3d_string list; /* the names of the first few of them */
} z3d_run_folder;

/* Makes the folder and locks it. `path` outlives *folder. ERR_IO: it cannot be written to, or
 * another job has it. */
z3d_status z3d_run_folder_take(z3d_run_folder *folder, const char *path);
/* Files whose name fits the pattern (of fnmatch) get a number before the last point; TensorBoard's
 * go to the folder events.1, so TensorBoard does not draw them and the new run as one curve. Empty
 * files, devices and pipes stay. ERR_IO. */
z3d_status z3d_run_folder_keep(z3d_run_folder *folder, const char *pattern);
/* FOLDER/metrics.1.jsonl for metrics.jsonl; counted as kept. */
z3d_status z3d_run_folder_kept_path(z3d_run_folder *folder, const char *name, z3d_string *path);
/* Prints one line about what was kept since the last call, if anything was. */
void z3d_run_folder_say(z3d_run_folder *folder);
void z3d_run_folder_release(z3d_run_folder *folder);

#endif
