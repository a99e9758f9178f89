/* Measures the machine of this process: kernels as training launches them, copies, collectives over
 * all ranks, and a disk. */
#ifndef ZERO3D_PLAN_MEASURE_H
#define ZERO3D_PLAN_MEASURE_H

#include "parallel/parallel.h"
#include "src/device/sim/hardware.h"

/* Describes the machine. threads: of each rank, as in the runs to predict. All ranks compute at the
 * same time, so the numbers include the cost of sharing cores and memory. memory_bytes: of one
 * node. Collective over the world; every rank gets the slowest rank's result. About ten seconds.
 * ERR_USAGE: ZERO3D_MEASURE_TURNS is no number. */
z3d_status z3d_measure_machine(z3d_world *world, int threads, double memory_bytes,
                               z3d_hardware *out);

/* Measures the disk under `folder`. First as checkpoints use it: every rank writes its part of 256
 * MiB a node, syncs it, and reads it back from the disk, not from the page cache; all ranks at
 * once, about two seconds each way. Then as offload uses it: writes, reads, and both at once,
 * through the disk lane. The files have no name, so they vanish in any case. Sets disk_write,
 * disk_read, nvme_write, nvme_read and nvme_duplex. Collective over the world; all ranks return the
 * same status. ERR_IO (sets nothing): too little space, the folder is not writable, or the file
 * system keeps files in memory. */
z3d_status z3d_measure_disk(z3d_world *world, const char *folder, z3d_hardware *out);

#endif
