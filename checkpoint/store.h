/* Private to checkpoint/: a run's folder of checkpoints. folder.c knows what lies in it, store.c
 * opens and resumes, save.c saves, commit.c has what an import needs too. */
#ifndef ZERO3D_CHECKPOINT_STORE_H
#define ZERO3D_CHECKPOINT_STORE_H

#include <pthread.h>
#include <stdatomic.h>

#include "checkpoint/shard.h"
#include "src/base/folder_lock.h"

typedef enum z3d_save_phase {
    Z3D_SAVE_IDLE,
    Z3D_SAVE_BEGIN,
    Z3D_SAVE_WRITE,
    Z3D_SAVE_COMMIT
} z3d_save_phase;

/* One save, from its snapshot until it is durable. */
typedef struct z3d_save {
    z3d_save_phase phase;
    z3d_manifest manifest; /* rank 0's is written; of others only the info */
    z3d_image image;       /* its extents from the start on, the rest from the write phase */
    char *folder;          /* DIR/step-N */
    z3d_file_entry entry;  /* of this rank's index */
    /* The phase on this rank, in `thread` or on the spot. */
    pthread_t thread;
    bool has_thread;
    atomic_bool finished;
    z3d_kept_error result;
    double begin;
} z3d_save;

struct z3d_store {
    z3d_store_config config;
    char *dir;
    int lock;
    int64_t newest, told; /* told: the last one of which was said that it is not removed */
    bool keeps_all;
    z3d_save save;
    float *snapshot; /* asynchronous: this rank's extents one behind the other; else NULL */
    int64_t snapshot_bytes;
    double whole_seconds, stalled_seconds;
};

/* The lock of a folder of checkpoints. */
extern const z3d_folder_lock_use z3d_checkpoint_lock;
/* "HDF5 1.10.8, ...", malloc'ed. */
z3d_status z3d_libraries(char **out);
/* Whether there is room for shards of these sizes and what describes them. */
z3d_status z3d_space_check(const char *dir, const int64_t *sizes, int shards);
/* Steps of the folders in DIR with a step's name, ascending: those with a manifest (complete), or
 * what has that name and none. malloc'ed. ERR_IO, too, where that cannot be told of one of them. */
z3d_status z3d_folder_steps(const char *dir, bool complete, int64_t **steps, int *count);
/* DIR/best becomes a link to the checkpoint of that step, if it is there; 0: there is none.
 * *before: the step of the link that was there, -1: none. ERR_IO where anything but such a link has
 * the name.
 */
z3d_status z3d_folder_link_best(const struct z3d_io_hook *hook, const char *dir, int64_t step,
                                int64_t *before);
enum { Z3D_INTEROP_TEXT = 128 };
/* What a save did not write in or as a step's folder: "is a link", "holds \"x\""; else "". */
z3d_status z3d_folder_strangers(const char *folder, char what[Z3D_INTEROP_TEXT]);
/* Removes what a save or a removal that did not end left of a step's folder. ERR_IO, and nothing is
 * removed, where there is anything else in it, or it is no folder. */
z3d_status z3d_remains_remove(const struct z3d_io_hook *hook, const char *folder);
/* An empty folder for a step. Its entry in DIR is the caller's to sync. */
z3d_status z3d_step_folder_make(const struct z3d_io_hook *hook, const char *folder);
/* When all shards are durable: writes checkpoint.h5 and the manifest, from whose rename on the
 * checkpoint exists. manifest->file has room for one more. */
z3d_status z3d_commit(z3d_manifest *manifest, const struct z3d_io_hook *hook, const char *folder);

/* Asynchronous: takes the memory of the one planned copy of this rank's states. */
z3d_status z3d_store_plan_snapshot(z3d_store *store);

#endif
