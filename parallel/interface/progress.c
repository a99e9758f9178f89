/* Progress: one engine per world advances the pending operations of all its groups. Waits call the
 * engine; so do long kernels between two tiles, through the device's poll. The engine belongs to
 * the world because several groups share one device and its only poll. */
#include <sched.h>
#include <time.h>

#include "parallel/interface/internal.h"

bool z3d_world_progress(z3d_world *world) {
    if (world->progressing) return false;
    world->progressing = true;
    bool carried = world->transport && world->transport->progress;
    bool moved = carried && world->transport->progress(world);
    for (z3d_group *group = world->groups; group; group = group->next) {
        if (group->pending == 0 || group->broken.status != Z3D_OK || !group->ops->progress)
            continue;
        z3d_status status = group->ops->progress(group, &moved);
        if (status != Z3D_OK) {
            group->broken = z3d_error_keep(status);
            moved = true;
        }
    }
    world->progressing = false;
    return moved;
}

void z3d_world_poll(void *world) {
    z3d_world_progress(world);
}

void z3d_world_idle(const z3d_world *world, int64_t idle) {
    enum { SPINS = 64, SPINS_ALONE = 20000, YIELDS = 100, SLEEP_NS = 50000 };
    /* With more ranks than cores, a rank that spins takes the core of a rank that computes. */
    bool crowded = world->local_size > world->cores;
    if (idle < (crowded ? SPINS : SPINS_ALONE)) {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#endif
    } else if (!crowded || idle < SPINS + YIELDS) {
        sched_yield();
    } else {
        nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    }
}
