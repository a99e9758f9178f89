/* Private to parallel/: messages over MPI. */
#ifndef ZERO3D_PARALLEL_MPI_H
#define ZERO3D_PARALLEL_MPI_H

#include "parallel/interface/internal.h"

/* Whether this build has MPI. */
extern const bool z3d_mpi_built;
/* Starts MPI, unless the caller has, and sets the world's transport, rank and size. If the
 * transport is set, the caller calls its `end`, also after an error. Collective over the launcher's
 * processes. Errors: ERR_COMM. */
z3d_status z3d_mpi_start(int *argc, char ***argv, z3d_world *world);

#endif
