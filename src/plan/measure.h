/* Describes the machine that it runs on, by measuring: kernels as training launches them, copies,
 * and collectives over the ranks that were started. */
#ifndef ZERO3D_PLAN_MEASURE_H
#define ZERO3D_PLAN_MEASURE_H

#include "parallel/parallel.h"
#include "src/device/sim/hardware.h"

/* threads: of each rank, as in the runs to be predicted; every rank computes at the same time, so
 * what they share is in the numbers. memory_bytes: of one node. Collective over the world;
 * the result is the same on every rank (the slowest one's). About ten seconds. */
z3d_status z3d_measure_machine(z3d_world *world, int threads, double memory_bytes,
                               z3d_hardware *out);

#endif
