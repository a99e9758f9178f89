/* Private to parallel/: finds out from the environment how this process was started. */
#ifndef ZERO3D_PARALLEL_LAUNCHER_H
#define ZERO3D_PARALLEL_LAUNCHER_H

#include "parallel/interface/internal.h"

typedef enum z3d_launcher_way {
    Z3D_LAUNCHER_ALONE,
    Z3D_LAUNCHER_MPI,
    Z3D_LAUNCHER_TCP
} z3d_launcher_way;

typedef struct z3d_launcher {
    z3d_launcher_way way;
    /* tcp: */
    int rank, size;
    char host[256]; /* where rank 0 is */
    int port;       /* on which it listens until all have come */
    uint64_t run;   /* distinguishes runs that use one port, if anything does */
    double seconds; /* for which ranks wait for each other */
    /* alone: what Slurm's job has, where nobody chose one rank; else 0 */
    int64_t tasks, nodes;
} z3d_launcher;

/* Rank, size and place by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or by srun's variables.
 * ERR_COMM for an environment that contradicts itself, or that this build cannot follow. */
z3d_status z3d_launcher_detect(z3d_launcher *out);
/* The same for a process that an MPI launcher seems to have started, and whose MPI finds itself
 * alone: that launcher may be another MPI's, or the shell's that this process was started from. */
z3d_status z3d_launcher_detect_beside_mpi(z3d_launcher *out);
/* ERR_START for one process where Slurm's job has several tasks or nodes. */
z3d_status z3d_launcher_check_alone(int64_t tasks, int64_t nodes);
/* The first host of Slurm's list: "n[07-09,12],m1" gives "n07". False: no such list. */
bool z3d_hostlist_first(const char *list, char *out, size_t size);

#endif
