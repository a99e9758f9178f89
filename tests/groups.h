// Process groups that outlive a test: the next one on an equal mesh takes them. To make them takes
// longer than a tiny model's training.
#ifndef ZERO3D_TESTS_GROUPS_H
#define ZERO3D_TESTS_GROUPS_H

extern "C" {
#include "parallel/parallel.h"
}

namespace groups {

// As z3d_groups_create() on the tests' world, as new: no traffic, and nothing kept for the next
// operation. Collective.
z3d_status take(const z3d_mesh &mesh, z3d_device *device, z3d_group *group[Z3D_AXES_COUNT]);

// What take() gave, or NULL; the device may go then.
void give_back(z3d_group *group[Z3D_AXES_COUNT]);

// Before the world ends.
void destroy_all();

} // namespace groups

#endif
