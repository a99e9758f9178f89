/* The world: chooses the transport, finds nodes, has small blocking helpers on host memory, and
 * spreads one rank's failure to all. */
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "parallel/interface/internal.h"
#include "parallel/interface/launcher.h"
#include "parallel/tcp/tcp.h"

enum { AGREE_BYTES = 1024 }; /* of an error message that ranks send each other */

/* ---- starting ---- */

/* Before the ranks are connected only this rank knows of its failure: ERR_START. Exception: rank 0
 * has reported the failure, so all know it. */
static z3d_status alone(z3d_status status) {
    return status == Z3D_OK || status == Z3D_ERR_PEER ? status : Z3D_ERR_START;
}

static void end_transport(z3d_world *world) {
    if (world->transport && world->transport->end) world->transport->end(world);
    world->transport = NULL;
}

/* Makes the launcher's world over MPI or TCP, or a world of one rank. */
static z3d_status start(int *argc, char ***argv, z3d_world *world) {
    z3d_launcher launch;
    Z3D_TRY(alone(z3d_launcher_detect(&launch)));
    if (launch.kind == Z3D_LAUNCHER_MPI) {
        Z3D_TRY(z3d_mpi_start(argc, argv, world));
        if (world->size > 1) return Z3D_OK;
        Z3D_TRY(alone(z3d_launcher_detect_beside_mpi(&launch)));
    }
    world->job_tasks = launch.tasks;
    world->job_nodes = launch.nodes;
    if (launch.kind != Z3D_LAUNCHER_TCP) return Z3D_OK;
    end_transport(world);
    return alone(z3d_tcp_start(world, &launch));
}

static z3d_status open_channel(z3d_world *world) {
    int *members = NULL;
    Z3D_TRY(z3d_new((size_t)world->size, sizeof *members, "members", &members));
    for (int rank = 0; rank < world->size; rank++) members[rank] = rank;
    z3d_status status = z3d_channel_open(world, members, world->size, world->rank, &world->channel);
    free(members);
    return status;
}

/* ---- nodes ---- */

/* Processes with equal identities are on one node: equal host names, equal boot ids (which no two
 * machines share), and the same /dev/shm (which two containers of one machine do not share). */
typedef struct identity {
    char host[64], boot[40];
    uint64_t shared;
} identity;

static void identify(const z3d_world *world, identity *out) {
    struct stat at;
    memset(out, 0, sizeof *out);
    memcpy(out->host, world->hostname, sizeof out->host);
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file && !fgets(out->boot, sizeof out->boot, file)) out->boot[0] = '\0';
    if (file) fclose(file);
    if (stat("/dev/shm", &at) == 0) out->shared = (uint64_t)at.st_dev;
}

/* Nodes are numbered by their lowest rank. */
static void number_nodes(z3d_world *world, const identity *all) {
    world->nodes = 0;
    for (int rank = 0; rank < world->size; rank++) {
        int other = 0;
        while (memcmp(&all[other], &all[rank], sizeof *all) != 0) other++;
        world->node[rank] = other == rank ? world->nodes++ : world->node[other];
    }
}

static z3d_status open_local(z3d_world *world, int *members) {
    world->local_size = 0;
    for (int rank = 0; rank < world->size; rank++) {
        if (world->node[rank] != world->node[world->rank]) continue;
        if (rank == world->rank) world->local_rank = world->local_size;
        members[world->local_size++] = rank;
    }
    return z3d_channel_open(world, members, world->local_size, world->local_rank, &world->local);
}

static z3d_status find_nodes(z3d_world *world) {
    size_t size = (size_t)world->size;
    identity mine, *all = NULL;
    int *members = NULL;
    z3d_status status = z3d_new(size, sizeof *all, "the nodes", &all);
    if (status == Z3D_OK) status = z3d_new(size, sizeof *members, "the nodes", &members);
    Z3D_TRY_GOTO(status, z3d_world_agree(world, status), end);
    identify(world, &mine);
    Z3D_TRY_GOTO(status, z3d_world_gather_all(world, &mine, all, sizeof mine), end);
    number_nodes(world, all);
    status = open_local(world, members);
end:
    free(members);
    free(all);
    return status;
}

/* ---- making ---- */

static int usable_cores(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

static void free_world(z3d_world *world) {
    z3d_channel_close(world->local);
    z3d_channel_close(world->channel);
    end_transport(world);
    free(world->node);
    free(world);
}

z3d_status z3d_world_create_or_alone(int *argc, char ***argv, z3d_world **out) {
    *out = NULL;
    z3d_world *world = NULL;
    Z3D_TRY(z3d_new(1, sizeof *world, "the world", &world));
    world->size = 1;
    world->nodes = 1;
    world->local_size = 1;
    world->cores = usable_cores();
    if (gethostname(world->hostname, sizeof world->hostname - 1) != 0)
        strcpy(world->hostname, "unknown");
    z3d_status status = Z3D_OK;
    Z3D_TRY_GOTO(status, start(argc, argv, world), failed);
    Z3D_TRY_GOTO(status, z3d_new((size_t)world->size, sizeof(int), "the node map", &world->node),
                 failed);
    if (world->size > 1) {
        Z3D_TRY_GOTO(status, open_channel(world), failed);
        Z3D_TRY_GOTO(status, find_nodes(world), failed);
        Z3D_TRY_GOTO(status, z3d_side_open(world), failed);
    }
    *out = world;
    return Z3D_OK;
failed:
    free_world(world);
    return status;
}

z3d_status z3d_world_check_alone(const z3d_world *world) {
    if (world->size > 1 || world->job_tasks <= 1) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_START,
                     "this Slurm job has %lld tasks on %lld node%s, but srun did not start this "
                     "process, so it would train alone; start it with: srun zero3d ...; to run "
                     "one rank on purpose, set RANK=0 and WORLD_SIZE=1",
                     (long long)world->job_tasks, (long long)world->job_nodes,
                     z3d_plural(world->job_nodes));
}

z3d_status z3d_world_create(int *argc, char ***argv, z3d_world **out) {
    Z3D_TRY(z3d_world_create_or_alone(argc, argv, out));
    z3d_status status = z3d_world_check_alone(*out);
    if (status == Z3D_OK) return Z3D_OK;
    z3d_world_destroy(*out);
    *out = NULL;
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

z3d_status z3d_world_broadcast(z3d_world *world, void *data, int64_t bytes, int root) {
    if (root < 0 || root >= world->size || bytes < 0)
        return Z3D_ERROR(Z3D_ERR_USAGE, "invalid broadcast: %lld bytes from rank %d of %d",
                         (long long)bytes, root, world->size);
    return world->size == 1 ? Z3D_OK : z3d_channel_broadcast(world->channel, data, bytes, root);
}

z3d_status z3d_world_gather_all(z3d_world *world, const void *mine, void *all, int64_t bytes) {
    if (bytes < 0 || bytes > INT_MAX)
        return Z3D_ERROR(Z3D_ERR_USAGE, "gather_all is for small data, not %lld bytes a rank",
                         (long long)bytes);
    if (world->size > 1) return z3d_channel_gather_all(world->channel, mine, all, bytes);
    if (bytes > 0) memmove(all, mine, (size_t)bytes);
    return Z3D_OK;
}

z3d_status z3d_world_any(z3d_world *world, bool mine, bool *any) {
    int none = !mine;
    if (world->size > 1) Z3D_TRY(z3d_channel_min(world->channel, &none));
    *any = !none;
    return Z3D_OK;
}

z3d_status z3d_world_agree(z3d_world *world, z3d_status status) {
    if (world->size == 1) return status;
    struct {
        int status;
        char message[AGREE_BYTES];
    } report = {.status = (int)status};
    if (status != Z3D_OK)
        snprintf(report.message, sizeof report.message, "%s", z3d_error_message());
    /* The lowest rank that failed sends its message; a rank without a failure votes `size`. */
    int first = status == Z3D_OK ? world->size : world->rank;
    Z3D_TRY(z3d_channel_min(world->channel, &first));
    if (first == world->size) return Z3D_OK;
    Z3D_TRY(z3d_channel_broadcast(world->channel, &report, sizeof report, first));
    /* Now all ranks know of the failure. */
    if (report.status == Z3D_ERR_START) report.status = Z3D_ERR_PEER;
    return Z3D_ERROR((z3d_status)report.status, "rank %d: %s", first, report.message);
}

/* Whether a message begins with "rank 3: ", as z3d_world_agree writes it. */
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
    if (world->transport && world->transport->abort) world->transport->abort(world);
    _exit(EXIT_FAILURE);
}
