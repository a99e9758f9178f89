/* Which cores a rank computes on. */
#ifndef ZERO3D_TRAIN_PLACEMENT_H
#define ZERO3D_TRAIN_PLACEMENT_H

#include <stdint.h>

#include "parallel/parallel.h"
#include "src/base/base.h"

/* Shares the cores of a node among its ranks: *threads = `wanted`, or for Z3D_AUTO the cores this
 * process may use divided by the ranks of this node that may use the same ones, at least 1. If
 * every rank gets its own cores, this process is bound to its share. (mpirun's binding would put
 * all threads of a rank on one core; zero3d-launch turns it off.) Collective over the world;
 * failures are agreed. */
z3d_status z3d_place_threads(z3d_world *world, int64_t wanted, int *threads);

#endif
