/* Private to parallel/: messages over MPI. */
#ifndef ZERO3D_PARALLEL_MPI_H
#define ZERO3D_PARALLEL_MPI_H

#include "parallel/interface/internal.h"

/* Whether this build has it. */
extern const bool z3d_mpi_built;
/* Starts MPI, unless the caller has: the world's transport, rank and size. Also after an error the
 * transport, if set, wants its end. */
z3d_status z3d_mpi_start(int *argc, char ***argv, z3d_world *world);

#endif
