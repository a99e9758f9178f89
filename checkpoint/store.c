/* A run's folder of checkpoints: taking it, cleaning it, what is in it, and going on from it. */
#include "checkpoint/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- names ---- */

enum { NAME_BYTES = 32 };

static const char *step_name(int64_t step, char out[NAME_BYTES]) {
    snprintf(out, NAME_BYTES, "step-%08lld", (long long)step);
    return out;
}

z3d_status z3d_checkpoint_path(const char *dir, int64_t step, char **out) {
    char name[NAME_BYTES];
    return z3d_io_join(dir, step_name(step, name), out);
}

/* Only what z3d_checkpoint_path gives: "step-7" would be the folder of no step, and a second one of
 * step 7. */
static bool parse_name(const char *name, int64_t *step) {
    char wanted[NAME_BYTES];
    if (strncmp(name, "step-", 5) != 0 || strspn(name + 5, "0123456789") > 18) return false;
    *step = strtoll(name + 5, NULL, 10);
    return strcmp(name, step_name(*step, wanted)) == 0;
}

static z3d_status has_manifest(const char *dir, int64_t step, bool *has) {
    char *folder;
    Z3D_TRY(z3d_checkpoint_path(dir, step, &folder));
    z3d_status status = z3d_manifest_exists(folder, has);
    free(folder);
    return status;
}

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static z3d_status append_step(int64_t step, int64_t **steps, int *count) {
    if (*count % 16 == 0) {
        int64_t *grown = realloc(*steps, (size_t)(*count + 16) * sizeof **steps);
        if (!grown) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a list of checkpoints");
        *steps = grown;
    }
    (*steps)[(*count)++] = step;
    return Z3D_OK;
}

/* Steps of the folders with (complete) or without a manifest. A list that may lack one is an error:
 * what is not in it is removed or gone behind. */
static z3d_status read_folder(const char *dir, bool complete, int64_t **steps, int *count) {
    DIR *folder = opendir(dir);
    z3d_status status = Z3D_OK;
    if (!folder && errno == ENOENT) return Z3D_OK;
    if (!folder && errno == ENOTDIR)
        return Z3D_ERROR(Z3D_ERR_IO, "%s: is a file, or lies below one; a folder is wanted", dir);
    while (folder && status == Z3D_OK) {
        int64_t step;
        bool has;
        errno = 0;
        struct dirent *entry = readdir(folder);
        if (!entry) break;
        if (!parse_name(entry->d_name, &step)) continue;
        status = has_manifest(dir, step, &has);
        if (status == Z3D_OK && has == complete) status = append_step(step, steps, count);
    }
    if (status == Z3D_OK && errno != 0)
        status = Z3D_ERROR(Z3D_ERR_IO, "%s: cannot list it: %s", dir, strerror(errno));
    if (folder) closedir(folder);
    return status;
}

static z3d_status list_folders(const char *dir, bool complete, int64_t **steps, int *count) {
    z3d_errand errand;
    *steps = NULL;
    *count = 0;
    z3d_errand_begin(&errand, "checkpoint: listing", dir);
    z3d_status status = read_folder(dir, complete, steps, count);
    z3d_errand_end(&errand);
    if (status == Z3D_OK && *count) qsort(*steps, (size_t)*count, sizeof **steps, ascending);
    if (status == Z3D_OK) return Z3D_OK;
    free(*steps);
    *steps = NULL;
    *count = 0;
    return status;
}

z3d_status z3d_checkpoint_list(const char *dir, int64_t **steps, int *count) {
    return list_folders(dir, true, steps, count);
}

z3d_status z3d_checkpoint_resolve(const char *path, char **out) {
    int64_t *steps = NULL;
    int count = 0;
    bool itself;
    *out = NULL;
    Z3D_TRY(z3d_manifest_exists(path, &itself));
    if (!itself) Z3D_TRY(z3d_checkpoint_list(path, &steps, &count));
    if (count > 0) {
        z3d_status status = z3d_checkpoint_path(path, steps[count - 1], out);
        free(steps);
        return status;
    }
    free(steps);
    *out = strdup(path);
    return *out ? Z3D_OK : Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a folder's name");
}

/* ---- taking the folder ---- */

/* What unfinished saves and removals left has no manifest. */
static z3d_status clean(z3d_store *store) {
    int64_t *steps;
    int count;
    Z3D_TRY(list_folders(store->dir, false, &steps, &count));
    z3d_status status = Z3D_OK;
    for (int i = 0; i < count && status == Z3D_OK; i++) {
        char *path = NULL;
        status = z3d_checkpoint_path(store->dir, steps[i], &path);
        if (status == Z3D_OK) status = z3d_remains_remove(store->config.hook, path);
        if (status == Z3D_OK)
            z3d_log(Z3D_LOG_WARN, "%s: removed, it was left by a save that did not end", path);
        free(path);
    }
    free(steps);
    return status;
}

/* The folder's own name, and its parents', may be new: they must outlast a power loss too. Parents
 * that may not be opened were not made by us. */
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
        store->dir = strdup(config->dir);
        if (!store->dir) status = Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a folder's name");
    }
    if (status == Z3D_OK && config->asynchronous) status = z3d_store_plan_snapshot(store);
    z3d_watchdog_place(config->world, false, taking);
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

z3d_status z3d_store_retain(const z3d_store *store) {
    int64_t *steps;
    int count;
    if (store->config.keep <= 0 || store->keeps_all) return Z3D_OK;
    Z3D_TRY(z3d_checkpoint_list(store->dir, &steps, &count));
    z3d_status status = Z3D_OK;
    for (int i = 0; i < count - store->config.keep && status == Z3D_OK; i++) {
        char *path = NULL;
        status = z3d_checkpoint_path(store->dir, steps[i], &path);
        if (status == Z3D_OK) status = z3d_io_remove_tree(store->config.hook, path, Z3D_MANIFEST);
        free(path);
    }
    free(steps);
    return status;
}

/* ---- going on ---- */

/* Rank 0: gives a damaged checkpoint another name, so that its step can be saved again. */
static z3d_status put_aside(z3d_store *store, int64_t step) {
    char *from, to[4200];
    z3d_errand errand;
    Z3D_TRY(z3d_checkpoint_path(store->dir, step, &from));
    snprintf(to, sizeof to, "%s.damaged", from);
    z3d_errand_begin(&errand, "checkpoint: putting aside", from);
    for (int i = 2; access(to, F_OK) == 0; i++) snprintf(to, sizeof to, "%s.damaged-%d", from, i);
    z3d_status status = z3d_io_rename(store->config.hook, from, to);
    if (status == Z3D_OK) status = z3d_io_sync_folder(store->config.hook, store->dir);
    z3d_errand_end(&errand);
    if (status == Z3D_OK) z3d_log(Z3D_LOG_WARN, "%s: put aside as %s", from, to);
    free(from);
    return status;
}

/* Rank 0's list, on all ranks. */
static z3d_status share_list(z3d_store *store, int64_t **steps, int *count) {
    static const char *const listing = "checkpoint: listing the folder";
    z3d_world *world = store->config.world;
    z3d_status status = Z3D_OK;
    *steps = NULL;
    *count = 0;
    z3d_watchdog_place(world, false, listing);
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

/* A folder that was given another step's name would be gone on behind that step. */
static z3d_status check_step(const z3d_store *store, int64_t step) {
    z3d_engine_state state;
    z3d_engine_get_state(store->config.engine, &state);
    if (state.step == step) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_DATA, "its manifest says step %lld", (long long)state.step);
}

/* Those above steps[good] are damaged. */
static z3d_status put_all_aside(z3d_store *store, const int64_t *steps, int good, int count) {
    static const char *const putting = "checkpoint: putting damaged ones aside";
    z3d_world *world = store->config.world;
    z3d_status status = Z3D_OK;
    z3d_watchdog_place(world, false, putting);
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
        status = z3d_checkpoint_load_all(c->world, folder, c->model, c->engine, verify, false,
                                         accept, context, info);
        free(folder);
        if (status == Z3D_OK) status = check_step(store, steps[at]);
        if (status != Z3D_ERR_DATA) break; /* another failure may be over at the next start */
        if (z3d_world_rank(c->world) == 0)
            z3d_log(Z3D_LOG_ERROR, "the checkpoint of step %lld cannot be used: %s%s",
                    (long long)steps[at], z3d_error_message(),
                    at > 0 ? "; falling back to the one before" : "");
    }
    if (status != Z3D_OK && at < 0)
        z3d_error_context(status, "%s: none of its checkpoints is whole, and none was moved",
                          store->dir);
    if (status == Z3D_OK && count > 0) {
        status = put_all_aside(store, steps, at, count);
        *step = store->newest = steps[at];
    }
end:
    free(steps);
    return status;
}
