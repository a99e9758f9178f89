/* A run's folder of checkpoints: locks it, cleans it, and resumes from it. */
#include "checkpoint/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- taking the folder ---- */

/* Removes the remains of unfinished saves and removals: folders without a manifest. */
static z3d_status clean(z3d_store *store) {
    int64_t *steps;
    int count;
    Z3D_TRY(z3d_folder_steps(store->dir, false, &steps, &count));
    z3d_status status = Z3D_OK;
    for (int i = 0; i < count && status == Z3D_OK; i++) {
        char *path = NULL;
        status = z3d_checkpoint_path(store->dir, steps[i], &path);
        if (status == Z3D_OK) status = z3d_remains_remove(store->config.hook, path);
        if (status == Z3D_OK)
            z3d_log(Z3D_LOG_WARN, "%s: removed, because it is incomplete: its save did not finish",
                    path);
        free(path);
    }
    free(steps);
    return status;
}

/* The folder and its parents may be new: their names must survive a power loss, too. A parent that
 * we may not open is not new, so failures do not matter. */
static void sync_parents(z3d_store *store) {
    char path[4096];
    snprintf(path, sizeof path, "%s", store->dir);
    for (char *slash; (slash = strrchr(path, '/')) && slash > path;) {
        *slash = '\0';
        (void)z3d_io_sync_folder(store->config.hook, path);
    }
    (void)z3d_io_sync_folder(store->config.hook, path[0] == '/' ? "/" : ".");
}

static z3d_status take_folder(z3d_store *store) {
    int64_t *steps = NULL;
    int count = 0;
    Z3D_TRY(z3d_make_folders(store->dir));
    sync_parents(store);
    Z3D_TRY(z3d_folder_lock_take(store->dir, &z3d_checkpoint_lock, &store->lock));
    Z3D_TRY(clean(store));
    Z3D_TRY(z3d_checkpoint_list(store->dir, &steps, &count));
    store->newest = count ? steps[count - 1] : -1;
    free(steps);
    return Z3D_OK;
}

z3d_status z3d_store_open(const z3d_store_config *config, z3d_store **out) {
    static const char *const taking = "checkpoint: taking the folder";
    z3d_store *store = NULL;
    *out = NULL;
    z3d_status status = z3d_new(1, sizeof *store, "a folder of checkpoints", &store);
    if (status == Z3D_OK) {
        store->config = *config;
        store->lock = store->save.image.fd = -1;
        store->told = -1;
        store->dir = strdup(config->dir);
        if (!store->dir) status = Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a folder's name");
    }
    if (status == Z3D_OK && config->asynchronous) status = z3d_store_plan_snapshot(store);
    z3d_watchdog_position(config->world, false, taking);
    if (status == Z3D_OK && z3d_world_rank(config->world) == 0) status = take_folder(store);
    status = z3d_checkpoint_agree(config->world, taking, status);
    if (status == Z3D_OK)
        status = z3d_world_broadcast(config->world, &store->newest, sizeof store->newest, 0);
    if (status == Z3D_OK)
        *out = store;
    else
        z3d_store_close(store);
    return status;
}

int64_t z3d_store_newest(const z3d_store *store) {
    return store->newest;
}

void z3d_store_seconds(const z3d_store *store, double *whole, double *stalled) {
    *whole = store->whole_seconds;
    *stalled = store->stalled_seconds;
}

void z3d_store_keep_all(z3d_store *store, bool on) {
    store->keeps_all = on;
}

/* ---- resuming ---- */

/* Rank 0: gives a damaged checkpoint another name, so that its step can be saved again. */
static z3d_status put_aside(z3d_store *store, int64_t step) {
    char *from, to[4200];
    z3d_pending_io io;
    Z3D_TRY(z3d_checkpoint_path(store->dir, step, &from));
    snprintf(to, sizeof to, "%s.damaged", from);
    z3d_pending_io_begin(&io, "checkpoint: renaming", from);
    for (int i = 2; access(to, F_OK) == 0; i++) snprintf(to, sizeof to, "%s.damaged-%d", from, i);
    z3d_status status = z3d_io_rename(store->config.hook, from, to);
    if (status == Z3D_OK) status = z3d_io_sync_folder(store->config.hook, store->dir);
    z3d_pending_io_end(&io);
    if (status == Z3D_OK)
        z3d_log(Z3D_LOG_WARN, "%s: renamed to %s, because it is damaged", from, to);
    free(from);
    return status;
}

/* Gives rank 0's list to all ranks. */
static z3d_status share_list(z3d_store *store, int64_t **steps, int *count) {
    static const char *const listing = "checkpoint: listing the folder";
    z3d_world *world = store->config.world;
    z3d_status status = Z3D_OK;
    *steps = NULL;
    *count = 0;
    z3d_watchdog_position(world, false, listing);
    if (z3d_world_rank(world) == 0) status = z3d_checkpoint_list(store->dir, steps, count);
    Z3D_TRY_GOTO(status, z3d_checkpoint_agree(world, listing, status), fail);
    Z3D_TRY_GOTO(status, z3d_world_broadcast(world, count, sizeof *count, 0), fail);
    if (*count == 0) return Z3D_OK;
    if (!*steps) status = z3d_new((size_t)*count, sizeof **steps, "a list of steps", steps);
    Z3D_TRY_GOTO(status, z3d_checkpoint_agree(world, listing, status), fail);
    Z3D_TRY_GOTO(status, z3d_world_broadcast(world, *steps, *count * (int64_t)sizeof **steps, 0),
                 fail);
    return Z3D_OK;
fail:
    free(*steps);
    *steps = NULL;
    return status;
}

/* The checkpoints after steps[good] are damaged: rank 0 renames them. */
static z3d_status put_all_aside(z3d_store *store, const int64_t *steps, int good, int count) {
    static const char *const putting = "checkpoint: renaming damaged ones";
    z3d_world *world = store->config.world;
    z3d_status status = Z3D_OK;
    z3d_watchdog_position(world, false, putting);
    for (int i = good + 1; i < count && z3d_world_rank(world) == 0; i++)
        if (status == Z3D_OK) status = put_aside(store, steps[i]);
    return z3d_checkpoint_agree(world, putting, status);
}

z3d_status z3d_store_resume(z3d_store *store, z3d_checkpoint_verify verify,
                            z3d_checkpoint_accept accept, void *context, z3d_checkpoint_info *info,
                            int64_t *step) {
    const z3d_store_config *c = &store->config;
    int64_t *steps;
    int count, at;
    *step = -1;
    Z3D_TRY(share_list(store, &steps, &count));
    z3d_status status = Z3D_OK;
    for (at = count - 1; at >= 0; at--) {
        char *folder;
        Z3D_TRY_GOTO(status, z3d_checkpoint_path(store->dir, steps[at], &folder), end);
        status = z3d_checkpoint_load_all(c->world, folder, c->base, c->model, c->engine, verify,
                                         false, accept, context, info);
        free(folder);
        if (status != Z3D_ERR_DATA) break; /* any other failure may be gone at the next start */
        if (z3d_world_rank(c->world) == 0)
            z3d_log(Z3D_LOG_ERROR, "cannot use the checkpoint of step %lld: %s%s",
                    (long long)steps[at], z3d_error_message(),
                    at > 0 ? "; trying the one before it" : "");
    }
    if (status != Z3D_OK && at < 0)
        z3d_error_context(status,
                          "%s: none of its checkpoints is intact; nothing was renamed or removed",
                          store->dir);
    if (status == Z3D_OK && count > 0) {
        status = put_all_aside(store, steps, at, count);
        *step = store->newest = steps[at];
    }
end:
    free(steps);
    return status;
}
