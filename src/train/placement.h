/* Chooses the cores that a rank computes on. */
#ifndef ZERO3D_TRAIN_PLACEMENT_H
#define ZERO3D_TRAIN_PLACEMENT_H

#include <stdint.h>

#include "parallel/parallel.h"
#include "src/base/base.h"

/* Divides the cores of a node among its ranks. *threads = `wanted`; for Z3D_AUTO, the number of
 * cores that this process may use, divided by the number of ranks of this node that may use the
 * same cores, at least 1. If every rank gets its own cores, this process is bound to its share.
 * (mpirun's binding would put all threads of a rank on one core; zero3d-launch turns it off.)
 * Collective over the world; failures are agreed. */
z3d_status z3d_place_threads(z3d_world *world, int64_t wanted, int *threads);

#endif
