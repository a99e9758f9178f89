/* Threads and cores. */
#include <hwloc.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "src/train/trainer.h"

/* The ranks of this node that may use the same cores: their number, and this rank's index among
 * them. */
static z3d_status find_sharers(z3d_world *world, int *sharers, int *place) {
    int size = z3d_world_size(world), rank = z3d_world_rank(world);
    cpu_set_t mine, *all = NULL;
    CPU_ZERO(&mine);
    sched_getaffinity(0, sizeof mine, &mine); /* more than 1024 CPUs: empty, and no binding */
    z3d_status status = z3d_new((size_t)size, sizeof mine, "the ranks' cores", &all);
    status = z3d_world_agree(world, status);
    if (status == Z3D_OK) status = z3d_world_gather_all(world, &mine, all, (int64_t)sizeof mine);
    *sharers = 1;
    *place = 0;
    for (int i = 0; i < size && status == Z3D_OK; i++) {
        if (z3d_world_node(world, i) != z3d_world_node(world, rank)) continue;
        if (i == rank || !CPU_EQUAL(&all[i], &mine)) continue;
        *place += i < rank;
        *sharers += 1;
    }
    free(all);
    return status;
}

/* Binds this process to its share of the allowed cores, if there are enough; *cores: the number of
 * allowed cores. */
static void place_on_cores(int64_t wanted, int sharers, int place, int *cores) {
    hwloc_topology_t topology;
    hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
    *cores = 1;
    if (!allowed) return;
    if (hwloc_topology_init(&topology) != 0) goto free_bitmap;
    if (hwloc_topology_load(topology) != 0 ||
        hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_PROCESS) != 0)
        goto destroy_topology;
    int found = hwloc_get_nbobjs_inside_cpuset_by_type(topology, allowed, HWLOC_OBJ_CORE);
    if (found < 1) found = hwloc_bitmap_weight(allowed);
    if (found > 1) *cores = found;
    int64_t needed = (wanted == Z3D_AUTO ? 1 : wanted) * sharers;
    if (sharers > 1 && needed <= *cores) {
        hwloc_obj_t root = hwloc_get_obj_covering_cpuset(topology, allowed);
        hwloc_bitmap_t *share = calloc((size_t)sharers, sizeof *share);
        if (share && root &&
            hwloc_distrib(topology, &root, 1, share, (unsigned)sharers, INT32_MAX, 0) == 0) {
            hwloc_bitmap_and(share[place], share[place], allowed);
            /* Binding is not necessary: after a failure the process stays unbound. */
            if (!hwloc_bitmap_iszero(share[place]))
                hwloc_set_cpubind(topology, share[place], HWLOC_CPUBIND_PROCESS);
        }
        for (int i = 0; share && i < sharers; i++) hwloc_bitmap_free(share[i]);
        free(share);
    }
destroy_topology:
    hwloc_topology_destroy(topology);
free_bitmap:
    hwloc_bitmap_free(allowed);
}

z3d_status z3d_place_threads(z3d_world *world, int64_t wanted, int *threads) {
    int sharers, place, cores;
    Z3D_TRY(find_sharers(world, &sharers, &place));
    place_on_cores(wanted, sharers, place, &cores);
    *threads = wanted != Z3D_AUTO ? (int)wanted : cores / sharers > 1 ? cores / sharers : 1;
    return Z3D_OK;
}
