/* The world: starting and ending MPI, finding nodes, small blocking helpers on host memory, and how
 * one rank's failure becomes everybody's. */
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "parallel/interface/internal.h"

enum { AGREE_BYTES = 1024 }; /* of a message that travels */

/* ---- making ---- */

static z3d_status start_mpi(int *argc, char ***argv, z3d_world *world) {
    int initialized = 0, finalized = 0, provided = 0;
    MPI_Finalized(&finalized);
    if (finalized)
        return Z3D_ERROR(Z3D_ERR_COMM, "MPI was already ended in this process; make one world");
    MPI_Initialized(&initialized);
    if (!initialized) {
        Z3D_TRY(z3d_mpi_check(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided),
                              "starting MPI"));
        world->owns_mpi = true;
        if (provided < MPI_THREAD_FUNNELED)
            return Z3D_ERROR(Z3D_ERR_COMM,
                             "this MPI library allows no second thread (thread level %d)",
                             provided);
    }
    Z3D_TRY(z3d_mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &world->comm), "a communicator"));
    world->mpi = true;
    MPI_Comm_set_errhandler(world->comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(world->comm, &world->rank);
    MPI_Comm_size(world->comm, &world->size);
    return world->size == 1 ? z3d_launcher_check_alone() : Z3D_OK;
}

/* Nodes are numbered by their lowest rank. */
static z3d_status find_nodes(z3d_world *world) {
    Z3D_TRY(z3d_new((size_t)world->size, sizeof(int), "the node map", &world->node));
    world->nodes = 1;
    world->local_size = 1;
    if (world->size == 1) return Z3D_OK;
    Z3D_TRY(z3d_mpi_check(MPI_Comm_split_type(world->comm, MPI_COMM_TYPE_SHARED, world->rank,
                                              MPI_INFO_NULL, &world->local),
                          "finding the ranks of this node"));
    int lowest = world->rank;
    MPI_Comm_rank(world->local, &world->local_rank);
    MPI_Comm_size(world->local, &world->local_size);
    Z3D_TRY(z3d_mpi_check(MPI_Bcast(&lowest, 1, MPI_INT, 0, world->local), "numbering nodes"));
    Z3D_TRY(z3d_world_gather_all(world, &lowest, world->node, sizeof(int)));
    world->nodes = 0;
    for (int rank = 0; rank < world->size; rank++) {
        lowest = world->node[rank];
        world->node[rank] = lowest == rank ? world->nodes++ : world->node[lowest];
    }
    return Z3D_OK;
}

static int usable_cores(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

static void free_world(z3d_world *world) {
    if (world->local != MPI_COMM_NULL) MPI_Comm_free(&world->local);
    if (world->comm != MPI_COMM_NULL) MPI_Comm_free(&world->comm);
    if (world->owns_mpi) MPI_Finalize();
    free(world->node);
    free(world);
}

z3d_status z3d_world_create(int *argc, char ***argv, z3d_world **out) {
    *out = NULL;
    bool launched = false;
    Z3D_TRY(z3d_launcher_detect(&launched));
    z3d_world *world = NULL;
    Z3D_TRY(z3d_new(1, sizeof *world, "the world", &world));
    world->size = 1;
    world->comm = world->local = MPI_COMM_NULL;
    world->cores = usable_cores();
    if (gethostname(world->hostname, sizeof world->hostname - 1) != 0)
        strcpy(world->hostname, "unknown");
    z3d_status status = Z3D_OK;
    if (launched) Z3D_TRY_GOTO(status, start_mpi(argc, argv, world), failed);
    Z3D_TRY_GOTO(status, find_nodes(world), failed);
    if (world->size > 1) Z3D_TRY_GOTO(status, z3d_side_open(world), failed);
    *out = world;
    return Z3D_OK;
failed:
    free_world(world);
    return status;
}

void z3d_world_destroy(z3d_world *world) {
    if (!world) return;
    z3d_side_close(world);
    free_world(world);
}

/* ---- asking ---- */

int z3d_world_rank(const z3d_world *world) {
    return world->rank;
}

int z3d_world_size(const z3d_world *world) {
    return world->size;
}

int z3d_world_node(const z3d_world *world, int rank) {
    return rank >= 0 && rank < world->size ? world->node[rank] : -1;
}

int z3d_world_nodes(const z3d_world *world) {
    return world->nodes;
}

int z3d_world_local_rank(const z3d_world *world) {
    return world->local_rank;
}

int z3d_world_local_size(const z3d_world *world) {
    return world->local_size;
}

const char *z3d_world_hostname(const z3d_world *world) {
    return world->hostname;
}

/* ---- helpers on host memory ---- */

/* Pending collectives of the groups move on meanwhile: another rank may need them before it comes
 * here. */
static z3d_status finish_request(z3d_world *world, MPI_Request *request, const char *what) {
    for (int64_t idle = 0;;) {
        int done = 0;
        Z3D_TRY(z3d_mpi_check(MPI_Test(request, &done, MPI_STATUS_IGNORE), what));
        if (done) return Z3D_OK;
        if (z3d_world_progress(world))
            idle = 0;
        else
            z3d_world_idle(world, idle++);
    }
}

z3d_status z3d_world_broadcast(z3d_world *world, void *data, int64_t bytes, int root) {
    enum { PIECE = 64 * 1024 * 1024 }; /* MPI counts are ints */
    static const char *const what = "broadcasting over the world";
    if (root < 0 || root >= world->size || bytes < 0)
        return Z3D_ERROR(Z3D_ERR_USAGE, "broadcast of %lld bytes from rank %d of %d",
                         (long long)bytes, root, world->size);
    if (world->size == 1) return Z3D_OK;
    for (int64_t at = 0; at < bytes; at += PIECE) {
        int piece = (int)(bytes - at < PIECE ? bytes - at : PIECE);
        MPI_Request request;
        Z3D_TRY(z3d_mpi_check(
            MPI_Ibcast((char *)data + at, piece, MPI_BYTE, root, world->comm, &request), what));
        Z3D_TRY(finish_request(world, &request, what));
    }
    return Z3D_OK;
}

z3d_status z3d_world_gather_all(z3d_world *world, const void *mine, void *all, int64_t bytes) {
    if (bytes < 0 || bytes > INT_MAX)
        return Z3D_ERROR(Z3D_ERR_USAGE, "gather_all is for small data, not %lld bytes a rank",
                         (long long)bytes);
    if (world->size == 1) {
        if (bytes > 0) memmove(all, mine, (size_t)bytes);
        return Z3D_OK;
    }
    static const char *const what = "gathering from the world";
    MPI_Request request;
    Z3D_TRY(z3d_mpi_check(MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE,
                                         world->comm, &request),
                          what));
    return finish_request(world, &request, what);
}

z3d_status z3d_world_agree(z3d_world *world, z3d_status status) {
    if (world->size == 1) return status;
    /* The lowest rank that failed speaks: all others are beyond the world's end. */
    int mine = status == Z3D_OK ? world->size : world->rank, first = 0;
    static const char *const what = "agreeing on a status";
    MPI_Request request;
    Z3D_TRY(z3d_mpi_check(MPI_Iallreduce(&mine, &first, 1, MPI_INT, MPI_MIN, world->comm, &request),
                          what));
    Z3D_TRY(finish_request(world, &request, what));
    if (first == world->size) return Z3D_OK;
    struct {
        int status;
        char message[AGREE_BYTES];
    } report = {.status = (int)status};
    snprintf(report.message, sizeof report.message, "%s", z3d_error_message());
    Z3D_TRY(z3d_world_broadcast(world, &report, sizeof report, first));
    return Z3D_ERROR((z3d_status)report.status, "rank %d: %s", first, report.message);
}

/* "rank 3: ..." at the front of an agreed message: it came from there. */
static bool names_a_rank(const char *message) {
    int end = 0;
    if (sscanf(message, "rank %*d:%n", &end) == EOF) return false;
    return end > 0;
}

void z3d_world_abort(z3d_world *world, z3d_status status, const char *message) {
    char line[AGREE_BYTES + 64];
    if (!message || !message[0]) message = z3d_status_text(status);
    if (names_a_rank(message))
        snprintf(line, sizeof line - 1, "zero3d: %s", message);
    else
        snprintf(line, sizeof line - 1, "zero3d: rank %d: %s", world->rank, message);
    for (char *c = line; *c; c++)
        if (*c == '\n') *c = ' ';
    strcat(line, "\n");
    fflush(NULL);
    if (world->side) z3d_side_abort(world, line);
    z3d_side_print(line);
    if (world->mpi) MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    _exit(EXIT_FAILURE);
}
