/* Private to parallel/: finds out from the environment how this process was started. */
#ifndef ZERO3D_PARALLEL_LAUNCHER_H
#define ZERO3D_PARALLEL_LAUNCHER_H

#include "parallel/interface/internal.h"

typedef enum z3d_launcher_kind {
    Z3D_LAUNCHER_ALONE,
    Z3D_LAUNCHER_MPI,
    Z3D_LAUNCHER_TCP
} z3d_launcher_kind;

typedef struct z3d_launcher {
    z3d_launcher_kind kind;
    /* tcp: */
    int rank, size;
    char host[256]; /* where rank 0 is */
    int port;       /* rank 0 listens on it until all ranks have connected */
    uint64_t run;   /* Slurm's job and step: two runs with one port differ in it; 0: unknown */
    double seconds; /* ranks wait so long for each other */
    /* alone: the tasks and nodes of the Slurm job that did not start this process as a rank; else
     * 0 */
    int64_t tasks, nodes;
} z3d_launcher;

/* Finds the launcher: MPI's variables come first, then RANK, WORLD_SIZE, MASTER_ADDR and
 * MASTER_PORT, then srun's variables. Errors: ERR_COMM if the environment contradicts itself or
 * needs what this build lacks. */
z3d_status z3d_launcher_detect(z3d_launcher *out);
/* The same for a process that has the variables of an MPI launcher, but whose MPI library sees one
 * rank: another MPI's launcher may have started it, or the variables may come from the shell. */
z3d_status z3d_launcher_detect_beside_mpi(z3d_launcher *out);
/* The first host of Slurm's list: "n[07-09,12],m1" gives "n07". False: not such a list. */
bool z3d_hostlist_first(const char *list, char *out, size_t size);

#endif
