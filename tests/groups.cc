#include "tests/groups.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/ranks.h"

extern "C" {
#include "parallel/interface/internal.h"
}

namespace groups {

namespace {

using Set = std::array<z3d_group *, Z3D_AXES_COUNT>;

std::vector<Set> idle;

// Any of a set: all have the mesh.
const z3d_group *first_of(const Set &set) {
    for (const z3d_group *g : set)
        if (g) return g;
    return nullptr;
}

bool is_sound(const Set &set) {
    for (const z3d_group *g : set)
        if (g && (g->pending > 0 || g->live || g->broken.status != Z3D_OK)) return false;
    return first_of(set) != nullptr;
}

void renew(z3d_group *g, z3d_device *device) {
    while (z3d_operation *operation = g->free) {
        g->free = operation->next;
        z3d_staging_free(g, operation);
        free(operation);
    }
    memset(g->traffic, 0, sizeof g->traffic);
    g->device = device;
    z3d_device_set_poll(device, z3d_world_poll, world);
}

} // namespace

z3d_status take(const z3d_mesh &mesh, z3d_device *device, z3d_group *group[Z3D_AXES_COUNT]) {
    auto found = idle.begin();
    while (found != idle.end() && memcmp(&first_of(*found)->mesh, &mesh, sizeof mesh) != 0) found++;
    // One rank's groups may have broken.
    z3d_status status = found != idle.end() ? Z3D_OK : Z3D_ERROR(Z3D_ERR_USAGE, "no such groups");
    if (z3d_world_agree(world, status) != Z3D_OK)
        return z3d_groups_create(world, &mesh, device, group);
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++) {
        group[axes] = (*found)[(size_t)axes];
        if (group[axes]) renew(group[axes], device);
    }
    idle.erase(found);
    return Z3D_OK;
}

void give_back(z3d_group *group[Z3D_AXES_COUNT]) {
    Set set;
    std::copy_n(group, set.size(), set.begin());
    if (!is_sound(set)) return z3d_groups_destroy(group);
    for (z3d_group *&g : set) {
        if (g) g->device = nullptr;
    }
    std::fill_n(group, set.size(), nullptr);
    idle.push_back(set);
}

void destroy_all() {
    for (Set &set : idle) z3d_groups_destroy(set.data());
    idle.clear();
}

} // namespace groups
