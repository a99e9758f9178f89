/* Replaces mpi.c in a build without MPI. */
#include <stdio.h>

#include "parallel/interface/internal.h"

const bool z3d_mpi_built = false;

z3d_status z3d_mpi_start(int *argc, char ***argv, z3d_world *world) {
    (void)argc, (void)argv, (void)world;
    return Z3D_ERROR(Z3D_ERR_COMM, "zero3d was built without MPI");
}

void z3d_mpi_version(char *text, size_t size) {
    snprintf(text, size, "none: ranks connect over TCP");
}
