/* The memory of a rank outside its memory plan. */
#include <stdlib.h>

#include "src/train/trainer.h"

int64_t z3d_trainer_own_bytes(void) {
    const int64_t bytes = z3d_process_bytes("RssAnon:");
    return bytes > 0 ? bytes : 0;
}

static int64_t buffer_bytes(const z3d_trainer *trainer) {
    int64_t bytes = 0;
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++)
        bytes += z3d_group_buffer_bytes(trainer->group[axes]);
    return bytes;
}

/* The arena of a memory space, if it is in this process's own memory. */
static z3d_stretch arena_of(const z3d_trainer *trainer, z3d_space space) {
    z3d_stretch arena = {.part = Z3D_RESIDENT_ARENAS};
    if (space == Z3D_SPACE_HOST || z3d_device_host_reads(trainer->device))
        arena.at = z3d_engine_arena(trainer->engine, space, &arena.bytes);
    return arena;
}

int64_t z3d_trainer_arena_bytes(const z3d_trainer *trainer) {
    return arena_of(trainer, Z3D_SPACE_DEVICE).bytes + arena_of(trainer, Z3D_SPACE_HOST).bytes;
}

/* The copy for asynchronous saves. */
static z3d_stretch snapshot_of(const z3d_trainer *trainer) {
    z3d_stretch snapshot = {.part = Z3D_RESIDENT_SNAPSHOT};
    if (trainer->store) snapshot.at = z3d_store_snapshot(trainer->store, &snapshot.bytes);
    return snapshot;
}

bool z3d_trainer_resident(const z3d_trainer *trainer, z3d_resident *out) {
    const z3d_stretch known[] = {arena_of(trainer, Z3D_SPACE_DEVICE),
                                 arena_of(trainer, Z3D_SPACE_HOST), snapshot_of(trainer)};
    return z3d_resident_read(known, sizeof known / sizeof *known, out);
}

int64_t z3d_trainer_outside_bytes(const z3d_trainer *trainer) {
    int64_t used = z3d_device_used_bytes(trainer->device);
    if (used >= 0) return used - z3d_engine_arena_bytes(trainer->engine);
    /* Not getrusage's peak, which also counts memory from before exec. */
    int64_t peak = z3d_process_bytes("VmHWM:"), ours = z3d_trainer_arena_bytes(trainer) +
                                                       buffer_bytes(trainer) +
                                                       snapshot_of(trainer).bytes;
    if (peak < 0) return -1;
    return peak > ours ? peak - ours
                       : 0; /* pages of ours that were never touched are not resident */
}

/* MiB that libraries take. They take them at their first use, after the plan is made, so these are
 * measured or known constants. */
enum {
    /* context, cuBLASLt's workspace, kernels, their scratch, a step's graph: an H100 had 580 in use
       outside the arena, with attention `own` */
    RESERVE_OPENED = 512,
    RESERVE_STEP = 128,
    /* cuDNN's backward, deterministic: 700 more on the H100; pieces have at most 1024
     * (src/device/cuda/attention.c) */
    RESERVE_CUDNN = 1024,
    /* of a communicator: 32 channels of 4096 KiB, 4800 KiB and 512 KiB for NCCL's three protocols,
     * its defaults from 2.27 to 2.30 */
    RESERVE_NCCL = 294
};

int64_t z3d_trainer_reserve(const z3d_trainer *trainer, bool opened) {
    const z3d_config *config = trainer->config;
    const z3d_mesh *mesh = &trainer->mesh;
    int64_t mib = RESERVE_STEP + (opened ? 0 : RESERVE_OPENED);
    if (z3d_device_host_reads(trainer->device)) return 0;
    if (config->training_attention != Z3D_CONFIG_ATTENTION_OWN &&
        trainer->program.dtype != Z3D_F32 && !trainer->program.inference)
        mib += RESERVE_CUDNN;
    const int ranks = z3d_mesh_size(mesh, Z3D_AXES_WORLD);
    bool shared = false; /* a group of all ranks has a communicator; the world group shares it */
    for (int axes = 1; axes < Z3D_AXES_COUNT; axes++) {
        const int size = z3d_mesh_size(mesh, (z3d_axes)axes);
        const bool made = z3d_axes_have_group(mesh, (z3d_axes)axes) && size > 1;
        if (!made || config->training_collectives == Z3D_COLLECTIVES_HOST ||
            (axes == Z3D_AXES_WORLD && shared))
            continue;
        shared |= size == ranks;
        mib += RESERVE_NCCL;
    }
    return mib << 20;
}

static z3d_rank_memory own_memory(const z3d_trainer *trainer) {
    z3d_rank_memory out = {.rank = trainer->rank,
                           .arena_bytes = z3d_engine_arena_bytes(trainer->engine),
                           .buffer_bytes = buffer_bytes(trainer),
                           .outside = z3d_trainer_outside_bytes(trainer)};
    for (int s = 0; s < Z3D_SPACE_COUNT; s++) {
        out.planned[s] = *z3d_engine_planned(trainer->engine, (z3d_space)s);
        out.measured[s] = *z3d_engine_measured(trainer->engine, (z3d_space)s);
    }
    return out;
}

static int64_t planned_total(const z3d_rank_memory *memory) {
    int64_t bytes = 0;
    for (int s = 0; s < Z3D_SPACE_DISK; s++) bytes += memory->planned[s].total_peak;
    return bytes;
}

z3d_status z3d_trainer_find_memory(z3d_trainer *trainer, z3d_rank_memory *out) {
    int ranks = z3d_world_size(trainer->world);
    z3d_rank_memory *all = NULL;
    *out = own_memory(trainer);
    if (z3d_mesh_size(&trainer->mesh, Z3D_ROLE_STAGES) == 1 && !trainer->program.first_sample)
        return Z3D_OK;
    z3d_status status = z3d_new((size_t)ranks, sizeof *all, "the ranks' memory", &all);
    status = z3d_trainer_agree(trainer, status);
    z3d_trainer_wait_place(trainer);
    if (status == Z3D_OK) status = z3d_world_gather_all(trainer->world, out, all, sizeof *out);
    for (int rank = 0; rank < ranks && status == Z3D_OK; rank++)
        if (rank == 0 || planned_total(&all[rank]) > planned_total(out)) *out = all[rank];
    free(all);
    return status;
}
