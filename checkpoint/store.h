/* Private to checkpoint/: a run's folder of checkpoints. folder.c reads its entries, store.c opens
 * it and resumes, save.c saves, commit.c has the steps that an import needs, too. */
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
    z3d_manifest manifest; /* rank 0 writes its own; the others use only the info */
    z3d_image image;       /* its extents are set at the start, the rest in the write phase */
    char *folder;          /* DIR/step-N */
    z3d_file_entry entry;  /* of this rank's index */
    /* This rank's work of the phase, in `thread` or in the calling thread. */
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
    int64_t newest; /* step of the latest durable checkpoint, -1: none */
    int64_t told;   /* the last step about which a warning said that it is not removed */
    bool keeps_all;
    z3d_save save;
    float *snapshot; /* asynchronous: this rank's extents without gaps; else NULL */
    int64_t snapshot_bytes;
    double whole_seconds, stalled_seconds;
};

/* The lock of a folder of checkpoints. */
extern const z3d_folder_lock_use z3d_checkpoint_lock;
/* "HDF5 1.10.8, ...", malloc'ed. */
z3d_status z3d_libraries(char **out);
/* ERR_IO unless DIR has space for shards of these sizes (bytes) and their descriptions. */
z3d_status z3d_space_check(const char *dir, const int64_t *sizes, int shards);
/* The steps of the entries in DIR with a step's name, ascending. complete: those with a manifest;
 * else those without one. *steps is malloc'ed. Errors: ERR_IO, also if the system cannot tell for
 * one of them. */
z3d_status z3d_folder_steps(const char *dir, bool complete, int64_t **steps, int *count);
/* Makes DIR/best a link to the checkpoint of `step`, if that exists; step 0 removes the link.
 * *before: the step of the link until now, -1: none. Errors: ERR_IO, also if something else has the
 * name. */
z3d_status z3d_folder_link_best(const struct z3d_io_hook *hook, const char *dir, int64_t step,
                                int64_t *before);
enum { Z3D_STRANGERS_TEXT = 128 };
/* what: a reason why a step's folder is not only the work of a save ("is a link", "holds \"x\""),
 * or "". Errors: ERR_IO. */
z3d_status z3d_folder_strangers(const char *folder, char what[Z3D_STRANGERS_TEXT]);
/* Removes the remains of a save or a removal that did not end. Errors: ERR_IO; if the path is no
 * folder, or holds something else, nothing is removed. */
z3d_status z3d_remains_remove(const struct z3d_io_hook *hook, const char *folder);
/* Makes an empty folder for a step. The caller syncs DIR. */
z3d_status z3d_step_folder_make(const struct z3d_io_hook *hook, const char *folder);
/* Writes checkpoint.h5 and the manifest. Call it when all shards are durable: with the manifest's
 * rename the checkpoint exists. manifest->file must have space for one more entry. */
z3d_status z3d_commit(z3d_manifest *manifest, const struct z3d_io_hook *hook, const char *folder);

/* Asynchronous saves: allocates the planned copy of this rank's states. */
z3d_status z3d_store_plan_snapshot(z3d_store *store);

#endif
