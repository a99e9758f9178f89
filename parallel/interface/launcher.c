/* Finds out how this process was started. Without a launcher zero3d does not start MPI: MPI's
 * singleton mode forks a daemon, and fails or prints messages if that daemon is missing. */
#include "parallel/interface/launcher.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Set for every rank by Open MPI's mpirun, by PMIx launchers (prrte, srun --mpi=pmix), and by PMI
 * launchers (MPICH's and Intel's mpiexec, srun --mpi=pmi2). */
static const char *const mpi_marks[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK",
                                        "PMI_SIZE"};

static const char *mpi_mark(void) {
    for (size_t i = 0; i < sizeof mpi_marks / sizeof mpi_marks[0]; i++)
        if (getenv(mpi_marks[i])) return mpi_marks[i];
    return NULL;
}

/* Whether the launcher says that it started one process only. */
static bool says_one(const char *name) {
    const char *tasks = getenv(name);
    return tasks && strcmp(tasks, "1") == 0;
}

/* The variable in which a launcher says that it started several processes, or NULL. */
static const char *says_several(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (getenv(names[i]) && !says_one(names[i])) return names[i];
    return NULL;
}

static z3d_status read_number(const char *name, int64_t least, int64_t most, int64_t *out) {
    const char *text = getenv(name);
    if (!text)
        return Z3D_ERROR(Z3D_ERR_COMM,
                         "%s is not set; ranks that start without MPI need RANK, WORLD_SIZE, "
                         "MASTER_ADDR and MASTER_PORT (srun sets its own); a single process needs "
                         "none of them",
                         name);
    if (z3d_parse_int(text, out) != Z3D_OK || *out < least || *out > most)
        return Z3D_ERROR(Z3D_ERR_COMM,
                         "%s=%.40s in the environment: expected a number from %lld to %lld", name,
                         text, (long long)least, (long long)most);
    return Z3D_OK;
}

static z3d_status read_host(z3d_launcher *out, const char *text, const char *name) {
    if (!text || !text[0])
        return Z3D_ERROR(Z3D_ERR_COMM, "%s is not set: the host or address where rank 0 runs",
                         name);
    if (strlen(text) >= sizeof out->host)
        return Z3D_ERROR(Z3D_ERR_COMM,
                         "%s in the environment is too long for a host name: %.40s...", name, text);
    snprintf(out->host, sizeof out->host, "%s", text);
    return Z3D_OK;
}

/* For how long ranks wait for each other at the start. */
static z3d_status read_seconds(z3d_launcher *out) {
    int64_t seconds = 120;
    if (getenv("ZERO3D_START_SECONDS"))
        Z3D_TRY(read_number("ZERO3D_START_SECONDS", 1, 86400, &seconds));
    out->seconds = (double)seconds;
    return Z3D_OK;
}

static z3d_status detect_variables(z3d_launcher *out) {
    int64_t rank = 0, size = 0, port = 0;
    Z3D_TRY(read_number("WORLD_SIZE", 1, INT_MAX, &size));
    Z3D_TRY(read_number("RANK", 0, size - 1, &rank));
    if (size == 1) return Z3D_OK;
    Z3D_TRY(read_host(out, getenv("MASTER_ADDR"), "MASTER_ADDR"));
    Z3D_TRY(read_number("MASTER_PORT", 1, 65535, &port));
    out->kind = Z3D_LAUNCHER_TCP;
    out->rank = (int)rank;
    out->size = (int)size;
    out->port = (int)port;
    return read_seconds(out);
}

bool z3d_hostlist_first(const char *list, char *out, size_t size) {
    size_t length = 0;
    for (; *list && *list != ','; list++) {
        if (*list == '[') {
            for (list++; *list >= '0' && *list <= '9'; list++) {
                if (length + 1 >= size) return false;
                out[length++] = *list;
            }
            list += strcspn(list, "]");
            if (!*list) return false;
        } else if (*list == ']' || *list <= ' ' || length + 1 >= size) {
            return false;
        } else {
            out[length++] = *list;
        }
    }
    out[length] = '\0';
    return length > 0;
}

/* Slurm's list is sorted, so its first host has task 0, unless the user chose another order. */
static z3d_status first_host(z3d_launcher *out) {
    const char *list = getenv("SLURM_STEP_NODELIST"), *own = getenv("SLURMD_NODENAME");
    if (getenv("MASTER_ADDR")) return read_host(out, getenv("MASTER_ADDR"), "MASTER_ADDR");
    if (!list || !z3d_hostlist_first(list, out->host, sizeof out->host))
        return Z3D_ERROR(Z3D_ERR_COMM,
                         "cannot read the first host from SLURM_STEP_NODELIST=%.80s; set "
                         "MASTER_ADDR to the host of rank 0",
                         list ? list : "");
    if (out->rank == 0 && own && strcmp(own, out->host) != 0)
        return Z3D_ERROR(Z3D_ERR_COMM,
                         "rank 0 runs on %.80s, but the first host of the Slurm step is %.80s; "
                         "set MASTER_ADDR to the host of rank 0",
                         own, out->host);
    return Z3D_OK;
}

/* Computes a port from the job and the step: two steps rarely have the same one. By default the
 * kernel assigns no ports of this range. */
static z3d_status step_port(z3d_launcher *out) {
    enum { FIRST_PORT = 20000, PORTS = 10000 };
    int64_t job = 0, step = 0, port;
    Z3D_TRY(read_number("SLURM_JOB_ID", 0, UINT32_MAX, &job));
    Z3D_TRY(read_number("SLURM_STEP_ID", 0, UINT32_MAX, &step));
    out->run = (uint64_t)job << 32 | (uint64_t)step;
    port = FIRST_PORT + (job * 31 + step) % PORTS;
    if (getenv("MASTER_PORT")) Z3D_TRY(read_number("MASTER_PORT", 1, 65535, &port));
    out->port = (int)port;
    return Z3D_OK;
}

static z3d_status read_if_set(const char *name, int64_t *out) {
    return getenv(name) ? read_number(name, 1, INT_MAX, out) : Z3D_OK;
}

/* Reads the number of tasks and nodes of this process's step or job. In a task of srun SLURM_NTASKS
 * and SLURM_NNODES describe the step. In other processes they describe the job. There, SLURM_STEP_*
 * variables come from another shell (the one that submitted the job, or that salloc started).
 * Without --ntasks every node has one task: SLURM_TASKS_PER_NODE may then count processors, so it
 * is not read. */
static z3d_status read_job(z3d_launcher *out) {
    bool step = getenv("SLURM_STEP_NUM_TASKS") != NULL;
    int64_t a_node = 1, parts = 1;
    out->nodes = 1;
    Z3D_TRY(read_if_set("SLURM_NNODES", &out->nodes));
    if (!step) Z3D_TRY(read_if_set("SLURM_NTASKS_PER_NODE", &a_node));
    if (!step) Z3D_TRY(read_if_set("SLURM_HET_SIZE", &parts));
    if (out->nodes < parts) out->nodes = parts;
    out->tasks = a_node * out->nodes;
    Z3D_TRY(read_if_set("SLURM_NTASKS", &out->tasks));
    if (out->tasks < out->nodes) out->tasks = out->nodes;
    return Z3D_OK;
}

/* Uses srun's variables only. */
static z3d_status detect_slurm(z3d_launcher *out) {
    int64_t rank = 0, size = 1;
    if (!getenv("SLURM_JOB_ID") && !getenv("SLURM_PROCID")) return Z3D_OK;
    /* In a rank of mpirun srun's variables describe the task that started mpirun's daemon. */
    if (getenv("OMPI_COMM_WORLD_SIZE")) return Z3D_OK;
    Z3D_TRY(read_if_set("SLURM_STEP_NUM_TASKS", &size));
    if (size == 1) return read_job(out);
    Z3D_TRY(read_number("SLURM_PROCID", 0, size - 1, &rank));
    out->rank = (int)rank;
    out->size = (int)size;
    Z3D_TRY(first_host(out));
    Z3D_TRY(step_port(out));
    out->kind = Z3D_LAUNCHER_TCP;
    return read_seconds(out);
}

z3d_status z3d_launcher_detect(z3d_launcher *out) {
    const char *mark = mpi_mark();
    *out = (z3d_launcher){.kind = Z3D_LAUNCHER_ALONE};
    if (mark && z3d_mpi_built) {
        out->kind = Z3D_LAUNCHER_MPI;
        return Z3D_OK;
    }
    if (getenv("RANK") || getenv("WORLD_SIZE")) return detect_variables(out);
    Z3D_TRY(detect_slurm(out));
    /* says_several decides first: in a rank of mpirun, SLURM_STEP_NUM_TASKS describes the step that
     * started mpirun's daemon. */
    bool one = !says_several() && (says_one("OMPI_COMM_WORLD_SIZE") || says_one("PMI_SIZE") ||
                                   says_one("SLURM_STEP_NUM_TASKS"));
    if (mark && out->kind == Z3D_LAUNCHER_ALONE && !one)
        return Z3D_ERROR(
            Z3D_ERR_COMM,
            "an MPI launcher started this process (%s is set), but zero3d was built "
            "without MPI; start with srun, with ZERO3D_LAUNCH=tcp and zero3d-launch, or with "
            "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set for every rank",
            mark);
    return Z3D_OK;
}

z3d_status z3d_launcher_detect_beside_mpi(z3d_launcher *out) {
    const char *several = says_several();
    *out = (z3d_launcher){.kind = Z3D_LAUNCHER_ALONE};
    if (!getenv("OMPI_COMM_WORLD_SIZE") && getenv("RANK") && getenv("WORLD_SIZE"))
        Z3D_TRY(detect_variables(out));
    else
        Z3D_TRY(detect_slurm(out));
    if (several && out->kind == Z3D_LAUNCHER_ALONE)
        return Z3D_ERROR(Z3D_ERR_COMM,
                         "an MPI launcher started %.20s ranks (%s), but the MPI library of this "
                         "build finds only one; start with the mpirun of that library, with "
                         "srun, or with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set",
                         getenv(several), several);
    return Z3D_OK;
}

int z3d_launched_rank(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK",
                                        "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        int64_t rank;
        const char *text = getenv(names[i]);
        if (strcmp(names[i], "RANK") == 0 && !getenv("WORLD_SIZE")) continue;
        if (text) return z3d_parse_int(text, &rank) == Z3D_OK && rank < INT_MAX ? (int)rank : 0;
    }
    return 0;
}
