/* Describes the machine that it runs on, by measuring: kernels as training launches them, copies,
 * collectives over the ranks that were started, and a disk. */
#ifndef ZERO3D_PLAN_MEASURE_H
#define ZERO3D_PLAN_MEASURE_H

#include "parallel/parallel.h"
#include "src/device/sim/hardware.h"

/* threads: of each rank, as in the runs to predict. All ranks compute at the same time, so the
 * numbers include what they share. memory_bytes: of one node. Collective over the world; the result
 * is the same on every rank (the slowest one's). About ten seconds. */
z3d_status z3d_measure_machine(z3d_world *world, int threads, double memory_bytes,
                               z3d_hardware *out);

/* The disk under `folder`: every rank writes its part of 256 MiB a node as checkpoints are written,
 * syncs it, and reads it back, not from the page cache; all ranks at once, for about two seconds
 * each. Then the same as offload does it, through the disk lane, and both ways at once. The files
 * have no name while they exist, so nothing of them stays, whatever happens. Sets disk_write and
 * disk_read, nvme_write, nvme_read and nvme_duplex. Collective; agreed. ERR_IO (all stay as they
 * are): there is too little space,
 * the folder cannot be written to, or what is written there stays in memory. */
z3d_status z3d_measure_disk(z3d_world *world, const char *folder, z3d_hardware *out);

#endif
