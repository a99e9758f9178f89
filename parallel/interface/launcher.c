/* How this process was started. Without a launcher MPI is not started at all: its singleton mode
 * forks a daemon, which fails or makes noise where that daemon is missing. */
#include <stdlib.h>

#include "parallel/interface/internal.h"

/* Set for every rank by Open MPI's mpirun, by PMIx launchers (prrte, srun --mpi=pmix), and by PMI
 * launchers (MPICH's and Intel's mpiexec, srun --mpi=pmi2). */
static const char *const launcher_marks[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK",
                                             "PMI_SIZE"};

/* Tasks that Slurm started as one step with this process, 0 when it is not a Slurm task. */
static int64_t slurm_tasks(void) {
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS");
    int64_t count = 0;
    if (!getenv("SLURM_PROCID")) return 0;
    if (!tasks) tasks = getenv("SLURM_NTASKS");
    if (!tasks || z3d_parse_int(tasks, &count) != Z3D_OK) return 0;
    return count;
}

z3d_status z3d_launcher_check_alone(void) {
    int64_t tasks = slurm_tasks();
    if (getenv("OMPI_COMM_WORLD_SIZE") || tasks <= 1) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_COMM,
                     "Slurm started %lld tasks, but MPI sees a world of 1: each would train alone; "
                     "start with srun --mpi=pmix (srun --mpi=list shows what is there) or with "
                     "mpirun",
                     (long long)tasks);
}

z3d_status z3d_launcher_detect(bool *launched) {
    *launched = false;
    for (size_t i = 0; i < sizeof launcher_marks / sizeof launcher_marks[0]; i++)
        if (getenv(launcher_marks[i])) *launched = true;
    return *launched ? Z3D_OK : z3d_launcher_check_alone();
}
