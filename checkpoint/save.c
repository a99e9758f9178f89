/* Saving: snapshot, free space, shards, commit. Rank 0 creates the folder; all ranks write their
 * shards at the same time; when all shards are durable, rank 0 writes the manifest, which makes
 * them a checkpoint. Each of the three phases after the snapshot runs in a thread beside training
 * (asynchronous) or in the calling thread. Between phases the ranks agree, in z3d_store_poll. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "checkpoint/store.h"
#include "zero/program.h"

static bool is_root(const z3d_store *store) {
    return z3d_world_rank(store->config.world) == 0;
}

/* Values directly from the engine. */
static z3d_status engine_values(void *context, const z3d_extent *e, int64_t at, int64_t count,
                                float *out) {
    const z3d_store *store = context;
    return z3d_engine_read_part(store->config.engine, (z3d_tensor_kind)e->kind, e->group,
                                e->parameter, e->first + at, count, out);
}

static z3d_status snapshot_values(void *context, const z3d_extent *e, int64_t at, int64_t count,
                                  float *out) {
    const z3d_store *store = context;
    memcpy(out, store->snapshot + e->snapshot + at, (size_t)count * sizeof *out);
    return Z3D_OK;
}

/* ---- phases ---- */

/* The most bytes of a shard: values, and for each dataset HDF5's metadata and the index. */
static int64_t most_bytes(const z3d_shard *plan) {
    int64_t bytes = 0;
    for (int i = 0; i < plan->num_extents; i++) bytes += plan->extent[i].count * 4 + 4096;
    return bytes;
}

static const z3d_program_config *program_config(const z3d_store *store) {
    return &z3d_engine_program(store->config.engine, Z3D_MODE_TRAIN)->config;
}

/* The extents that rank r writes. */
static z3d_status plan_of(const z3d_store *store, int r, z3d_shard *out) {
    const bool trained = store->save.manifest.info.base.folder != NULL;
    z3d_mesh place = *store->config.mesh;
    place.rank = r;
    return z3d_shard_plan(store->config.model, &place, program_config(store),
                          z3d_engine_kinds(store->config.engine), trained, &out->num_extents,
                          &out->extent);
}

/* Rank 0: checks the space for all shards, and makes the folder. */
static z3d_status begin_phase(z3d_store *store) {
    int ranks = z3d_world_size(store->config.world);
    int64_t *sizes;
    Z3D_TRY(z3d_folder_lock_keep(store->dir, &z3d_checkpoint_lock, &store->lock));
    Z3D_TRY(z3d_new((size_t)ranks, sizeof *sizes, "shards' sizes", &sizes));
    z3d_status status = Z3D_OK;
    for (int r = 0; r < ranks && status == Z3D_OK; r++) {
        z3d_shard plan = {0};
        status = plan_of(store, r, &plan);
        if (status == Z3D_OK) sizes[r] = most_bytes(&plan);
        free(plan.extent);
    }
    if (status == Z3D_OK) status = z3d_space_check(store->dir, sizes, ranks);
    if (status == Z3D_OK) status = z3d_step_folder_make(store->config.hook, store->save.folder);
    free(sizes);
    return status;
}

static z3d_status write_phase(z3d_store *store) {
    z3d_save *save = &store->save;
    z3d_shard *plan = &save->image.shard;
    if (is_root(store)) Z3D_TRY(z3d_io_sync_folder(store->config.hook, store->dir));
    Z3D_TRY(z3d_image_make(save->manifest.tensor, z3d_world_rank(store->config.world),
                           save->manifest.info.engine.step, plan->num_extents, plan->extent,
                           &save->image));
    return z3d_image_write(&save->image, store->config.hook, save->folder,
                           store->snapshot ? snapshot_values : engine_values, store, &save->entry);
}

/* Removes an old checkpoint. If somebody put other files into it, or replaced it, it stays, and
 * there is one warning. */
static z3d_status remove_old(z3d_store *store, int64_t step) {
    char *path, what[Z3D_STRANGERS_TEXT];
    Z3D_TRY(z3d_checkpoint_path(store->dir, step, &path));
    z3d_status status = z3d_folder_strangers(path, what);
    if (status == Z3D_OK && !*what)
        status = z3d_io_remove_tree(store->config.hook, path, Z3D_MANIFEST);
    else if (status == Z3D_OK && step > store->told)
        z3d_log(Z3D_LOG_WARN, "%s is an old checkpoint but %s: not removed", path, what);
    if (*what && step > store->told) store->told = step;
    free(path);
    return status;
}

/* The step of the lowest validation loss at this save: its checkpoint stays; 0: none. */
static int64_t best_step(const z3d_store *store) {
    return store->config.keep_best ? store->save.manifest.info.evaluations.best_step : 0;
}

/* Rank 0: removes complete checkpoints, except the newest `keep` and that of step `best` (0: none).
 */
static z3d_status retain(z3d_store *store, int64_t best) {
    int64_t *steps;
    int count;
    if (store->config.keep <= 0 || store->keeps_all) return Z3D_OK;
    Z3D_TRY(z3d_checkpoint_list(store->dir, &steps, &count));
    z3d_status status = Z3D_OK;
    for (int i = 0; i < count - store->config.keep && status == Z3D_OK; i++)
        if (best == 0 || steps[i] != best) status = remove_old(store, steps[i]);
    free(steps);
    return status;
}

/* Rank 0: writes the manifest. With its rename the checkpoint exists. */
static z3d_status commit_phase(z3d_store *store) {
    z3d_save *save = &store->save;
    if (store->config.before_commit)
        Z3D_TRY(store->config.before_commit(store->config.commit_context));
    Z3D_TRY(z3d_folder_lock_check(store->dir, &z3d_checkpoint_lock, store->lock));
    z3d_status status = z3d_commit(&save->manifest, store->config.hook, save->folder);
    int64_t best = best_step(store), before;
    if (status == Z3D_OK && best > 0 &&
        z3d_folder_link_best(store->config.hook, store->dir, best, &before) != Z3D_OK)
        z3d_log(Z3D_LOG_WARN,
                "the checkpoint of the lowest validation loss is that of step %lld, but: %s",
                (long long)best, z3d_error_message());
    if (status == Z3D_OK && retain(store, best) != Z3D_OK)
        z3d_log(Z3D_LOG_WARN, "cannot remove an old checkpoint: %s", z3d_error_message());
    return status;
}

/* Rank 0. Without keep_best another file named DIR/best is no error. */
static z3d_status take_best(z3d_store *store, int64_t best) {
    const bool keeps = store->config.keep_best;
    int64_t before;
    z3d_status status =
        z3d_folder_link_best(store->config.hook, store->dir, keeps ? best : 0, &before);
    if (status != Z3D_OK) return keeps ? status : Z3D_OK;
    if (before >= 0 && !keeps)
        z3d_log(Z3D_LOG_INFO,
                "checkpoint.keep_best is false: the link %s/" Z3D_BEST " to the checkpoint of step "
                "%lld is removed, and that checkpoint is kept like any other",
                store->dir, (long long)before);
    return keeps && best > 0 ? retain(store, best) : Z3D_OK;
}

z3d_status z3d_store_take_best(z3d_store *store, int64_t best) {
    static const char *const taking = "checkpoint: the best one";
    z3d_watchdog_position(store->config.world, false, taking);
    z3d_status status = is_root(store) ? take_best(store, best) : Z3D_OK;
    return z3d_checkpoint_agree(store->config.world, taking, status);
}

static const struct {
    const char *place; /* for the watchdog */
    z3d_status (*work)(z3d_store *store);
    bool all; /* all ranks work; else rank 0 only */
} phases[] = {[Z3D_SAVE_IDLE] = {.place = "checkpoint: copying the states"},
              [Z3D_SAVE_BEGIN] = {"checkpoint: beginning to save", begin_phase, false},
              [Z3D_SAVE_WRITE] = {"checkpoint: writing shards", write_phase, true},
              [Z3D_SAVE_COMMIT] = {"checkpoint: committing", commit_phase, false}};

static const char *place_of(const z3d_store *store) {
    return phases[store->save.phase].place;
}

/* Agrees with all ranks; the watchdog knows the phase meanwhile. */
static z3d_status agree(const z3d_store *store, z3d_status mine) {
    return z3d_checkpoint_agree(store->config.world, place_of(store), mine);
}

static bool works(const z3d_store *store) {
    return is_root(store) || phases[store->save.phase].all;
}

/* This rank's part of the phase has ended. Keeps the error message, which belongs to this thread.
 */
static void finish(z3d_save *save, z3d_status status) {
    save->result = z3d_error_keep(status);
    atomic_store(&save->finished, true);
}

static void *run_phase(void *context) {
    z3d_store *store = context;
    z3d_save *save = &store->save;
    /* If there are too few cores, training goes first. In Linux a thread has its own priority. */
    if (save->has_thread) (void)setpriority(PRIO_PROCESS, (id_t)gettid(), 10);
    finish(save, works(store) ? phases[save->phase].work(store) : Z3D_OK); /* never idle */
    return NULL;
}

static void start_phase(z3d_store *store, z3d_save_phase phase) {
    z3d_save *save = &store->save;
    save->phase = phase;
    z3d_watchdog_position(store->config.world, false, place_of(store));
    atomic_store(&save->finished, false);
    save->has_thread = store->config.asynchronous && works(store);
    if (save->has_thread && pthread_create(&save->thread, NULL, run_phase, store) != 0)
        save->has_thread = false;
    if (!save->has_thread) run_phase(store);
}

static void join_thread(z3d_save *save) {
    if (save->has_thread) pthread_join(save->thread, NULL);
    save->has_thread = false;
}

/* ---- the start of a save ---- */

static z3d_status describe_run(z3d_store *store, const z3d_checkpoint_info *info) {
    const z3d_store_config *c = &store->config;
    z3d_manifest *m = &store->save.manifest;
    m->info = (z3d_checkpoint_info){
        .samples = info->samples,
        .train_tokens = info->train_tokens,
        .evaluations = info->evaluations,
        .tensor_size = z3d_mesh_size(c->mesh, Z3D_ROLE_PARTS),
        .data_size = z3d_mesh_size(c->mesh, Z3D_ROLE_SAMPLES),
        .pipeline_size = z3d_mesh_size(c->mesh, Z3D_ROLE_STAGES),
        .zero_stage = c->zero_stage,
        .dtype = c->dtype,
        .config = info->config ? strdup(info->config) : NULL,
        .program = strdup(c->program ? c->program : ""),
    };
    Z3D_TRY(z3d_libraries(&m->info.libraries));
    if (!m->info.config || !m->info.program)
        return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the manifest's texts");
    if (info->base.folder) Z3D_TRY(z3d_base_copy(&info->base, &m->info.base));
    z3d_engine_get_state(c->engine, &m->info.engine);
    Z3D_TRY(z3d_tensors_of(c->model, &m->tensor, &m->num_tensors));
    return z3d_checkpoint_path(store->dir, m->info.engine.step, &store->save.folder);
}

/* Uses the device's host memory. Its pages exist from the start (a save that waits for each page of
 * 4 KiB takes 30 times as long) and are huge; they are pinned if the device copies by itself. */
static z3d_status allocate_snapshot(z3d_store *store, int64_t bytes) {
    void *memory;
    z3d_status status =
        z3d_device_alloc(z3d_engine_device(store->config.engine), Z3D_SPACE_HOST, bytes, &memory);
    if (status != Z3D_OK)
        return z3d_error_context(
            status,
            "the copy for asynchronous saves, %lld bytes (checkpoint.async: false needs no copy)",
            (long long)bytes);
    store->snapshot = memory;
    store->snapshot_bytes = bytes;
    return Z3D_OK;
}

static void free_snapshot(z3d_store *store) {
    if (store->snapshot)
        z3d_device_free(z3d_engine_device(store->config.engine), Z3D_SPACE_HOST, store->snapshot,
                        store->snapshot_bytes);
    store->snapshot = NULL;
    store->snapshot_bytes = 0;
}

z3d_status z3d_store_plan_snapshot(z3d_store *store) {
    const z3d_store_config *c = &store->config;
    int64_t bytes;
    Z3D_TRY(
        z3d_checkpoint_snapshot_bytes(c->model, c->mesh, program_config(store), c->begins, &bytes));
    return allocate_snapshot(store, bytes);
}

/* Makes the copy larger than planned if frozen parameters are saved, too, because the base lacks
 * some of them. */
static z3d_status need_snapshot(z3d_store *store) {
    const z3d_shard *plan = &store->save.image.shard;
    int64_t bytes = 0;
    for (int i = 0; i < plan->num_extents; i++)
        bytes += plan->extent[i].count * (int64_t)sizeof *store->snapshot;
    if (bytes <= store->snapshot_bytes) return Z3D_OK;
    free_snapshot(store);
    return allocate_snapshot(store, bytes);
}

const void *z3d_store_snapshot(const z3d_store *store, int64_t *bytes) {
    *bytes = store->snapshot_bytes;
    return store->snapshot;
}

static z3d_status take_snapshot(z3d_store *store) {
    const z3d_shard *plan = &store->save.image.shard;
    int64_t total = 0;
    Z3D_TRY(need_snapshot(store));
    for (int i = 0; i < plan->num_extents; i++) {
        z3d_extent *e = &plan->extent[i];
        e->snapshot = total;
        Z3D_TRY(engine_values(store, e, 0, e->count, store->snapshot + total));
        total += e->count;
    }
    return Z3D_OK;
}

static z3d_status prepare(z3d_store *store, const z3d_checkpoint_info *info) {
    const z3d_store_config *c = &store->config;
    Z3D_TRY(describe_run(store, info));
    Z3D_TRY(plan_of(store, c->mesh->rank, &store->save.image.shard));
    return c->asynchronous ? take_snapshot(store) : Z3D_OK;
}

static void forget_save(z3d_store *store) {
    z3d_save *save = &store->save;
    join_thread(save);
    z3d_manifest_free(&save->manifest);
    z3d_image_free(&save->image);
    free(save->folder);
    memset(save, 0, sizeof *save);
    save->image.fd = -1;
}

/* After a failure: removes what this save has written, if possible. If this rank had committed
 * before another rank failed, the checkpoint exists, perhaps as the only one, and stays. */
static z3d_status abandon(z3d_store *store, z3d_status failure) {
    const z3d_kept_error why = z3d_error_keep(failure);
    z3d_save *save = &store->save;
    join_thread(save);
    bool well = save->result.status == Z3D_OK;
    bool made = save->phase > Z3D_SAVE_BEGIN || well; /* the folder */
    bool committed = save->phase == Z3D_SAVE_COMMIT && well;
    bool ours = is_root(store) && made && !committed &&
                z3d_folder_lock_check(store->dir, &z3d_checkpoint_lock, store->lock) == Z3D_OK;
    if (ours) (void)z3d_io_remove_tree(store->config.hook, save->folder, Z3D_MANIFEST);
    forget_save(store);
    return z3d_error_restore(&why);
}

z3d_status z3d_store_save(z3d_store *store, const z3d_checkpoint_info *info) {
    int64_t unused;
    double begin = z3d_now();
    Z3D_TRY(z3d_store_poll(store, true, &unused));
    store->save.begin = begin;
    z3d_watchdog_position(store->config.world, false, place_of(store));
    z3d_status status = prepare(store, info);
    if (status == Z3D_OK) {
        start_phase(store, Z3D_SAVE_BEGIN);
    } else { /* the others hear of the failure when the ranks agree */
        store->save.phase = Z3D_SAVE_BEGIN;
        finish(&store->save, status);
    }
    status = store->config.asynchronous ? Z3D_OK : z3d_store_poll(store, true, &unused);
    store->stalled_seconds = z3d_now() - begin;
    return status;
}

/* ---- between the phases ---- */

/* Rank 0 collects all shards: their files, and the datasets of their plans. */
static z3d_status collect(z3d_store *store) {
    z3d_world *world = store->config.world;
    z3d_save *save = &store->save;
    z3d_manifest *m = &save->manifest;
    int ranks = z3d_world_size(world);
    struct report {
        z3d_file_entry entry;
        int64_t size;
    } mine = {save->entry, save->image.shard.size}, *all = NULL;
    z3d_status status = z3d_new((size_t)ranks, sizeof *all, "shards' digests", &all);
    if (status == Z3D_OK)
        status = z3d_new((size_t)ranks, sizeof *m->shard, "the list of shards", &m->shard);
    if (status == Z3D_OK)
        status = z3d_new((size_t)ranks + 1, sizeof *m->file, "the list of files", &m->file);
    Z3D_TRY_GOTO(status, agree(store, status), end);
    Z3D_TRY_GOTO(status, z3d_world_gather_all(world, &mine, all, sizeof mine), end);
    m->num_shards = m->num_files = ranks;
    for (int r = 0; r < ranks && is_root(store) && status == Z3D_OK; r++) {
        snprintf(m->shard[r].name, sizeof m->shard[r].name, "shard-%05d.h5", r);
        snprintf(m->shard[r].index, sizeof m->shard[r].index, "shard-%05d.json", r);
        m->shard[r].size = all[r].size;
        m->file[r] = all[r].entry;
        status = plan_of(store, r, &m->shard[r]);
    }
    status = agree(store, status);
end:
    free(all);
    return status;
}

/* Whether the phase has ended on all ranks. */
static z3d_status all_finished(const z3d_store *store, bool wait, bool *finished) {
    bool unfinished = false;
    if (!wait)
        Z3D_TRY(
            z3d_world_any(store->config.world, !atomic_load(&store->save.finished), &unfinished));
    *finished = !unfinished;
    return Z3D_OK;
}

static z3d_status advance(z3d_store *store, bool *durable) {
    z3d_save_phase phase = store->save.phase;
    z3d_watchdog_position(store->config.world, false, place_of(store));
    join_thread(&store->save);
    Z3D_TRY(agree(store, z3d_error_restore(&store->save.result)));
    *durable = phase == Z3D_SAVE_COMMIT;
    if (*durable) return Z3D_OK;
    if (phase == Z3D_SAVE_WRITE) Z3D_TRY(collect(store));
    start_phase(store, phase == Z3D_SAVE_BEGIN ? Z3D_SAVE_WRITE : Z3D_SAVE_COMMIT);
    return Z3D_OK;
}

z3d_status z3d_store_poll(z3d_store *store, bool wait, int64_t *step) {
    bool finished, durable = false;
    *step = -1;
    while (store->save.phase != Z3D_SAVE_IDLE && !durable) {
        z3d_status status = all_finished(store, wait, &finished);
        if (status == Z3D_OK && !finished) return Z3D_OK;
        if (status == Z3D_OK) status = advance(store, &durable);
        if (status != Z3D_OK)
            return z3d_error_context(abandon(store, status), "checkpoint not saved");
    }
    if (durable) {
        *step = store->newest = store->save.manifest.info.engine.step;
        store->whole_seconds = z3d_now() - store->save.begin;
        forget_save(store);
    }
    return Z3D_OK;
}

void z3d_store_close(z3d_store *store) {
    if (!store) return;
    forget_save(store);
    z3d_folder_lock_release(&store->lock);
    free_snapshot(store);
    free(store->dir);
    free(store);
}
